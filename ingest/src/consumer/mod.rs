//! The thread that reads Kafka.
//!
//! With an embedded store it reads every partition from the store's positions, and the consumer group decides nothing.
//! With a shared store it is a group member (`group_member`): it reads the partitions that it is assigned, from the
//! group's offsets. While the batch queue is full or dead letters are unacknowledged, nothing is polled; Kafka's log
//! buffers meanwhile, so producers are never blocked.

mod assign;
mod emit;
mod open_transactions;
pub(crate) mod read;
pub(crate) mod shutdown;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use attribution::ledger::{Position, Progress, RecordFingerprint};
use config::{Config, Kafka};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::types::RDKafkaErrorCode;

use crate::dead_letters::producer::DeadLetters;
use crate::decode::decoder::Decoder;
use crate::digest::digest;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::IngestError;
use crate::kafka::offsets::Offsets;
use crate::kafka::partitions::Partitions;
use crate::kafka::retry::Throttle;
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::observability::health::Health;
use crate::registry::Lookup;
use crate::timing::Timing;
use assign::topic_identity::TopicIdentityChecker;
use emit::offset_commits::Commits;
use open_transactions::OpenTransactions;
use read::batch::{Batch, Limits};
use read::low_watermark::LowWatermark;
use read::paused_partitions::{BadRecordLimiter, PauseReason, PausedPartitions};
use read::record_router::RecordRouter;
use shutdown::Shutdown;

/// A broker that just became leader may not know a partition's end yet, so out-of-range offsets are checked again.
const RANGE_TRIES: usize = 3;
const RANGE_RETRY: Duration = Duration::from_millis(500);
/// Maximum polls between two rounds of all other work of the thread.
const POLLS: usize = 256;
const POLL_IDLE: Duration = Duration::from_millis(50);

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
    let consumer = clients::consumer(&config.kafka, timing)?;
    read(config, (consumer, false), progress, (batches, committed), shutdown, health, timing)
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
    let (consumer, progress) = (clients::member(&config.kafka, timing)?, Progress::default());
    read(config, (consumer, true), &progress, (batches, committed), shutdown, health, timing)
}

/// Handle of the reading thread. Its result is the number of records that were read but not emitted, because dead
/// letters among them were not acknowledged; they will be read again.
type Reading = JoinHandle<Result<u64, IngestError>>;

fn read(
    config: &Config,
    (consumer, is_member): (Consumer, bool),
    progress: &Progress,
    (batches, committed): (SyncSender<Batch>, Receiver<Vec<Position>>),
    shutdown: Shutdown,
    health: Arc<Health>,
    timing: Timing,
) -> Result<Reading, IngestError> {
    let names = TopicNames::new(&config.kafka.topics);
    let limits = Limits {
        records_max: config.ingest.batch_records_max,
        bytes_max: config.ingest.batch_bytes_max,
        age_max: config.ingest.batch_age_max,
    };
    let offsets = Offsets::new(&names, &progress.positions);
    let low_watermark = LowWatermark::new(progress.consumed_until);
    health.set_committed(&offsets);
    let decoder = Decoder::new(config, timing.schema_timeout, timing)?;
    let bad_records = BadRecordLimiter::new(config.ingest.bad_records_max);
    let reader = ConsumerThread {
        consumer,
        is_member,
        timing,
        dead_letters: DeadLetters::new(&config.kafka, &names, timing)?,
        router: RecordRouter::new(names.clone(), decoder, bad_records, limits, low_watermark),
        paused: PausedPartitions::new(&names),
        commits: Commits::new(names.clone(), health.clone(), committed, timing),
        partitions: Partitions::default(),
        identity_checker: TopicIdentityChecker::start(&config.kafka, &names, timing)?,
        checked_at: Instant::now(),
        woken_at: Instant::now(),
        dropped_records: 0,
        letter_warnings: Throttle::default(),
        denial_warnings: Throttle::default(),
        open_transactions: OpenTransactions::default(),
        kafka: config.kafka.clone(),
        names,
        offsets,
        batches,
        shutdown,
        health,
    };
    thread::Builder::new()
        .name("adtrail-ingest".to_owned())
        .spawn(move || reader.run())
        .map_err(IngestError::Thread)
}

struct ConsumerThread {
    kafka: Kafka,
    names: TopicNames,
    consumer: Consumer,
    is_member: bool,
    timing: Timing,
    dead_letters: DeadLetters,
    router: RecordRouter,
    commits: Commits,
    partitions: Partitions,
    identity_checker: TopicIdentityChecker,
    checked_at: Instant,
    woken_at: Instant,
    /// Records of the batch that a shutdown dropped; they will be read again.
    dropped_records: u64,
    letter_warnings: Throttle,
    denial_warnings: Throttle,
    open_transactions: OpenTransactions,
    paused: PausedPartitions,
    /// Next offsets to read, including records of the unfinished batch.
    offsets: Offsets,
    batches: SyncSender<Batch>,
    shutdown: Shutdown,
    health: Arc<Health>,
}

impl ConsumerThread {
    fn run(mut self) -> Result<u64, IngestError> {
        let outcome = self.read();
        self.health.set_assigned(false);
        let Self { batches, commits, consumer, dropped_records, timing, .. } = self;
        drop(batches);
        if outcome.is_ok() {
            commits.finish(&consumer);
        }
        close(consumer, timing.client_close_timeout);
        outcome.map(|()| dropped_records)
    }

