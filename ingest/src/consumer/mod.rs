//! The thread that reads Kafka.
//!
//! With an embedded store, the thread reads every partition from the store's positions and takes no assignment from the
//! consumer group. With a shared store, it is a group member (`assign::group_member`) and reads its assigned partitions
//! from the group's offsets. While the batch queue is full or dead letters are unacknowledged, nothing is polled.
//! Meanwhile records accumulate in Kafka, so producers are never blocked.
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
use crate::decode::decoder::LivePolicy;
use crate::kafka::clients;
use crate::kafka::error::IngestError;
use crate::observability::health::Health;
use crate::timing::Timing;
use assign::{assign_partitions, checks, errors, group_member, startup};
use context::Context;
use emit::Output;
use emit::offset_commits::OffsetCommitter;
use read::batch::Batch;
use read::{PollEnd, ReadState};
use shutdown::Shutdown;
use topic_client::TopicClient;

/// The queues between the reading thread and the store.
#[derive(Debug)]
pub struct Queues {
    pub batches: SyncSender<Batch>,
    /// The positions that the store has committed.
    pub store_commits: Receiver<Vec<Position>>,
}

/// Starts a thread that reads from the positions in `progress`; a partition without one is read from its beginning.
/// After a shutdown request the thread emits its last batch and drops [`Queues::batches`]. It then waits a few seconds
/// for the store to commit the last batches and drop the sender of [`Queues::store_commits`].
///
/// # Errors
/// If librdkafka rejects a setting. Later errors are the thread's result.
pub fn start(
    config: &Config,
    policy: LivePolicy,
    progress: &Progress,
    queues: Queues,
    shutdown: Shutdown,
    health: Arc<Health>,
    timing: Timing,
) -> Result<ReaderHandle, IngestError> {
    let client = TopicClient::new(&config.kafka, false, timing)?;
    let context = Context::new(config, shutdown, health, timing);
    ConsumerThread::spawn(config, policy, progress, client, queues, context)
}

/// Like [`start`], but the thread joins the group `kafka.group`: it reads the assigned partitions from the group's
/// offsets, and commits the offsets of a batch to the group once the store has committed the batch. If the store
/// commits a batch only after its partitions were revoked, its offsets are not committed to the group, and the new
/// owners read its records again. Batches have no low watermark, because no member sees all partitions.
///
/// # Errors
/// See [`start`].
pub fn join(
    config: &Config,
    policy: LivePolicy,
    queues: Queues,
    shutdown: Shutdown,
    health: Arc<Health>,
    timing: Timing,
) -> Result<ReaderHandle, IngestError> {
    let client = TopicClient::new(&config.kafka, true, timing)?;
    let context = Context::new(config, shutdown, health, timing);
    ConsumerThread::spawn(config, policy, &Progress::default(), client, queues, context)
}

/// Handle of the reading thread. Its result is the number of records that were read but not emitted, because dead
/// letters among them were not acknowledged; they will be read again.
type ReaderHandle = JoinHandle<Result<u64, IngestError>>;

/// State of the thread. Each step borrows only the parts that it uses.
struct ConsumerThread {
    context: Context,
    client: TopicClient,
    read: ReadState,
    output: Output,
}

impl ConsumerThread {
    fn spawn(
        config: &Config,
        policy: LivePolicy,
        progress: &Progress,
        client: TopicClient,
        queues: Queues,
        context: Context,
    ) -> Result<ReaderHandle, IngestError> {
        let (names, timing, health) = (&client.names, context.timing, &context.health);
        let Queues { batches, store_commits } = queues;
        let read = ReadState::new(config, policy, names, progress, timing)?;
        health.set_committed(&read.offsets);
        let dead_letters = DeadLetters::new(&config.kafka, names, timing)?;
        let committer = OffsetCommitter::new(
            names.clone(),
            health.clone(),
            context.store.clone(),
            store_commits,
            timing,
        );
        let output = Output::new(batches, dead_letters, committer);
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
        let Output { batches, committer, dropped_records, .. } = self.output;
        drop(batches);
        if outcome.is_ok() {
            committer.finish(&client.consumer);
        }
        clients::close(client.consumer, context.timing.client_close_timeout);
        outcome.map(|()| dropped_records)
    }

    fn read(&mut self) -> Result<(), IngestError> {
        let Self { context, client, read, output } = self;
        let (mut checked_at, mut woken_at) = (Instant::now(), Instant::now());
        if !startup::start_reading(client, read, &output.dead_letters, context)? {
            return Ok(());
        }
        while !context.shutdown.is_requested() {
            group_member::poll_rebalance(client, read, &mut output.committer, context)?;
            output.committer.poll(&client.consumer);
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
