//! The thread that reads Kafka.
//!
//! Alone at its store, it owns every partition and reads each from the store's position, so Kafka's
//! group decides nothing. As a member of a group, at a store that is shared, it reads what the group
//! gives it, from the group's positions (`member`). While batches are not taken, or dead letters not
//! acknowledged, nothing is polled: that holds producers back no more than Kafka's own log does.

pub(crate) mod backpressure;
pub(crate) mod batch;
mod emit_batch;
pub mod group_member;
mod locate_unreadable;
pub(crate) mod offset_commits;
pub(crate) mod open_transactions;
pub(crate) mod partition_affinity;
pub(crate) mod paused_partitions;
pub(crate) mod record_router;
pub(crate) mod shutdown;
mod start_position;
pub(crate) mod topic_identity;
pub(crate) mod trusted_clock;
pub(crate) mod watermark;

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
use batch::{Batch, Limits};
use offset_commits::Commits;
use open_transactions::OpenTransactions;
use paused_partitions::{BadRecordLimiter, PauseReason, PausedPartitions};
use record_router::RecordRouter;
use shutdown::Shutdown;
use topic_identity::TopicIdentityChecker;
use watermark::LowWatermark;

/// A broker that just became leader may not know a partition's end: it is asked again.
const RANGE_TRIES: usize = 3;
const RANGE_RETRY: Duration = Duration::from_millis(500);
/// Polls between two looks at everything else.
const POLLS: usize = 256;
const POLL_IDLE: Duration = Duration::from_millis(50);

/// Starts reading, on a thread of its own, from the positions; a partition that has none is read
/// from its beginning. After a request to stop, what was read is handed on and the sender of
/// batches is dropped; the positions of the last batches are then awaited from `committed` until
/// its sender is dropped, for a few seconds.
///
/// # Errors
/// Settings that librdkafka refuses. Whatever ends reading later is the thread's result.
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

/// Starts reading as a member of the group `kafka.group`: the partitions that it gives, from its
/// positions, which are told once batches are committed; for the rest as [`start`]. Of a batch that is
/// committed after its partitions were taken away nothing is told, and whoever has them now reads its
/// records again. Nothing is said of how far all partitions are consumed.
///
/// # Errors
/// As of [`start`].
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

