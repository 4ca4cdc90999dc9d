//! Parses sizes of memory: a whole number and a unit.

use super::error::Problem;

const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Parses a size such as `448MiB` into bytes, saturating.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, Problem> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if text.starts_with('-') {
        return Err(r#"negative, expected a size such as "448MiB""#.into());
    }
    if !digits.is_empty() && unit.is_empty() {
        return Err(r#"no unit, expected one of KiB, MiB, GiB as in "448MiB""#.into());
    }
    let unit_bytes = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| bytes);
    let (Some(unit_bytes), false) = (unit_bytes, digits.is_empty()) else {
        return Err(
            r#"expected one whole number and a unit of KiB, MiB, GiB, such as "448MiB""#.into()
        );
    };
    Ok(digits.parse().unwrap_or(u64::MAX).saturating_mul(*unit_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: u64) {
        assert_eq!(parse_bytes(text), Ok(expected));
    }

    #[track_caller]
    fn check_wrong(text: &str, expected: &str) {
        let problem = parse_bytes(text).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn a_size_is_one_number_and_one_unit() {
        check("0KiB", 0);
        check("1KiB", 1024);
        check("448MiB", 448 * 1024 * 1024);
        check("007MiB", 7 * 1024 * 1024);
        check("2GiB", 2 * 1024 * 1024 * 1024);
        check("18446744073709551615GiB", u64::MAX);
        check("99999999999999999999999KiB", u64::MAX);
    }

    #[test]
    fn other_texts_are_rejected() {
        check_wrong("448", "no unit");
        check_wrong("0", "no unit");
        check_wrong("-1MiB", "negative");
        for text in ["", "MiB", "1.5GiB", "1 GiB", " 1GiB", "+1GiB", "1GiB1KiB", "off"] {
            check_wrong(text, "expected one whole number");
        }
        // These units are ambiguous: they could mean powers of two or of ten.
        for text in ["1MB", "1M", "1G", "1mib", "1B", "1TiB"] {
            check_wrong(text, "expected one whole number");
        }
    }
}
