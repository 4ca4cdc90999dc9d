//! Retry delays, and a limit on repeated warnings.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use parking_lot::Mutex;

use crate::timing::Timing;

const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Returns an endless iterator over the delays before retries.
pub fn delays(timing: Timing) -> impl Iterator<Item = Duration> {
    backoff(timing).build()
}

/// Returns an endless back-off whose delays double up to a bound.
pub fn backoff(timing: Timing) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(timing.initial_retry_delay)
        .with_max_delay(timing.retry_delay_max)
        .without_max_times()
}

/// Lets one warning a minute pass.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    pub fn warn(&self, log: impl FnOnce()) {
        let mut logged_at = self.0.lock();
        if logged_at.is_none_or(|logged_at| logged_at.elapsed() >= WARN_INTERVAL) {
            *logged_at = Some(Instant::now());
            log();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_warning_within_a_minute_is_dropped() {
        let throttle = Throttle::default();
        let mut count = 0;
        throttle.warn(|| count += 1);
        throttle.warn(|| count += 1);
        assert_eq!(count, 1);
    }
}
