//! This machine's clock without implausible jumps ahead. State expires by it, and expiry cannot be undone.

use std::time::{Duration, Instant};

use attribution::facts::event::EventTime;

/// Largest forward jump of the clock that is trusted at once.
const JUMP_MAX_MS: u64 = 10 * 60 * 1000;
/// A clock that was set further ahead is trusted once it has stayed ahead for this long. Until then state is kept
/// longer than necessary.
const DISTRUST_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub struct TrustedClock {
    /// Last trusted wall-clock time, with the monotonic instant at which it was read.
    trusted: Option<(EventTime, Instant)>,
    distrusted_since: Option<Instant>,
}

impl TrustedClock {
    /// Returns the trusted time, given that the machine's clock shows `wall` at `now`.
    pub fn observe(&mut self, wall: EventTime, now: Instant) -> EventTime {
        let (trusted, since) = *self.trusted.get_or_insert((wall, now));
        let elapsed = u64::try_from(now.duration_since(since).as_millis()).unwrap_or(u64::MAX);
        let expected = trusted.plus(elapsed);
        if wall < expected {
            self.distrusted_since = None;
            return wall;
        }
        if wall > expected.plus(JUMP_MAX_MS) {
            let since = *self.distrusted_since.get_or_insert_with(|| {
                tracing::warn!(
                    ahead_s = wall.minus(expected.millis()).millis() / 1000,
                    "this machine's clock was set ahead: for a day, state expires by the old time"
                );
                now
            });
            if now.duration_since(since) < DISTRUST_PERIOD {
                return expected;
            }
        }
        self.trusted = Some((wall, now));
        self.distrusted_since = None;
        wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const YEAR: i64 = 365 * 24 * HOUR;

    /// Checks the trusted time after each reading. A reading is the elapsed time and the clock's time, both in hours.
    #[track_caller]
    fn check(readings: &[(u64, i64)], expected: &[i64]) {
        let (mut clock, start) = (TrustedClock::default(), Instant::now());
        let mut observe = |(hour, wall): &(u64, i64)| {
            let wall = EventTime::from_millis(YEAR + wall * HOUR).unwrap();
            let found = clock.observe(wall, start + Duration::from_secs(hour * 3_600));
            (i64::try_from(found.millis()).unwrap() - YEAR) / HOUR
        };
        let found: Vec<_> = readings.iter().map(&mut observe).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_clock_that_is_set_ahead_is_not_trusted_for_a_day() {
        check(&[(0, 0), (1, 1), (5, 5)], &[0, 1, 5]);
        check(&[(0, 0), (1, 9_000), (2, 9_001), (3, 3), (4, 9_003)], &[0, 1, 2, 3, 4]);
        check(
            &[(0, 0), (1, 9_000), (24, 9_023), (25, 9_024), (26, 9_025)],
            &[0, 1, 24, 9_024, 9_025],
        );
    }

    #[test]
    fn a_clock_that_is_set_back_and_corrected_is_trusted() {
        check(&[(0, 0), (1, -5), (2, -4), (3, 3), (4, 4)], &[0, -5, -4, 3, 4]);
    }
}
