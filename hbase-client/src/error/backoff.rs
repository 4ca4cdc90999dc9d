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

/// Returns the delay before a retry, by the number of failures before the last one.
pub fn delay(failed_before: u32) -> Duration {
    RETRYING.build().nth(failed_before as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_its_limit_and_half_of_it_is_jitter() {
        let bounds = [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000];
        for (failed, least) in (0..).zip(bounds) {
            let delay = delay(failed).as_millis();
            assert!((least - 1..=2 * least).contains(&delay), "{failed}: {delay} ms");
        }
    }
}
