//! An outbox in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use attribution::outbox::record::CallbackKind;
use parking_lot::Mutex;

use super::super::queue::{Claimed, Claims, Finished, Outcome, Queue, QueueError};
use crate::event::CallbackEvent;

/// A clock that tests set.
#[derive(Clone, Default)]
pub(super) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    pub fn set_ms(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

pub(super) struct Entry {
    pub endpoint: &'static str,
    pub event: CallbackEvent,
    pub due_ms: i64,
    pub attempts: u32,
    leased_until_ms: i64,
    /// How it ended.
    pub end: Option<Outcome>,
    pub finished: Vec<Finished>,
}

#[derive(Default)]
pub(super) struct Memory {
    pub entries: Mutex<BTreeMap<u32, Entry>>,
    /// The outbox fails as long as this is true.
    pub fails: Mutex<bool>,
    /// How often it does not keep what became of callbacks.
    pub failures: Mutex<u32>,
    /// How many claims find only what is finished without being sent.
    pub settling: Mutex<u32>,
    /// Every claim finds also what is finished without being sent.
    pub settles_forever: Mutex<bool>,
    /// It does not say until when effects wait.
    pub hides_activations: Mutex<bool>,
    /// The names of the threads that have used it.
    pub threads: Mutex<BTreeSet<String>>,
}

impl Memory {
    pub fn add(&self, key: u32, endpoint: &'static str, event: CallbackEvent, due_ms: i64) {
        let entry = Entry {
            endpoint,
            event,
            due_ms,
            attempts: 0,
            leased_until_ms: i64::MIN,
            end: None,
            finished: Vec::new(),
        };
        self.entries.lock().insert(key, entry);
    }

    pub fn end(&self, key: u32) -> Option<Outcome> {
        self.entries.lock()[&key].end
    }

    pub fn due_ms(&self, key: u32) -> i64 {
        self.entries.lock()[&key].due_ms
    }

    pub fn reasons(&self, key: u32) -> Vec<String> {
        let entries = self.entries.lock();
        let attempts =
            entries[&key].finished.iter().filter_map(|finished| finished.attempt.as_ref());
        attempts.map(|attempt| attempt.reason.to_string()).collect()
    }

    fn check(&self) -> Result<(), QueueError> {
        let name = thread::current().name().unwrap_or_default().to_owned();
        self.threads.lock().insert(name);
        if *self.fails.lock() { Err("the disk is full".into()) } else { Ok(()) }
    }
}

impl Queue for Memory {
    type Key = u32;

    fn claim(
        &self,
        endpoint: &str,
        now_ms: i64,
        limit: usize,
        lease: Duration,
    ) -> Result<Claims<u32>, QueueError> {
        self.check()?;
        let mut settling = self.settling.lock();
        if *settling > 0 {
            *settling -= 1;
            return Ok(Claims { claimed: Vec::new(), has_more: true });
        }
        let mut entries = self.entries.lock();
        let is_due = |entry: &Entry| {
            let is_pending = entry.endpoint == endpoint && entry.end.is_none();
            is_pending && entry.due_ms <= now_ms && entry.leased_until_ms <= now_ms
        };
        let due = entries.iter_mut().filter(|(_, entry)| is_due(entry)).take(limit);
        let claimed = due.map(|(key, entry)| {
            entry.leased_until_ms = now_ms + i64::try_from(lease.as_millis()).unwrap();
            Claimed { key: *key, attempts: entry.attempts, event: entry.event.clone() }
        });
        let has_more = *self.settles_forever.lock();
        Ok(Claims { claimed: claimed.collect(), has_more })
    }

    fn pending_activation_ms(&self, key: &u32) -> Result<Option<i64>, QueueError> {
        if *self.hides_activations.lock() {
            return Err("a region is away".into());
        }
        let entries = self.entries.lock();
        let effect = &entries[key];
        let activation = entries.values().find(|entry| {
            entry.endpoint == effect.endpoint
                && entry.event.kind == CallbackKind::Activation
                && entry.event.activation_id == effect.event.activation_id
                && entry.end.is_none()
        });
        Ok(activation.map(|activation| activation.due_ms))
    }

    fn finish(&self, finished: &[(u32, Finished)]) -> Result<(), QueueError> {
        self.check()?;
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            return Err("another process writes".into());
        }
        let mut entries = self.entries.lock();
        for (key, finished) in finished {
            let entry = entries.get_mut(key).unwrap();
            entry.leased_until_ms = i64::MIN;
            match finished.outcome {
                Outcome::Retry { due_ms } => {
                    entry.attempts += 1;
                    entry.due_ms = due_ms;
                }
                Outcome::Postponed { due_ms } => entry.due_ms = due_ms,
                end => entry.end = Some(end),
            }
            entry.finished.push(finished.clone());
        }
        Ok(())
    }
}
