//! Produces invalid records unchanged to `<topic>.dlq`, with headers that name their origin and error. The position
//! advances past an invalid record only after its dead letter is acknowledged.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use config::Kafka;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;

use super::topics;
use crate::consumer::read::batch::Source;
use crate::consumer::shutdown::Shutdown;
use crate::decode::DecodeError;
use crate::kafka::assignment;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::{IngestError, check_fatal};
use crate::kafka::retry::{Throttle, delays};
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};
use crate::timing::Timing;

/// Suffix of a dead-letter topic's name.
pub const SUFFIX: &str = ".dlq";

/// Delay between two polls for acknowledgements.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);

/// The headers that a dead letter has in addition to those of the original record.
pub mod header {
    pub const TOPIC: &str = "__connect.errors.topic";
    pub const PARTITION: &str = "__connect.errors.partition";
    pub const OFFSET: &str = "__connect.errors.offset";
    pub const STAGE: &str = "__connect.errors.stage";
    pub const CLASS: &str = "__connect.errors.exception.class.name";
    pub const MESSAGE: &str = "__connect.errors.exception.message";
    pub const CODE: &str = "adtrail.error.code";
    pub const ALL: [&str; 7] = [TOPIC, PARTITION, OFFSET, STAGE, CLASS, MESSAGE, CODE];
}

/// A record that could not be decoded.
pub struct DeadLetter {
    /// The topic of the original record.
    pub topic: TopicKind,
    /// The code of the error.
    pub code: &'static str,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: OwnedHeaders,
}

impl DeadLetter {
    /// Copies the record; `name` is the name of its topic.
    pub fn new(
        message: &BorrowedMessage<'_>,
        source: Source,
        name: &str,
        error: &DecodeError,
    ) -> Self {
        let code = error.code.name();
        let added = [
            (header::TOPIC, name.to_owned()),
            (header::PARTITION, source.partition.to_string()),
            (header::OFFSET, source.offset.to_string()),
            (header::STAGE, "VALUE_CONVERTER".to_owned()),
            (header::CLASS, format!("adtrail.{code}")),
            (header::MESSAGE, error.message.clone()),
            (header::CODE, code.to_owned()),
        ];
        // Copied as a whole, because reading single headers panics if a name is not UTF-8.
        let original = message.headers().map(BorrowedHeaders::detach).unwrap_or_default();
        let headers = added.iter().fold(original, |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        Self {
            topic: source.topic,
            code,
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers,
        }
    }

    #[cfg(test)]
    pub fn of_value(topic: TopicKind, value: &[u8]) -> Self {
        let (key, value, headers) = (None, Some(value.to_vec()), OwnedHeaders::new());
        Self { topic, code: "not_json", key, value, headers }
    }
}

/// The producer of dead letters.
pub struct DeadLetters {
    producer: BaseProducer<Reporter>,
    reports: Receiver<Report>,
    topics: PerTopic<String>,
    timing: Timing,
    warnings: Throttle,
    /// Number of deliveries started. A delivery that was stopped leaves letters in flight, whose reports arrive during
    /// a later one.
    deliveries: Cell<u64>,
}

impl DeadLetters {
    pub fn new(kafka: &Kafka, names: &TopicNames, timing: Timing) -> Result<Self, IngestError> {
        let (sender, reports) = mpsc::channel();
        let producer = clients::producer(kafka)
            .create_with_context(Reporter { reports: sender })
            .map_err(IngestError::of_client)?;
        let topics = PerTopic::from_fn(|topic| format!("{}{SUFFIX}", names.of(topic)));
        let (warnings, deliveries) = (Throttle::default(), Cell::default());
        Ok(Self { producer, reports, topics, timing, warnings, deliveries })
    }

    /// Creates the missing topics. Reading starts even if that fails: the first dead letter then waits, with a warning,
    /// until its topic exists.
    pub fn create_topics(
        &self,
        kafka: &Kafka,
        consumer: &Consumer,
        shutdown: &Shutdown,
    ) -> Result<(), IngestError> {
        let names = TopicKind::ALL.map(|topic| self.topics.of(topic).as_str());
        let timeout = self.timing.admin_request_timeout;
        topics::create_missing(kafka, consumer, &names, timeout, shutdown)
    }

