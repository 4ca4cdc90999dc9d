//! Blocks writes while the disk is full, if enabled: the batch is kept and retried until RocksDB has resumed, which it
//! does by itself once there is free space.
//!
//! It does not resume after it failed to create a log file, for example without free inodes (11.8.1,
//! `ErrorHandler::HandleKnownErrors`; the C API has no `DB::Resume`). So if writes still fail a while after space has
//! become free, the write fails as well, which ends the process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rocksdb::{Error, ErrorKind, WriteBatch, WriteOptions};
use rustix::fs::{StatVfs, statvfs};

use crate::StoreError;
use crate::Timing;
use crate::embedded::db::Db;

/// Free space with which the engine must be able to resume.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// Free space with which a table can be created: for the manifest and the file with the options of all tables.
const TABLE_BYTES_MIN: u64 = 4 << 20;
/// The text of ENOSPC, which RocksDB passes on.
const NO_SPACE: &str = "No space left on device";

/// Blocks writes while the disk is full, if enabled. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct DiskFullGate(Arc<State>);

#[derive(Debug, Default)]
struct State {
    timing: Timing,
    is_blocked: AtomicBool,
    may_wait: AtomicBool,
}

impl DiskFullGate {
    pub(crate) fn new(timing: Timing) -> Self {
        Self(Arc::new(State { timing, ..State::default() }))
    }

    /// True while a write waits for free space.
    pub fn is_blocked(&self) -> bool {
        self.0.is_blocked.load(Ordering::Relaxed)
    }

    /// From now on writes block while the disk is full.
    pub(crate) fn enable(&self) {
        self.0.may_wait.store(true, Ordering::Relaxed);
    }

    /// From now on writes fail while the disk is full, including one that waits.
    pub fn give_up(&self) {
        self.0.may_wait.store(false, Ordering::Relaxed);
    }

    /// Writes the batch. If enabled, blocks until there is space.
    ///
    /// # Errors
    /// Errors of the engine, a full disk only if waiting is not enabled; [`StoreError::Stopped`] if the engine does not
    /// resume.
    pub(crate) fn write(
        &self,
        db: &Db,
        batch: WriteBatch,
        options: &WriteOptions,
    ) -> Result<(), StoreError> {
        if !self.may_wait() {
            return Ok(db.write_opt(batch, options)?);
        }
        // The engine consumes the batch even if the write fails.
        let bytes = batch.data().to_vec();
        let mut first = Some(batch);
        self.retry(db, || {
            let batch = first.take().unwrap_or_else(|| WriteBatch::from_data(&bytes));
            db.write_opt(batch, options)
        })
    }

    /// Calls an operation of the engine. If waiting is enabled, calls it again as long as the disk is full.
    ///
    /// # Errors
    /// See [`DiskFullGate::write`].
    pub(crate) fn retry<T>(
        &self,
        db: &Db,
        mut operation: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let timing = self.0.timing;
        let mut outcome = operation();
        let mut full_at = Instant::now();
        while outcome.as_ref().is_err_and(is_disk_full) && self.may_wait() {
            self.0.is_blocked.store(true, Ordering::Relaxed);
            thread::sleep(timing.full_disk_retry_interval);
            outcome = operation();
            if !has_free_space(db.path(), FREE_BYTES_MIN) {
                full_at = Instant::now();
            }
            if let Err(error) = &outcome
                && full_at.elapsed() >= timing.engine_recovery_patience
            {
                return Err(StoreError::Stopped { reason: error.to_string() });
            }
        }
        self.0.is_blocked.store(false, Ordering::Relaxed);
        Ok(outcome?)
    }

    /// [`DiskFullGate::retry`] for an operation that creates tables. A failed one may leave them behind, so it is not
    /// called again as long as there is no space for them.
    ///
    /// # Errors
    /// See [`DiskFullGate::write`].
    pub(crate) fn retry_with_space<T>(
        &self,
        db: &Db,
        mut operation: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let mut failure: Option<Error> = None;
        self.retry(db, || {
            if let Some(error) = &failure
                && !has_free_space(db.path(), TABLE_BYTES_MIN)
            {
                return Err(error.clone());
            }
            let outcome = operation();
            failure = outcome.as_ref().err().cloned();
            outcome
        })
    }

    fn may_wait(&self) -> bool {
        self.0.may_wait.load(Ordering::Relaxed)
    }
}

/// Returns how many bytes this process may still write to the disk of `path`, 0 if the disk does not say.
pub(crate) fn free_bytes(path: &Path) -> u64 {
    statvfs(path).map_or(0, |disk| available_bytes(&disk))
}

/// Checks free bytes and inodes. Some file systems report no inodes at all.
fn has_free_space(path: &Path, bytes_min: u64) -> bool {
    statvfs(path).is_ok_and(|disk| {
        available_bytes(&disk) >= bytes_min && (disk.f_files == 0 || disk.f_favail > 0)
    })
}

fn available_bytes(disk: &StatVfs) -> u64 {
    disk.f_bavail.saturating_mul(disk.f_frsize)
}

fn is_disk_full(error: &Error) -> bool {
    error.kind() == ErrorKind::IOError && error.as_ref().contains(NO_SPACE)
}
