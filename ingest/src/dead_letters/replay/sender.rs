//! Letters sent in transactions, each with its record in the journal: both are there, or neither.

use std::thread;
use std::time::Duration;

use backon::BlockingRetryable as _;
use config::Kafka;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseRecord, Producer, PurgeConfig, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

use super::delivery_reports::Reports;
use super::journal;
use super::letter::{Letter, Source};
use crate::kafka::error::IngestError;
use crate::kafka::retry::{backoff, delays};
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};
use crate::kafka::{clients, topic_admin};
use crate::timing::Timing;

/// Of one question to the coordinator of transactions.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Of one transaction, and of one question.
const TRIES: usize = 5;
/// What the client sends at once, by itself.
const BATCH_BYTES: u64 = 1_000_000;
const PAUSE: Duration = Duration::from_millis(2);

pub struct Sender {
    /// With a thread of its own for reports: taking a transaction back waits for them.
    producer: ThreadedProducer<Reports>,
    journal: String,
    names: TopicNames,
    timing: Timing,
    /// How many each topic has; 0 where that is not known.
    partitions: PerTopic<i32>,
}

impl Sender {
    /// From now on nobody else sends this topic's letters: whoever began before is refused, and
    /// what they had not ended is taken back.
    pub fn start(
        kafka: &Kafka,
        topic: &str,
        names: &TopicNames,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let id = format!("adtrail-replay-dlq-{topic}");
        let mut client = clients::transactional(kafka, &id);
        if let Some(bytes) = batch_bytes(kafka, topic, names, timing.admin_request_timeout)? {
            client.set("batch.size", bytes.to_string());
        }
        let producer: ThreadedProducer<Reports> =
            client.create_with_context(Reports::default()).map_err(IngestError::of_client)?;
        again(timing, || producer.init_transactions(TIMEOUT)).map_err(of_transaction)?;
        let partitions = PerTopic::from_fn(|kind| {
            let metadata = producer.client().fetch_metadata(Some(names.of(kind)), TIMEOUT).ok();
            let topic = metadata.as_ref().and_then(|metadata| metadata.topics().first());
            topic.map_or(0, |topic| i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX))
        });
        let (journal, names) = (journal::name(topic), names.clone());
        Ok(Self { producer, journal, names, timing, partitions })
    }

    /// Sends all but those that the topic does not take for their length: their indexes.
    ///
    /// Kafka measures what it is sent at once. So the others of a transaction are refused with the
    /// long one: all are sent again by halves, down to the one.
    pub fn send(&self, letters: &[Letter]) -> Result<Vec<usize>, IngestError> {
        let mut too_long = Vec::new();
        // With the index of the first of each.
        let mut waiting = vec![(0, letters)];
        while let Some((start, part)) = waiting.pop() {
            match self.send_at_once(part) {
                Err(IngestError::Transaction(error)) if is_too_long(&error) => {
                    if part.len() <= 1 {
                        too_long.push(start);
                    } else {
                        let (first, second) = part.split_at(part.len() / 2);
                        waiting.extend([(start + first.len(), second), (start, first)]);
                    }
                }
                outcome => outcome?,
            }
        }
        Ok(too_long)
    }

    /// Sends all of them, or none.
    fn send_at_once(&self, letters: &[Letter]) -> Result<(), IngestError> {
        for (try_number, delay) in (1..).zip(delays(self.timing)) {
            self.producer.context().take_refused();
            let Err(error) = self.transact(letters) else { break };
            if is_taken_over(&error) || self.has_been_taken_over() {
                return Err(IngestError::TakenOver);
            }
            if is_fatal(&error) {
                return Err(IngestError::Transaction(error));
            }
            tracing::debug!(%error, try_number, "a transaction failed and is taken back");
            // What is not sent yet would else be waited for until it is too old.
            self.producer.purge(PurgeConfig::default().queue().inflight());
            again(self.timing, || self.producer.abort_transaction(TIMEOUT))
                .map_err(of_transaction)?;
            match self.producer.context().take_refused() {
                // It will not be taken the next time either.
                Some(error) if is_for_good(&error) => return Err(of_transaction(error)),
                _ if try_number >= TRIES => return Err(of_transaction(error)),
                _ => thread::sleep(delay),
            }
        }
        Ok(())
    }

    /// What comes after may only say that the client is beyond help.
    fn has_been_taken_over(&self) -> bool {
        self.producer.client().fatal_error().is_some_and(|(code, _)| is_fence(code))
    }

    fn transact(&self, letters: &[Letter]) -> KafkaResult<()> {
        self.producer.begin_transaction()?;
        for letter in letters {
            self.produce(BaseRecord {
                topic: self.names.of(letter.source.topic),
                partition: self.partition(&letter.source),
                key: letter.key.as_deref(),
                payload: letter.value.as_deref(),
                timestamp: None,
                headers: Some(letter.headers.clone()),
                delivery_opaque: (),
            })?;
            let (key, value) = (letter.source.key(&self.names), entry(letter));
            self.produce(BaseRecord {
                topic: &self.journal,
                partition: None,
                key: Some(key.as_bytes()),
                payload: Some(value.as_bytes()),
                timestamp: None,
                headers: None::<OwnedHeaders>,
                delivery_opaque: (),
            })?;
        }
        self.await_taken()?;
        again(self.timing, || self.producer.commit_transaction(TIMEOUT))
    }

    /// The one that it came from, whatever partitioner its producer has: the rest of its app is there.
    fn partition(&self, source: &Source) -> Option<i32> {
        let partitions = 0..*self.partitions.of(source.topic);
        partitions.contains(&source.partition).then_some(source.partition)
    }

    /// Until Kafka has taken all, or has not taken one. The rest is then not sent any more, and
    /// committing would wait for it until it is too old.
    fn await_taken(&self) -> KafkaResult<()> {
        while self.producer.in_flight_count() > 0 {
            thread::sleep(PAUSE);
            if let Some(error) = self.producer.context().refused() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits while the client's queue is full.
    fn produce(&self, mut record: BaseRecord<'_, [u8], [u8]>) -> KafkaResult<()> {
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), unsent)) => {
                    record = unsent;
                    thread::sleep(PAUSE);
                }
                Err((error, _)) => {
                    self.producer.context().refuse(&error);
                    return Err(error);
                }
            }
        }
    }
}

