//! Trying again, and not saying so too often.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use parking_lot::Mutex;

use crate::timing::Timing;

const WARN_EVERY: Duration = Duration::from_secs(60);

/// Delays before retries, without end.
pub fn delays(timing: Timing) -> impl Iterator<Item = Duration> {
    backoff(timing).build()
}

/// Delays that double up to a bound, without end.
pub fn backoff(timing: Timing) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(timing.retry_delay_min)
        .with_max_delay(timing.retry_delay_max)
        .without_max_times()
}

/// Lets one warning a minute pass.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    pub fn warn(&self, say: impl FnOnce()) {
        let mut said = self.0.lock();
        if said.is_none_or(|said| said.elapsed() >= WARN_EVERY) {
            *said = Some(Instant::now());
            say();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_passes() {
        let throttle = Throttle::default();
        let mut said = 0;
        throttle.warn(|| said += 1);
        throttle.warn(|| said += 1);
        assert_eq!(said, 1);
    }
}
