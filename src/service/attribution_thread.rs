//! The thread of the attribution worker: receives batches, and sends the positions that it has committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use anyhow::Context;
use attribution::facts::event::Family;
use attribution::ledger::{Ledger, Position};
use attribution::rules::row::Status;
use attribution::worker::{self, BatchReport, Worker};
use ingest::{Health, TopicKind, TopicNames};
use jiff::Timestamp;
use metrics::{counter, gauge, histogram};
use parking_lot::Mutex;
use store::StoreError;
use store::embedded::{Embedded, StatusCounts};
use store::hbase::cluster::Cluster;
use store::hbase::ledger::SharedLedger;
use store::layout::region::Regions;
use tracing::warn;

use super::region_metrics;

/// A ledger that can count its rows.
pub trait RowCounting {
    /// Returns the number of rows by status; empty if the store does not count them.
    fn status_counts(&self) -> StatusCounts;
}

impl RowCounting for Embedded {
    fn status_counts(&self) -> StatusCounts {
        Self::status_counts(self)
    }
}

impl RowCounting for SharedLedger<Cluster> {
    fn status_counts(&self) -> StatusCounts {
        StatusCounts::new()
    }
}

/// Starts the thread. It ends when the sender of batches is dropped, or with the first error.
pub fn start<L>(
    worker: Worker<L>,
    batches: Receiver<ingest::Batch>,
    committed: Sender<Vec<Position>>,
    metrics: Arc<PipelineMetrics>,
) -> anyhow::Result<JoinHandle<anyhow::Result<()>>>
where
    L: Ledger<Error = StoreError> + RowCounting + Send + 'static,
{
    Builder::new()
        .name("attribution".into())
        .spawn(move || work(worker, &batches, &committed, &metrics))
        .context("the attribution thread cannot be started")
}

fn work<L: Ledger<Error = StoreError> + RowCounting>(
    mut worker: Worker<L>,
    batches: &Receiver<ingest::Batch>,
    committed: &Sender<Vec<Position>>,
    metrics: &PipelineMetrics,
) -> anyhow::Result<()> {
    metrics.set_rows(worker.ledger());
    for ingest::Batch { facts, progress, intake, values } in batches {
        config::crash_point!("batch-received");
        let start = Instant::now();
        let committed_progress = progress.clone();
        let report = worker
            .process(worker::Batch { facts, progress })
            .context("a batch could not be committed; its events will be read again")?;
        config::crash_point!("batch-committed");
        if report.large_histories > 0 {
            let decisions = report.large_histories;
            warn!(
                decisions,
                "decisions took 100,000 touches, activations or effects of one device or address"
            );
        }
        let consumed_until = committed_progress.consumed_until;
        let count = || metrics.ingest.committed(&intake, &values, consumed_until, Timestamp::now());
        metrics.count_commit(count, &report, start, worker.ledger());
        // Fails only if the intake has ended; the consumer group's offsets then stay behind those of the store.
        let _ = committed.send(committed_progress.positions);
    }
    Ok(())
}

/// Metrics of attribution, store and ingest. A batch is counted when it is committed.
pub struct PipelineMetrics {
    ingest: ingest::Metrics,
    topics: TopicNames,
    /// Held while a batch is counted and while a scrape is rendered, so that every scrape shows whole batches and its
    /// counts add up.
    whole_batches: Mutex<()>,
}

config::describe_metrics! {
    /// Messages that were new facts, by topic.
    describe_counter ACCEPTED = "adtrail_attribution_accepted_total";
    /// Messages whose id was already known, by topic.
    describe_counter REDELIVERED = "adtrail_attribution_redelivered_total";
    /// Redelivered messages with another time or content than the known message with their id, by topic.
    describe_counter CONFLICTING = "adtrail_attribution_conflicting_total";
    /// Decisions with a history that no real device has: 100,000 touches, activations or effects.
    describe_counter LARGE_HISTORIES = "adtrail_attribution_large_histories_total";
    /// Rows replaced by a corrected one, by old status (left) and new status (entered).
    describe_counter CORRECTIONS = "adtrail_attribution_corrections_total";
    /// Time from the arrival of a batch at the worker to its commit.
    describe_histogram BATCH_SECONDS = "adtrail_attribution_batch_seconds";
    /// Rows in the store, by event type and current status.
    describe_gauge ROWS = "adtrail_store_rows";
}

impl PipelineMetrics {
    /// Registers all metrics with the installed recorder.
    pub fn new(config: &config::Config) -> Self {
        describe();
        region_metrics::describe();
        let topics = TopicNames::new(&config.kafka.topics);
        for topic in TopicKind::ALL {
            for name in [ACCEPTED, REDELIVERED, CONFLICTING] {
                counter!(name, "topic" => topics.of(topic).to_owned()).increment(0);
            }
        }
        counter!(LARGE_HISTORIES).increment(0);
        for (left, entered) in corrections() {
            correction(left, entered).increment(0);
        }
        Self { ingest: ingest::Metrics::new(config), topics, whole_batches: Mutex::new(()) }
    }

    /// Renders the metrics between two batches.
    pub fn scrape(
        &self,
        health: &Health,
        regions: Option<&Regions>,
        render: impl FnOnce() -> String,
    ) -> String {
        let _guard = self.whole_batches.lock();
        self.ingest.observe(health, Timestamp::now());
        regions.into_iter().for_each(region_metrics::observe);
        render()
    }

    /// Counts a committed batch; `count_records` counts the records that it was read from.
    fn count_commit(
        &self,
        count_records: impl FnOnce(),
        report: &BatchReport,
        start: Instant,
        store: &impl RowCounting,
    ) {
        let _guard = self.whole_batches.lock();
        count_records();
        self.count_batch(report, start, store);
    }

    fn count_batch(&self, report: &BatchReport, start: Instant, store: &impl RowCounting) {
        for topic in TopicKind::ALL {
            let counts = report.counts(family(topic));
            let name = || self.topics.of(topic).to_owned();
            counter!(ACCEPTED, "topic" => name()).increment(counts.accepted);
            counter!(REDELIVERED, "topic" => name()).increment(counts.redelivered);
            counter!(CONFLICTING, "topic" => name()).increment(counts.conflicting);
        }
        let decided: &BTreeMap<(Option<Status>, Status), u64> = &report.rows_written;
        for ((left, entered), count) in decided {
            if let Some(left) = left {
                correction(*left, *entered).increment(*count);
            }
        }
        counter!(LARGE_HISTORIES).increment(report.large_histories);
        histogram!(BATCH_SECONDS).record(start.elapsed().as_secs_f64());
        // Set even if the batch has changed no row, because rows expire.
        self.set_rows(store);
    }

    fn set_rows(&self, store: &impl RowCounting) {
        for ((event_type, status), count) in store.status_counts() {
            gauge!(ROWS, "event_type" => event_type.name(), "status" => status.name())
                .set(count as f64);
        }
    }
}

fn corrections() -> impl Iterator<Item = (Status, Status)> {
    Status::ALL.into_iter().flat_map(|left| Status::ALL.map(|entered| (left, entered)))
}

fn correction(left: Status, entered: Status) -> metrics::Counter {
    counter!(CORRECTIONS, "left" => left.name(), "entered" => entered.name())
}

fn family(topic: TopicKind) -> Family {
    match topic {
        TopicKind::Clicks => Family::Touch,
        TopicKind::Activations => Family::Activation,
        TopicKind::Effects => Family::Effect,
    }
}
