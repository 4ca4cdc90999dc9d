//! Produces events for the collector. A caller continues once all in-sync replicas have acknowledged its event.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use config::Kafka;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer, ProducerContext, PurgeConfig, ThreadedProducer,
};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::oneshot;

use super::clients::statistics::Statistics;
use super::clients::{self, RECORD_BYTES_MAX};
use super::error::IngestError;
use super::retry::Throttle;
use super::topics::{TopicKind, TopicNames};

/// Events and bytes that may wait for an acknowledgement.
const QUEUED_EVENTS_MAX: &str = "50000";
const QUEUED_KIB_MAX: &str = "65536";

/// Events up to this size share batches. A broker refuses a batch as a whole, so that a small one concerns few events,
/// and is admitted by topics that admit little.
const BATCH_BYTES: usize = 128 << 10;

/// Why an event is not, or may not be, in Kafka.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProduceError {
    #[error("too many events wait for an acknowledgement of kafka")]
    QueueFull,
    /// The event may be in Kafka nevertheless.
    #[error("kafka has not acknowledged the event: {0}")]
    Unacknowledged(KafkaError),
    #[error("the event is larger than kafka accepts")]
    TooLarge,
    /// The event alone may be accepted.
    #[error("the batch of the event is larger than kafka accepts")]
    BatchTooLarge,
}

impl ProduceError {
    fn new(error: KafkaError) -> Self {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Self::QueueFull,
            Some(
                RDKafkaErrorCode::MessageSizeTooLarge
                | RDKafkaErrorCode::InvalidMessageSize
                | RDKafkaErrorCode::MessageBatchTooLarge,
            ) => Self::TooLarge,
            _ => Self::Unacknowledged(error),
        }
    }

    /// Like [`Self::new`], for an event of this size that was sent to a broker, in a batch of at most `batch_bytes` or
    /// alone.
    fn of_sent(error: KafkaError, bytes: usize, batch_bytes: usize) -> Self {
        match Self::new(error) {
            Self::TooLarge if bytes <= batch_bytes => Self::BatchTooLarge,
            other => other,
        }
    }
}

/// What became of an event.
pub type Outcome = Result<(), ProduceError>;

/// A producer with a bounded queue, for any number of callers.
pub struct EventProducer {
    producer: ThreadedProducer<Reporter>,
    names: TopicNames,
}

/// An event on its way to Kafka.
#[derive(Debug)]
pub struct Delivery(oneshot::Receiver<Outcome>);

impl Delivery {
    /// Waits for the acknowledgement, at most as long as the producer was started with.
    pub async fn acknowledged(self) -> Outcome {
        // The report is missing only if the producer was dropped.
        self.0.await.unwrap_or(Err(ProduceError::Unacknowledged(KafkaError::Canceled)))
    }

    /// Like [`Self::acknowledged`], on a thread without async tasks.
    pub fn wait(self) -> Outcome {
        self.0.blocking_recv().unwrap_or(Err(ProduceError::Unacknowledged(KafkaError::Canceled)))
    }
}

impl EventProducer {
    /// Starts a client that gives up an event after `acknowledgement_timeout`.
    ///
    /// # Errors
    /// If librdkafka rejects a setting.
    pub fn start(kafka: &Kafka, acknowledgement_timeout: Duration) -> Result<Self, IngestError> {
        let batch_bytes = BATCH_BYTES.to_string();
        let settings = [
            ("acks", "all"),
            ("enable.idempotence", "true"),
            ("message.max.bytes", RECORD_BYTES_MAX),
            // As the Java client, so that all producers put the events of an app on one partition.
            ("partitioner", "murmur2_random"),
            ("linger.ms", "5"),
            ("batch.size", &*batch_bytes),
            ("queue.buffering.max.messages", QUEUED_EVENTS_MAX),
            ("queue.buffering.max.kbytes", QUEUED_KIB_MAX),
            ("statistics.interval.ms", "1000"),
            // Keeps a connection in use, which shows that a broker answers.
            ("topic.metadata.refresh.interval.ms", "10000"),
        ];
        let mut client = clients::client(kafka, &settings);
        // A caller's wait depends on it.
        client.set("message.timeout.ms", acknowledgement_timeout.as_millis().to_string());
        // The operator may have set another one.
        let batch_bytes = client.get("batch.size").and_then(|bytes| bytes.parse().ok());
        let reporter = Reporter::new(batch_bytes.unwrap_or(BATCH_BYTES));
        let producer = client.create_with_context(reporter).map_err(IngestError::of_client)?;
        Ok(Self { producer, names: TopicNames::new(&kafka.topics) })
    }

