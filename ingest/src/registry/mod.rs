//! The client of a schema registry with Confluent's API.
//!
//! A record names its writer's schema by a key; the registry has the schema. The thread that reads records must not
//! wait for the network, so a lookup never blocks. A thread of this module fetches schemas that are not cached, each
//! key once however often it is looked up. It retries without limit while the registry is down or its responses are
//! malformed; meanwhile the records with that schema wait. A schema becomes unusable only by a valid response about
//! that schema.
//!
//! This module does not interpret schemas: the caller's `compile` turns their text into what the caller needs.
//!
//! Start with [`Registry`]. `worker` is its thread; `response` interprets HTTP responses.

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

use cache::{Cache, CacheLookup, Limits};
use client::Client;
use disk::DiskCache;
use health::Monitor;
pub use health::{RegistryHealth, RegistryOutcome};
use rate_limit::RateLimit;
pub use response::JSON_SCHEMA;
pub use schema_key::SchemaKey;
use worker::Worker;

/// The result of a lookup.
#[derive(Debug)]
pub enum SchemaLookup<T> {
    Ready(Arc<T>),
    /// The registry has no such schema, or its schema cannot be used.
    Unusable(Arc<Unusable>),
    /// Not known yet; it is being fetched. Look it up again later.
    Waiting,
}

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    pub kind: UnusableKind,
    /// The error message of the dead letter.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnusableKind {
    /// The registry has no schema with this key.
    Unknown,
    /// The schema is of an unsupported type, too long, or invalid itself or in its references.
    Bad,
}

/// A cache of schemas by key. Dropping it ends its thread.
pub struct Registry<T> {
    shared: Arc<Shared<T>>,
    /// `None` once this is dropped.
    keys: Option<Sender<SchemaKey>>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the callers' threads and the registry's.
struct Shared<T> {
    cache: Mutex<Cache<T>>,
    /// Notified whenever a key is settled.
    settled: Condvar,
    monitor: Monitor,
}

/// Maximum number of keys that are being fetched. Each is a small task; `RateLimit` bounds concurrent requests.
const WAITING_MAX: usize = 1_024;

const READY_MAX: usize = 1_024;
const UNUSABLE_MAX: usize = 16_384;

impl<T: Send + Sync + 'static> Registry<T> {
    /// Starts the thread. `compile` gets the text of a self-contained Avro schema, with references to other schemas
    /// inlined, or [`JSON_SCHEMA`]. Its error is the message of the dead letter.
    ///
    /// # Errors
    /// If a file named in the settings cannot be read or is invalid, or the thread cannot be started. The registry
    /// itself may be down.
    pub fn start(
        settings: &config::Registry,
        compile: fn(&str) -> Result<T, String>,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let limits = Limits {
            ready_max: READY_MAX,
            unusable_max: UNUSABLE_MAX,
            waiting_max: WAITING_MAX,
            unusable_ttl: settings.unknown_schema_retry,
        };
        let shared = Arc::new(Shared {
            cache: Mutex::new(Cache::new(limits)),
            settled: Condvar::new(),
            monitor: Monitor::new(timing.registry_result_validity),
        });
        let worker = Worker {
            shared: shared.clone(),
            client: Client::new(settings, timing.unresponsive_url_pause)?,
            disk: DiskCache::new(&settings.cache, &settings.urls),
            rate_limit: RateLimit::new(timing.registry_probe_interval),
            compile,
            timing,
            outages: Throttle::default(),
            refusals: Throttle::default(),
        };
        let (keys, receiver) = mpsc::channel(WAITING_MAX);
        let thread = spawn(worker, receiver).map_err(IngestError::RegistryThread)?;
        Ok(Self { shared, keys: Some(keys), thread: Some(thread) })
    }

    /// Looks up a schema without blocking; one that is not cached is fetched in the background.
    pub fn look_up(&self, key: SchemaKey) -> SchemaLookup<T> {
        self.look_up_locked(&mut self.shared.cache.lock(), key)
    }

    /// Like [`Registry::look_up`], but waits until the key is settled or `timeout` has passed.
    pub fn wait(&self, key: SchemaKey, timeout: Duration) -> SchemaLookup<T> {
        let started = Instant::now();
        let mut cache = self.shared.cache.lock();
        loop {
            let found = self.look_up_locked(&mut cache, key);
            let remaining = timeout.saturating_sub(started.elapsed());
            if remaining.is_zero() || !matches!(found, SchemaLookup::Waiting) {
                return found;
            }
            self.shared.settled.wait_for(&mut cache, remaining);
        }
    }

    /// Returns the state for readiness and metrics.
    pub fn health(&self) -> RegistryHealth {
        let waiting = self.shared.cache.lock().waiting();
        self.shared.monitor.snapshot(waiting)
    }

    fn look_up_locked(&self, cache: &mut Cache<T>, key: SchemaKey) -> SchemaLookup<T> {
        match cache.look_up(key, Instant::now()) {
            CacheLookup::Known(found) => found,
            CacheLookup::New => {
                // The queue holds as many keys as may wait, so it is never full.
                if self.keys.as_ref().is_none_or(|keys| keys.try_send(key).is_err()) {
                    cache.forget(key);
                }
                self.shared.monitor.set_waiting(cache.waiting());
                SchemaLookup::Waiting
            }
        }
    }
}

impl<T> Shared<T> {
    /// Ends the fetch of a key. `None` means without a result: the next lookup starts a new fetch.
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
            // A panic of the thread was already reported by the panic hook.
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
        // Does not wait for running tasks: a DNS lookup may take long.
        runtime.shutdown_background();
    })
}
