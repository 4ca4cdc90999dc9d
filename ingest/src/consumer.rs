//! The thread that reads Kafka.
//!
//! It owns every partition and reads each from the store's position, so Kafka's group decides
//! nothing. While batches are not taken, or dead letters not acknowledged, nothing is polled:
//! that holds producers back no more than Kafka's own log does.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use attribution::ledger::{LastRead, Position, Progress};
use config::{Config, Kafka};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::types::RDKafkaErrorCode;

use crate::assignment::{self, Extents, PartitionCounts, Unfound};
use crate::batch::{Batch, Limits};
use crate::client::{self, Consumer, UNREACHABLE_HELP};
use crate::commits::Commits;
use crate::consumed::Consumed;
use crate::dead_letter::DeadLetters;
use crate::decoder::Decoder;
use crate::digest::digest;
use crate::error::IngestError;
use crate::health::{Extent, Health};
use crate::held::{Breaker, Held, Hold};
use crate::offsets::Offsets;
use crate::registry::Lookup;
use crate::retry::{Backoff, Throttle};
use crate::shutdown::Shutdown;
use crate::sorter::Sorter;
use crate::stall::{self, Stall};
use crate::statistics::Statistics;
use crate::topic::{TopicKind, TopicNames};

/// A topic that was just made may be unknown to some brokers for so long.
const NO_TOPIC_PATIENCE: Duration = Duration::from_secs(10);
/// Partitions that were added, and those without records that are read to their end, are noticed
/// so soon.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A broker that just became leader may not know a partition's end: it is asked again.
const RANGE_TRIES: usize = 3;
const RANGE_RETRY: Duration = Duration::from_millis(500);
/// So long reading waits for a schema before its partition is held: most registries answer sooner.
const SCHEMA_PATIENCE: Duration = Duration::from_millis(250);
/// Polls between two looks at everything else.
const POLLS: usize = 256;
const POLL_IDLE: Duration = Duration::from_millis(50);
/// Closing the client is waited for so long.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// The last dead letters are waited for so long after the request to stop.
const LAST_LETTERS: Duration = Duration::from_secs(2);

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
) -> Result<JoinHandle<Result<(), IngestError>>, IngestError> {
    let names = TopicNames::new(&config.kafka.topics);
    let limits = Limits {
        records_max: config.ingest.batch_records_max,
        bytes_max: config.ingest.batch_bytes_max,
        age_max: config.ingest.batch_age_max,
    };
    let offsets = Offsets::new(&names, &progress.positions);
    let consumed = Consumed::new(progress.consumed_until);
    health.set_committed(&offsets);
    let decoder = Decoder::new(config, SCHEMA_PATIENCE)?;
    let breaker = Breaker::new(config.ingest.bad_records_max);
    let reader = Reader {
        consumer: client::consumer(&config.kafka)?,
        dead_letters: DeadLetters::new(&config.kafka, &names)?,
        sorter: Sorter::new(names.clone(), decoder, breaker, limits, consumed),
        held: Held::new(&names),
        commits: Commits::new(names.clone(), health.clone(), committed),
        counts: PartitionCounts::default(),
        looked_at: Instant::now(),
        letters_told: Throttle::default(),
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
    dead_letters: DeadLetters,
    sorter: Sorter,
    commits: Commits,
    counts: PartitionCounts,
    looked_at: Instant,
    letters_told: Throttle,
    held: Held,
    /// How far everything is read, handed on or not.
    offsets: Offsets,
    batches: SyncSender<Batch>,
    shutdown: Shutdown,
    health: Arc<Health>,
}

impl Reader {
    fn run(mut self) -> Result<(), IngestError> {
        let outcome = self.read();
        self.health.set_assigned(false);
        let Self { batches, commits, consumer, .. } = self;
        drop(batches);
        if outcome.is_ok() {
            commits.finish(&consumer);
        }
        close(consumer);
        outcome
    }

    fn read(&mut self) -> Result<(), IngestError> {
        if self.begin()?.is_break() {
            return Ok(());
        }
        while !self.shutdown.is_requested() {
            self.commits.serve(&self.consumer);
            if let Some(statistics) = self.consumer.context().take_statistics() {
                self.observe(&statistics);
            }
            if self.looked_at.elapsed() >= LOOK_EVERY {
                self.look_again()?;
            }
            self.let_go()?;
            self.poll()?;
        }
        self.hand_on()
    }

    /// Leaves a partition where it stands, and reads the others on.
    fn hold(&mut self, topic: TopicKind, partition: i32, hold: Hold) -> Result<(), IngestError> {
        let name = self.names.of(topic);
        match hold {
            Hold::Schema(key) => {
                tracing::info!(topic = %name, partition, schema = %key, "waiting for the schema");
            }
            Hold::Bad => {
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
    fn let_go(&mut self) -> Result<(), IngestError> {
        let Some(registry) = self.sorter.decoder().registry() else { return Ok(()) };
        self.health.set_registry_down(registry.health().is_needed_and_down());
        let is_settled = |key| !matches!(registry.look_up(key), Lookup::Waiting);
        if self.held.let_go(is_settled) { self.assign() } else { Ok(()) }
    }

    /// Finds the topics and takes up every partition; breaks off if asked to stop.
    fn begin(&mut self) -> Result<ControlFlow<()>, IngestError> {
        let Some(counts) = self.find_topics()? else { return Ok(ControlFlow::Break(())) };
        self.sorter.consumed().set_partitions(&counts);
        self.counts = counts;
        self.dead_letters.create_topics(&self.kafka, &self.consumer, &self.shutdown)?;
        self.check_positions()?;
        self.tell_what_is_lost();
        self.assign()?;
        self.health.set_connected(true);
        self.health.set_assigned(true);
        Ok(ControlFlow::Continue(()))
    }

    /// Asks until the brokers answer; `None` if asked to stop first.
    fn find_topics(&self) -> Result<Option<PartitionCounts>, IngestError> {
        let mut backoff = Backoff::new();
        let unreachable = Throttle::default();
        let mut missing_since = None;
        while !self.shutdown.is_requested() {
            match assignment::find_partitions(&self.consumer, &self.names) {
                Ok(counts) => return Ok(Some(counts)),
                Err(Unfound::NoTopic(topic)) => {
                    self.health.set_connected(true);
                    let since = missing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= NO_TOPIC_PATIENCE {
                        let setting = topic.setting();
                        let topic = self.names.of(topic).clone();
                        return Err(IngestError::NoTopic { setting, topic });
                    }
                }
                Err(Unfound::Unreachable(error)) => {
                    self.health.set_connected(false);
                    self.health.set_refusal(self.consumer.context().refusal());
                    let brokers = &self.kafka.brokers;
                    unreachable.warn(|| {
                        tracing::warn!(brokers, %error, "kafka does not answer, asking again; {UNREACHABLE_HELP}");
                    });
                }
            }
            client::serve(&self.consumer);
            self.shutdown.sleep(backoff.next().min(Duration::from_secs(1)));
        }
        Ok(None)
    }

    /// That the broker still has what the positions point at.
    fn check_positions(&mut self) -> Result<(), IngestError> {
        let mut tries = 1;
        loop {
            let extents = self.find_extents();
            match assignment::check(&self.names, &self.counts, &extents, &self.offsets) {
                Err(IngestError::OutOfRange { .. }) if tries < RANGE_TRIES => {
                    tries += 1;
                    self.shutdown.sleep(RANGE_RETRY);
                }
                outcome => {
                    self.offsets.forget_last(|topic, partition, last| {
                        extents.get(&(topic, partition)).is_none_or(|at| last.offset < at.low)
                    });
                    return outcome;
                }
            }
        }
    }

    /// A store whose log was damaged, or that was restored, is of an earlier moment. What came after
    /// it is read again, which nobody would see otherwise.
    fn tell_what_is_lost(&self) {
        let (consumer, names, counts) = (&self.consumer, &self.names, &self.counts);
        match assignment::find_lost(consumer, names, counts, &self.offsets) {
            Ok(0) => {}
            Ok(records) => tracing::warn!(
                records,
                "the store is of an earlier moment than it was, by so many records: it was restored, or \
                 its log was damaged or lost; they are read again from kafka"
            ),
            Err(error) => tracing::debug!(%error, "the group's positions are not known"),
        }
    }

    /// Empty if a broker does not answer: then fetching finds out.
    fn find_extents(&self) -> Extents {
        let find = || assignment::find_extents(&self.consumer, &self.names, &self.counts);
        self.health.take_extents(find)
    }

    fn assign(&mut self) -> Result<(), IngestError> {
        self.sorter.consumed().forget_ends();
        let is_held = |topic, partition| self.held.holds(topic, partition);
        assignment::assignment(&self.names, &self.counts, &self.offsets, is_held)
            .and_then(|list| self.consumer.assign(&list))
            .map_err(IngestError::Client)
    }

    /// Takes up partitions that were added since, and asks where all end.
    fn look_again(&mut self) -> Result<(), IngestError> {
        self.looked_at = Instant::now();
        match assignment::find_partitions(&self.consumer, &self.names) {
            Ok(counts) if counts != self.counts => {
                tracing::info!(?counts, "the number of partitions has changed");
                self.sorter.consumed().set_partitions(&counts);
                self.counts = counts;
                self.check_positions()?;
                self.assign()
            }
            Ok(_) => {
                let extents = self.find_extents();
                self.sorter.consumed().ask(&extents);
                Ok(())
            }
            // Fetching fails too, if it is true, and is heard.
            Err(unfound) => {
                tracing::debug!(?unfound, "partitions cannot be looked up");
                Ok(())
            }
        }
    }

    fn poll(&mut self) -> Result<(), IngestError> {
        for _ in 0..POLLS {
            let now = Instant::now();
            let batch = self.sorter.batch();
            let wait = batch.remaining(now).unwrap_or(POLL_IDLE).min(POLL_IDLE);
            if batch.is_full() || wait.is_zero() {
                return self.hand_on();
            }
            match self.consumer.poll(wait) {
                None => return Ok(()),
                Some(Err(error)) => return self.mend(&error),
                Some(Ok(message)) => {
                    let Some(topic) = self.names.kind(message.topic()) else { continue };
                    let (partition, offset) = (message.partition(), message.offset());
                    let last = LastRead { offset, digest: digest(&message) };
                    // What was read last, or fetched before partitions were taken up anew.
                    let is_read = |next| offset < next;
                    if self.offsets.next(topic, partition).is_some_and(is_read) {
                        self.recognise(topic, partition, last)?;
                        continue;
                    }
                    if self.held.holds(topic, partition) {
                        continue;
                    }
                    match self.sorter.take(&message, (topic, last), now) {
                        None => self.offsets.pass(topic, partition, last),
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

    /// That a record which was read before is the one that it was.
    fn recognise(
        &self,
        topic: TopicKind,
        partition: i32,
        found: LastRead,
    ) -> Result<(), IngestError> {
        match self.offsets.last(topic, partition) {
            Some(last) if last.offset == found.offset && last.digest != found.digest => {
                let topic = self.names.of(topic).clone();
                Err(IngestError::MadeAnew { topic, partition, offset: found.offset })
            }
            _ => Ok(()),
        }
    }

    /// After an error that came instead of a record. The client itself tries most things again.
    fn mend(&mut self, error: &KafkaError) -> Result<(), IngestError> {
        let KafkaError::MessageConsumption(code) = error else { return stall::refuse_fatal(error) };
        match code {
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                self.check_positions()?;
                // What was read last may be gone, while what comes next is there.
                self.offsets.forget_last(|_, _, _| true);
                tracing::warn!(%error, "positions are in range, reading on from them");
                self.shutdown.sleep(RANGE_RETRY);
                self.assign()
            }
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition => {
                let Some(counts) = self.find_topics()? else { return Ok(()) };
                self.sorter.consumed().set_partitions(&counts);
                self.counts = counts;
                self.check_positions()?;
                self.assign()
            }
            // The client would pass over what it cannot read.
            RDKafkaErrorCode::BadMessage
            | RDKafkaErrorCode::BadCompression
            | RDKafkaErrorCode::NotImplemented
            | RDKafkaErrorCode::InvalidMessage
            | RDKafkaErrorCode::MessageSizeTooLarge => Err(IngestError::Unreadable(error.clone())),
            RDKafkaErrorCode::AllBrokersDown => {
                self.health.set_connected(false);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn observe(&mut self, statistics: &Statistics) {
        self.health.has_told();
        self.health.set_refusal(self.consumer.context().refusal());
        let is_connected = statistics.is_connected();
        match (self.health.is_connected(), is_connected) {
            (false, true) => tracing::info!("kafka answers again"),
            (true, false) => tracing::warn!(
                brokers = self.kafka.brokers,
                "kafka does not answer any more; what it has is read once it does"
            ),
            _ => {}
        }
        self.health.set_connected(is_connected);
        for (name, partition, seen) in statistics.partitions() {
            let (Some(topic), Some(high)) = (self.names.kind(name), seen.high()) else { continue };
            // Of a partition that is not read the client knows nothing new.
            if self.held.holds(topic, partition) {
                continue;
            }
            if let Some(polled) = seen.polled() {
                self.sorter.consumed().reach(topic, partition, polled);
            }
            let low = seen.low();
            let read = self.offsets.next(topic, partition);
            let high = if seen.is_drained() { read.unwrap_or(low) } else { high };
            self.health.set_extent(topic, partition, Extent { low, high });
        }
    }

    /// Hands on what was read, once its dead letters are acknowledged. Asked to stop, a batch
    /// whose dead letters are not acknowledged is dropped: it will be read again.
    fn hand_on(&mut self) -> Result<(), IngestError> {
        if self.sorter.batch().is_empty() {
            return Ok(());
        }
        crash_point!("batch-read");
        self.health.saw_message();
        let (batch, letters) = self.sorter.finish();
        if let Some(letter) = letters.first() {
            let (topic, count) = (self.names.of(letter.topic()), letters.len());
            self.letters_told.warn(|| {
                tracing::warn!(
                    count,
                    %topic,
                    code = letter.code(),
                    "records that are no events went to the dead letters: adtrail peek {topic}.dlq \
                     tells what was wrong"
                );
            });
        }
        self.health.set_read_until(self.sorter.consumed().of_partitions());
        for ((topic, partition), until) in self.sorter.consumed().of_partitions() {
            if let Some(next_offset) = self.offsets.next(topic, partition) {
                self.health.await_commit((topic, partition), next_offset, until.millis());
            }
        }
        let (consumer, names, counts) = (&self.consumer, &self.names, &self.counts);
        let look = || {
            self.health.take_extents(|| assignment::find_extents(consumer, names, counts));
        };
        let mut stall = Stall::new(consumer, &mut self.commits, &look);
        let mut stop_at = None;
        let shutdown = &self.shutdown;
        let acknowledged = self.dead_letters.deliver(&letters, || {
            stall.serve()?;
            if shutdown.is_requested() {
                stop_at.get_or_insert_with(|| Instant::now() + LAST_LETTERS);
            }
            Ok(stop_at.is_none_or(|stop_at| Instant::now() < stop_at))
        })?;
        if !acknowledged {
            tracing::warn!(
                letters = letters.len(),
                "stopped before dead letters were acknowledged"
            );
            return Ok(());
        }
        stall::send(&self.batches, batch, shutdown, &mut stall)?;
        crash_point!("batch-handed-on");
        if stall.has_let_go { self.assign() } else { Ok(()) }
    }
}

/// Closing waits for answers to positions that were told, for a minute if the brokers are away.
/// They are for dashboards alone, so the client is then left to the end of the process.
fn close(consumer: Consumer) {
    let (closed, is_closed) = mpsc::channel();
    thread::spawn(move || {
        drop(consumer);
        // Nobody listens any more if it took too long.
        let _ = closed.send(());
    });
    let _ = is_closed.recv_timeout(CLOSE_PATIENCE);
}
