//! Trying again, and not saying so too often.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(10);
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Delays that double, up to a bound.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Backoff {
    pub fn new() -> Self {
        Self(DELAY_MIN)
    }

    /// How long to wait now.
    pub fn next(&mut self) -> Duration {
        let delay = self.0;
        self.0 = (delay * 2).min(DELAY_MAX);
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
        let mut backoff = Backoff::new();
        assert_eq!(backoff.next(), Duration::from_millis(100));
        assert_eq!(backoff.next(), Duration::from_millis(200));
        for _ in 0..20 {
            backoff.next();
        }
        assert_eq!(backoff.next(), DELAY_MAX);
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
