//! CPU slots limit downloads, so that many of them leave processors for ingestion. A download gives its slot to others
//! after each chunk, so that all progress. Few downloads share all processors.

use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A slot for every second processor.
#[derive(Debug, Clone)]
pub(crate) struct CpuSlots(Arc<Semaphore>);

/// The threads that one download may have: more than its checksum, its socket and its client keep up with. The limit
/// bounds the threads of all downloads, too: a stalled one keeps those that it began with, so that there may be somewhat
/// more than two per processor.
const THREADS_MAX: usize = 8;

/// The processors that the process may use. Finding out reads files of its control group, so it is done once.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

/// The threads of each of several downloads, at least one.
fn share(processors: usize, downloads: usize) -> usize {
    (processors / downloads.max(1)).clamp(1, THREADS_MAX)
}

impl CpuSlots {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new((processors() / 2).max(1))))
    }

    /// The number of threads with which each of several downloads may scan. With more than one, every download has a
    /// slot whenever it needs one, because there are at most half as many downloads as processors.
    pub fn threads_for(downloads: usize) -> usize {
        share(processors(), downloads)
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
    use crate::http::state::SCANS_MAX;

    #[test]
    fn few_downloads_share_the_processors() {
        let shares =
            |processors| [0, 1, 2, 3, 4, 5, 64].map(|downloads| share(processors, downloads));
        assert_eq!(shares(1), [1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(shares(2), [2, 2, 1, 1, 1, 1, 1]);
        assert_eq!(shares(8), [8, 8, 4, 2, 2, 1, 1]);
        assert_eq!(shares(64), [8, 8, 8, 8, 8, 8, 1]);
    }

    /// Each download begins while those before it are stalled, with all their threads.
    #[test]
    fn the_threads_of_all_downloads_are_limited() {
        for processors in 1..=512 {
            let shares = (1..=SCANS_MAX).map(|downloads| share(processors, downloads));
            let threads: usize = shares.filter(|threads| *threads > 1).sum();
            assert!(4 * threads <= 9 * processors, "{threads} of {processors}");
        }
    }

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
