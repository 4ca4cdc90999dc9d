//! Event times: milliseconds since 1970 UTC, or RFC 3339.

use attribution::facts::event::EventTime;
use jiff::civil::{DateTime, date};

use super::ErrorCode;
use super::value::Value;

/// Describes the allowed values in error messages.
pub const TIME_ALLOWED: &str =
    "milliseconds since 1970 UTC as a whole number, or an RFC 3339 string, from 2008 to 9999";

/// 2008-01-01: there was no app store before, so an earlier time has the wrong unit or comes from an unset clock.
const EARLIEST_MS: u64 = 1_199_145_600_000;
const BEFORE_2008: &str = "before 2008";
const IN_SECONDS: &str = "before 2008, and looks like seconds where milliseconds are expected";

/// Returns the time, or the error code and a description of the value.
pub fn read(value: &Value<'_>) -> Result<EventTime, (ErrorCode, &'static str)> {
    match value {
        Value::Unsigned(number @ ..EARLIEST_MS) => {
            let is_in_seconds = number.saturating_mul(1_000) >= EARLIEST_MS;
            Err((ErrorCode::BadTime, if is_in_seconds { IN_SECONDS } else { BEFORE_2008 }))
        }
        Value::Unsigned(millis) => i64::try_from(*millis)
            .ok()
            .and_then(EventTime::from_millis)
            .ok_or((ErrorCode::BadTime, "after the year 9999")),
        Value::Negative => Err((ErrorCode::BadTime, BEFORE_2008)),
        other => match other.text() {
            Some(text) => read_text(text),
            None => Err((ErrorCode::WrongType, other.description())),
        },
    }
}

fn read_text(text: &str) -> Result<EventTime, (ErrorCode, &'static str)> {
    let millis = rfc3339_millis(text)
        .ok_or((ErrorCode::BadValue, "a string that is not an RFC 3339 time"))?;
    let time = EventTime::from_millis(millis).filter(|time| time.millis() >= EARLIEST_MS);
    time.ok_or((ErrorCode::BadTime, "before 2008 or after 9999"))
}

/// Checks whether a number or a time is 1970 or before.
pub fn is_not_after_1970(value: &Value<'_>) -> bool {
    match value {
        Value::Unsigned(number) => *number == 0,
        Value::Negative => true,
        other => other.text().and_then(rfc3339_millis).is_some_and(|millis| millis <= 0),
    }
}

/// Parses RFC 3339, and no other form of ISO 8601. Rounds down, so that a nanosecond before 1970 is before 1970. Does
/// not use jiff's `Timestamp`, which ends two hours before the year 9999 does.
fn rfc3339_millis(text: &str) -> Option<i64> {
    const LOCAL: usize = "2026-03-10T12:00:00".len();
    let (local, rest) = text.split_at_checked(LOCAL)?;
    let has_shape = local.bytes().enumerate().all(|(index, byte)| match index {
        4 | 7 => byte == b'-',
        10 => matches!(byte, b'T' | b't' | b' '),
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    let local: DateTime = local.parse().ok().filter(|_| has_shape)?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("0", rest),
    };
    let millis: i64 =
        format!("{fraction:0<3}").get(..3).filter(|_| !fraction.is_empty())?.parse().ok()?;
    let days = i64::from(date(1970, 1, 1).until(local.date()).ok()?.get_days());
    let [hour, minute, second] = [local.hour(), local.minute(), local.second()].map(i64::from);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some((seconds - zone_seconds(zone)?) * 1000 + millis)
}

/// Parses `Z` or an offset such as `+08:00`.
fn zone_seconds(zone: &str) -> Option<i64> {
    let bytes = zone.as_bytes();
    let number = |tens: u8, ones: u8, max: i64| {
        let digit = |byte: u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
        Some(digit(tens)? * 10 + digit(ones)?).filter(|number| *number <= max)
    };
    match bytes {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), a, b, b':', c, d] => {
            let seconds = number(*a, *b, 23)? * 3600 + number(*c, *d, 59)? * 60;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, ErrorCode>) {
        let value = Value::Text(text);
        assert_eq!(read(&value).map(EventTime::millis).map_err(|(code, _)| code), expected);
    }

    #[test]
    fn rfc3339_times_are_parsed() {
        check("2026-03-10T12:00:00Z", Ok(1_773_144_000_000));
        check("2026-03-10T20:00:00+08:00", Ok(1_773_144_000_000));
        check("2026-03-10T12:00:00.123456789Z", Ok(1_773_144_000_123));
        check("2008-01-01T00:00:00Z", Ok(EARLIEST_MS));
        check("2007-12-31T23:59:59.9999Z", Err(ErrorCode::BadTime));
        check("2026-03-10t12:00:00.5z", Ok(1_773_144_000_500));
        check("9999-12-31T23:59:59.999Z", Ok(EventTime::MAX.millis()));
        check("9999-12-31T23:59:59-01:00", Err(ErrorCode::BadTime));
        for text in [
            "20260310T120000Z",
            "2026-03-10T12Z",
            "+002026-03-10T12:00:00Z",
            "2026-03-10T12:00:00+08",
            "2026-03-10T12:00:00+25:00",
            "2026-03-10T12:00:00,5Z",
            "2026-03-10T12:00:00.Z",
            "2026-03-10T12:00:00Z[UTC]",
            "2026-02-30T12:00:00Z",
            "2026-03-10T12:00:00é",
        ] {
            check(text, Err(ErrorCode::BadValue));
        }
        check("2026-03-10T12:00:00", Err(ErrorCode::BadValue));
        check("2026-03-10", Err(ErrorCode::BadValue));
        check("1773144000000", Err(ErrorCode::BadValue));
        check("yesterday", Err(ErrorCode::BadValue));
    }

    #[test]
    fn numbers_before_2008_are_bad_times() {
        let outcome = |number| read(&Value::Unsigned(number)).map(EventTime::millis);
        assert_eq!(outcome(EARLIEST_MS), Ok(EARLIEST_MS));
        assert_eq!(outcome(EARLIEST_MS - 1), Err((ErrorCode::BadTime, IN_SECONDS)));
        assert_eq!(outcome(1_773_144_000), Err((ErrorCode::BadTime, IN_SECONDS)));
        assert_eq!(outcome(5), Err((ErrorCode::BadTime, BEFORE_2008)));
        assert_eq!(read(&Value::Negative), Err((ErrorCode::BadTime, BEFORE_2008)));
        let is_unknown = |text| is_not_after_1970(&Value::Text(text));
        assert!(is_unknown("1970-01-01T00:00:00Z") && is_unknown("0001-01-01T00:00:00Z"));
        assert!(!is_unknown("1970-01-01T00:00:00.001Z") && !is_unknown(""));
    }
}
