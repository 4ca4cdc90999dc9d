//! Metrics of the outbox. Of each endpoint, made = sent + dropped + withheld + too_old + dead + pending.
//!
//! They are gauges: the store counts, so that a restart does not reset them. Over HBase they are sums of the records that
//! are kept, which one process counts for all.

use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::Context;
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{Counts, EndpointId, EntryState, Tally};
use ingest::Shutdown;
use metrics::gauge;
use parking_lot::Mutex;
use store::StoreError;
use store::hbase::counts::CountTimes;
use store::outbox::StoredOutbox;
use store::reader::Reader;

use super::{Callbacks, now};
use crate::timing::Timing;

config::describe_metrics! {
    /// Callbacks that were ever pending, by endpoint; one that is retried after it was dead counts again.
    describe_gauge MADE = "adtrail_callbacks_made";
    /// What became of them, by endpoint and state: pending, sent, dropped, withheld, too_old or dead.
    describe_gauge BY_STATE = "adtrail_callbacks_by_state";
    /// How long the callback of an endpoint that is due for longest has been due; 0 if none is.
    describe_gauge OVERDUE = "adtrail_callbacks_overdue_seconds";
}

/// Observes the outbox of a store.
pub struct OutboxMetrics {
    outbox: Mutex<StoredOutbox>,
    endpoints: Mutex<Vec<EndpointId>>,
    times: CountTimes,
    /// Tells this process apart from the others that count.
    owner: u64,
}

impl OutboxMetrics {
    pub fn new(callbacks: &Callbacks, reader: &Reader, timing: &Timing) -> Self {
        describe();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            outbox: Mutex::new(reader.outbox()),
            endpoints: Mutex::new(ids(callbacks)),
            times: CountTimes {
                interval_ms: ms(timing.callback_count_interval),
                lease_ms: ms(timing.callback_count_lease),
            },
            owner: getrandom::u64().unwrap_or_default(),
        }
    }

    /// Observes these endpoints instead.
    pub fn set_endpoints(&self, callbacks: &Callbacks) {
        let before = std::mem::replace(&mut *self.endpoints.lock(), ids(callbacks));
        for endpoint in before {
            gauge!(OVERDUE, "endpoint" => endpoint.as_str().to_owned()).set(0.0);
        }
    }

    /// Sets the metrics. If the outbox cannot be read, they keep their values.
    pub fn observe(&self) {
        self.observe_overdue();
        self.observe_counts();
    }

    fn observe_overdue(&self) {
        warn_of(self.set_overdue());
    }

    fn observe_counts(&self) {
        warn_of(self.set_counts());
    }

    fn set_overdue(&self) -> Result<(), StoreError> {
        let now = now();
        let endpoints = self.endpoints.lock().clone();
        let mut outbox = self.outbox.lock();
        for endpoint in &endpoints {
            let records = outbox.due(endpoint, now, 1)?;
            let due = records.first().and_then(|record| record.due_of(endpoint));
            let overdue_ms = due.and_then(|due| now.since(due)).unwrap_or_default();
            let overdue = Duration::from_millis(overdue_ms).as_secs_f64();
            gauge!(OVERDUE, "endpoint" => endpoint.as_str().to_owned()).set(overdue);
        }
        Ok(())
    }

    fn set_counts(&self) -> Result<(), StoreError> {
        let counted = self.outbox.lock().counts_of_all(self.owner, self.times)?;
        let Some(counted) = counted else { return Ok(()) };
        let endpoints = self.endpoints.lock().clone();
        let none = endpoints.into_iter().map(|endpoint| (endpoint, Tally::default()));
        let mut counts: Counts = none.collect();
        counts.extend(counted);
        for (endpoint, tally) in &counts {
            set(endpoint, tally);
        }
        Ok(())
    }
}

fn warn_of(observed: Result<(), StoreError>) {
    if let Err(error) = observed {
        tracing::warn!(%error, "the callbacks of the outbox cannot be counted");
    }
}

fn ids(callbacks: &Callbacks) -> Vec<EndpointId> {
    callbacks.endpoints().iter().map(|endpoint| EndpointId::new(endpoint.name())).collect()
}

fn set(endpoint: &EndpointId, tally: &Tally) {
    let name = || endpoint.as_str().to_owned();
    gauge!(MADE, "endpoint" => name()).set(tally.made as f64);
    for state in EntryState::ALL {
        let count = match state {
            EntryState::Pending => tally.pending(),
            EntryState::Sent => tally.sent,
            EntryState::Dropped => tally.dropped,
            EntryState::Withheld => tally.withheld,
            EntryState::TooOld => tally.too_old,
            EntryState::Dead => tally.dead,
        };
        gauge!(BY_STATE, "endpoint" => name(), "state" => state.name()).set(count as f64);
    }
}

/// Starts a thread that observes until shutdown is requested, for a store that counts by reading all records.
pub fn start(
    metrics: Arc<OutboxMetrics>,
    timing: &Timing,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let shutdown = shutdown.clone();
    let overdue_interval = timing.callback_count_interval;
    let read_interval = timing.callback_count_read_interval;
    let observe = move || {
        let mut overdue_observed: Option<Instant> = None;
        while !shutdown.is_requested() {
            // First, because a count of many records takes long.
            if overdue_observed.is_none_or(|at| at.elapsed() >= overdue_interval) {
                metrics.observe_overdue();
                overdue_observed = Some(Instant::now());
            }
            metrics.observe_counts();
            shutdown.sleep(read_interval);
        }
    };
    let thread = Builder::new().name("adtrail-callbacks".into()).spawn(observe);
    thread.context("the thread that counts callbacks cannot be started")?;
    Ok(())
}
