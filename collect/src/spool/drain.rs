//! The thread that produces the events of the spool.

use std::convert::Infallible;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, mem};

use ingest::kafka::event_producer::{EventProducer, Outcome as Delivered, ProduceError};
use parking_lot::Mutex;
use tokio::sync::{mpsc as requests, oneshot};

use super::cursors::Cursors;
use super::folder::Folder;
use super::record::{self, Event};
use super::state::{State, Timing};
use super::writer::{Outcome, Request, Segment};

/// Events that are produced together.
const BATCH_EVENTS: usize = 1_000;
/// How long an event waits for a place in the producer's queue, which requests fill too.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(1);
const QUEUE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What the spool is drained into.
pub(crate) trait Destination: Send + 'static {
    /// Returns false if it is known that events would fail.
    fn is_reachable(&self) -> bool;

    /// Produces events, and returns once each is acknowledged or has failed.
    fn produce(&self, events: &[Event]) -> Vec<Delivered>;
}

impl Destination for Arc<EventProducer> {
    fn is_reachable(&self) -> bool {
        self.is_connected()
    }

    fn produce(&self, events: &[Event]) -> Vec<Delivered> {
        let queue = |event: &Event| {
            let started = Instant::now();
            loop {
                match EventProducer::produce(self, event.topic, &event.key, &event.value) {
                    Err(ProduceError::QueueFull) if started.elapsed() < QUEUE_WAIT_MAX => {
                        thread::sleep(QUEUE_POLL_INTERVAL);
                    }
                    queued => return queued,
                }
            }
        };
        let queued: Vec<_> = events.iter().map(queue).collect();
        queued.into_iter().map(|delivery| delivery?.wait()).collect()
    }
}

pub(super) struct Drain<D> {
    pub destination: D,
    pub folder: Arc<Folder>,
    pub requests: requests::Sender<Request>,
    pub state: Arc<State>,
    pub timing: Timing,
}

/// Stops the thread when it is dropped.
pub(super) struct Handle {
    stop: Mutex<Option<mpsc::Sender<Infallible>>>,
    ended: Mutex<mpsc::Receiver<Infallible>>,
}

impl Handle {
    /// Stops the thread, and waits this long until it has ended.
    pub fn stop(&self, timeout: Duration) {
        drop(self.stop.lock().take());
        // Nothing is ever sent; the channel is closed at the end.
        let _ = self.ended.lock().recv_timeout(timeout);
    }
}

/// Shows the thread when to stop.
struct Stop(mpsc::Receiver<Infallible>);

impl Stop {
    /// Waits this long, or until the thread has to stop.
    fn is_requested_within(&self, time: Duration) -> bool {
        !matches!(self.0.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

impl<D: Destination> Drain<D> {
    pub fn start(self) -> io::Result<Handle> {
        let (stop, is_stopped) = mpsc::channel();
        let (ends, ended) = mpsc::channel::<Infallible>();
        thread::Builder::new().name("adtrail-drain".to_owned()).spawn(move || {
            self.run(&Stop(is_stopped));
            drop(ends);
        })?;
        Ok(Handle { stop: Mutex::new(Some(stop)), ended: Mutex::new(ended) })
    }

    fn run(&self, stop: &Stop) {
        let (mut cursors, mut wait) = (Cursors::default(), self.timing.check_interval);
        let mut unreadable = None;
        while !stop.is_requested_within(wait) {
            wait = self.timing.check_interval;
            if self.state.events() == 0 || !self.destination.is_reachable() {
                continue;
            }
            // If Kafka takes nothing of a segment, it may take something of the next one, of another topic or partition.
            let next = |after| self.ask(|reply| Request::Next { after, reply }).flatten();
            let Some(segment) = cursors.next(next) else { continue };
            wait = match self.drain(segment, stop) {
                Ok(true) => Duration::ZERO,
                Ok(false) => self.timing.retry_interval,
                Err(error) => {
                    let segment = segment.name.number;
                    if unreadable.replace(segment) != Some(segment) {
                        tracing::error!(segment, %error, "a segment of the spool cannot be read");
                    }
                    self.timing.retry_interval
                }
            };
        }
    }

    /// Produces the events of a segment. Returns false if the segment remains as it is.
    fn drain(&self, segment: Segment, stop: &Stop) -> io::Result<bool> {
        let Segment { name, bytes, events: count, is_damaged } = segment;
        let bytes = self.folder.read(name, bytes)?;
        let events = record::scan(&bytes, name.marker).events;
        let found = events.len() as u64;
        let is_damaged = is_damaged || found < count;
        if found < count {
            let (segment, events) = (name.number, count - found);
            tracing::error!(segment, events, "a segment of the spool is damaged");
        }
        let outcome = Outcome { is_damaged, ..self.produce(events, stop) };
        if found > 0 && outcome.remaining.len() as u64 == found {
            return Ok(false);
        }
        let number = name.number;
        Ok(self.ask(|reply| Request::Finish { number, outcome, reply }).unwrap_or(false))
    }

    /// Produces events until they have ended, Kafka takes none of a batch, or the thread has to stop.
    fn produce(&self, mut events: Vec<Event>, stop: &Stop) -> Outcome {
        let mut outcome = Outcome::default();
        while !events.is_empty() && !stop.is_requested_within(Duration::ZERO) {
            let rest = events.split_off(events.len().min(BATCH_EVENTS));
            let batch = mem::replace(&mut events, rest);
            let before = (outcome.acknowledged, outcome.rejected.len());
            let delivered = self.deliver(&batch);
            for (event, delivered) in batch.into_iter().zip(delivered) {
                match delivered {
                    Ok(()) => {
                        outcome.acknowledged += 1;
                        self.state.set_acknowledged(event.topic, &event.key);
                    }
                    Err(ProduceError::TooLarge) => outcome.rejected.push(event),
                    Err(_) => outcome.remaining.push(event),
                }
            }
            if (outcome.acknowledged, outcome.rejected.len()) == before {
                break;
            }
        }
        outcome.remaining.append(&mut events);
        outcome
    }

    /// Produces a batch. A broker refuses a batch of the client as a whole, so that a small event is too large only if it
    /// is refused alone.
    fn deliver(&self, batch: &[Event]) -> Vec<Delivered> {
        let delivered = self.destination.produce(batch).into_iter().zip(batch);
        let alone = delivered.map(|(delivered, event)| match delivered {
            Err(ProduceError::BatchTooLarge) => self.deliver_alone(event),
            delivered => delivered,
        });
        alone.collect()
    }

    fn deliver_alone(&self, event: &Event) -> Delivered {
        match self.destination.produce(slice::from_ref(event)).pop() {
            Some(Err(ProduceError::BatchTooLarge)) => Err(ProduceError::TooLarge),
            Some(delivered) => delivered,
            None => Err(ProduceError::QueueFull),
        }
    }

    /// Asks the writer; `None` if it has ended.
    fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.requests.blocking_send(request(reply)).ok()?;
        answer.blocking_recv().ok()
    }
}
