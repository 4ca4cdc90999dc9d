//! Exact sums of decimals.
//!
//! An amount has enough digits for any decimal that an effect can carry (64 characters), and for the sum of 2^63 of
//! them. So sums are exact and do not depend on the order of additions.

use std::fmt;

/// Decimal digits per limb.
const DIGITS: usize = 18;
const BASE: i64 = 1_000_000_000_000_000_000;
/// Limbs after the point: 72 digits.
const FRACTION: usize = 4;
/// 90 digits before the point: 64 of the greatest decimal, and 19 of the number of rows.
const LIMBS: usize = FRACTION + 5;
/// Digits of a sum before the point.
const WHOLE_DIGITS_MAX: usize = 64 + 19;
/// Digits of a sum after the point.
const FRACTION_DIGITS_MAX: usize = FRACTION * DIGITS;

/// A decimal as little-endian limbs. All are at least 0 and below `BASE`, except for the last one, which has the sign.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount([i64; LIMBS]);

impl Amount {
    /// Parses a plain decimal such as `-9.99`. An empty text is 0; `None` if the text is not a decimal.
    pub fn parse(text: &str) -> Option<Self> {
        let is_negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        if whole.len() > WHOLE_DIGITS_MAX || fraction.len() > FRACTION_DIGITS_MAX {
            return None;
        }
        let mut limbs = [0; LIMBS];
        for (limb, digits) in limbs[FRACTION..].iter_mut().zip(whole.as_bytes().rchunks(DIGITS)) {
            *limb = number(digits)?;
        }
        for (limb, digits) in
            limbs[..FRACTION].iter_mut().rev().zip(fraction.as_bytes().chunks(DIGITS))
        {
            *limb = number(digits)? * 10_i64.pow((DIGITS - digits.len()) as u32);
        }
        let amount = Self(limbs);
        Some(if is_negative { amount.negated() } else { amount })
    }

    pub fn add(&mut self, other: &Self) {
        for (limb, other) in self.0.iter_mut().zip(other.0) {
            *limb += other;
        }
        self.carry();
    }

    pub fn negated(&self) -> Self {
        let mut negated = Self(self.0.map(|limb| -limb));
        negated.carry();
        negated
    }

    pub fn is_zero(&self) -> bool {
        self.0 == [0; LIMBS]
    }

    /// The amount in units of its last digit, modulo a number below 2^62.
    pub fn modulo(&self, number: u64) -> u64 {
        let (wide, base) = (i128::from(number), i128::from(BASE));
        let add = |sum: i128, limb: &i64| (sum * base + i128::from(*limb)).rem_euclid(wide);
        self.0.iter().rev().fold(0, add) as u64
    }

    fn carry(&mut self) {
        let mut carried = 0;
        let Some((last, limbs)) = self.0.split_last_mut() else { return };
        for limb in limbs {
            let sum = *limb + carried;
            (carried, *limb) = (sum.div_euclid(BASE), sum.rem_euclid(BASE));
        }
        *last += carried;
    }
}

/// Parses at most [`DIGITS`] digits.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    })
}

impl fmt::Display for Amount {
    /// The shortest form: `-9.9`, `0`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_negative = self.0[LIMBS - 1] < 0;
        let Self(limbs) = if is_negative { self.negated() } else { *self };
        let (fraction, whole) = limbs.split_at(FRACTION);
        let first = whole.iter().rposition(|limb| *limb != 0).unwrap_or(0);
        write!(out, "{}{}", if is_negative { "-" } else { "" }, whole[first])?;
        for limb in whole[..first].iter().rev() {
            write!(out, "{limb:018}")?;
        }
        let Some(last) = fraction.iter().position(|limb| *limb != 0) else { return Ok(()) };
        out.write_str(".")?;
        for limb in fraction[last + 1..].iter().rev() {
            write!(out, "{limb:018}")?;
        }
        let digits = format!("{:018}", fraction[last]);
        out.write_str(digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(amount(text).to_string(), expected);
    }

    #[track_caller]
    fn check_sum(texts: &[&str], expected: &str) {
        let mut sum = Amount::default();
        texts.iter().for_each(|text| sum.add(&amount(text)));
        assert_eq!(sum.to_string(), expected);
        assert_eq!(sum, amount(expected), "one form for one value");
    }

    #[test]
    fn decimals_are_displayed_without_needless_zeros() {
        check("", "0");
        check("-0.00", "0");
        check("+007.50", "7.5");
        check("-9.99", "-9.99");
        check("1000000000000000000", "1000000000000000000");
        check("0.0000000000000000001", "0.0000000000000000001");
        let (nines, ones) = ("9".repeat(64), "1".repeat(61));
        check(&nines, &nines);
        check(&format!("-{}", &nines[1..]), &format!("-{}", &nines[1..]));
        check(&format!("-0.{ones}"), &format!("-0.{ones}"));
    }

    #[test]
    fn other_texts_are_not_parsed() {
        for text in ["x", "1e3", "1.2.3", "--1", " 1", "1 ", "٣"] {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
        assert_eq!(Amount::parse(&"9".repeat(84)), None);
    }

    #[test]
    fn sums_are_exact() {
        check_sum(&["0.1", "0.2"], "0.3");
        check_sum(&["1", "-0.000000000000000000000000000001"], "0.999999999999999999999999999999");
        check_sum(&["9.99", "-9.99"], "0");
        check_sum(&["-5", "2.5"], "-2.5");
        check_sum(&[&"9".repeat(64), "1"], &format!("1{}", "0".repeat(64)));
    }

    #[test]
    fn the_greatest_decimal_does_not_overflow_in_the_greatest_number_of_rows() {
        let mut sum = amount(&format!("-{}", "9".repeat(63)));
        // 2^63 times the decimal.
        for _ in 0..63 {
            let addend = sum;
            sum.add(&addend);
        }
        assert!(sum.to_string().starts_with("-9223372036854775807"));
        // Amounts are stored as text.
        assert_eq!(Amount::parse(&sum.to_string()), Some(sum));
    }
}
