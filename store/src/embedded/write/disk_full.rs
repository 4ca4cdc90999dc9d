//! Waiting for room on the disk, where somebody wants that: what the engine has no room for is kept
//! and tried again, and the engine takes up its work by itself once there is room.
//!
//! But not always: after it could not make the file of a new log, for which a disk without inodes is
//! enough, it stays stopped until it is opened again (11.8.1, `ErrorHandler::HandleKnownErrors`; the C
//! interface has no `DB::Resume`). So where there has been room for a while and it goes on failing, the
//! write fails too, which ends the process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rocksdb::{DB, Error, ErrorKind, WriteBatch, WriteOptions};
use rustix::fs::statvfs;

use crate::StoreError;
use crate::Timing;

/// More than this is room enough for the engine.
const ROOM_BYTES: u64 = 256 << 20;
/// What the operating system says (ENOSPC), as the engine hands it on.
const NO_ROOM: &str = "No space left on device";

/// Whether writes wait for room on the disk, and whether they may. Clones are of the same store.
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

    /// Whether a write waits.
    pub fn is_blocked(&self) -> bool {
        self.0.is_blocked.load(Ordering::Relaxed)
    }

    /// From now on writes wait, for somebody who says so.
    pub(crate) fn wait(&self) {
        self.0.may_wait.store(true, Ordering::Relaxed);
    }

    /// From now on nothing waits any more: what finds no room fails.
    pub fn give_up(&self) {
        self.0.may_wait.store(false, Ordering::Relaxed);
    }

    /// Writes the batch, however long it takes until there is room, if it may wait.
    ///
    /// # Errors
    /// The engine's; that there is no room only if nothing waits.
    pub(crate) fn write(
        &self,
        db: &DB,
        batch: WriteBatch,
        options: &WriteOptions,
    ) -> Result<(), StoreError> {
        let timing = self.0.timing;
        let may_wait = || self.0.may_wait.load(Ordering::Relaxed);
        // The engine does not give back what it could not write.
        let bytes = if may_wait() { batch.data().to_vec() } else { Vec::new() };
        let mut outcome = db.write_opt(batch, options);
        let mut full_at = Instant::now();
        while outcome.as_ref().is_err_and(is_of_room) && may_wait() && !bytes.is_empty() {
            self.0.is_blocked.store(true, Ordering::Relaxed);
            thread::sleep(timing.full_disk_retry_interval);
            outcome = db.write_opt(WriteBatch::from_data(&bytes), options);
            if !has_room(db.path()) {
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
}

/// Room for bytes, and for files. Some file systems have no count of these.
fn has_room(path: &Path) -> bool {
    statvfs(path).is_ok_and(|disk| {
        let bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
        bytes >= ROOM_BYTES && (disk.f_files == 0 || disk.f_favail > 0)
    })
}

fn is_of_room(error: &Error) -> bool {
    error.kind() == ErrorKind::IOError && error.as_ref().contains(NO_ROOM)
}
