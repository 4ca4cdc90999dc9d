//! The thread of the attribution worker: receives batches, and sends the positions that it has committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use anyhow::Context;
use arc_swap::ArcSwap;
use attribution::facts::event::Family;
use attribution::ledger::{Ledger, Position};
use attribution::rules::policy::Policy;
use attribution::rules::row::Status;
use attribution::worker::{self, BatchReport, Worker};
use ingest::{Health, TopicKind, TopicNames};
use jiff::Timestamp;
use metrics::{counter, gauge, histogram};
use parking_lot::Mutex;
use store::StoreError;
use store::embedded::StatusCounts;
use store::layout::region::Regions;
use tracing::{Span, error, info, warn};

use super::loop_progress::LoopProgress;
use super::service_ledger::ServiceLedger;
use super::worker_settings::{SettingsFeed, WorkerSettings};
use super::{batch_span, decision_metrics, region_metrics};

/// Starts the thread. It ends when the sender of batches is dropped, or with the first error.
pub fn start<L>(
    worker: Worker<L>,
    settings: SettingsFeed,
    batches: Receiver<ingest::Batch>,
    committed: Sender<Vec<Position>>,
    metrics: Arc<PipelineMetrics>,
) -> anyhow::Result<JoinHandle<anyhow::Result<()>>>
where
    L: Ledger<Error = StoreError> + ServiceLedger + Send + 'static,
{
    Builder::new()
        .name("attribution".into())
        .spawn(move || work(worker, settings, &batches, &committed, &metrics))
        .context("the attribution thread cannot be started")
}

/// A batch that is decided. Its last commit may be in flight.
struct Decided {
    /// Without its facts.
    batch: ingest::Batch,
    start: Instant,
    span: Span,
    report: BatchReport,
    /// The rows of the store with this batch.
    rows: StatusCounts,
}

const UNCOMMITTED: &str = "a batch could not be committed; its events will be read again";

/// Processes batches until their sender is dropped. After an error, also waits for the commit in flight.
fn work<L: Ledger<Error = StoreError> + ServiceLedger>(
    mut worker: Worker<L>,
    settings: SettingsFeed,
    batches: &Receiver<ingest::Batch>,
    committed: &Sender<Vec<Position>>,
    metrics: &PipelineMetrics,
) -> anyhow::Result<()> {
    metrics.set_rows(&worker.ledger().status_counts());
    let mut in_flight = None;
    let outcome = process_all(&mut worker, settings, batches, committed, metrics, &mut in_flight);
    let Err(failure) = outcome else { return Ok(()) };
    let Some(begun) = in_flight else { return Err(failure) };
    // At once, because the wait can be long: for free space on the disk.
    error!("{failure:#}; waiting for the commit in flight");
    match worker.ledger_mut().wait_for_commit() {
        Ok(()) => {
            publish(begun, committed, metrics);
            Err(failure)
        }
        // The failure itself may be that of this commit.
        Err(error) => {
            batch_span::failed(&begun.span);
            Err(failure.context(format!("the commit in flight was not written: {error}")))
        }
    }
}

/// While a batch is written, the next one is decided. If there is no next one yet, waits for the write at once.
/// `in_flight` is the batch whose commit has begun and has not ended without an error. After an error, that can be the
/// batch that has failed or the one before.
fn process_all<L: Ledger<Error = StoreError> + ServiceLedger>(
    worker: &mut Worker<L>,
    mut settings: SettingsFeed,
    batches: &Receiver<ingest::Batch>,
    committed: &Sender<Vec<Position>>,
    metrics: &PipelineMetrics,
    in_flight: &mut Option<Decided>,
) -> anyhow::Result<()> {
    let mut next = batches.recv().ok();
    while let Some(batch) = next {
        metrics.progress.set_working();
        // Read after the batch, which was decoded by these settings or earlier ones.
        if let Some(latest) = settings.newer() {
            finish_commit(worker, committed, metrics, in_flight)?;
            take_settings(worker, &latest)?;
        }
        let decided = decide(worker, batch)?;
        // The commit of this batch has waited for the one before.
        if let Some(before) = in_flight.replace(decided) {
            publish(before, committed, metrics);
        }
        // Commits to a shared store are never in flight.
        next = if L::SHARED { None } else { batches.try_recv().ok() };
        if next.is_none() {
            finish_commit(worker, committed, metrics, in_flight)?;
            metrics.progress.set_waiting();
            next = batches.recv().ok();
        }
    }
    Ok(())
}

/// Waits for the commit in flight, if there is one.
fn finish_commit<L: Ledger<Error = StoreError>>(
    worker: &mut Worker<L>,
    committed: &Sender<Vec<Position>>,
    metrics: &PipelineMetrics,
    in_flight: &mut Option<Decided>,
) -> anyhow::Result<()> {
    worker.ledger_mut().wait_for_commit().context(UNCOMMITTED)?;
    if let Some(last) = in_flight.take() {
        publish(last, committed, metrics);
    }
    Ok(())
}

