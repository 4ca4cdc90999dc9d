//! CPU slots limit downloads, so that many of them leave processors for ingestion. A download gives its slot to others
//! after each chunk, so that all progress.

use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A slot for every second processor.
#[derive(Debug, Clone)]
pub(crate) struct CpuSlots(Arc<Semaphore>);

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

impl CpuSlots {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new((processors() / 2).max(1))))
    }

    /// Checks whether every download can use two processors: one in its slot, and one to read ahead.
    pub fn suffice_for(downloads: usize) -> bool {
        2 * downloads <= processors()
    }

    /// Waits for a slot, in order of arrival. Must be called on a blocking thread of a runtime.
    pub fn wait(&self) -> CpuSlot {
        let permit = Handle::current().block_on(Arc::clone(&self.0).acquire_owned());
        // The semaphore is never closed.
        CpuSlot { slots: self.clone(), permit: permit.ok() }
    }
}

/// A slot that is occupied until it is dropped.
pub(crate) struct CpuSlot {
    slots: CpuSlots,
    permit: Option<OwnedSemaphorePermit>,
}

impl CpuSlot {
    /// Gives the slot to others during `meanwhile`, then waits for a slot again.
    pub fn pause<T>(&mut self, meanwhile: impl FnOnce() -> T) -> T {
        self.permit = None;
        let done = meanwhile();
        *self = self.slots.wait();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// The thread with the only slot pauses until the waiting thread has had the slot.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_pause_gives_the_slot_to_the_next_thread() {
        let slots = CpuSlots(Arc::new(Semaphore::new(1)));
        let (sender, receiver) = mpsc::channel();
        let first = tokio::task::spawn_blocking({
            let (slots, sender) = (slots.clone(), sender.clone());
            move || {
                let mut slot = slots.wait();
                let other = tokio::task::spawn_blocking(move || {
                    let _slot = slots.wait();
                    sender.send("second").unwrap();
                });
                slot.pause(|| {});
                // At the first pause, the other thread is perhaps not waiting for a slot yet.
                while slot.slots.0.available_permits() == 0 && !other.is_finished() {
                    slot.pause(std::thread::yield_now);
                }
            }
        });
        first.await.unwrap();
        drop(sender);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["second"]);
    }
}
