//! The thread that reads Kafka.
//!
//! With an embedded store it reads every partition from the store's positions, and the consumer group decides nothing.
//! With a shared store it is a group member (`assign::group_member`): it reads the partitions that it is assigned, from
//! the group's offsets. While the batch queue is full or dead letters are unacknowledged, nothing is polled; Kafka's
//! log buffers meanwhile, so producers are never blocked.
//!
//! Start with the loop in [`ConsumerThread::read`]. `assign` decides which partitions are read and from which offsets,
//! `read` adds records to a batch, and `emit` sends batches and dead letters.

mod assign;
mod context;
mod emit;
pub(crate) mod read;
pub(crate) mod shutdown;
mod topic_client;
mod topic_identity;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use attribution::ledger::{Position, Progress};
use config::Config;
use rdkafka::consumer::Consumer as _;

use crate::dead_letters::producer::DeadLetters;
use crate::kafka::clients;
use crate::kafka::error::IngestError;
use crate::observability::health::Health;
use crate::timing::Timing;
use assign::{assign_partitions, checks, errors, group_member, startup};
use context::Context;
use emit::Output;
use emit::offset_commits::Commits;
use read::batch::Batch;
use read::{PollEnd, ReadState};
use shutdown::Shutdown;
use topic_client::TopicClient;

/// Starts a thread that reads from the positions in `progress`; a partition without one is read from its beginning.
/// After a shutdown request the thread emits its last batch and drops `batches`. It then waits a few seconds for the
/// positions of the last batches, until the sender of `committed` is dropped.
///
/// # Errors
/// If librdkafka rejects a setting. Later errors are the thread's result.
pub fn start(
    config: &Config,
    progress: &Progress,
    batches: SyncSender<Batch>,
    committed: Receiver<Vec<Position>>,
    shutdown: Shutdown,
    health: Arc<Health>,
    timing: Timing,
) -> Result<Reading, IngestError> {
    let client = TopicClient::new(&config.kafka, false, timing)?;
    let context = Context::new(&config.kafka, shutdown, health, timing);
    ConsumerThread::spawn(config, progress, client, batches, committed, context)
}

/// Starts a thread that reads as a member of the group `kafka.group`: the assigned partitions, from the group's
/// offsets, which are committed after the store has committed a batch; otherwise like [`start`]. If a batch is
/// committed after its partitions were revoked, its offsets are not: their new owner reads its records again.
/// Batches have no low watermark, because no member sees all partitions.
///
/// # Errors
/// See [`start`].
pub fn join(
    config: &Config,
    batches: SyncSender<Batch>,
    committed: Receiver<Vec<Position>>,
    shutdown: Shutdown,
    health: Arc<Health>,
    timing: Timing,
) -> Result<Reading, IngestError> {
    let client = TopicClient::new(&config.kafka, true, timing)?;
    let context = Context::new(&config.kafka, shutdown, health, timing);
    ConsumerThread::spawn(config, &Progress::default(), client, batches, committed, context)
}

/// Handle of the reading thread. Its result is the number of records that were read but not emitted, because dead
/// letters among them were not acknowledged; they will be read again.
type Reading = JoinHandle<Result<u64, IngestError>>;

/// The data of the thread. Each step takes the parts that it reads or changes.
struct ConsumerThread {
    context: Context,
    client: TopicClient,
    read: ReadState,
    output: Output,
}

impl ConsumerThread {
    fn spawn(
        config: &Config,
        progress: &Progress,
        client: TopicClient,
        batches: SyncSender<Batch>,
        committed: Receiver<Vec<Position>>,
        context: Context,
    ) -> Result<Reading, IngestError> {
        let (names, timing, health) = (&client.names, context.timing, &context.health);
        let read = ReadState::new(config, names, progress, timing)?;
        health.set_committed(&read.offsets);
        let dead_letters = DeadLetters::new(&config.kafka, names, timing)?;
        let commits = Commits::new(names.clone(), health.clone(), committed, timing);
        let output = Output::new(batches, dead_letters, commits);
        let thread = Self { context, client, read, output };
        thread::Builder::new()
            .name("adtrail-ingest".to_owned())
            .spawn(move || thread.run())
            .map_err(IngestError::Thread)
    }

    fn run(mut self) -> Result<u64, IngestError> {
        let outcome = self.read();
        self.context.health.set_assigned(false);
        let Self { client, context, .. } = self;
        let Output { batches, commits, dropped_records, .. } = self.output;
        drop(batches);
        if outcome.is_ok() {
            commits.finish(&client.consumer);
        }
        clients::close(client.consumer, context.timing.client_close_timeout);
        outcome.map(|()| dropped_records)
    }

    fn read(&mut self) -> Result<(), IngestError> {
        let Self { context, client, read, output } = self;
        let (mut checked_at, mut woken_at) = (Instant::now(), Instant::now());
        if !startup::begin(client, read, &output.dead_letters, context)? {
            return Ok(());
        }
        while !context.shutdown.is_requested() {
            group_member::poll_rebalance(client, read, &mut output.commits, context)?;
            output.commits.serve(&client.consumer);
            if let Some(statistics) = client.consumer.context().take_statistics() {
                read.observe(&statistics, client, context);
            }
            if woken_at.elapsed() >= context.timing.client_wake_interval {
                clients::wake(&client.consumer);
                woken_at = Instant::now();
            }
            if checked_at.elapsed() >= context.check_interval() {
                checked_at = Instant::now();
                checks::check_partitions(client, read, context)?;
            }
            let results = client.checker.wait_for_results(Duration::ZERO);
            checks::apply_results(results, client, read, context)?;
            if read.resume(&context.health) {
                assign_partitions(client, read, &context.health)?;
            }
            match read.poll(client) {
                PollEnd::Idle => {}
                PollEnd::BatchDue => output.emit(read, client, context)?,
                PollEnd::Paused => assign_partitions(client, read, &context.health)?,
                PollEnd::Error(error) => errors::handle(&error, client, read, context)?,
            }
        }
        output.emit(read, client, context)
    }
}
