//! Waiting for room on the disk, where somebody wants that: what the engine has no room for is kept
//! and tried again, and the engine takes up its work by itself once there is room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rocksdb::{DB, Error, ErrorKind, WriteBatch, WriteOptions};

/// The engine itself looks for room every five seconds.
const TRY_EVERY: Duration = Duration::from_millis(250);
/// What the operating system says (ENOSPC), as the engine hands it on.
const NO_ROOM: &str = "No space left on device";

/// Whether writes wait for room on the disk, and whether they may. Clones are of the same store.
#[derive(Debug, Clone, Default)]
pub struct Room(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_awaited: AtomicBool,
    may_wait: AtomicBool,
}

impl Room {
    /// Whether a write waits.
    pub fn is_awaited(&self) -> bool {
        self.0.is_awaited.load(Ordering::Relaxed)
    }

    /// From now on writes wait, for somebody who says so.
    pub(super) fn wait(&self) {
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
    pub(super) fn write(
        &self,
        db: &DB,
        batch: WriteBatch,
        options: &WriteOptions,
    ) -> Result<(), Error> {
        let may_wait = || self.0.may_wait.load(Ordering::Relaxed);
        // The engine does not give back what it could not write.
        let bytes = if may_wait() { batch.data().to_vec() } else { Vec::new() };
        let mut outcome = db.write_opt(batch, options);
        while outcome.as_ref().is_err_and(is_of_room) && may_wait() && !bytes.is_empty() {
            self.0.is_awaited.store(true, Ordering::Relaxed);
            thread::sleep(TRY_EVERY);
            outcome = db.write_opt(WriteBatch::from_data(&bytes), options);
        }
        self.0.is_awaited.store(false, Ordering::Relaxed);
        outcome
    }
}

fn is_of_room(error: &Error) -> bool {
    error.kind() == ErrorKind::IOError && error.as_ref().contains(NO_ROOM)
}
