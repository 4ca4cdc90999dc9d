//! How long to wait before the next try.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// Between two looks at what is in progress.
pub const POLLING: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(20))
    .with_max_delay(Duration::from_secs(2))
    .without_max_times();

/// After a failure. Up to the same again is jitter, so that calls which failed together do not come back together.
const RETRYING: ExponentialBuilder = POLLING
    .with_min_delay(Duration::from_millis(10))
    .with_max_delay(Duration::from_secs(1))
    .with_jitter();

/// The delay before a retry, by the number of failures before the last one.
pub fn delay(failed_before: u32) -> Duration {
    RETRYING.build().nth(failed_before as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_its_bound_with_half_of_it_jitter() {
        let bounds = [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000];
        for (failed, least) in (0..).zip(bounds) {
            let delay = delay(failed).as_millis();
            assert!((least - 1..=2 * least).contains(&delay), "{failed}: {delay} ms");
        }
    }
}
