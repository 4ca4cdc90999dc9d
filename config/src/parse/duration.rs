//! Parses durations: a whole number and a unit.

use attribution::rules::policy::DAY_MS;

use super::error::Problem;

const MAX_MS: u64 = 3650 * DAY_MS;
const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", DAY_MS), ("w", 7 * DAY_MS)];

/// Parses a duration such as `7d` into milliseconds.
pub(crate) fn parse_ms(text: &str) -> Result<u64, Problem> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if text.starts_with('-') {
        return Err(r#"negative, expected a duration such as "7d""#.into());
    }
    if !digits.is_empty() && unit.is_empty() {
        return Err(r#"no unit, expected one of ms, s, m, h, d, w as in "7d""#.into());
    }
    let unit_ms = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| ms);
    let (Some(unit_ms), false) = (unit_ms, digits.is_empty()) else {
        return Err(
            r#"expected one whole number and a unit of ms, s, m, h, d, w, such as "7d""#.into()
        );
    };
    // A number that overflows is reported as too long.
    let ms = digits.parse().ok().and_then(|count: u64| count.checked_mul(*unit_ms));
    ms.filter(|ms| *ms <= MAX_MS).ok_or(r#"too long, expected at most "3650d""#.into())
}

/// Formats a duration in quotes, in the largest unit up to days in which it is a whole number.
pub(crate) fn format_ms(ms: u64) -> String {
    let divides = |(name, unit_ms): &&(&str, u64)| *name != "w" && ms.is_multiple_of(*unit_ms);
    match UNITS.iter().rfind(divides) {
        Some((name, unit_ms)) if ms > 0 => format!("\"{}{name}\"", ms / unit_ms),
        _ => "\"0s\"".into(),
    }
}

/// Parses a duration; `off` becomes `None`. Zero is an error, because it could mean either.
pub(crate) fn parse_ms_or_off(text: &str) -> Result<Option<u64>, Problem> {
    match text {
        "off" => Ok(None),
        _ => match parse_ms(text) {
            Ok(0) => Err(r#"zero, expected a longer duration or "off""#.into()),
            Ok(ms) => Ok(Some(ms)),
            Err(problem) => Err(format!(r#"{problem} or "off""#).into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: u64) {
        assert_eq!(parse_ms(text), Ok(expected));
    }

    #[track_caller]
    fn check_wrong(text: &str, expected: &str) {
        let problem = parse_ms(text).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn a_duration_is_one_number_and_one_unit() {
        check("0s", 0);
        check("250ms", 250);
        check("90s", 90_000);
        check("5m", 300_000);
        check("24h", DAY_MS);
        check("7d", 7 * DAY_MS);
        check("2w", 14 * DAY_MS);
        check("007d", 7 * DAY_MS);
        check("3650d", MAX_MS);
    }

    #[test]
    fn other_texts_are_rejected() {
        check_wrong("7", "no unit");
        check_wrong("0", "no unit");
        check_wrong("-7d", "negative");
        check_wrong("3651d", "too long");
        check_wrong("315360000001ms", "too long");
        check_wrong("18446744073709551615w", "too long");
        check_wrong("99999999999999999999999s", "too long");
        check_wrong("", "expected one whole number");
        check_wrong("d", "expected one whole number");
        check_wrong("1d12h", "expected one whole number");
        check_wrong("1.5h", "expected one whole number");
        check_wrong("7 d", "expected one whole number");
        check_wrong(" 7d", "expected one whole number");
        check_wrong("7D", "expected one whole number");
        check_wrong("7 days", "expected one whole number");
        check_wrong("+7d", "expected one whole number");
        check_wrong("off", "expected one whole number");
        check_wrong("７d", "expected one whole number");
    }

    #[test]
    fn formatted_durations_parse_to_the_same_value() {
        for text in ["0s", "1ms", "1500ms", "59s", "90s", "1m", "36h", "1d", "14d", "3650d"] {
            assert_eq!(format_ms(parse_ms(text).unwrap()), format!("{text:?}"));
        }
        assert_eq!(format_ms(60_000), "\"1m\"");
        assert_eq!(format_ms(14 * DAY_MS), "\"14d\"");
    }

    #[test]
    fn off_is_none_and_zero_is_an_error() {
        assert_eq!(parse_ms_or_off("off"), Ok(None));
        assert_eq!(parse_ms_or_off("1d"), Ok(Some(DAY_MS)));
        assert!(parse_ms_or_off("0d").unwrap_err().starts_with("zero"));
        assert!(parse_ms_or_off("1").unwrap_err().ends_with(r#"or "off""#));
    }
}