/// The thread that reads, and how reading ended: how many records were read and not handed on, because
/// dead letters among them were not acknowledged. They will be read again.
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
    let decoder = Decoder::new(config, timing.schema_patience, timing)?;
    let breaker = BadRecordLimiter::new(config.ingest.bad_records_max);
    let reader = Reader {
        consumer,
        is_member,
        timing,
        dead_letters: DeadLetters::new(&config.kafka, &names, timing)?,
        sorter: RecordRouter::new(names.clone(), decoder, breaker, limits, low_watermark),
        held: PausedPartitions::new(&names),
        commits: Commits::new(names.clone(), health.clone(), committed, timing),
        partitions: Partitions::default(),
        witness: TopicIdentityChecker::start(&config.kafka, &names, timing)?,
        looked_at: Instant::now(),
        woken_at: Instant::now(),
        left: 0,
        letters_told: Throttle::default(),
        denials_told: Throttle::default(),
        open: OpenTransactions::default(),
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

struct Reader {
    kafka: Kafka,
    names: TopicNames,
    consumer: Consumer,
    is_member: bool,
    timing: Timing,
    dead_letters: DeadLetters,
    sorter: RecordRouter,
    commits: Commits,
    partitions: Partitions,
    witness: TopicIdentityChecker,
    looked_at: Instant,
    woken_at: Instant,
    /// Records that were read and will be read again, at the end.
    left: u64,
    letters_told: Throttle,
    denials_told: Throttle,
    open: OpenTransactions,
    held: PausedPartitions,
    /// How far everything is read, handed on or not.
    offsets: Offsets,
    batches: SyncSender<Batch>,
    shutdown: Shutdown,
    health: Arc<Health>,
}

impl Reader {
    fn run(mut self) -> Result<u64, IngestError> {
        let outcome = self.read();
        self.health.set_assigned(false);
        let Self { batches, commits, consumer, left, timing, .. } = self;
        drop(batches);
        if outcome.is_ok() {
            commits.finish(&consumer);
        }
        close(consumer, timing.client_close_patience);
        outcome.map(|()| left)
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
            if self.looked_at.elapsed() >= self.check_interval() {
                self.look_again()?;
            }
            self.recognise(Duration::ZERO)?;
            self.resume()?;
            self.poll()?;
        }
        self.hand_on()
    }

    fn check_interval(&self) -> Duration {
        match self.health.denied() {
            Some(_) => self.timing.denied_topic_check_interval,
            None => self.timing.partition_check_interval,
        }
    }

    /// Leaves a partition where it stands, and reads the others on.
    fn hold(
        &mut self,
        topic: TopicKind,
        partition: i32,
        hold: PauseReason,
    ) -> Result<(), IngestError> {
        let name = self.names.of(topic);
        match hold {
            PauseReason::Schema(key) => {
                tracing::info!(topic = %name, partition, schema = %key, "waiting for the schema");
            }
            PauseReason::Bad => {
                tracing::error!(
                    topic = %name,
                    partition,
                    "more than ingest.bad_records_max of the last 10000 records are no events, so the \
                     partition is read no further: mend the producer or the settings, or raise it, and \
                     start again; the dead letters say what is wrong"
                );
            }
        }
        self.held.hold(topic, partition, hold);
        self.assign()
    }

    /// Reads those partitions on whose schemas are known now.
    fn resume(&mut self) -> Result<(), IngestError> {
        let Some(registry) = self.sorter.decoder().registry() else { return Ok(()) };
        self.health.set_registry_down(registry.health().is_needed_and_down());
        let is_settled = |key| !matches!(registry.look_up(key), Lookup::Waiting);
        if self.held.resume(is_settled) { self.assign() } else { Ok(()) }
    }

    fn poll(&mut self) -> Result<(), IngestError> {
        for _ in 0..POLLS {
            let now = Instant::now();
            let batch = self.sorter.batch();
            let wait = batch.remaining(now).unwrap_or(POLL_IDLE).min(POLL_IDLE);
            if batch.is_full() || wait.is_zero() {
                return self.hand_on();
            }
            let polled = clients::poll(&self.consumer, wait);
            if self.consumer.context().has_changed() {
                return Ok(());
            }
            match polled {
                None => return Ok(()),
                Some(Err(error)) => return self.mend(&error),
                Some(Ok(message)) => {
                    let Some(topic) = self.names.kind(message.topic()) else { continue };
                    let (partition, offset) = (message.partition(), message.offset());
                    // Fetched before partitions were taken up anew.
                    let is_read = |next| offset < next;
                    if self.offsets.next(topic, partition).is_some_and(is_read)
                        || self.held.holds(topic, partition)
                    {
                        continue;
                    }
                    match self.sorter.take(&message, topic, now) {
                        None => {
                            let mark = RecordFingerprint { offset, digest: digest(&message) };
                            self.offsets.pass(topic, partition, mark);
                        }
                        Some(hold) => {
                            drop(message);
                            return self.hold(topic, partition, hold);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// After an error that came instead of a record. The client itself tries most things again.
    fn mend(&mut self, error: &KafkaError) -> Result<(), IngestError> {
        let KafkaError::MessageConsumption(code) = error else {
            return backpressure::refuse_fatal(error);
        };
        match code {
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                self.check_positions()?;
                tracing::warn!(%error, "positions are in range, reading on from them");
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
                self.take_up(partitions)?;
                self.assign()
            }
            // The client would pass over what it cannot read.
            RDKafkaErrorCode::BadMessage
            | RDKafkaErrorCode::BadCompression
            | RDKafkaErrorCode::NotImplemented
            | RDKafkaErrorCode::InvalidMessage
            | RDKafkaErrorCode::MessageSizeTooLarge => Err(self.unreadable(*code)),
            // Of which topic the client does not say.
            RDKafkaErrorCode::TopicAuthorizationFailed => {
                self.witness.ask_all(self.offsets.candidates().collect());
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

/// Closing waits for answers to positions that were told, for a minute if the brokers are away.
/// They are for dashboards alone, so the client is then left to the end of the process.
fn close(consumer: Consumer, patience: Duration) {
    consumer.context().close();
    // What the group took back and nobody gave back yet would be waited for.
    if let Err(error) = consumer.unassign() {
        tracing::debug!(%error, "partitions cannot be let go of");
    }
    let (closed, is_closed) = mpsc::channel();
    thread::spawn(move || {
        drop(consumer);
        // Nobody listens any more if it took too long.
        let _ = closed.send(());
    });
    let _ = is_closed.recv_timeout(patience);
}
