//! Waiting times and polling intervals of the processes, and the divisor by which tests shorten them.

use std::time::Duration;

use crate::commands::WrongUse;

/// Environment variable with a whole number by which every duration of [`Timing`] is divided. It is not a setting,
/// because it is only for tests.
const DIVISOR: &str = "ADTRAIL_TEST_TIME_DIVISOR";
const DIVISOR_MAX: u32 = 1_000;

config::timing! {
    /// Patience and polling intervals, as a value: tests run with a fraction of the defaults.
    pub struct Timing {
        pub ingest: ingest::Timing = ingest::Timing::default(),
        pub store: store::Timing = store::Timing::default(),
        /// How often to check whether HBase answers, and to exchange progress with other processes. Readiness and the
        /// completeness shown by exports are at most this old.
        pub hbase_check_interval: Duration = Duration::from_secs(2),
        /// How often to read the region metrics of HBase, from every server.
        pub region_check_interval: Duration = Duration::from_secs(30),
        /// How long a shutdown waits for writes to HBase in progress. Then they are no longer retried; uncommitted
        /// records are read again after the next start.
        pub hbase_last_write_patience: Duration = Duration::from_secs(5),
        /// How long a shutdown waits for downloads after it has aborted them. Then the process ends without them.
        pub cut_off_download_patience: Duration = Duration::from_secs(1),
        /// How long a process may run beyond `run.shutdown_deadline`. Then it exits with status 1.
        pub forced_exit_grace: Duration = Duration::from_secs(5),
        /// How long `adtrail backup` retries while the store is in use by a process that does not listen on the control
        /// socket, as a service that starts or stops does not. Then it fails.
        pub backup_store_patience: Duration = Duration::from_secs(10),
        /// Interval between these attempts.
        pub backup_retry_interval: Duration = Duration::from_millis(100),
    }
}

impl Timing {
    /// Returns the defaults, divided by `ADTRAIL_TEST_TIME_DIVISOR` if it is set. A divisor other than 1 is logged.
    ///
    /// # Errors
    /// If the divisor is not a whole number from 1 to 1000.
    pub fn from_env() -> Result<Self, WrongUse> {
        let Some(text) = std::env::var_os(DIVISOR) else { return Ok(Self::default()) };
        let divisor = divisor(&text.to_string_lossy())?;
        if divisor != 1 {
            tracing::warn!(
                divisor,
                "{DIVISOR} is set: waiting times and polling intervals are divided by it. This is for tests \
                 only; unset it in production"
            );
        }
        Ok(Self::default() / divisor)
    }
}

fn divisor(text: &str) -> Result<u32, WrongUse> {
    let divisor = text.parse().ok().filter(|divisor| (1..=DIVISOR_MAX).contains(divisor));
    divisor.ok_or_else(|| {
        WrongUse(format!("{DIVISOR}: expected a whole number from 1 to {DIVISOR_MAX}: {text:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_divided() {
        let tenth = Timing::default() / 10;
        assert_eq!(tenth.region_check_interval, Duration::from_secs(3));
        assert_eq!(tenth.ingest.partition_check_interval, Duration::from_secs(1));
        assert_eq!(tenth.store.engine_recovery_patience, Duration::from_secs(3));
    }

    #[track_caller]
    fn check(text: &str, expected: Option<u32>) {
        match (divisor(text), expected) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected),
            (Err(error), None) => {
                let error = error.to_string();
                assert!(
                    error.contains(DIVISOR) && error.ends_with(&format!("{text:?}")),
                    "{error}"
                );
            }
            (found, _) => panic!("{text:?}: {found:?}"),
        }
    }

    #[test]
    fn a_divisor_is_a_whole_number_up_to_a_thousand() {
        check("1", Some(1));
        check("10", Some(10));
        check("1000", Some(1_000));
        for wrong in ["", "0", "-1", "1.5", "1001", "99999999999", " 10", "ten"] {
            check(wrong, None);
        }
    }
}
