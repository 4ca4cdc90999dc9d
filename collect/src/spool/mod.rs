//! Events on disk that Kafka has not acknowledged. A request whose events are here is answered with success.
//!
//! `writer` is the thread that owns the files: it writes the events of all requests that wait, with one fsync. `drain`
//! is the thread that produces them once Kafka answers, in the order of `cursors`, and removes each segment once Kafka
//! has acknowledged its events. A crash in between repeats a segment. While events are here, others go to Kafka
//! directly: exports do not depend on the order of events.

mod cursors;
mod drain;
mod folder;
mod metrics;
mod record;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ingest::TopicKind;
use tokio::sync::{mpsc, oneshot};

use self::drain::{Destination, Drain};
use self::folder::Folder;
use self::state::State;
use self::writer::{Append, Request, Writer};
use crate::CollectError;
use crate::metrics::Labels;

pub(crate) use self::record::Event;
pub(crate) use self::state::{SpoolError, Timing};

/// Requests that wait for the writer; further ones wait for a place.
const QUEUE_LENGTH: usize = 1_024;

/// An open spool with its two threads, which end once this is dropped.
pub(crate) struct Spool {
    requests: mpsc::Sender<Request>,
    state: Arc<State>,
    drain: drain::Handle,
}

/// An event on its way to the disk.
pub(crate) struct Writing(oneshot::Receiver<Result<(), SpoolError>>);

impl Writing {
    /// Waits until the event is on disk.
    pub async fn written(self) -> Result<(), SpoolError> {
        // The writer answers every request before it ends.
        self.0.await.unwrap_or(Err(SpoolError::Disk))
    }
}

impl Spool {
    /// Opens the directory, with the events of an earlier process, and starts to drain it.
    ///
    /// # Errors
    /// If another process uses the directory, or if it cannot be read.
    pub fn start(
        path: &Path,
        bytes_max: u64,
        destination: impl Destination,
        timing: Timing,
    ) -> Result<Self, CollectError> {
        let unusable = |error| CollectError::Spool { path: path.to_owned(), error };
        let folder = Arc::new(Folder::open(path)?);
        let state = Arc::new(State::default());
        let writer = Writer::open(Arc::clone(&folder), Arc::clone(&state), bytes_max);
        let writer = writer.map_err(unusable)?;
        let (requests, received) = mpsc::channel(QUEUE_LENGTH);
        let thread = thread::Builder::new().name("adtrail-spool".to_owned());
        thread.spawn(move || writer.run(received)).map_err(unusable)?;
        let drain =
            Drain { destination, folder, requests: requests.clone(), state: state.clone(), timing };
        let drain = drain.start().map_err(unusable)?;
        Ok(Self { requests, state, drain })
    }

    /// Queues an event for the disk. From then on the spool counts it, as spooled or refused.
    pub async fn append(&self, event: Event, labels: Labels<'_>) -> Writing {
        let (reply, written) = oneshot::channel();
        let append = Append { event, labels: labels.into_owned(), reply };
        // The writer runs as long as there are senders. Without it, the reply is missing.
        let _ = self.requests.send(Request::Append(append)).await;
        Writing(written)
    }

    /// Notes that Kafka has not acknowledged an event of this topic and key.
    pub fn note_failure(&self, topic: TopicKind, key: &str) {
        self.state.set_failing(topic, key);
    }

    /// Returns true if an event is better written here at once than after waiting for Kafka in vain, because Kafka has
    /// not acknowledged another one of this topic and key. The events that are here will show when it does again.
    /// Without room for more, it is better to wait.
    pub fn is_kafka_failing(&self, topic: TopicKind, key: &str) -> bool {
        self.state.events() > 0 && self.has_room() && self.state.is_failing(topic, key)
    }

    /// Returns true if events can probably be written.
    pub fn has_room(&self) -> bool {
        self.state.has_room()
    }

    /// Stops draining, and waits this long for the acknowledgements of Kafka. What remains is produced by the next
    /// process, and what is not acknowledged by then is repeated.
    pub fn stop_draining(&self, timeout: Duration) {
        self.drain.stop(timeout);
    }
}
