//! The large request bodies of a connection, which are read one at a time, so that the streams of HTTP/2 do not
//! multiply the memory of a body.

use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::stopped;

/// What is read of every body at once; more only in turn.
pub(super) const SMALL_BODY_BYTES: usize = 8 << 10;

/// The turn of a connection, which one request has at a time.
pub(super) struct Turns(Arc<Semaphore>);

impl Turns {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Returns the place of a request, which does not have the turn yet.
    pub fn place(&self) -> Place {
        Place { turn: Arc::clone(&self.0), taken: Arc::default() }
    }
}

/// Lets a request have the turn, until all clones are dropped.
#[derive(Clone)]
pub(super) struct Place {
    turn: Arc<Semaphore>,
    taken: Arc<OnceLock<OwnedSemaphorePermit>>,
}

impl Place {
    pub fn has_turn(&self) -> bool {
        self.taken.get().is_some()
    }

    /// Waits for the turn; false if the service stops before.
    pub async fn take_turn(self, stopping: watch::Receiver<bool>) -> bool {
        tokio::select! {
            // The semaphore is never closed.
            permit = self.turn.acquire_owned() => permit.is_ok_and(|permit| self.taken.set(permit).is_ok()),
            () = stopped(stopping) => false,
        }
    }
}
