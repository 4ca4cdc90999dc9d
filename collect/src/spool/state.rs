//! What the writer, the drain and requests know of each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ingest::TopicKind;
use parking_lot::Mutex;

/// After a failed write, requests are expected to fail for this long.
const FAILURE_MEMORY: Duration = Duration::from_secs(10);

/// Why an event is not in the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpoolError {
    #[error("the spool is full")]
    Full,
    #[error("the spool cannot be written")]
    Disk,
}

/// The intervals of the thread that drains.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Between two checks whether there is something to drain.
    pub check_interval: Duration,
    /// After Kafka has acknowledged nothing.
    pub retry_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { check_interval: Duration::from_millis(100), retry_interval: Duration::from_secs(1) }
    }
}

#[derive(Default)]
pub(super) struct State {
    events: AtomicU64,
    is_full: AtomicBool,
    /// When the last write was, if it failed.
    failed_at: Mutex<Option<Instant>>,
    /// The topics, for each key, of which Kafka has not acknowledged an event, and none of the spool since. Events with
    /// one key are on one partition of a topic.
    failing: Mutex<HashMap<Box<str>, Vec<TopicKind>>>,
}

impl State {
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    pub fn set_events(&self, events: u64) {
        self.events.store(events, Ordering::Relaxed);
    }

    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    pub fn set_failed(&self, at: Option<Instant>) {
        *self.failed_at.lock() = at;
    }

    pub fn has_room(&self) -> bool {
        let failed_at = *self.failed_at.lock();
        let is_failing = failed_at.is_some_and(|at| at.elapsed() < FAILURE_MEMORY);
        !is_failing && !self.is_full.load(Ordering::Relaxed)
    }

    pub fn is_failing(&self, topic: TopicKind, key: &str) -> bool {
        self.failing.lock().get(key).is_some_and(|topics| topics.contains(&topic))
    }

    pub fn set_failing(&self, topic: TopicKind, key: &str) {
        let mut failing = self.failing.lock();
        let topics = failing.entry(key.into()).or_default();
        if !topics.contains(&topic) {
            topics.push(topic);
        }
    }

    pub fn set_acknowledged(&self, topic: TopicKind, key: &str) {
        if let Some(topics) = self.failing.lock().get_mut(key) {
            topics.retain(|failing| *failing != topic);
        }
    }
}
