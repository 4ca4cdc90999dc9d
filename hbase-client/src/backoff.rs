//! How long to wait before the next try. Pure: randomness is an argument.

use std::time::Duration;

/// Twice as long after each try, up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(20), most: Duration::from_secs(2) }
    }
}

impl Backoff {
    /// After so many tries that failed, of which the first is 0; `random` is of 0..1. Half of it is
    /// jitter, so that those who failed together do not come back together.
    pub fn delay(&self, failed_before: u32, random: f64) -> Duration {
        let factor = 2_u32.saturating_pow(failed_before.min(30));
        let full = self.first.saturating_mul(factor).min(self.most);
        full / 2 + (full / 2).mul_f64(random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_its_bound() {
        let backoff = Backoff::default();
        let delays: Vec<_> = (0..10).map(|failed| backoff.delay(failed, 1.0).as_millis()).collect();
        assert_eq!(delays, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000]);
        assert_eq!(backoff.delay(u32::MAX, 1.0).as_millis(), 2000);
    }

    #[test]
    fn half_of_the_delay_is_jitter() {
        let backoff = Backoff::default();
        assert_eq!(backoff.delay(1, 0.0).as_millis(), 20);
        assert_eq!(backoff.delay(1, 0.5).as_millis(), 30);
        assert!(backoff.delay(3, 7.0) <= backoff.delay(3, 1.0));
    }
}
