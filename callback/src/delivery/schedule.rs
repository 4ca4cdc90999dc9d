//! When a failed callback is tried again.

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use xxhash_rust::xxh3::xxh3_64;

use super::gate::REST_MS_MAX;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// The times from each failed attempt to the next one. The first one is at once, and after the last one there is none.
const DELAYS_MS: [i64; 7] = [
    5 * SECOND_MS,
    MINUTE_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    5 * HOUR_MS,
    10 * HOUR_MS,
];

/// A delay is longer or shorter by at most this share, so that callbacks that failed together do not return together.
const JITTER_PERCENT: i64 = 10;

/// Returns the time of the next attempt after this many; `None` if there is none. `id` is that of the callback, which
/// makes the jitter the same after a crash.
pub(super) fn next_attempt_ms(
    attempts: u32,
    id: &str,
    now_ms: i64,
    retry_after_ms: Option<i64>,
) -> Option<i64> {
    let index = usize::try_from(attempts).ok()?.checked_sub(1)?;
    let delay_ms = *DELAYS_MS.get(index)?;
    let spread_ms = delay_ms * JITTER_PERCENT / 100;
    let hash = xxh3_64(format!("{id}.{attempts}").as_bytes());
    let jitter_ms = i64::try_from(hash % u64::try_from(2 * spread_ms + 1).ok()?).ok()? - spread_ms;
    let wait_ms = (delay_ms + jitter_ms).max(retry_after_ms.unwrap_or(0));
    Some(now_ms.saturating_add(wait_ms))
}

/// Parses `Retry-After`, seconds or a date, into a wait of at most an hour.
pub(super) fn retry_after_ms(header: &str, now_ms: i64) -> Option<i64> {
    let header = header.trim();
    let wait_ms = match header.parse::<u32>() {
        Ok(seconds) => i64::from(seconds) * SECOND_MS,
        Err(_) => {
            let date: Timestamp = rfc2822::parse(header).ok()?.timestamp();
            date.as_millisecond().saturating_sub(now_ms)
        }
    };
    Some(wait_ms.clamp(0, REST_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_end() {
        let expected = [5, 60, 300, 1_800, 7_200, 18_000, 36_000].map(|seconds| seconds * 1_000);
        for (index, delay_ms) in expected.into_iter().enumerate() {
            let attempts = u32::try_from(index + 1).unwrap();
            for id in 0..200 {
                let wait =
                    next_attempt_ms(attempts, &format!("cb_{id}"), 1_000, None).unwrap() - 1_000;
                assert!((delay_ms * 9 / 10..=delay_ms * 11 / 10).contains(&wait), "{wait}");
            }
        }
        assert_eq!(next_attempt_ms(8, "cb_1", 0, None), None);
        assert_eq!(next_attempt_ms(0, "cb_1", 0, None), None);
    }

    #[test]
    fn jitter_differs_between_callbacks_and_not_between_processes() {
        let at = |id: &str| next_attempt_ms(2, id, 0, None).unwrap();
        assert_eq!(at("cb_1"), at("cb_1"));
        let distinct: std::collections::BTreeSet<_> =
            (0..50).map(|id| at(&format!("cb_{id}"))).collect();
        assert!(distinct.len() > 40);
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_wait() {
        assert_eq!(next_attempt_ms(1, "cb_1", 0, Some(90_000)), Some(90_000));
        assert!(next_attempt_ms(4, "cb_1", 0, Some(90_000)).unwrap() > 90_000);
        assert_eq!(next_attempt_ms(8, "cb_1", 0, Some(90_000)), None);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now_ms = "2026-03-10T12:00:00Z".parse::<Timestamp>().unwrap().as_millisecond();
        let check = |header: &str, expected: Option<i64>| {
            assert_eq!(retry_after_ms(header, now_ms), expected, "{header}");
        };
        check("120", Some(120_000));
        check(" 0 ", Some(0));
        check("3600", Some(3_600_000));
        check("3601", Some(3_600_000));
        check("4294967295", Some(3_600_000));
        check("Wed, 11 Mar 2026 12:00:00 GMT", Some(3_600_000));
        check("Tue, 10 Mar 2026 12:00:30 GMT", Some(30_000));
        check("Tue, 10 Mar 2026 11:00:00 GMT", Some(0));
        check("soon", None);
        check("-1", None);
        check("", None);
    }
}
