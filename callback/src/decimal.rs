//! Plain decimals of any length, exact.

use std::cmp::Ordering;

/// A decimal of at most 64 characters: an optional sign, digits, and optionally a point and further digits.
struct Parts<'a> {
    is_negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    /// Without trailing zeros.
    fraction: &'a str,
}

fn parse(text: &str) -> Option<Parts<'_>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if text.len() > 64 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let is_zero = whole.is_empty() && fraction.is_empty();
    Some(Parts { is_negative: text.starts_with('-') && !is_zero, whole, fraction })
}

/// Compares two decimals; `None` if one of them is not a decimal.
pub(crate) fn compare(a: &str, b: &str) -> Option<Ordering> {
    let (a, b) = (parse(a)?, parse(b)?);
    let magnitude = || {
        let whole = a.whole.len().cmp(&b.whole.len()).then(a.whole.cmp(b.whole));
        // Without trailing zeros, the order of the texts is that of the fractions.
        whole.then(a.fraction.cmp(b.fraction))
    };
    Some(match (a.is_negative, b.is_negative) {
        (false, false) => magnitude(),
        (true, true) => magnitude().reverse(),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    })
}

/// Checks whether a decimal is less than 0.
pub(crate) fn is_negative(text: &str) -> bool {
    parse(text).is_some_and(|parts| parts.is_negative)
}

/// Returns a decimal in hundredths, rounded half up; `None` if it is not a decimal.
pub(crate) fn cents(text: &str) -> Option<String> {
    let Parts { is_negative, whole, fraction } = parse(text)?;
    let (kept, rest) = fraction.split_at(fraction.len().min(2));
    let mut digits: Vec<u8> = format!("0{whole}{kept:0<2}").into_bytes();
    if rest.bytes().next().is_some_and(|digit| digit >= b'5') {
        // The leading zero takes the last carry.
        for digit in digits.iter_mut().rev() {
            if *digit == b'9' {
                *digit = b'0';
            } else {
                *digit += 1;
                break;
            }
        }
    }
    let digits: String = digits.into_iter().map(char::from).collect();
    Some(match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits if is_negative => format!("-{digits}"),
        digits => digits.to_owned(),
    })
}

/// Returns a decimal with two places, rounded half up; `None` if it is not a decimal.
pub(crate) fn two_places(text: &str) -> Option<String> {
    let cents = cents(text)?;
    let (sign, digits) = cents.strip_prefix('-').map_or(("", &*cents), |digits| ("-", digits));
    let digits = format!("{digits:0>3}");
    let (whole, fraction) = digits.split_at(digits.len() - 2);
    Some(format!("{sign}{whole}.{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected_cents: &str, expected: &str) {
        assert_eq!(cents(text).as_deref(), Some(expected_cents), "{text}");
        assert_eq!(two_places(text).as_deref(), Some(expected), "{text}");
    }

    #[test]
    fn decimals_are_multiplied_exactly() {
        check("9.99", "999", "9.99");
        check("0", "0", "0.00");
        check("-0.00", "0", "0.00");
        check("6", "600", "6.00");
        check("+0.5", "50", "0.50");
        check("0.05", "5", "0.05");
        check("1.005", "101", "1.01");
        check("9.995", "1000", "10.00");
        check("1.00499", "100", "1.00");
        check("-1.5", "-150", "-1.50");
        check("007.1", "710", "7.10");
        check(
            "123456789012345678901234567890.12",
            "12345678901234567890123456789012",
            "123456789012345678901234567890.12",
        );
    }

    #[test]
    fn other_texts_are_no_decimals() {
        for text in ["", ".", "1.", ".5", "1e3", "a", "1,0", "--1", &*"1".repeat(65)] {
            assert_eq!((cents(text), two_places(text)), (None, None), "{text}");
            assert_eq!(compare(text, "1"), None, "{text}");
        }
    }

    #[test]
    fn decimals_are_compared_by_value() {
        let check = |a: &str, b: &str, expected: Ordering| {
            assert_eq!(compare(a, b), Some(expected), "{a} {b}");
            assert_eq!(compare(b, a), Some(expected.reverse()), "{b} {a}");
        };
        check("6", "6.00", Ordering::Equal);
        check("06.0", "+6", Ordering::Equal);
        check("5.99", "6", Ordering::Less);
        check("10", "9.9", Ordering::Greater);
        check("0.1", "0.09", Ordering::Greater);
        check("0.1", "0.11", Ordering::Less);
        check("-1", "0", Ordering::Less);
        check("-2", "-1", Ordering::Less);
        check("-0", "0.0", Ordering::Equal);
    }

    #[test]
    fn a_decimal_below_zero_is_negative() {
        for text in ["-5", "-0.001", "-00.10"] {
            assert!(is_negative(text), "{text}");
        }
        for text in ["5", "+5", "0", "-0", "-0.00", "", "-", "-a"] {
            assert!(!is_negative(text), "{text}");
        }
    }
}