fn take_settings<L: Ledger<Error = StoreError> + ServiceLedger>(
    worker: &mut Worker<L>,
    settings: &WorkerSettings,
) -> anyhow::Result<()> {
    let taken = worker.ledger_mut().take_settings(settings);
    taken.context("the store cannot take the settings that were reloaded")?;
    worker.set_policy(Arc::clone(&settings.policy), Arc::clone(&settings.interests));
    info!(version = settings.version, "batches are decided by the reloaded settings from here on");
    Ok(())
}

fn decide<L: Ledger<Error = StoreError> + ServiceLedger>(
    worker: &mut Worker<L>,
    mut batch: ingest::Batch,
) -> anyhow::Result<Decided> {
    config::crash_point!("batch-received");
    let start = Instant::now();
    let span = batch_span::begin(&batch);
    let (facts, progress) = (std::mem::take(&mut batch.facts), batch.progress.clone());
    let report = worker.process_ahead(worker::Batch { facts, progress });
    let report = report.inspect_err(|_| batch_span::failed(&span)).context(UNCOMMITTED)?;
    if report.large_histories > 0 {
        let decisions = report.large_histories;
        warn!(
            decisions,
            "decisions took 100,000 touches, activations or effects of one device or address"
        );
    }
    let rows = worker.ledger().status_counts();
    Ok(Decided { batch, start, span, report, rows })
}

/// Counts a committed batch, and sends its positions.
fn publish(decided: Decided, committed: &Sender<Vec<Position>>, metrics: &PipelineMetrics) {
    config::crash_point!("batch-committed");
    metrics.count_commit(&decided);
    batch_span::committed(&decided.span, &decided.report);
    // Fails only if the intake has ended; the consumer group's offsets then stay behind those of the store.
    let _ = committed.send(decided.batch.progress.positions);
}

