//! Delays before retries.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// Delays between polls of a running procedure.
pub const POLLING: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(20))
    .with_max_delay(Duration::from_secs(2))
    .without_max_times();

/// Delays after failures. The jitter is up to the delay itself, so that calls that failed together are not retried
/// together.
const RETRYING: ExponentialBuilder = POLLING
    .with_min_delay(Duration::from_millis(10))
    .with_max_delay(Duration::from_secs(1))
    .with_jitter();

/// Returns the delay before a retry. `earlier_failures` does not include the last failure.
pub fn delay(earlier_failures: u32) -> Duration {
    RETRYING.build().nth(earlier_failures as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit_with_jitter_up_to_the_delay_itself() {
        let bounds = [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000];
        for (earlier_failures, delay_min) in (0..).zip(bounds) {
            let delay = delay(earlier_failures).as_millis();
            assert!(
                (delay_min - 1..=2 * delay_min).contains(&delay),
                "{earlier_failures}: {delay} ms"
            );
        }
    }
}
