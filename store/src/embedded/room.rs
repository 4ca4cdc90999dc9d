//! Waiting for room on the disk: what the engine has no room for is kept and tried again, and the
//! engine takes up its work by itself once there is room.

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
    is_given_up: AtomicBool,
}

impl Room {
    /// Whether a write waits.
    pub fn is_awaited(&self) -> bool {
        self.0.is_awaited.load(Ordering::Relaxed)
    }

    /// From now on nothing waits any more: what finds no room fails.
    pub fn give_up(&self) {
        self.0.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Writes the batch, however long it takes until there is room.
    ///
    /// # Errors
    /// The engine's; that there is no room only once it is given up.
    pub(super) fn write(
        &self,
        db: &DB,
        batch: WriteBatch,
        options: &WriteOptions,
    ) -> Result<(), Error> {
        // The engine does not give back what it could not write.
        let bytes = batch.data().to_vec();
        let mut outcome = db.write_opt(batch, options);
        while outcome.as_ref().is_err_and(is_of_room) && !self.0.is_given_up.load(Ordering::Relaxed)
        {
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
