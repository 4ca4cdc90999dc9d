//! A thread that periodically checks whether HBase responds, and exchanges progress with other processes: the time up
//! to which each partition is complete.

use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use anyhow::Context;
use attribution::facts::event::EventTime;
use ingest::{Health, Shutdown, TopicKind, TopicNames};
use parking_lot::Mutex;
use store::StoreError;
use store::hbase::{PartitionComplete, Shared};

use super::Roles;

/// The result of the last check.
#[derive(Debug, Default)]
pub struct LastSeen(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failure: Option<String>,
    complete_until: Option<EventTime>,
}

/// Starts the thread, which checks until shutdown is requested.
pub fn start(
    store: Arc<Shared>,
    names: TopicNames,
    health: Arc<Health>,
    roles: Roles,
    interval: Duration,
    shutdown: &Shutdown,
) -> anyhow::Result<Arc<LastSeen>> {
    let seen = Arc::new(LastSeen::default());
    let (updated, shutdown) = (Arc::clone(&seen), shutdown.clone());
    let poll = move || {
        while !shutdown.is_requested() {
            updated.update(check(&store, &names, &health, roles));
            shutdown.sleep(interval);
        }
    };
    let thread = Builder::new().name("hbase-watch".into()).spawn(poll);
    thread.context("the thread that checks hbase cannot be started")?;
    Ok(seen)
}

fn check(
    store: &Shared,
    names: &TopicNames,
    health: &Health,
    roles: Roles,
) -> Result<Option<EventTime>, StoreError> {
    store.check_health()?;
    if roles.attributes {
        let complete = health.complete().into_iter().map(|(topic, partition, until)| {
            PartitionComplete { topic: (&**names.of(topic)).into(), partition, until }
        });
        let complete: Vec<PartitionComplete> = complete.collect();
        let count = |topic| Some(((&**names.of(topic)).into(), health.partition_count(topic)?));
        let counts: Vec<_> = TopicKind::ALL.into_iter().filter_map(count).collect();
        store.put_complete(&complete, &counts)?;
    }
    match roles.exports {
        true => store.complete_until(&TopicKind::ALL.map(|topic| &**names.of(topic))),
        false => Ok(None),
    }
}

impl LastSeen {
    /// Returns an error if the last check failed.
    pub fn check(&self) -> Result<(), String> {
        let state = self.0.lock();
        state.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns the time before which everything that Kafka received is committed, as of the last check.
    pub fn complete_until(&self) -> Option<EventTime> {
        self.0.lock().complete_until
    }

    fn update(&self, checked: Result<Option<EventTime>, StoreError>) {
        let mut state = self.0.lock();
        match checked {
            Ok(complete_until) => *state = State { failure: None, complete_until },
            Err(error) => state.failure = Some(error.to_string()),
        }
    }
}
