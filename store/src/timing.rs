//! How long the store waits, and how often it retries.

use std::time::Duration;

config::timing! {
    /// Patience and retry intervals, as a value: tests run with a fraction of the defaults.
    pub struct Timing {
        /// Interval between two attempts of a write while the disk is full.
        pub full_disk_retry_interval: Duration = Duration::from_millis(250),
        /// How long the disk may have free space while writes still fail. Then the engine counts as stopped for good
        /// and the write fails, which ends the process. RocksDB checks for free space every 5 seconds and then flushes
        /// its write buffers: with less time than that, an engine that would recover counts as stopped too.
        pub engine_recovery_patience: Duration = Duration::from_secs(30),
        /// Delay before a worker repeats an HBase operation after all retries of the client have failed.
        pub hbase_retry_delay: Duration = Duration::from_secs(1),
        /// How long a start waits for optional answers of HBase before it continues without them.
        pub hbase_optional_answer_timeout: Duration = Duration::from_secs(5),
    }
}
