//! Exact sums of decimals.
//!
//! Every decimal that an effect can carry, of up to 64 characters, is taken to the last digit, and
//! so is the sum of as many of them as there can be rows. So adding is exact, and in any order.

use std::fmt;

/// Digits of a limb.
const DIGITS: usize = 18;
const BASE: i64 = 1_000_000_000_000_000_000;
/// Limbs after the point: 72 digits.
const FRACTION: usize = 4;
/// With 90 digits before it: 64 of the greatest decimal, and 19 of the number of rows.
const LIMBS: usize = FRACTION + 5;
/// Of a sum, before the point.
const WHOLE_DIGITS_MAX: usize = 64 + 19;
/// After it.
const FRACTION_DIGITS_MAX: usize = FRACTION * DIGITS;

/// A decimal. The least limb is the first; all are at least 0 and below the base, but for the last,
/// which has the sign.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount([i64; LIMBS]);

impl Amount {
    /// Of a plain decimal, such as `-9.99`. Empty is 0; `None` if it is none.
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

    /// As a number of its least digits, modulo a number below 2^62.
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

/// At most so many digits as a limb has.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    })
}

impl fmt::Display for Amount {
    /// Without a zero that says nothing: `-9.9`, `0`.
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
    use proptest::prelude::*;

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
    fn decimals_are_shown_without_needless_zeros() {
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
    fn what_is_no_decimal_is_none() {
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
    fn the_greatest_decimal_can_be_that_of_every_row_that_there_can_be() {
        let mut sum = amount(&format!("-{}", "9".repeat(63)));
        // Doubled as often as the number of rows has bits.
        for _ in 0..63 {
            let same = sum;
            sum.add(&same);
        }
        assert!(sum.to_string().starts_with("-9223372036854775807"));
        // Counts are kept as texts.
        assert_eq!(Amount::parse(&sum.to_string()), Some(sum));
    }

    fn decimal() -> impl Strategy<Value = String> {
        "[+-]?[0-9]{1,30}(\\.[0-9]{1,30})?"
    }

    proptest! {
        #[test]
        fn the_order_makes_no_difference(mut texts in prop::collection::vec(decimal(), 1..20)) {
            let sum = |texts: &[String]| {
                let mut sum = Amount::default();
                texts.iter().for_each(|text| sum.add(&amount(text)));
                sum
            };
            let forward = sum(&texts);
            texts.reverse();
            prop_assert_eq!(sum(&texts), forward);
            let (left, right) = texts.split_at(texts.len() / 2);
            let (mut halves, right) = (sum(left), sum(right));
            halves.add(&right);
            prop_assert_eq!(halves, forward);
            prop_assert_eq!(amount(&forward.to_string()), forward);
            let mut nothing = forward.negated();
            nothing.add(&forward);
            prop_assert!(nothing.is_zero());
        }
    }
}