/// Metrics of attribution, store and ingest. A batch is counted when it is committed.
pub struct PipelineMetrics {
    ingest: ingest::Metrics,
    topics: TopicNames,
    policy: ArcSwap<Policy>,
    /// Held while a batch is counted and while a scrape is rendered, so that every scrape shows whole batches and its
    /// counts add up.
    whole_batches: Mutex<()>,
    /// Progress of the attribution loop, for a watchdog.
    pub progress: Arc<LoopProgress>,
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
        decision_metrics::describe_metrics();
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
        let (ingest, policy) = (ingest::Metrics::new(config), config.policy.clone().into());
        let (whole_batches, progress) = (Mutex::new(()), Arc::default());
        Self { ingest, topics, policy, whole_batches, progress }
    }

    /// Counts with the names of apps and channels of these settings from now on.
    pub fn set_policy(&self, policy: Arc<Policy>) {
        self.ingest.set_policy(Arc::clone(&policy));
        self.policy.store(policy);
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
        let Decided { batch, start, report, rows, .. } = decided;
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
        decision_metrics::count(&report.row_outcomes, &self.policy.load());
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
pub(super) mod tests {
    use std::sync::mpsc::{channel, sync_channel};
    use std::time::Duration;

    use attribution::facts::event::{EventTime, Pid};
    use attribution::facts::keys::FactKey;
    use attribution::ledger::index::{IndexEntry, Scan};
    use attribution::ledger::record::{FactRecord, Lookup};
    use attribution::ledger::{DecisionWrite, FactWrite, Facts, Progress, Unfinished};
    use attribution::rules::expiry::ExpiryFloor;
    use ingest::Intake;
    use store::embedded::Embedded;
    use store::memory::Memory;

    use super::*;

    /// Far longer than commits take.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn config() -> config::Config {
        config::parse("[[apps]]\npid = 1\nkey = \"app-x\"\n").unwrap()
    }

    /// Settings that do not change.
    fn feed(config: &config::Config) -> SettingsFeed {
        let settings = WorkerSettings {
            policy: Arc::clone(&config.policy),
            interests: Arc::default(),
            store: config.store.clone(),
            ledger_apps: None,
            version: String::new(),
        };
        SettingsFeed::new(Arc::new(ArcSwap::from_pointee(settings)))
    }

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
        let mut config = config();
        config.store.path = dir.path().join("store");
        let mut store = Embedded::open(&config.store, &config.policy).unwrap();
        store.defer_writes();
        let (batches, batches_in) = sync_channel(3);
        let (committed, committed_in) = channel::<Vec<Position>>();
        let reader = store.reader();
        let next = || committed_in.recv_timeout(PATIENCE).unwrap()[0].next_offset;
        // The thread cannot count the batch meanwhile, so it does not get further.
        let check_written = |number: i64| {
            let start = Instant::now();
            while reader.consumed_until() != EventTime::from_millis(number) {
                assert!(start.elapsed() < PATIENCE, "{number} is published before it is written");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(committed_in.try_recv().is_err(), "{number} is sent before it is counted");
        };
        (1..=3).for_each(|number| batches.send(batch(number)).unwrap());
        let worker = Worker::new(store, Arc::clone(&config.policy));
        let metrics = Arc::new(PipelineMetrics::new(&config));
        let uncounted = metrics.whole_batches.lock();
        let settings = feed(&config);
        let thread = start(worker, settings, batches_in, committed, Arc::clone(&metrics)).unwrap();
        check_written(1);
        drop(uncounted);
        assert_eq!([next(), next(), next()], [1, 2, 3]);
        // No batch is queued.
        let uncounted = metrics.whole_batches.lock();
        batches.send(batch(4)).unwrap();
        check_written(4);
        drop(uncounted);
        assert_eq!(next(), 4);
        drop(batches);
        thread.join().unwrap().unwrap();
        drop(reader);
        let mut store = Embedded::open(&config.store, &config.policy).unwrap();
        assert_eq!(store.positions().unwrap()[0].next_offset, 4);
    }

    /// Its first commit stays in flight, and the second one fails.
    struct FailingSecond {
        memory: Memory,
        commits: u32,
        /// The first commit fails too, when it is waited for.
        fails_first: bool,
    }

    fn refused(what: &str) -> StoreError {
        StoreError::Writer { reason: what.into() }
    }

    impl ServiceLedger for FailingSecond {
        fn status_counts(&self) -> StatusCounts {
            StatusCounts::new()
        }

        fn take_settings(&mut self, _settings: &WorkerSettings) -> Result<(), StoreError> {
            Ok(())
        }
    }

    impl Facts for FailingSecond {
        type Error = StoreError;

        fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
            self.memory.records(keys)
        }

        fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
            self.memory.scan(scans)
        }

        fn consumed_until(&self) -> Option<EventTime> {
            self.memory.consumed_until()
        }

        fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
            self.memory.expiry_floor(pid)
        }
    }

    impl Ledger for FailingSecond {
        fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
            self.memory.positions()
        }

        fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
            self.memory.lookup(keys)
        }

        fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
            self.memory.record(facts)
        }

        fn unfinished(&self) -> Unfinished {
            self.memory.unfinished()
        }

        fn set_unfinished(&mut self, unfinished: Unfinished) {
            self.memory.set_unfinished(unfinished);
        }

        fn commit(
            &mut self,
            decisions: Vec<DecisionWrite>,
            progress: &Progress,
        ) -> Result<Vec<FactKey>, StoreError> {
            self.commits += 1;
            match self.commits {
                1 => self.memory.commit(decisions, progress),
                _ => Err(refused("cannot write the second one")),
            }
        }

        fn wait_for_commit(&mut self) -> Result<(), StoreError> {
            if self.fails_first { Err(refused("cannot write the first one")) } else { Ok(()) }
        }
    }

    /// Returns the offsets that are sent, and the error.
    pub(crate) fn outcome_of(count: i64, fails_first: bool) -> (Vec<i64>, String) {
        let config = config();
        let ledger = FailingSecond { memory: Memory::default(), commits: 0, fails_first };
        let worker = Worker::new(ledger, Arc::clone(&config.policy));
        let (batches, batches_in) = sync_channel(2);
        let (committed, committed_in) = channel::<Vec<Position>>();
        (1..=count).for_each(|number| batches.send(batch(number)).unwrap());
        drop(batches);
        let metrics = PipelineMetrics::new(&config);
        let outcome = work(worker, feed(&config), &batches_in, &committed, &metrics);
        drop(committed);
        let sent = committed_in.iter().map(|positions| positions[0].next_offset).collect();
        (sent, format!("{:#}", outcome.unwrap_err()))
    }

    #[test]
    fn an_error_does_not_hide_the_outcome_of_the_commit_in_flight() {
        let (sent, error) = outcome_of(2, false);
        assert_eq!(sent, [1]);
        assert!(error.contains("the second one") && !error.contains("the first one"), "{error}");
        let (sent, error) = outcome_of(2, true);
        assert!(sent.is_empty(), "{sent:?}");
        assert!(error.contains("the second one") && error.contains("the first one"), "{error}");
    }

    /// The error of `commit` may be that of the batch before, and the error of the wait that of the last batch.
    #[test]
    fn an_error_names_no_batch_that_may_not_have_failed() {
        for count in [1, 2] {
            let (sent, error) = outcome_of(count, true);
            assert!(sent.is_empty(), "{sent:?}");
            assert!(error.contains("the first one") && !error.contains("before"), "{error}");
        }
    }
}
