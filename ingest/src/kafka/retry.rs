//! Trying again, and not saying so too often.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::timing::Timing;

const WARN_EVERY: Duration = Duration::from_secs(60);

/// Delays that double, up to a bound.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub fn new(timing: Timing) -> Self {
        Self { next: timing.retry_delay_min, max: timing.retry_delay_max }
    }

    /// How long to wait now.
    pub fn next(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        delay
    }
}

/// Lets one warning a minute pass.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    pub fn warn(&self, say: impl FnOnce()) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn delays_double_up_to_the_bound() {
        let mut backoff = Backoff::new(Timing::default());
        assert_eq!(backoff.next(), Duration::from_millis(100));
        assert_eq!(backoff.next(), Duration::from_millis(200));
        for _ in 0..20 {
            backoff.next();
        }
        assert_eq!(backoff.next(), Duration::from_secs(10));
    }

    #[test]
    fn one_warning_passes() {
        let throttle = Throttle::default();
        let mut said = 0;
        throttle.warn(|| said += 1);
        throttle.warn(|| said += 1);
        assert_eq!(said, 1);
    }
}