    /// Produces the letters and waits without limit until all are acknowledged. Calls `keep_waiting` repeatedly, and
    /// stops with `false` once that returns false.
    pub fn deliver(
        &self,
        letters: &[DeadLetter],
        mut keep_waiting: impl FnMut() -> Result<bool, IngestError>,
    ) -> Result<bool, IngestError> {
        let delivery = self.deliveries.get() + 1;
        self.deliveries.set(delivery);
        let mut unsent: VecDeque<usize> = (0..letters.len()).collect();
        let mut in_flight = 0_usize;
        let mut delays = delays(self.timing);
        let mut retry_at = Instant::now();
        while in_flight > 0 || !unsent.is_empty() {
            if !keep_waiting()? {
                return Ok(false);
            }
            let mut failure = None;
            config::crash_point!("letters-to-send");
            if Instant::now() >= retry_at {
                failure = self.send(letters, &mut unsent, &mut in_flight);
            }
            config::crash_point!("letters-sent");
            self.producer.poll(Duration::ZERO);
            let mut is_idle = true;
            for report in self.reports.try_iter() {
                is_idle = false;
                if report.delivery != delivery {
                    continue;
                }
                in_flight -= 1;
                if let Some(error) = report.error {
                    unsent.push_back(report.index);
                    failure = Some(error);
                }
            }
            if let Some(error) = failure {
                check_fatal(&error)?;
                self.warnings.warn(|| {
                    let waiting = in_flight + unsent.len();
                    let cause = probable_cause(&error);
                    tracing::warn!(waiting, %error, "dead letters are not acknowledged, reading waits{cause}");
                });
                self.refresh_metadata(letters);
                retry_at = Instant::now() + delays.next().unwrap_or_default();
            }
            if is_idle {
                // Sleeps between non-blocking polls; see `clients::poll` for the reason.
                thread::sleep(POLL_INTERVAL);
            }
        }
        if !letters.is_empty() {
            config::crash_point!("letters-acknowledged");
        }
        Ok(true)
    }

    /// Warns that the letters are not acknowledged. librdkafka itself reports a deleted topic only after half a minute.
    pub fn warn_unacknowledged(&self, consumer: &Consumer, letters: &[DeadLetter]) {
        self.warnings.warn(|| {
            let is_missing =
                |name: &&String| matches!(assignment::partition_count(consumer, name), Ok(None));
            match self.topics_of(letters).find(is_missing) {
                Some(topic) => tracing::warn!(
                    topic,
                    "dead letters are not acknowledged, reading waits: the topic does not exist: create \
                     it, or restart adtrail, which creates it"
                ),
                None => tracing::warn!(
                    "dead letters are not acknowledged, reading waits; the reason is logged once kafka or \
                     librdkafka reports one"
                ),
            }
        });
    }

    /// Refreshes the metadata of the letters' topics: librdkafka may have seen a topic without a leader and would not
    /// ask again for minutes.
    fn refresh_metadata(&self, letters: &[DeadLetter]) {
        for name in self.topics_of(letters) {
            let outcome = self.producer.client().fetch_metadata(Some(name), METADATA_TIMEOUT);
            if let Err(error) = outcome {
                tracing::debug!(name, %error, "the topic's metadata cannot be fetched");
            }
        }
    }

    /// Returns the dead-letter topics of these letters.
    fn topics_of(&self, letters: &[DeadLetter]) -> impl Iterator<Item = &String> {
        let is_used = |topic: &TopicKind| letters.iter().any(|letter| letter.topic == *topic);
        TopicKind::ALL.into_iter().filter(is_used).map(|topic| self.topics.of(topic))
    }

    /// Queues letters until the client's queue is full. Returns the error if one cannot be queued.
    fn send(
        &self,
        letters: &[DeadLetter],
        unsent: &mut VecDeque<usize>,
        in_flight: &mut usize,
    ) -> Option<KafkaError> {
        while let Some(index) = unsent.front().copied() {
            let Some(letter) = letters.get(index) else { break };
            let record = BaseRecord {
                topic: self.topics.of(letter.topic),
                partition: None,
                payload: letter.value.as_deref(),
                key: letter.key.as_deref(),
                timestamp: None,
                headers: Some(letter.headers.clone()),
                delivery_opaque: Box::new((self.deliveries.get(), index)),
            };
            match self.producer.send(record) {
                Ok(()) => {
                    unsent.pop_front();
                    *in_flight += 1;
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if *in_flight > 0 =>
                {
                    break;
                }
                Err((error, _)) => return Some(error),
            }
        }
        None
    }
}

/// Returns a hint at the probable cause, for errors whose text does not name it.
fn probable_cause(error: &KafkaError) -> &'static str {
    match error {
        KafkaError::MessageProduction(RDKafkaErrorCode::InvalidTimestamp) => {
            "; perhaps this machine's clock is ahead: correct it, or set \
             message.timestamp.type=LogAppendTime on the dead-letter topics"
        }
        KafkaError::MessageProduction(RDKafkaErrorCode::InvalidRecord) => {
            "; perhaps the topic has cleanup.policy=compact and rejects records without a key: set \
             cleanup.policy=delete; or this machine's clock is ahead: correct it, or set \
             message.timestamp.type=LogAppendTime on the dead-letter topics"
        }
        _ => "",
    }
}

/// The delivery report of a letter.
struct Report {
    delivery: u64,
    /// Index among the letters of the delivery.
    index: usize,
    error: Option<KafkaError>,
}

struct Reporter {
    reports: Sender<Report>,
}

impl ClientContext for Reporter {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        clients::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka error of the dead-letter producer");
    }
}

impl ProducerContext for Reporter {
    /// The delivery and the index of the letter.
    type DeliveryOpaque = Box<(u64, usize)>;

    fn delivery(&self, result: &DeliveryResult<'_>, letter: Self::DeliveryOpaque) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        let (delivery, index) = *letter;
        // The receiver is gone only while the producer is being dropped.
        let _ = self.reports.send(Report { delivery, index, error });
    }
}