    /// Queues an event.
    ///
    /// # Errors
    /// If the queue is full, or the event too large.
    pub fn produce(
        &self,
        topic: TopicKind,
        key: &str,
        value: &[u8],
    ) -> Result<Delivery, ProduceError> {
        let (report, delivery) = oneshot::channel();
        let record = BaseRecord {
            topic: self.names.of(topic),
            partition: None,
            payload: Some(value),
            key: Some(key.as_bytes()),
            timestamp: None,
            headers: None,
            delivery_opaque: Box::new(report),
        };
        match self.producer.send(record) {
            Ok(()) => Ok(Delivery(delivery)),
            Err((error, _)) => Err(ProduceError::new(error)),
        }
    }

    /// Returns true if a broker answers.
    pub fn is_connected(&self) -> bool {
        self.producer.context().is_connected.load(Ordering::Relaxed)
    }

    /// Returns the error after which this client delivers nothing any more.
    pub fn fatal_error(&self) -> Option<String> {
        self.producer.client().fatal_error().map(|(_, reason)| reason)
    }

    /// Waits until nothing is pending, at most this long.
    pub fn flush(&self, timeout: Duration) {
        if let Err(error) = self.producer.flush(timeout) {
            tracing::debug!(%error, "events are still pending");
        }
    }

    /// Gives up all events that are pending, as if their time had passed. Returns their number.
    pub fn give_up(&self) -> usize {
        let pending = self.producer.in_flight_count();
        self.producer.purge(PurgeConfig::default().queue().inflight());
        usize::try_from(pending).unwrap_or(0)
    }
}

struct Reporter {
    is_connected: AtomicBool,
    batch_bytes: usize,
    errors: Throttle,
    failures: Throttle,
}

impl Reporter {
    fn new(batch_bytes: usize) -> Self {
        Self {
            is_connected: AtomicBool::new(false),
            batch_bytes,
            errors: Throttle::default(),
            failures: Throttle::default(),
        }
    }
}

impl ClientContext for Reporter {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        clients::log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        match serde_json::from_slice::<Statistics>(statistics) {
            Ok(statistics) => {
                self.is_connected.store(statistics.is_connected(), Ordering::Relaxed);
            }
            Err(error) => tracing::debug!(%error, "librdkafka's statistics cannot be parsed"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.errors.warn(|| tracing::warn!(%error, reason, "kafka error of the event producer"));
    }
}

impl ProducerContext for Reporter {
    type DeliveryOpaque = Box<oneshot::Sender<Outcome>>;

    fn delivery(&self, result: &DeliveryResult<'_>, report: Self::DeliveryOpaque) {
        let outcome = match result {
            Ok(_) => Ok(()),
            Err((error, record)) => {
                self.failures.warn(|| {
                    let topic = record.topic();
                    tracing::warn!(topic, %error, "kafka does not acknowledge events of the collector");
                });
                let bytes = record.key_len() + record.payload_len();
                Err(ProduceError::of_sent(error.clone(), bytes, self.batch_bytes))
            }
        };
        // The receiver is gone if its client has disconnected.
        let _ = report.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_too_large_only_if_no_other_was_sent_with_it() {
        let check = |code, bytes, expected: fn(&ProduceError) -> bool| {
            let error = ProduceError::of_sent(KafkaError::MessageProduction(code), bytes, 1_000);
            assert!(expected(&error), "{bytes}: {error:?}");
        };
        let too_large = RDKafkaErrorCode::MessageSizeTooLarge;
        check(too_large, 1_000, |error| *error == ProduceError::BatchTooLarge);
        check(too_large, 1_001, |error| *error == ProduceError::TooLarge);
        let timed_out = RDKafkaErrorCode::MessageTimedOut;
        check(timed_out, 1_001, |error| matches!(error, ProduceError::Unacknowledged(_)));
    }
}
