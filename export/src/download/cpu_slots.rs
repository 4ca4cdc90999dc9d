//! Whose turn it is to read: downloads take turns, chunk by chunk, so that many of them leave
//! processors to ingest, and each gets on.

use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Half of the processors read at a time.
#[derive(Debug, Clone)]
pub(crate) struct CpuSlots(Arc<Semaphore>);

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

impl CpuSlots {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new((processors() / 2).max(1))))
    }

    /// Whether there are processors enough for so many downloads to have two each.
    pub fn have_room(downloads: usize) -> bool {
        2 * downloads <= processors()
    }

    /// Waits for a turn, behind those who wait already. On a thread that may block, of a runtime.
    pub fn wait(&self) -> CpuSlot {
        let permit = Handle::current().block_on(Arc::clone(&self.0).acquire_owned());
        // Nobody closes it.
        CpuSlot { turns: self.clone(), permit: permit.ok() }
    }
}

/// Held while one reads.
pub(crate) struct CpuSlot {
    turns: CpuSlots,
    permit: Option<OwnedSemaphorePermit>,
}

impl CpuSlot {
    /// Lets others read while this one does something else, and waits for its turn again.
    pub fn pause<T>(&mut self, meanwhile: impl FnOnce() -> T) -> T {
        self.permit = None;
        let done = meanwhile();
        *self = self.turns.wait();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// With one turn, whoever pauses goes on only after the one who waited has had it.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_pauses_lets_the_next_one_read() {
        let turns = CpuSlots(Arc::new(Semaphore::new(1)));
        let (said, says) = mpsc::channel();
        let first = tokio::task::spawn_blocking({
            let (turns, said) = (turns.clone(), said.clone());
            move || {
                let mut turn = turns.wait();
                let other = tokio::task::spawn_blocking(move || {
                    let _turn = turns.wait();
                    said.send("second").unwrap();
                });
                turn.pause(|| {});
                while turn.turns.0.available_permits() == 0 && !other.is_finished() {
                    turn.pause(std::thread::yield_now);
                }
            }
        });
        first.await.unwrap();
        drop(said);
        assert_eq!(says.iter().collect::<Vec<_>>(), ["second"]);
    }
}
