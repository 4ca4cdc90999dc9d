//! Sends letters in transactions, each letter together with its record in the journal, which prevents sending it again.

use std::thread;
use std::time::Duration;

use backon::BlockingRetryable as _;
use config::Kafka;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseRecord, Producer, PurgeConfig, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

use super::dead_letter::{DeadLetter, Source};
use super::delivery_reports::Reports;
use super::journal;
use crate::kafka::error::IngestError;
use crate::kafka::retry::{backoff, delays};
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};
use crate::kafka::{clients, topic_admin};
use crate::timing::Timing;

/// Timeout of a request to the transaction coordinator.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of attempts of a transaction, and of each request to the coordinator.
const ATTEMPTS_MAX: usize = 5;
/// librdkafka's default of `batch.size`.
const DEFAULT_BATCH_BYTES: u64 = 1_000_000;
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub struct Sender {
    /// Has its own thread for delivery reports, because aborting a transaction waits for them.
    producer: ThreadedProducer<Reports>,
    journal: String,
    names: TopicNames,
    timing: Timing,
    /// Partition counts of the source topics; 0 if unknown.
    partitions: PerTopic<i32>,
}

impl Sender {
    /// Creates the producer. Fences earlier senders of this dead-letter topic, and aborts their open transactions.
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
        retry(timing, || producer.init_transactions(REQUEST_TIMEOUT)).map_err(transaction_error)?;
        let partitions = PerTopic::from_fn(|kind| {
            let metadata =
                producer.client().fetch_metadata(Some(names.of(kind)), REQUEST_TIMEOUT).ok();
            let topic = metadata.as_ref().and_then(|metadata| metadata.topics().first());
            topic.map_or(0, |topic| i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX))
        });
        let (journal, names) = (journal::name(topic), names.clone());
        Ok(Self { producer, journal, names, timing, partitions })
    }

    /// Sends all letters except those that are too large for their topic. Returns the indexes of the latter.
    ///
    /// Kafka rejects an oversized batch as a whole. So the letters of a failed transaction are sent again in halves,
    /// until an oversized letter is alone.
    pub fn send(&self, letters: &[DeadLetter]) -> Result<Vec<usize>, IngestError> {
        let mut oversized = Vec::new();
        // Slices of letters, each with the index of its first one.
        let mut pending = vec![(0, letters)];
        let size_error = Some(RDKafkaErrorCode::MessageSizeTooLarge);
        while let Some((start, part)) = pending.pop() {
            match self.send_transaction(part) {
                Err(IngestError::Transaction(error))
                    if error.rdkafka_error_code() == size_error =>
                {
                    if part.len() <= 1 {
                        oversized.push(start);
                    } else {
                        let (first, second) = part.split_at(part.len() / 2);
                        pending.extend([(start + first.len(), second), (start, first)]);
                    }
                }
                outcome => outcome?,
            }
        }
        Ok(oversized)
    }

    /// Sends all letters in one transaction, or none.
    fn send_transaction(&self, letters: &[DeadLetter]) -> Result<(), IngestError> {
        for (attempt, delay) in (1..).zip(delays(self.timing)) {
            // Clears the failure of the previous attempt.
            self.producer.context().take_failure();
            let Err(error) = self.transact(letters) else { break };
            if is_fencing_error(&error) || self.is_fenced() {
                return Err(IngestError::TakenOver);
            }
            if is_fatal(&error) {
                return Err(IngestError::Transaction(error));
            }
            tracing::debug!(%error, attempt, "a transaction failed; aborting it");
            // Without this, the abort would wait for unsent records until they time out.
            self.producer.purge(PurgeConfig::default().queue().inflight());
            retry(self.timing, || self.producer.abort_transaction(REQUEST_TIMEOUT))
                .map_err(transaction_error)?;
            match self.producer.context().take_failure() {
                Some(error) if is_permanent(&error) => return Err(transaction_error(error)),
                _ if attempt >= ATTEMPTS_MAX => return Err(transaction_error(error)),
                _ => thread::sleep(delay),
            }
        }
        Ok(())
    }

    /// Returns true if the producer was fenced. Only the first error states this; later errors may only say that the
    /// client has failed.
    fn is_fenced(&self) -> bool {
        self.producer.client().fatal_error().is_some_and(|(code, _)| is_fencing_code(code))
    }

    fn transact(&self, letters: &[DeadLetter]) -> KafkaResult<()> {
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
            let (key, value) = (letter.source.key(&self.names), journal_value(letter));
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
        self.await_delivery()?;
        retry(self.timing, || self.producer.commit_transaction(REQUEST_TIMEOUT))
    }

    /// Returns the original partition if it still exists, to keep the app's records together. It cannot be recomputed,
    /// because the original producer's partitioner is unknown.
    fn partition(&self, source: &Source) -> Option<i32> {
        let existing = 0..*self.partitions.of(source.topic);
        existing.contains(&source.partition).then_some(source.partition)
    }

    /// Waits until all records are delivered or one has failed. After a failure, a commit would wait for the unsent
    /// records until they time out.
    fn await_delivery(&self) -> KafkaResult<()> {
        while self.producer.in_flight_count() > 0 {
            thread::sleep(POLL_INTERVAL);
            if let Some(error) = self.producer.context().failure() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Queues a record, and waits while the client's queue is full.
    fn produce(&self, mut record: BaseRecord<'_, [u8], [u8]>) -> KafkaResult<()> {
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), unsent)) => {
                    record = unsent;
                    thread::sleep(POLL_INTERVAL);
                }
                Err((error, _)) => {
                    self.producer.context().set_failure(&error);
                    return Err(error);
                }
            }
        }
    }
}

/// Returns the smallest `max.message.bytes` of all topics that are written to, if it is less than
/// [`DEFAULT_BATCH_BYTES`]. Also returns `None` if Kafka does not return the setting; oversized batches are then sent
/// again in halves.
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
    let smallest =
        limits.iter().flatten().flatten().filter_map(|limit| limit.parse::<u64>().ok()).min();
    Ok(smallest.filter(|smallest| (1..DEFAULT_BATCH_BYTES).contains(smallest)))
}

/// Returns the value of a journal record. It is informational, because replays read only the key.
fn journal_value(letter: &DeadLetter) -> String {
    let DeadLetter { code, partition, offset, .. } = letter;
    format!(r#"{{"code":"{code}","letter":{{"partition":{partition},"offset":{offset}}}}}"#)
}

/// Retries retriable errors, such as a commit timeout.
fn retry(timing: Timing, request: impl FnMut() -> KafkaResult<()>) -> KafkaResult<()> {
    let is_retriable = |error: &KafkaError| {
        matches!(error, KafkaError::Transaction(error)
            if error.is_retriable() && !error.txn_requires_abort() && !error.is_fatal())
    };
    request
        .retry(backoff(timing).with_max_times(ATTEMPTS_MAX - 1))
        .sleep(thread::sleep)
        .when(is_retriable)
        .notify(
            |error, _| tracing::debug!(%error, "retrying a request to the transaction coordinator"),
        )
        .call()
}

fn transaction_error(error: KafkaError) -> IngestError {
    if is_fencing_error(&error) { IngestError::TakenOver } else { IngestError::Transaction(error) }
}

fn is_fencing_error(error: &KafkaError) -> bool {
    error.rdkafka_error_code().is_some_and(is_fencing_code)
}

fn is_fencing_code(code: RDKafkaErrorCode) -> bool {
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

/// Returns true if a retry would fail with the same error.
fn is_permanent(error: &KafkaError) -> bool {
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
