//! Errors of a store. The doc comment of each variant says what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use attribution::facts::event::Pid;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Stop the other process, or use another directory.
    #[error("store directory is in use by another process: {}", .path.display())]
    InUse { path: PathBuf },

    /// Fix the path.
    #[error("no store in this directory: {}", .path.display())]
    Missing { path: PathBuf },

    /// Fix the path: the directory belongs to something else.
    #[error("directory holds files but no adtrail store: {}", .path.display())]
    NotAStore { path: PathBuf },

    /// Restore again: the backup is still complete.
    #[error(
        "this directory holds an incomplete restore: wait if adtrail restore is running, else run it again or \
         remove the directory: {}", .path.display()
    )]
    IncompleteRestore { path: PathBuf },

    /// Use the version of adtrail that wrote it, or an empty store.
    #[error(
        "the store in {location} has layout version {found}, this adtrail reads version {expected}: {}",
        if found < expected {
            "a development version of adtrail wrote it; start with an empty store to re-read all records from Kafka (over \
             HBase also with another kafka.group)"
        } else {
            "a newer adtrail wrote it; use that version"
        }
    )]
    OtherLayout { location: String, found: u32, expected: u32 },

    /// Fix the setting: the number is fixed when the store is created.
    #[error(
        "store was created with store.partitions = {found}, but {configured} is configured: set {found}, or use \
         another store.path: {}",
        .path.display()
    )]
    WrongPartitions { path: PathBuf, found: u16, configured: u16 },

    /// Give the app a pid that no app of the store has used, or set `previous_key` if the app was renamed.
    #[error(
        "pid {} belongs to the app {had:?} in this store, but to {key:?} in the settings, which would expose the \
         rows of {had:?}: give {key:?} a pid that no app has used, or set previous_key = {had:?} if the app was \
         renamed", .pid.0
    )]
    AppMismatch { pid: Pid, had: Box<str>, key: Box<str> },

    /// Restore the app's pid in the settings.
    #[error(
        "the app {key:?} has pid {} in this store, but {} in the settings, so its rows would not be found: the pid \
         of an app must not change", .had.0, .pid.0
    )]
    PidMismatch { key: Box<str>, had: Pid, pid: Pid },

    /// Fix permissions, or free space.
    #[error("store directory cannot be written: {}: {reason}", .path.display())]
    Unwritable { path: PathBuf, reason: String },

    /// Fix the reason: a missing file, permissions, space, the limit of open files.
    #[error("store cannot be opened: {}: {reason}", .path.display())]
    Unopened { path: PathBuf, reason: String },

    /// Restore from a backup: the stored bytes are not those that were written.
    #[error("store is damaged: {what}")]
    Corrupt { what: String },

    /// Set the clock. If it is right, it was ahead when the store was written, and state has expired too early:
    /// restore an earlier backup, or start with a new store.
    #[error(
        "store was written by a clock that was ahead of this machine's by more than a day: the stored low watermark \
         is {until_ms} ms since 1970, this machine's time is {now_ms}: set this machine's clock; if it is right, the \
         clock was wrong when the store was written, or the stored time is corrupt: restore an earlier \
         backup, or start with a new store.path, which re-reads all records from Kafka"
    )]
    AheadOfClock { until_ms: u64, now_ms: u64 },

    /// Name a backup directory or, for the first backup, a new or empty directory.
    #[error("directory holds no adtrail backups: {}", .path.display())]
    NoBackups { path: PathBuf },

    /// Use another backup: the stored bytes are not those that were written.
    #[error("backup is damaged: {}: {what}", .path.display())]
    DamagedBackup { path: PathBuf, what: String },

    /// Wait until the other process has finished.
    #[error("another backup or restore is running there: {}", .path.display())]
    BackupUnderWay { path: PathBuf },

    /// Empty the directory: nothing is overwritten.
    #[error("the target must be a new or empty directory: {}", .path.display())]
    NotEmpty { path: PathBuf },

    /// Fix permissions, or free space.
    #[error("cannot be {action}: {}: {error}", .path.display())]
    File { action: &'static str, path: PathBuf, error: io::Error },

    /// See the error of the HBase client.
    #[error("hbase: {0}")]
    HBase(hbase_client::Error),

    /// Retry later: the rows are being corrected.
    #[error("hbase: rows of pid {pid} at {millis} ms kept changing while being read; retry later")]
    Torn { pid: u32, millis: u64 },

    /// Create the tables.
    #[error("no store in the tables {prefix}_… of this HBase: run adtrail hbase init to create it")]
    NoTables { prefix: String },

    /// Fix the setting: the number is fixed when the store is created.
    #[error(
        "the store in the tables {prefix}_… was created with store.partitions = {found}, but {configured} is \
         configured: set {found}, or use another store.hbase.prefix and another kafka.group"
    )]
    OtherPartitions { prefix: String, found: u16, configured: u16 },

    /// Change the tables as the message says.
    #[error("TTLs of HBase tables are shorter than the settings need: {differences}")]
    TtlTooShort { differences: String },

    /// Copy again: the source is still complete.
    #[error(
        "the tables {prefix}_… hold an incomplete copy: wait if adtrail copy is running, else run it again"
    )]
    IncompleteCopy { prefix: String },

    /// Run the service until it has read on.
    #[error(
        "the store has a batch that was interrupted between two commits: start adtrail run, which completes it, stop \
         it once it has read on, and copy again: {}", .path.display()
    )]
    Unfinished { path: PathBuf },

    /// Copy again into an empty store, with all workers of both stores stopped.
    #[error(
        "the copy differs from the source in: {tables}; another process has written to one of the two: stop all \
         workers, empty the target and copy again"
    )]
    CopyDiffers { tables: String },

    /// Change the table, or name another prefix.
    #[error("table {table} cannot be used: {reason}")]
    Unusable { table: String, reason: String },

    /// Retry later: other processes keep writing the same row.
    #[error("hbase: {what} was modified concurrently on every write attempt")]
    Contended { what: String },

    /// Wait, or repair HBase.
    #[error("HBase does not serve the requests of a worker; retrying (see the log)")]
    Waiting,

    /// Free memory or threads.
    #[error("threads of the HBase client cannot be started: {reason}")]
    Runtime { reason: String },

    /// Restart: committed batches are safe, the others are re-read.
    #[error(
        "the disk of the store has free space again, but the storage engine has not resumed; restart adtrail: \
         {reason}"
    )]
    Stopped { reason: String },

    /// Free memory or threads, or see the error before; committed batches are safe, the others are re-read.
    #[error("the thread that writes to the store {reason}")]
    Writer { reason: String },

    /// The engine failed; committed batches are safe.
    #[error("store engine failed: {0}")]
    Engine(#[from] rocksdb::Error),
}

/// Not `#[from]`: the message includes the client's error, so it must not be its source as well.
impl From<hbase_client::Error> for StoreError {
    fn from(error: hbase_client::Error) -> Self {
        Self::HBase(error)
    }
}

impl StoreError {
    /// True if the same operation may succeed later without intervention.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::HBase(error) => error.advice() == hbase_client::RetryAdvice::TryLater,
            Self::Torn { .. } | Self::Waiting => true,
            _ => false,
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    /// For `map_err`. `action` is a past participle that completes "cannot be …".
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File { action, path: path.into(), error }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hbase_client::Error;

    use super::*;

    #[test]
    fn only_temporary_hbase_errors_are_passing() {
        let operation = "a scan";
        let late = Error::Deadline { operation, limit: Duration::from_secs(30), last: None };
        assert!(StoreError::from(late).is_passing());
        assert!(StoreError::from(Error::NoMaster).is_passing());
        let disabled = Error::Disabled { table: "adtrail_events".parse().unwrap() };
        assert!(!StoreError::from(disabled).is_passing());
        assert!(!StoreError::corrupt("a row").is_passing());
    }
}
