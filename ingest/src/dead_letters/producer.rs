//! Produces dead letters to `<topic>.dlq`. The position advances past an invalid record only after its dead letter is
//! acknowledged.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use config::Kafka;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;

use super::letter::{DeadLetter, Parts};
use super::topics::{self, SIZE_LIMIT};
use crate::consumer::shutdown::Shutdown;
use crate::kafka::assignment;
use crate::kafka::clients::{self, Consumer, RECORD_BYTES_MAX};
use crate::kafka::error::{IngestError, check_fatal};
use crate::kafka::retry::{Throttle, delays};
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};
use crate::timing::Timing;

/// Suffix of a dead-letter topic's name.
pub const SUFFIX: &str = ".dlq";

/// Delay between two polls for acknowledgements.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);

/// The producer of dead letters.
pub struct DeadLetters {
    producer: BaseProducer<Reporter>,
    reports: Receiver<Report>,
    topics: PerTopic<String>,
    timing: Timing,
    warnings: Throttle,
    size_warnings: Throttle,
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
        let (warnings, size_warnings) = (Throttle::default(), Throttle::default());
        let deliveries = Cell::default();
        Ok(Self { producer, reports, topics, timing, warnings, size_warnings, deliveries })
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
        self.deliveries.set(self.deliveries.get() + 1);
        let mut delivery = Delivery::new(self.deliveries.get(), letters);
        let mut delays = delays(self.timing);
        let mut retry_at = Instant::now();
        while delivery.in_flight > 0 || !delivery.unsent.is_empty() {
            if !keep_waiting()? {
                return Ok(false);
            }
            let mut failure = None;
            config::crash_point!("letters-to-send");
            if Instant::now() >= retry_at {
                failure = self.send(&mut delivery);
            }
            config::crash_point!("letters-sent");
            self.producer.poll(Duration::ZERO);
            let mut is_idle = true;
            for report in self.reports.try_iter() {
                is_idle = false;
                if report.delivery == delivery.number {
                    failure = self.apply(report, &mut delivery).or(failure);
                }
            }
            if let Some(error) = failure {
                check_fatal(&error)?;
                self.warnings.warn(|| {
                    let waiting = delivery.in_flight + delivery.unsent.len();
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
    fn send(&self, delivery: &mut Delivery<'_>) -> Option<KafkaError> {
        while let Some(index) = delivery.unsent.front().copied() {
            let (Some(letter), Some(state)) =
                (delivery.letters.get(index), delivery.states.get(index).copied())
            else {
                break;
            };
            if delivery.is_alone_in_flight || (state.is_alone && delivery.in_flight > 0) {
                break;
            }
            let record = BaseRecord {
                topic: self.topics.of(letter.topic),
                partition: None,
                payload: letter.value(state.parts),
                key: letter.key(state.parts),
                timestamp: None,
                headers: Some(letter.headers(state.parts)),
                delivery_opaque: Box::new((delivery.number, index)),
            };
            match self.producer.send(record) {
                Ok(()) => {
                    delivery.unsent.pop_front();
                    delivery.in_flight += 1;
                    delivery.is_alone_in_flight = state.is_alone;
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if delivery.in_flight > 0 =>
                {
                    break;
                }
                Err((error, _)) => {
                    if !is_too_large(&error) || !self.reduce(delivery, index) {
                        return Some(error);
                    }
                }
            }
        }
        None
    }

    /// Applies a delivery report. Returns the error if the letter must be sent again later.
    ///
    /// Kafka rejects an oversized batch as a whole, so a letter is sent again alone before it loses its value.
    fn apply(&self, report: Report, delivery: &mut Delivery<'_>) -> Option<KafkaError> {
        let index = report.index;
        delivery.in_flight -= 1;
        delivery.is_alone_in_flight = false;
        let error = report.error?;
        delivery.unsent.push_back(index);
        let state = delivery.states.get_mut(index)?;
        if !is_too_large(&error) {
            return Some(error);
        }
        if !state.is_alone {
            state.is_alone = true;
            return None;
        }
        if self.reduce(delivery, index) { None } else { Some(error) }
    }

    /// Lets a letter that is too large be sent with fewer parts of its record. Returns false if none is left to omit;
    /// the letter then starts with all parts again, because the topic may have changed.
    fn reduce(&self, delivery: &mut Delivery<'_>, index: usize) -> bool {
        let Some(state) = delivery.states.get_mut(index) else { return false };
        let fewer = state.parts.fewer();
        state.parts = fewer.unwrap_or(Parts::All);
        if let Some(letter) = delivery.letters.get(index).filter(|_| fewer.is_some()) {
            let topic = self.topics.of(letter.topic);
            self.size_warnings.warn(|| {
                tracing::warn!(
                    topic,
                    "a dead letter is larger than {SIZE_LIMIT} of its topic and is sent without its value; set \
                     {SIZE_LIMIT}={RECORD_BYTES_MAX} on the topic"
                );
            });
        }
        fewer.is_some()
    }
}

/// Letters that are being delivered.
struct Delivery<'l> {
    number: u64,
    letters: &'l [DeadLetter],
    /// Indexes of the letters that must be sent, in order.
    unsent: VecDeque<usize>,
    in_flight: usize,
    /// The state of each letter.
    states: Vec<LetterState>,
    /// If true, no other letter may be sent, because it could share a batch with the one in flight.
    is_alone_in_flight: bool,
}

#[derive(Clone, Copy)]
struct LetterState {
    parts: Parts,
    /// Sent while no other letter is in flight.
    is_alone: bool,
}

impl<'l> Delivery<'l> {
    fn new(number: u64, letters: &'l [DeadLetter]) -> Self {
        let state = LetterState { parts: Parts::All, is_alone: false };
        Self {
            number,
            letters,
            unsent: (0..letters.len()).collect(),
            in_flight: 0,
            states: vec![state; letters.len()],
            is_alone_in_flight: false,
        }
    }
}

/// Returns true if a record exceeds a limit of the producer or of its topic.
fn is_too_large(error: &KafkaError) -> bool {
    matches!(
        error,
        KafkaError::MessageProduction(
            RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge
        )
    )
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
