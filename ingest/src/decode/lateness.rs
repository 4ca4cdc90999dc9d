//! Checks how late, and how early, a fact may be (section 7 of the contract).
//!
//! The check compares the broker timestamp with the fact's event time, so it depends on the message alone, and not on
//! the order of messages or the local clock.

use attribution::facts::event::EventTime;
use attribution::rules::policy::DAY_MS;

use super::{DecodeError, ErrorCode};

/// Maximum that a producer's clock may be ahead of the broker's.
pub const AHEAD_MAX_MS: u64 = DAY_MS;

/// When a message was received, in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub enum Received {
    BrokerTimestamp(i64),
    /// When the message was read, because it has no broker timestamp.
    Arrival(i64),
    /// When the request with the event arrived; it is not in Kafka yet.
    Request(i64),
}

/// Checks a fact's time against the time at which its message was received. Both bounds are inclusive. `horizon_ms` is
/// the app's `correction_horizon`; with `None` no fact is too late.
pub fn check(
    time: EventTime,
    received: Received,
    horizon_ms: Option<u64>,
) -> Result<(), DecodeError> {
    let (received_ms, reference) = match received {
        Received::BrokerTimestamp(ms) => (ms, "the broker timestamp"),
        Received::Arrival(ms) => (ms, "its arrival (the record has no broker timestamp)"),
        Received::Request(ms) => (ms, "its arrival"),
    };
    let late_ms = i128::from(received_ms) - i128::from(time.millis());
    if late_ms < -i128::from(AHEAD_MAX_MS) {
        return Err(error(
            ErrorCode::BadTime,
            format!(
                "time is {} ms ahead of {reference}; allowed: at most {AHEAD_MAX_MS} ms",
                -late_ms
            ),
        ));
    }
    match horizon_ms {
        Some(horizon_ms) if late_ms > i128::from(horizon_ms) => Err(error(
            ErrorCode::TooLate,
            format!(
                "time is {late_ms} ms before {reference}; \
                 allowed: at most correction_horizon = {horizon_ms} ms"
            ),
        )),
        _ => Ok(()),
    }
}

fn error(code: ErrorCode, message: String) -> DecodeError {
    DecodeError { code, field: Some("time".to_owned()), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKER_MS: i64 = 1_773_144_000_000;

    #[track_caller]
    fn check_code(time_ms: i64, horizon_ms: Option<u64>, expected: Option<ErrorCode>) {
        let time = EventTime::from_millis(time_ms).expect("the time is in range");
        let outcome = check(time, Received::BrokerTimestamp(BROKER_MS), horizon_ms);
        assert_eq!(outcome.err().map(|error| error.code), expected);
    }

    #[test]
    fn both_bounds_are_inclusive() {
        let day_ms = i64::try_from(DAY_MS).expect("a day fits");
        let week = Some(7 * DAY_MS);
        check_code(BROKER_MS, week, None);
        check_code(BROKER_MS - 7 * day_ms, week, None);
        check_code(BROKER_MS - 7 * day_ms - 1, week, Some(ErrorCode::TooLate));
        check_code(BROKER_MS + day_ms, week, None);
        check_code(BROKER_MS + day_ms + 1, week, Some(ErrorCode::BadTime));
        check_code(BROKER_MS - 1, Some(0), Some(ErrorCode::TooLate));
        check_code(BROKER_MS, Some(0), None);
        // Without a horizon, only the future is bad.
        check_code(0, None, None);
        check_code(BROKER_MS + day_ms + 1, None, Some(ErrorCode::BadTime));
    }

    #[test]
    fn extreme_broker_times_do_not_overflow() {
        let outcome = |ms| check(EventTime::MAX, Received::BrokerTimestamp(ms), Some(u64::MAX));
        assert!(outcome(i64::MIN).is_err());
        assert!(outcome(i64::MAX).is_ok());
    }

    #[test]
    fn a_record_without_a_broker_timestamp_is_judged_by_its_arrival() {
        let error = check(EventTime::MAX, Received::Arrival(BROKER_MS), None).unwrap_err();
        assert!(
            error.message.contains("ahead of its arrival (the record has no broker timestamp)")
        );
        let error = check(EventTime::MAX, Received::Request(BROKER_MS), None).unwrap_err();
        assert!(error.message.contains("ahead of its arrival; allowed:"));
    }
}
