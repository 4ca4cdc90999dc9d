//! How long the store waits, and how often it retries.

use std::time::Duration;

/// Patience and retry intervals, as a value: tests run with a fraction of the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Interval between two attempts of a write while the disk is full.
    pub full_disk_retry_interval: Duration,
    /// How long the disk may have free space while writes still fail. Then the engine counts as stopped for good
    /// and the write fails, which ends the process. RocksDB checks for free space every 5 seconds and then flushes
    /// its write buffers: with less time than that, an engine that would recover counts as stopped too.
    pub engine_recovery_patience: Duration,
    /// Delay before a worker repeats an HBase operation after all retries of the client have failed.
    pub hbase_retry_delay: Duration,
    /// How long a start waits for optional answers of HBase before it continues without them.
    pub hbase_optional_answer_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            full_disk_retry_interval: Duration::from_millis(250),
            engine_recovery_patience: Duration::from_secs(30),
            hbase_retry_delay: Duration::from_secs(1),
            hbase_optional_answer_timeout: Duration::from_secs(5),
        }
    }
}

impl Timing {
    /// Every duration divided by the same number.
    ///
    /// # Panics
    /// If the divisor is 0.
    pub fn divided_by(self, divisor: u32) -> Self {
        Self {
            full_disk_retry_interval: self.full_disk_retry_interval / divisor,
            engine_recovery_patience: self.engine_recovery_patience / divisor,
            hbase_retry_delay: self.hbase_retry_delay / divisor,
            hbase_optional_answer_timeout: self.hbase_optional_answer_timeout / divisor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_divided() {
        assert_eq!(Timing::default().divided_by(1), Timing::default());
        let tenth = Timing::default().divided_by(10);
        assert_eq!(tenth.engine_recovery_patience, Duration::from_secs(3));
    }
}
