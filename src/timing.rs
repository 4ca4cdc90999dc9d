//! Timeouts and polling intervals of the commands, and the divisor by which tests shorten them.

use std::time::Duration;

use crate::commands::UsageError;

/// Environment variable with the divisor of every duration of [`Timing`]. It is not a setting, because it is only for
/// tests.
const DIVISOR_VARIABLE: &str = "ADTRAIL_TEST_TIME_DIVISOR";
const DIVISOR_MAX: u32 = 1_000;

config::timing! {
    /// Timeouts and polling intervals, in a struct so that tests can pass a fraction of the defaults.
    pub struct Timing {
        pub ingest: ingest::Timing = ingest::Timing::default(),
        pub store: store::Timing = store::Timing::default(),
        pub callback: callback::Timing = callback::Timing::default(),
        /// How often one process counts the callbacks of a shared store, for which all of them are read. Also how often
        /// each process looks for the oldest one that is due.
        pub callback_count_interval: Duration = Duration::from_secs(300),
        /// When another process counts instead of one that has died. A count takes longer: it renews its lease.
        pub callback_count_lease: Duration = Duration::from_secs(60),
        /// How often the other processes read the last count.
        pub callback_count_read_interval: Duration = Duration::from_secs(30),
        /// How often to end callbacks of endpoints that the settings no longer have.
        pub unclaimed_callback_interval: Duration = Duration::from_secs(3_600),
        /// Delay before the second attempt to find HBase at the start of a process. Later ones double it.
        pub hbase_start_delay: Duration = Duration::from_millis(500),
        pub hbase_start_delay_max: Duration = Duration::from_secs(10),
        /// How often to warn while a process that starts waits for HBase.
        pub hbase_start_warning_interval: Duration = Duration::from_secs(60),
        /// How often to send systemd a new status line, if it has changed.
        pub status_interval: Duration = Duration::from_secs(5),
        /// How often to check whether HBase responds, and to exchange progress with other processes. Readiness and the
        /// completeness shown by exports are at most this old.
        pub hbase_check_interval: Duration = Duration::from_secs(2),
        /// How often to read the region metrics of HBase, from every server.
        pub region_check_interval: Duration = Duration::from_secs(30),
        /// How long shutdown waits for writes to HBase in progress. When it expires, they are no longer retried, and
        /// uncommitted records are read again after the next start.
        pub hbase_last_write_timeout: Duration = Duration::from_secs(5),
        /// How long shutdown waits for downloads that it has aborted. When it expires, the process ends.
        pub aborted_download_timeout: Duration = Duration::from_secs(1),
        /// How long the end of a process waits for the export of its last spans.
        pub trace_flush_timeout: Duration = Duration::from_secs(2),
        /// How long a process may run beyond `run.shutdown_deadline` before it exits with status 1.
        pub forced_exit_grace: Duration = Duration::from_secs(5),
        /// How long `adtrail backup` retries before it fails, while a process uses the store without listening on the
        /// control socket: a service that is starting or stopping, for example.
        pub backup_store_timeout: Duration = Duration::from_secs(10),
        /// Interval between the attempts of `adtrail backup`.
        pub backup_retry_interval: Duration = Duration::from_millis(100),
    }
}

impl Timing {
    /// Returns the defaults, divided by `ADTRAIL_TEST_TIME_DIVISOR` if it is set. A divisor other than 1 is logged.
    ///
    /// # Errors
    /// If the divisor is not a whole number from 1 to 1000.
    pub fn from_env() -> Result<Self, UsageError> {
        let Some(text) = std::env::var_os(DIVISOR_VARIABLE) else { return Ok(Self::default()) };
        let divisor = divisor(&text.to_string_lossy())?;
        if divisor != 1 {
            tracing::warn!(
                divisor,
                "{DIVISOR_VARIABLE} is set: timeouts and polling intervals are divided by it. This is for tests only; \
                 unset it in production"
            );
        }
        Ok(Self::default() / divisor)
    }
}

fn divisor(text: &str) -> Result<u32, UsageError> {
    let divisor = text.parse().ok().filter(|divisor| (1..=DIVISOR_MAX).contains(divisor));
    divisor.ok_or_else(|| {
        UsageError(format!(
            "{DIVISOR_VARIABLE}: expected a whole number from 1 to {DIVISOR_MAX}: {text:?}"
        ))
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
                    error.contains(DIVISOR_VARIABLE) && error.ends_with(&format!("{text:?}")),
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