    fn read(&mut self) -> Result<(), IngestError> {
        if self.begin()?.is_break() {
            return Ok(());
        }
        while !self.shutdown.is_requested() {
            self.poll_rebalance()?;
            self.commits.serve(&self.consumer);
            if let Some(statistics) = self.consumer.context().take_statistics() {
                self.observe(&statistics);
            }
            if self.woken_at.elapsed() >= self.timing.client_wake_interval {
                clients::wake(&self.consumer);
                self.woken_at = Instant::now();
            }
            if self.checked_at.elapsed() >= self.check_interval() {
                self.check_partitions()?;
            }
            self.apply_check_results(Duration::ZERO)?;
            self.resume()?;
            self.poll()?;
        }
        self.emit_batch()
    }

    fn check_interval(&self) -> Duration {
        match self.health.denied() {
            Some(_) => self.timing.denied_topic_check_interval,
            None => self.timing.partition_check_interval,
        }
    }

    /// Pauses a partition at its next offset; the others are read on.
    fn pause(
        &mut self,
        topic: TopicKind,
        partition: i32,
        reason: PauseReason,
    ) -> Result<(), IngestError> {
        let name = self.names.of(topic);
        match reason {
            PauseReason::Schema(key) => {
                tracing::info!(topic = %name, partition, schema = %key, "waiting for the schema");
            }
            PauseReason::Bad => {
                tracing::error!(
                    topic = %name,
                    partition,
                    "partition paused: more than ingest.bad_records_max of its last 10000 records are invalid; \
                     fix the producer or the settings, or raise the limit, and restart; the dead letters \
                     contain the errors"
                );
            }
        }
        self.paused.pause(topic, partition, reason);
        self.assign()
    }

    /// Resumes the partitions whose schema is known by now.
    fn resume(&mut self) -> Result<(), IngestError> {
        let Some(registry) = self.router.decoder().registry() else { return Ok(()) };
        self.health.set_registry_down(registry.health().is_blocking());
        let is_resolved = |key| !matches!(registry.look_up(key), Lookup::Waiting);
        if self.paused.resume(is_resolved) { self.assign() } else { Ok(()) }
    }

    fn poll(&mut self) -> Result<(), IngestError> {
        for _ in 0..POLLS {
            let now = Instant::now();
            let batch = self.router.batch();
            let wait = batch.remaining(now).unwrap_or(POLL_IDLE).min(POLL_IDLE);
            if batch.is_full() || wait.is_zero() {
                return self.emit_batch();
            }
            let polled = clients::poll(&self.consumer, wait);
            if self.consumer.context().has_changed() {
                return Ok(());
            }
            match polled {
                None => return Ok(()),
                Some(Err(error)) => return self.handle_error(&error),
                Some(Ok(message)) => {
                    let Some(topic) = self.names.kind(message.topic()) else { continue };
                    let (partition, offset) = (message.partition(), message.offset());
                    // A record that was fetched before the last assignment can still arrive.
                    let is_read = |next| offset < next;
                    if self.offsets.next(topic, partition).is_some_and(is_read)
                        || self.paused.contains(topic, partition)
                    {
                        continue;
                    }
                    match self.router.route(&message, topic, now) {
                        None => {
                            let record = RecordFingerprint { offset, digest: digest(&message) };
                            self.offsets.advance(topic, partition, record);
                        }
                        Some(reason) => {
                            drop(message);
                            return self.pause(topic, partition, reason);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles an error that was polled instead of a record. librdkafka itself retries most of them.
    fn handle_error(&mut self, error: &KafkaError) -> Result<(), IngestError> {
        let KafkaError::MessageConsumption(code) = error else {
            return emit::backpressure::check_fatal(error);
        };
        match code {
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                self.check_positions()?;
                tracing::warn!(%error, "all positions are in range after all, resuming from them");
                self.shutdown.sleep(RANGE_RETRY);
                self.assign()
            }
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition => {
                let Some(partitions) = self.find_topics()? else { return Ok(()) };
                if self.is_member {
                    return Ok(());
                }
                self.set_partitions(partitions)?;
                self.assign()
            }
            // librdkafka would skip the records that it cannot read.
            RDKafkaErrorCode::BadMessage
            | RDKafkaErrorCode::BadCompression
            | RDKafkaErrorCode::NotImplemented
            | RDKafkaErrorCode::InvalidMessage
            | RDKafkaErrorCode::MessageSizeTooLarge => Err(self.locate_unreadable(*code)),
            // The error does not name the topic.
            RDKafkaErrorCode::TopicAuthorizationFailed => {
                self.identity_checker.check_records_and_access(self.offsets.candidates().collect());
                Ok(())
            }
            RDKafkaErrorCode::AllBrokersDown => {
                self.health.set_connected(false);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Closes the client, for `patience` at most. Closing waits for responses to offset commits, a minute if no broker
/// answers. A lost commit is harmless, so a client that takes longer is left to the end of the process.
fn close(consumer: Consumer, patience: Duration) {
    consumer.context().close();
    // Closing would wait for revoked partitions that are not unassigned yet.
    if let Err(error) = consumer.unassign() {
        tracing::debug!(%error, "partitions cannot be unassigned");
    }
    let (closed, is_closed) = mpsc::channel();
    thread::spawn(move || {
        drop(consumer);
        // The receiver is gone if closing took too long.
        let _ = closed.send(());
    });
    let _ = is_closed.recv_timeout(patience);
}
