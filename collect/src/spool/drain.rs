//! The thread that produces the events of the spool.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

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
/// How long the events of a batch wait in total for places in the producer's queue, which requests fill too.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(1);
const QUEUE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What the spool is drained into.
pub(crate) trait Destination: Send + 'static {
    /// Returns false if it is known that events would fail.
    fn is_reachable(&self) -> bool;

    /// Produces events, and returns once each is acknowledged or has failed.
    fn produce(&self, events: &[&Event]) -> Vec<Delivered>;
}

impl Destination for Arc<EventProducer> {
    fn is_reachable(&self) -> bool {
        self.is_connected()
    }

    fn produce(&self, events: &[&Event]) -> Vec<Delivered> {
        let started = Instant::now();
        let queue = |event: &&Event| loop {
            match EventProducer::produce(self, event.topic, &event.key, &event.value) {
                Err(ProduceError::QueueFull) if started.elapsed() < QUEUE_WAIT_MAX => {
                    thread::sleep(QUEUE_POLL_INTERVAL);
                }
                queued => return queued,
            }
        };
        let queued: Vec<_> = events.iter().map(queue).collect();
        queued.into_iter().map(|delivery| delivery?.wait()).collect()
    }
}

/// What became of an event of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Acknowledged,
    /// Kafka will never accept it, and it is kept in a file.
    Rejected,
}

/// The fates of the events of segments that could not be removed, because the other events could not be written again;
/// `None` of those that are still to be produced.
type Unfinished = HashMap<u64, Vec<Option<Fate>>>;

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
        let (mut unfinished, mut unreadable) = (Unfinished::new(), None);
        while !stop.is_requested_within(wait) {
            wait = self.timing.check_interval;
            if self.state.events() == 0 || !self.destination.is_reachable() {
                continue;
            }
            // If Kafka takes nothing of one segment, it may take something of another, of other topics.
            let next = |after| self.ask(|reply| Request::Next { after, reply }).flatten();
            let Some(segment) = cursors.next(next) else { continue };
            wait = match self.drain(segment, &mut unfinished, stop) {
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

    /// Produces the events of a segment. Returns false if the segment remains.
    fn drain(
        &self,
        segment: Segment,
        unfinished: &mut Unfinished,
        stop: &Stop,
    ) -> io::Result<bool> {
        let Segment { name, bytes, events: count, is_damaged } = segment;
        let number = name.number;
        let bytes = self.folder.read(name, bytes)?;
        let events = record::scan(&bytes, name.marker).events;
        let found = events.len() as u64;
        let is_damaged = is_damaged || found < count;
        if found < count {
            let events = count - found;
            tracing::error!(segment = number, events, "a segment of the spool is damaged");
        }
        // After damage it is not known which events these are.
        let known = unfinished.remove(&number).filter(|fates| fates.len() == events.len());
        let mut fates = known.unwrap_or_else(|| vec![None; events.len()]);
        self.produce(&events, &mut fates, stop);
        if !events.is_empty() && fates.iter().all(Option::is_none) {
            return Ok(false);
        }
        let count = |fate| fates.iter().filter(|of| **of == Some(fate)).count() as u64;
        let (acknowledged, rejected) = (count(Fate::Acknowledged), count(Fate::Rejected));
        let remaining = events.into_iter().zip(&fates).filter(|(_, fate)| fate.is_none());
        let remaining = remaining.map(|(event, _)| event).collect();
        let outcome = Outcome { acknowledged, rejected, remaining, is_damaged };
        let finish = |reply| Request::Finish { number, outcome, reply };
        let is_finished = self.ask(finish).unwrap_or(false);
        if !is_finished {
            unfinished.insert(number, fates);
        }
        Ok(is_finished)
    }

    /// Produces events until each has a fate, Kafka takes none of a batch, or the thread has to stop.
    fn produce(&self, events: &[Event], fates: &mut [Option<Fate>], stop: &Stop) {
        let open = events.iter().zip(fates).filter(|(_, fate)| fate.is_none());
        let mut open: Vec<_> = open.collect();
        for batch in open.chunks_mut(BATCH_EVENTS) {
            if stop.is_requested_within(Duration::ZERO) {
                return;
            }
            let events: Vec<&Event> = batch.iter().map(|(event, _)| *event).collect();
            let delivered = self.deliver(&events);
            let are_kept = self.reject(&events, &delivered);
            for ((event, fate), delivered) in batch.iter_mut().zip(delivered) {
                match delivered {
                    Ok(()) => {
                        **fate = Some(Fate::Acknowledged);
                        self.state.set_acknowledged(event.topic, &event.key);
                    }
                    Err(ProduceError::TooLarge) if are_kept => **fate = Some(Fate::Rejected),
                    Err(_) => {}
                }
            }
            if batch.iter().all(|(_, fate)| fate.is_none()) {
                return;
            }
        }
    }

    /// Produces a batch. A broker refuses a batch of the client as a whole, so that a small event is too large only if
    /// it is refused alone.
    fn deliver(&self, batch: &[&Event]) -> Vec<Delivered> {
        let delivered = self.destination.produce(batch).into_iter().zip(batch);
        let alone = delivered.map(|(delivered, event)| match delivered {
            Err(ProduceError::BatchTooLarge) => self.deliver_alone(event),
            delivered => delivered,
        });
        alone.collect()
    }

    fn deliver_alone(&self, event: &Event) -> Delivered {
        match self.destination.produce(&[event]).pop() {
            Some(Err(ProduceError::BatchTooLarge)) => Err(ProduceError::TooLarge),
            Some(delivered) => delivered,
            None => Err(ProduceError::QueueFull),
        }
    }

    /// Has the events of a batch kept that Kafka will never accept. Returns false if they cannot be written.
    fn reject(&self, batch: &[&Event], delivered: &[Delivered]) -> bool {
        let rejected = batch.iter().zip(delivered);
        let rejected = rejected.filter(|(_, of)| matches!(of, Err(ProduceError::TooLarge)));
        let events: Vec<Event> = rejected.map(|(event, _)| (*event).clone()).collect();
        events.is_empty() || self.ask(|reply| Request::Reject { events, reply }).unwrap_or(false)
    }

    /// Asks the writer; `None` if it has ended.
    fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.requests.blocking_send(request(reply)).ok()?;
        answer.blocking_recv().ok()
    }
}
