//! This machine's clock, as far as it is believed: state expires by it, for good.

use std::time::{Duration, Instant};

use attribution::facts::event::EventTime;

/// It may be set by so much at once.
const SET_MS: u64 = 10 * 60 * 1000;
/// A clock that was set further ahead is believed once it has stood so for so long: until then state is
/// kept for longer than it has to be.
const DOUBTED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub struct TrustedClock {
    /// What it showed, and when, by one that nobody sets.
    believed: Option<(EventTime, Instant)>,
    doubted_since: Option<Instant>,
}

impl TrustedClock {
    /// What time it is if the machine says so.
    pub fn take(&mut self, said: EventTime, at: Instant) -> EventTime {
        let (believed, since) = *self.believed.get_or_insert((said, at));
        let passed = u64::try_from(at.duration_since(since).as_millis()).unwrap_or(u64::MAX);
        let expected = believed.plus(passed);
        if said < expected {
            self.doubted_since = None;
            return said;
        }
        if said > expected.plus(SET_MS) {
            let since = *self.doubted_since.get_or_insert_with(|| {
                tracing::warn!(
                    ahead_s = said.minus(expected.millis()).millis() / 1000,
                    "this machine's clock was set ahead: for a day nothing expires by what it says now"
                );
                at
            });
            if at.duration_since(since) < DOUBTED_FOR {
                return expected;
            }
        }
        self.believed = Some((said, at));
        self.doubted_since = None;
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const YEAR: i64 = 365 * 24 * HOUR;

    /// What is believed, in hours, each asked at an hour and told what the clock says then.
    #[track_caller]
    fn check(asked: &[(u64, i64)], expected: &[i64]) {
        let (mut clock, start) = (TrustedClock::default(), Instant::now());
        let mut take = |(hour, said): &(u64, i64)| {
            let said = EventTime::from_millis(YEAR + said * HOUR).unwrap();
            let found = clock.take(said, start + Duration::from_secs(hour * 3_600));
            (i64::try_from(found.millis()).unwrap() - YEAR) / HOUR
        };
        let found: Vec<_> = asked.iter().map(&mut take).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_clock_that_is_set_ahead_is_not_believed_for_a_day() {
        check(&[(0, 0), (1, 1), (5, 5)], &[0, 1, 5]);
        check(&[(0, 0), (1, 9_000), (2, 9_001), (3, 3), (4, 9_003)], &[0, 1, 2, 3, 4]);
        check(
            &[(0, 0), (1, 9_000), (24, 9_023), (25, 9_024), (26, 9_025)],
            &[0, 1, 24, 9_024, 9_025],
        );
    }

    #[test]
    fn one_that_is_set_back_and_right_again_is() {
        check(&[(0, 0), (1, -5), (2, -4), (3, 3), (4, 4)], &[0, -5, -4, 3, 4]);
    }
}
