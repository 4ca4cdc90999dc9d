//! The client of a schema registry that speaks Confluent's API.
//!
//! A record names its writer's schema by a key; the registry has the schema. The thread that reads
//! records must not wait for a network, so a look-up never blocks: what is not known is asked for
//! by a thread of this module, once per key however often it is looked up, and tried again for
//! ever while the registry is down or its answers make no sense. Nothing is known of the record
//! then, so it is held back. Only what the registry says of the schema itself makes it unusable.
//!
//! It does not know what a schema means: the caller's `compile` makes of the text what it needs.
//!
//! Start with [`Registry`]; `worker` is what its thread does, `answer` what answers mean.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::kafka::error::IngestError;
use crate::kafka::retry::Throttle;
use crate::timing::Timing;

mod cache;
mod client;
mod disk;
mod fetch;
mod health;
pub(crate) mod inline_references;
mod rate_limit;
pub(crate) mod response;
mod schema_key;
mod tls;
mod worker;

#[cfg(test)]
mod tests;

use cache::{Cache, Limits, Sight};
use client::Client;
use disk::Disk;
use health::Monitor;
pub use health::{RegistryHealth, RegistryOutcome};
use rate_limit::Gate;
pub use response::JSON_SCHEMA;
pub use schema_key::SchemaKey;
use worker::Worker;

/// What is known of a schema.
#[derive(Debug)]
pub enum Lookup<T> {
    Ready(Arc<T>),
    /// The registry says that there is none, or what it has is no usable schema.
    Unusable(Arc<Unusable>),
    /// Not known yet, and asked for: come again.
    Waiting,
}

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    pub kind: UnusableKind,
    /// What a dead letter says.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnusableKind {
    /// The registry has none of this key.
    Unknown,
    /// It has one of another kind, too long, or wrong in itself or in what it refers to.
    Bad,
}

/// Schemas by key. Dropped, its thread ends.
pub struct Registry<T> {
    shared: Arc<Shared<T>>,
    /// `None` once it is dropped.
    keys: Option<Sender<SchemaKey>>,
    thread: Option<JoinHandle<()>>,
}

/// What the callers' threads and the registry's have in common.
struct Shared<T> {
    cache: Mutex<Cache<T>>,
    /// Told whenever a key is settled.
    settled: Condvar,
    monitor: Monitor,
}

/// Keys asked for at a time. Each is a small task; what they do at once the gate bounds.
const WAITING_MAX: usize = 1_024;

const READY_MAX: usize = 1_024;
const UNUSABLE_MAX: usize = 16_384;

impl<T: Send + Sync + 'static> Registry<T> {
    /// `compile` makes what the caller needs of a self-contained Avro schema (names of other
    /// schemas are replaced by what they stand for) or of [`JSON_SCHEMA`]. Its error is what a dead
    /// letter says.
    ///
    /// # Errors
    /// A file of the settings cannot be read or used, or the system has no more threads. The
    /// registry itself need not be there.
    pub fn start(
        settings: &config::Registry,
        compile: fn(&str) -> Result<T, String>,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let limits = Limits {
            ready_max: READY_MAX,
            unusable_max: UNUSABLE_MAX,
            waiting_max: WAITING_MAX,
            unusable_for: settings.unknown_schema_retry,
        };
        let shared = Arc::new(Shared {
            cache: Mutex::new(Cache::new(limits)),
            settled: Condvar::new(),
            monitor: Monitor::new(timing.registry_result_validity),
        });
        let worker = Worker {
            shared: shared.clone(),
            client: Client::new(settings, timing.unresponsive_url_pause)?,
            disk: Disk::new(&settings.cache, &settings.urls),
            gate: Gate::new(timing.registry_probe_interval),
            compile,
            timing,
            outages: Throttle::default(),
            refusals: Throttle::default(),
        };
        let (keys, receiver) = mpsc::channel(WAITING_MAX);
        let thread = spawn(worker, receiver).map_err(IngestError::RegistryThread)?;
        Ok(Self { shared, keys: Some(keys), thread: Some(thread) })
    }

    /// Never blocks; what is not there is asked for in the background.
    pub fn look_up(&self, key: SchemaKey) -> Lookup<T> {
        self.look_up_locked(&mut self.shared.cache.lock(), key)
    }

    /// As [`Registry::look_up`], but waits until the key is settled or the time is over.
    pub fn wait(&self, key: SchemaKey, patience: Duration) -> Lookup<T> {
        let started = Instant::now();
        let mut cache = self.shared.cache.lock();
        loop {
            let found = self.look_up_locked(&mut cache, key);
            let left = patience.saturating_sub(started.elapsed());
            if left.is_zero() || !matches!(found, Lookup::Waiting) {
                return found;
            }
            self.shared.settled.wait_for(&mut cache, left);
        }
    }

    /// For readiness and metrics.
    pub fn health(&self) -> RegistryHealth {
        let waiting = self.shared.cache.lock().waiting();
        self.shared.monitor.at_present(waiting)
    }

    fn look_up_locked(&self, cache: &mut Cache<T>, key: SchemaKey) -> Lookup<T> {
        match cache.look_up(key, Instant::now()) {
            Sight::Known(found) => found,
            Sight::New => {
                // There is room for as many as may wait.
                if self.keys.as_ref().is_none_or(|keys| keys.try_send(key).is_err()) {
                    cache.forget(key);
                }
                self.shared.monitor.set_waiting(cache.waiting());
                Lookup::Waiting
            }
        }
    }
}

impl<T> Shared<T> {
    /// `None`: nothing is known, and nobody is on it any more.
    fn settle(&self, key: SchemaKey, outcome: Option<Result<Arc<T>, Unusable>>, now: Instant) {
        let mut cache = self.cache.lock();
        match outcome {
            Some(outcome) => cache.settle(key, outcome, now),
            None => cache.forget(key),
        }
        self.monitor.set_waiting(cache.waiting());
        drop(cache);
        self.settled.notify_all();
    }
}

impl<T> Drop for Registry<T> {
    fn drop(&mut self) {
        self.keys = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported where it happened.
            let _ = thread.join();
        }
    }
}

fn spawn<T: Send + Sync + 'static>(
    worker: Worker<T>,
    keys: Receiver<SchemaKey>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("registry".into()).spawn(move || {
        runtime.block_on(Arc::new(worker).run(keys));
        // Not waited for: looking up a host's address may take long.
        runtime.shutdown_background();
    })
}
