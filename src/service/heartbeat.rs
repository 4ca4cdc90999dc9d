//! A thread that asks HBase now and then whether it answers, tells other processes how far this one has
//! read, and learns from them how far all is.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use anyhow::Context;
use attribution::facts::event::EventTime;
use ingest::{Health, Shutdown, TopicKind, TopicNames};
use store::StoreError;
use store::hbase::{Complete, Shared};

use super::Roles;

/// What was learnt last.
#[derive(Debug, Default)]
pub struct Seen(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failure: Option<String>,
    complete_until: Option<EventTime>,
}

/// Looks until the wish to stop.
pub fn start(
    store: Arc<Shared>,
    names: TopicNames,
    health: Arc<Health>,
    roles: Roles,
    interval: Duration,
    shutdown: &Shutdown,
) -> anyhow::Result<Arc<Seen>> {
    let seen = Arc::new(Seen::default());
    let (told, shutdown) = (Arc::clone(&seen), shutdown.clone());
    let watch = move || {
        while !shutdown.is_requested() {
            told.take(look(&store, &names, &health, roles));
            shutdown.sleep(interval);
        }
    };
    let thread = Builder::new().name("hbase-watch".into()).spawn(watch);
    thread.context("no thread for looking at hbase")?;
    Ok(seen)
}

fn look(
    store: &Shared,
    names: &TopicNames,
    health: &Health,
    roles: Roles,
) -> Result<Option<EventTime>, StoreError> {
    store.look()?;
    if roles.attributes {
        let complete = health.complete().into_iter().map(|(topic, partition, until)| Complete {
            topic: (&**names.of(topic)).into(),
            partition,
            until,
        });
        let complete: Vec<Complete> = complete.collect();
        let count = |topic| Some(((&**names.of(topic)).into(), health.partition_count(topic)?));
        let counts: Vec<_> = TopicKind::ALL.into_iter().filter_map(count).collect();
        store.tell(&complete, &counts)?;
    }
    match roles.exports {
        true => store.complete_until(&TopicKind::ALL.map(|topic| &**names.of(topic))),
        false => Ok(None),
    }
}

impl Seen {
    /// # Errors
    /// What was wrong when HBase was asked last.
    pub fn answers(&self) -> Result<(), String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.clone().map_or(Ok(()), Err)
    }

    /// All that Kafka received before this is in, whoever has read it; it was so when it was looked at.
    pub fn complete_until(&self) -> Option<EventTime> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).complete_until
    }

    fn take(&self, looked: Result<Option<EventTime>, StoreError>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match looked {
            Ok(complete_until) => *state = State { failure: None, complete_until },
            Err(error) => state.failure = Some(error.to_string()),
        }
    }
}
