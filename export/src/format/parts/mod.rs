//! Writes the parts of a file side by side, and passes their chunks on in the order of the parts.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use parking_lot::Mutex;

use super::chunks::Chunk;
use crate::ExportError;

/// Chunks of a part that wait for the parts before it. Most parts have fewer: a thread that waits leaves its processor
/// idle.
pub(crate) const CHUNKS_WAITING_MAX: usize = 32;

/// Where a thread puts the chunks of a part.
pub(crate) struct PartChunks(SyncSender<Result<Chunk, ExportError>>);

impl PartChunks {
    /// Puts the next chunk. Waits while there are too many; breaks if they are not needed any more.
    pub fn put(&self, chunk: Chunk) -> ControlFlow<()> {
        match self.0.send(Ok(chunk)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Writes parts on several threads, each with a state of its own, and passes the chunks to `sink` in the order of
/// `parts`. `threads` limits the threads that write and is called between parts; the parts in memory are at most one
/// more.
///
/// Returns when there are no more parts or `threads` is below 2; the latter leaves the next parts in `parts`. Breaks if
/// `sink` breaks.
///
/// # Errors
/// The first error in the order of the parts, after the chunks before it; or no thread can be started.
pub(crate) fn in_order<Part: Send, State>(
    parts: &mut impl Iterator<Item = Part>,
    threads: impl Fn() -> usize,
    new_state: impl Fn() -> State + Sync,
    write: impl Fn(&mut State, Part, &PartChunks) -> Result<(), ExportError> + Sync,
    mut sink: impl FnMut(Chunk) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ExportError> {
    let (sender, queue) = channel::<(Part, PartChunks)>();
    let queue = Mutex::new(queue);
    let run = || write_queued(&queue, &new_state, &write);
    thread::scope(|scope| {
        // It is dropped with this closure, which ends the threads.
        let sender = sender;
        let mut begun = VecDeque::new();
        let mut started = 0;
        loop {
            let allowed = threads();
            // One more than threads, so that none waits for its next part. Once fewer are allowed than were started, it
            // would occupy one of the others.
            let parts_max = if started > allowed { allowed } else { allowed + 1 };
            while allowed > 1 && begun.len() < parts_max {
                let Some(part) = parts.next() else { break };
                if started <= begun.len() && started < allowed {
                    let thread = thread::Builder::new().name("adtrail-scan".into());
                    thread.spawn_scoped(scope, run).map_err(ExportError::NoThread)?;
                    started += 1;
                }
                let (chunks, ready) = sync_channel(CHUNKS_WAITING_MAX);
                // The queue lives as long as the threads.
                let _ = sender.send((part, PartChunks(chunks)));
                begun.push_back(ready);
            }
            let Some(first) = begun.pop_front() else { return Ok(ControlFlow::Continue(())) };
            for chunk in first {
                if sink(chunk?).is_break() {
                    // Threads that still write stop at their next chunk.
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    })
}

/// Writes queued parts until there is no sender.
fn write_queued<Part, State>(
    queue: &Mutex<Receiver<(Part, PartChunks)>>,
    new_state: &impl Fn() -> State,
    write: &impl Fn(&mut State, Part, &PartChunks) -> Result<(), ExportError>,
) {
    let mut state = new_state();
    loop {
        // A statement of its own, so that the queue is not locked meanwhile.
        let next = queue.lock().recv();
        let Ok((part, chunks)) = next else { return };
        if let Err(error) = write(&mut state, part, &chunks) {
            // If the chunks are not needed any more, the error is not either.
            let _ = chunks.0.send(Err(error));
        }
    }
}

#[cfg(test)]
mod tests;