/// What all topics that are written to take at once, where that is less than the client sends at
/// once. `None` too where Kafka does not tell: too much is then sent again by halves.
fn batch_bytes(
    kafka: &Kafka,
    topic: &str,
    names: &TopicNames,
    timeout: Duration,
) -> Result<Option<u64>, IngestError> {
    let journal = journal::name(topic);
    let mut topics: Vec<&str> = TopicKind::ALL.map(|kind| &**names.of(kind)).into();
    topics.push(&journal);
    let limits = topic_admin::settings(kafka, &topics, ["max.message.bytes"], timeout)?;
    let least =
        limits.iter().flatten().flatten().filter_map(|limit| limit.parse::<u64>().ok()).min();
    Ok(least.filter(|least| (1..BATCH_BYTES).contains(least)))
}

/// What the journal says of a letter, for people: it is found by its key.
fn entry(letter: &Letter) -> String {
    let Letter { code, partition, offset, .. } = letter;
    format!(r#"{{"code":"{code}","letter":{{"partition":{partition},"offset":{offset}}}}}"#)
}

/// Asks once more what may be asked once more, as a commit whose answer did not come in time.
fn again(timing: Timing, ask: impl FnMut() -> KafkaResult<()>) -> KafkaResult<()> {
    let may_pass = |error: &KafkaError| {
        matches!(error, KafkaError::Transaction(error)
            if error.is_retriable() && !error.txn_requires_abort() && !error.is_fatal())
    };
    ask.retry(backoff(timing).with_max_times(TRIES - 1))
        .sleep(thread::sleep)
        .when(may_pass)
        .notify(|error, _| tracing::debug!(%error, "kafka's transactions are asked again"))
        .call()
}

fn of_transaction(error: KafkaError) -> IngestError {
    if is_taken_over(&error) { IngestError::TakenOver } else { IngestError::Transaction(error) }
}

fn is_taken_over(error: &KafkaError) -> bool {
    error.rdkafka_error_code().is_some_and(is_fence)
}

fn is_fence(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
    )
}

fn is_fatal(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => error.is_fatal(),
        KafkaError::MessageProduction(code) => *code == RDKafkaErrorCode::Fatal,
        _ => false,
    }
}

/// Whether sending the same once more ends the same.
fn is_for_good(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge
                | RDKafkaErrorCode::InvalidRecord
                | RDKafkaErrorCode::InvalidMessage
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::PolicyViolation
        )
    )
}

fn is_too_long(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge)
}
