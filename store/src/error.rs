//! What can go wrong with a store, told by what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use attribution::facts::event::Pid;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Stop the other process, or use another directory.
    #[error("store directory is in use by another process: {}", .path.display())]
    InUse { path: PathBuf },

    /// Fix the path.
    #[error("there is no store in this directory: {}", .path.display())]
    Missing { path: PathBuf },

    /// Fix the path: something else lives there.
    #[error("directory holds files but no adtrail store: {}", .path.display())]
    NotAStore { path: PathBuf },

    /// Restore again: nothing is lost, the backup has all.
    #[error(
        "a restore into this directory has not come to its end: wait if it is at work, else run adtrail restore \
         again, or remove the directory: {}", .path.display()
    )]
    HalfRestored { path: PathBuf },

    /// Use the version of adtrail that wrote it, or an empty store.
    #[error(
        "the store in {place} has layout version {found}, this adtrail reads version {expected}: {}",
        if found < expected {
            "a development version of adtrail wrote it; start with an empty store, which reads all that kafka has"
        } else {
            "a newer adtrail wrote it; use that version"
        }
    )]
    OtherLayout { place: String, found: u32, expected: u32 },

    /// Fix the setting: the number is fixed when the store is created.
    #[error(
        "store was created with store.partitions = {found}, configured is {configured}: set {found}, or another \
         store.path: {}",
        .path.display()
    )]
    WrongPartitions { path: PathBuf, found: u16, configured: u16 },

    /// Give the app a pid that no app of the store has had, or say that it was renamed.
    #[error(
        "pid {} is the app {had:?} in this store, and {key:?} in the settings, which would be shown its rows: \
         give {key:?} a pid that no app has had, or previous_key = {had:?} where it is the same app renamed", .pid.0
    )]
    OtherApp { pid: Pid, had: Box<str>, key: Box<str> },

    /// Give the app its pid back.
    #[error(
        "the app {key:?} has pid {} in this store, and {} in the settings, where its rows would not be found: a \
         pid stays with its app", .had.0, .pid.0
    )]
    OtherPid { key: Box<str>, had: Pid, pid: Pid },

    /// Fix permissions, or free space.
    #[error("store directory can not be written: {}: {reason}", .path.display())]
    Unwritable { path: PathBuf, reason: String },

    /// Fix what the reason says: a file that is missing, permissions, space, the number of open files.
    #[error("store can not be opened: {}: {reason}", .path.display())]
    Unopened { path: PathBuf, reason: String },

    /// Restore from a backup: the bytes are not what was written.
    #[error("store is damaged: {what}")]
    Corrupt { what: String },

    /// Set the clock. If it is right, it was not when this was written, and state has expired too early:
    /// restore a backup of before, or begin with a new store.
    #[error(
        "store was written by a clock that was ahead of this machine's by more than a day: all is consumed \
         up to {until_ms} ms since 1970, and the clock says {now_ms}: set this machine's clock; if it is \
         right, it was wrong then, or this figure is damaged: restore a backup of before, or begin with a \
         new store.path, which reads all that kafka has"
    )]
    AheadOfClock { until_ms: u64, now_ms: u64 },

    /// Name a directory of backups; or, for a first backup, a new or empty one.
    #[error("directory holds no adtrail backups: {}", .path.display())]
    NoBackups { path: PathBuf },

    /// Take another backup; the bytes are not what was written.
    #[error("backup is damaged: {}: {what}", .path.display())]
    DamagedBackup { path: PathBuf, what: String },

    /// Wait for the other to end.
    #[error("another backup or restore is at work there: {}", .path.display())]
    BackupUnderWay { path: PathBuf },

    /// Move away what is there: a restore overwrites nothing.
    #[error("a store is only restored into a new or empty directory: {}", .path.display())]
    NotEmpty { path: PathBuf },

    /// Fix permissions, or free space.
    #[error("can not be {deed}: {}: {source}", .path.display())]
    File { deed: &'static str, path: PathBuf, source: io::Error },

    /// As the client of HBase says.
    #[error("hbase: {0}")]
    HBase(hbase_client::Error),

    /// Try later: its rows are corrected without end.
    #[error("hbase: rows of pid {pid} at {millis} ms were others whenever they were read")]
    Torn { pid: u32, millis: u64 },

    /// Make it.
    #[error(
        "there is no store in the tables {prefix}_… of this hbase: adtrail hbase init makes it"
    )]
    NotMade { prefix: String },

    /// Fix the setting: the number is fixed when the store is made.
    #[error(
        "the store in the tables {prefix}_… was made with store.partitions = {found}, configured is \
         {configured}: set {found}, or another store.hbase.prefix"
    )]
    OtherPartitions { prefix: String, found: u16, configured: u16 },

    /// Change the tables, as it says.
    #[error("hbase drops what exports need before the settings let it go: {differences}")]
    ShortLived { differences: String },

    /// Copy again: nothing is lost, the source has all.
    #[error(
        "a copy into the tables {prefix}_… has not come to its end: wait if it is at work, else run adtrail \
         copy again"
    )]
    HalfCopied { prefix: String },

    /// Copy again into an empty store, with nobody else at work on either.
    #[error(
        "the copy is not what the source is, in: {tables}; somebody else writes to one of them, or has: stop \
         all workers, empty the target and copy again"
    )]
    NotTheSame { tables: String },

    /// Change the table, or name another prefix.
    #[error("table {table} can not be used: {reason}")]
    Unusable { table: String, reason: String },

    /// Try again: others wrote the same all the while.
    #[error("hbase: {what} was changed by others whenever it was to be written")]
    Contended { what: String },

    /// Wait, or mend HBase.
    #[error("hbase does not do what a worker asks for, which is tried again; the log says what")]
    Waiting,

    /// Free memory or threads.
    #[error("no threads for the client of hbase: {reason}")]
    Runtime { reason: String },

    /// Start again: what was committed is safe, and the rest is read again.
    #[error(
        "there is room on the disk of the store again, but its engine does not take up its work; the next \
         start does: {reason}"
    )]
    Stopped { reason: String },

    /// The engine failed; what was committed is safe.
    #[error("store engine failed: {0}")]
    Engine(#[from] rocksdb::Error),
}

/// What it says has what is behind it: it is no source, to be said once more.
impl From<hbase_client::Error> for StoreError {
    fn from(error: hbase_client::Error) -> Self {
        Self::HBase(error)
    }
}

impl StoreError {
    /// Whether the same may succeed later, by itself.
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

    /// For `map_err`: what could not be done to a file.
    pub(crate) fn file(deed: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { deed, path: path.into(), source }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hbase_client::Error;

    use super::*;

    #[test]
    fn what_hbase_does_not_do_now_may_pass() {
        let what = "a scan";
        let late = Error::Deadline { what, limit: Duration::from_secs(30), last: None };
        assert!(StoreError::from(late).is_passing());
        assert!(StoreError::from(Error::NoMaster).is_passing());
        let disabled = Error::Disabled { table: "adtrail_events".parse().unwrap() };
        assert!(!StoreError::from(disabled).is_passing());
        assert!(!StoreError::corrupt("a row").is_passing());
    }
}
