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

/// A batch that is decided. Its last commit may be in flight.
struct Decided {
    /// Without its facts.
    batch: ingest::Batch,
    start: Instant,
    report: BatchReport,
    /// The rows of the store with this batch.
    rows: StatusCounts,
}

const UNCOMMITTED: &str = "a batch could not be committed; its events will be read again";

/// While a batch is written, the next one is decided. If there is no next one yet, waits for the write at once.
fn work<L: Ledger<Error = StoreError> + RowCounting>(
    mut worker: Worker<L>,
    batches: &Receiver<ingest::Batch>,
    committed: &Sender<Vec<Position>>,
    metrics: &PipelineMetrics,
) -> anyhow::Result<()> {
    metrics.set_rows(&worker.ledger().status_counts());
    let mut in_flight: Option<Decided> = None;
    let mut next = batches.recv().ok();
    while let Some(batch) = next {
        let decided = decide(&mut worker, batch)?;
        // The commit of this batch has waited for the one before.
        if let Some(before) = in_flight.replace(decided) {
            publish(before, committed, metrics);
        }
        // Commits to a shared store are never in flight.
        next = if L::SHARED { None } else { batches.try_recv().ok() };
        if next.is_none() {
            worker.ledger_mut().wait_for_commit().context(UNCOMMITTED)?;
            if let Some(last) = in_flight.take() {
                publish(last, committed, metrics);
            }
            next = batches.recv().ok();
        }
    }
    Ok(())
}

fn decide<L: Ledger<Error = StoreError> + RowCounting>(
    worker: &mut Worker<L>,
    mut batch: ingest::Batch,
) -> anyhow::Result<Decided> {
    config::crash_point!("batch-received");
    let start = Instant::now();
    let (facts, progress) = (std::mem::take(&mut batch.facts), batch.progress.clone());
    let report = worker.process_ahead(worker::Batch { facts, progress }).context(UNCOMMITTED)?;
    if report.large_histories > 0 {
        let decisions = report.large_histories;
        warn!(
            decisions,
            "decisions took 100,000 touches, activations or effects of one device or address"
        );
    }
    let rows = worker.ledger().status_counts();
    Ok(Decided { batch, start, report, rows })
}

/// Counts a committed batch, and sends its positions.
fn publish(decided: Decided, committed: &Sender<Vec<Position>>, metrics: &PipelineMetrics) {
    config::crash_point!("batch-committed");
    metrics.count_commit(&decided);
    // Fails only if the intake has ended; the consumer group's offsets then stay behind those of the store.
    let _ = committed.send(decided.batch.progress.positions);
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

    /// Counts a committed batch and the records that it was read from.
    fn count_commit(&self, decided: &Decided) {
        let _guard = self.whole_batches.lock();
        let Decided { batch, start, report, rows } = decided;
        let consumed_until = batch.progress.consumed_until;
        self.ingest.committed(&batch.intake, &batch.values, consumed_until, Timestamp::now());
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
        self.set_rows(rows);
    }

    fn set_rows(&self, rows: &StatusCounts) {
        for ((event_type, status), count) in rows {
            gauge!(ROWS, "event_type" => event_type.name(), "status" => status.name())
                .set(*count as f64);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, sync_channel};
    use std::time::Duration;

    use attribution::facts::event::EventTime;
    use attribution::ledger::{Facts, Progress};
    use ingest::Intake;

    use super::*;

    /// Far longer than commits take.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn batch(next_offset: i64) -> ingest::Batch {
        let topic = Arc::from("clicks");
        let position = Position { topic, partition: 0, next_offset, known: None, last: None };
        let consumed_until = EventTime::from_millis(next_offset);
        let progress = Progress { positions: vec![position], consumed_until };
        let (facts, intake) = (Vec::new(), Intake::default());
        ingest::Batch { facts, progress, intake, values: Default::default() }
    }

    /// The store writes a commit only when it is waited for.
    #[test]
    fn positions_are_sent_in_order_and_do_not_wait_for_further_batches() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config::parse("[[apps]]\npid = 1\nkey = \"app-x\"\n").unwrap();
        config.store.path = dir.path().join("store");
        let mut store = Embedded::open(&config.store, &config.policy).unwrap();
        store.defer_writes();
        let (batches, batches_in) = sync_channel(3);
        let (committed, committed_in) = channel::<Vec<Position>>();
        let reader = store.reader();
        let next = || {
            let next_offset = committed_in.recv_timeout(PATIENCE).unwrap()[0].next_offset;
            let written = reader.consumed_until().unwrap();
            assert!(written.millis() >= next_offset as u64, "published before it was written");
            next_offset
        };
        (1..=3).for_each(|number| batches.send(batch(number)).unwrap());
        let worker = Worker::new(store, Arc::clone(&config.policy));
        let metrics = Arc::new(PipelineMetrics::new(&config));
        let thread = start(worker, batches_in, committed, metrics).unwrap();
        assert_eq!([next(), next(), next()], [1, 2, 3]);
        // No batch is queued.
        batches.send(batch(4)).unwrap();
        assert_eq!(next(), 4);
        drop(batches);
        thread.join().unwrap().unwrap();
        drop(reader);
        let mut store = Embedded::open(&config.store, &config.policy).unwrap();
        assert_eq!(store.positions().unwrap()[0].next_offset, 4);
    }
}
