//! Event times: milliseconds since 1970 UTC, or RFC 3339.

use attribution::event::EventTime;
use jiff::Timestamp;

use super::ErrorCode;
use super::value::Value;

/// What is allowed, in the words of an error message.
pub const TIME_ALLOWED: &str =
    "milliseconds since 1970 UTC as a whole number, or an RFC 3339 string, from 1970 to 9999";

/// The time, or the kind of error and what the value is.
pub fn read(value: &Value<'_>) -> Result<EventTime, (ErrorCode, &'static str)> {
    match value {
        Value::Unsigned(millis) => i64::try_from(*millis)
            .ok()
            .and_then(EventTime::from_millis)
            .ok_or((ErrorCode::BadTime, "after the year 9999")),
        Value::Negative => Err((ErrorCode::BadTime, "before 1970")),
        Value::Text(text) => read_text(&text.0),
        other => Err((ErrorCode::WrongType, other.described())),
    }
}

fn read_text(text: &str) -> Result<EventTime, (ErrorCode, &'static str)> {
    let instant: Timestamp =
        text.parse().map_err(|_| (ErrorCode::BadValue, "a string that is no RFC 3339 time"))?;
    // Floored, so that a nanosecond before 1970 is before 1970.
    let millis = instant.as_nanosecond().div_euclid(1_000_000);
    i64::try_from(millis)
        .ok()
        .and_then(EventTime::from_millis)
        .ok_or((ErrorCode::BadTime, "before 1970"))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::value::Text;
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, ErrorCode>) {
        let value = Value::Text(Text(Cow::Borrowed(text)));
        assert_eq!(read(&value).map(EventTime::millis).map_err(|(code, _)| code), expected);
    }

    #[test]
    fn texts() {
        check("2026-03-10T12:00:00Z", Ok(1_773_144_000_000));
        check("2026-03-10T20:00:00+08:00", Ok(1_773_144_000_000));
        check("2026-03-10T12:00:00.123456789Z", Ok(1_773_144_000_123));
        check("1970-01-01T00:00:00Z", Ok(0));
        check("1969-12-31T23:59:59.9999Z", Err(ErrorCode::BadTime));
        check("9999-12-30T22:00:00.999Z", Ok(253_402_207_200_999));
        check("2026-03-10T12:00:00", Err(ErrorCode::BadValue));
        check("2026-03-10", Err(ErrorCode::BadValue));
        check("1773144000000", Err(ErrorCode::BadValue));
        check("yesterday", Err(ErrorCode::BadValue));
    }

    #[test]
    fn numbers() {
        assert_eq!(read(&Value::Unsigned(0)).map(EventTime::millis), Ok(0));
        assert_eq!(read(&Value::Unsigned(EventTime::MAX.millis())), Ok(EventTime::MAX));
        let too_great = EventTime::MAX.millis() + 1;
        assert!(matches!(read(&Value::Unsigned(too_great)), Err((ErrorCode::BadTime, _))));
        assert!(matches!(read(&Value::Unsigned(u64::MAX)), Err((ErrorCode::BadTime, _))));
        assert!(matches!(read(&Value::Negative), Err((ErrorCode::BadTime, _))));
        assert!(matches!(read(&Value::Float), Err((ErrorCode::WrongType, _))));
    }
}
