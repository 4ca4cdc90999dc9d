//! Records that are no facts, kept: produced to `<topic>.dlq` as they came, with headers that say
//! where they stood and what was wrong. A position passes one only once it is acknowledged.

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
use crate::consumer::batch::Source;
use crate::consumer::shutdown::Shutdown;
use crate::decode::DecodeError;
use crate::kafka::assignment;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::IngestError;
use crate::kafka::retry::{Throttle, delays};
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};
use crate::timing::Timing;

/// The end of a dead-letter topic's name.
pub const SUFFIX: &str = ".dlq";

/// Acknowledgements are looked for so often.
const POLL_EVERY: Duration = Duration::from_millis(5);
/// Of one look for a topic's leaders.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// The names of the headers that a dead letter has besides its record's own.
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

/// A record that is no fact.
pub struct DeadLetter {
    topic: TopicKind,
    code: &'static str,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: OwnedHeaders,
}

impl DeadLetter {
    /// Copies the record; `name` is its topic's.
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
        // Copied whole: a header's name need not be UTF-8, and reading one by one needs it.
        let own = message.headers().map(BorrowedHeaders::detach).unwrap_or_default();
        let headers = added
            .iter()
            .fold(own, |headers, (key, value)| headers.insert(Header { key, value: Some(value) }));
        Self {
            topic: source.topic,
            code,
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers,
        }
    }
}

impl DeadLetter {
    #[cfg(test)]
    pub fn of_value(topic: TopicKind, value: &[u8]) -> Self {
        let (key, value, headers) = (None, Some(value.to_vec()), OwnedHeaders::new());
        Self { topic, code: "not_json", key, value, headers }
    }

    /// Where it was.
    pub fn topic(&self) -> TopicKind {
        self.topic
    }

    /// What was wrong with it.
    pub fn code(&self) -> &'static str {
        self.code
    }
}

/// The producer of dead letters.
pub struct DeadLetters {
    producer: BaseProducer<Reporter>,
    reports: Receiver<Report>,
    topics: PerTopic<String>,
    timing: Timing,
    stuck: Throttle,
    /// How many deliveries were begun. One that was broken off leaves letters under way, whose reports
    /// come in the time of a later one.
    deliveries: Cell<u64>,
}

impl DeadLetters {
    pub fn new(kafka: &Kafka, names: &TopicNames, timing: Timing) -> Result<Self, IngestError> {
        let (sender, reports) = mpsc::channel();
        let producer = clients::producer(kafka)
            .create_with_context(Reporter { reports: sender })
            .map_err(IngestError::of_client)?;
        let topics = PerTopic::from_fn(|topic| format!("{}{SUFFIX}", names.of(topic)));
        let (stuck, deliveries) = (Throttle::default(), Cell::default());
        Ok(Self { producer, reports, topics, timing, stuck, deliveries })
    }

    /// Creates the topics that are missing. If that fails reading goes on, because the first dead
    /// letter is kept waiting, and says so, for as long as it has no topic to go to.
    pub fn create_topics(
        &self,
        kafka: &Kafka,
        consumer: &Consumer,
        shutdown: &Shutdown,
    ) -> Result<(), IngestError> {
        let names = TopicKind::ALL.map(|topic| self.topics.of(topic).as_str());
        let timeout = self.timing.admin_request_timeout;
        topics::create_missing((kafka, consumer), &names, timeout, shutdown)
    }

    /// Produces the letters and waits until all are acknowledged, however long that takes.
    /// `meanwhile` is asked again and again whether to wait on; `false` if it ended the wait.
    pub fn deliver(
        &self,
        letters: &[DeadLetter],
        mut meanwhile: impl FnMut() -> Result<bool, IngestError>,
    ) -> Result<bool, IngestError> {
        let delivery = self.deliveries.get() + 1;
        self.deliveries.set(delivery);
        let mut unsent: VecDeque<usize> = (0..letters.len()).collect();
        let mut in_flight = 0_usize;
        let mut delays = delays(self.timing);
        let mut retry_at = Instant::now();
        while in_flight > 0 || !unsent.is_empty() {
            if !meanwhile()? {
                return Ok(false);
            }
            let mut failure = None;
            config::crash_point!("letters-to-send");
            if Instant::now() >= retry_at {
                (in_flight, failure) = self.send(letters, &mut unsent, in_flight)?;
            }
            config::crash_point!("letters-sent");
            self.producer.poll(Duration::ZERO);
            let mut is_idle = true;
            for report in self.reports.try_iter() {
                is_idle = false;
                if report.letter.delivery != delivery {
                    continue;
                }
                in_flight -= 1;
                if let Some(error) = report.error {
                    unsent.push_back(report.letter.index);
                    failure = Some(error);
                }
            }
            if let Some(error) = failure {
                refuse_fatal(&error)?;
                self.stuck.warn(|| {
                    let waiting = in_flight + unsent.len();
                    let why = guess(&error);
                    tracing::warn!(waiting, %error, "dead letters are not acknowledged, reading waits{why}");
                });
                self.look_for_leaders(letters);
                retry_at = Instant::now() + delays.next().unwrap_or_default();
            }
            if is_idle {
                // As of `clients::poll`.
                thread::sleep(POLL_EVERY);
            }
        }
        if !letters.is_empty() {
            config::crash_point!("letters-acknowledged");
        }
        Ok(true)
    }

    /// Says that they wait: the client itself waits half a minute for a topic that is gone.
    pub fn tell_waiting(&self, consumer: &Consumer, letters: &[DeadLetter]) {
        self.stuck.warn(|| {
            let is_used =
                |topic: &TopicKind| letters.iter().any(|letter| letter.topic == *topic);
            let names = TopicKind::ALL.into_iter().filter(is_used).map(|it| self.topics.of(it));
            let is_gone = |name: &&String| {
                matches!(assignment::partition_count(consumer, name), Ok(None))
            };
            match names.clone().find(is_gone) {
                Some(topic) => tracing::warn!(
                    topic,
                    "dead letters are not acknowledged, reading waits: the topic does not exist: create \
                     it, or start adtrail again, which does"
                ),
                None => tracing::warn!(
                    "dead letters are not acknowledged, reading waits; the reason follows once kafka or \
                     the client says one"
                ),
            }
        });
    }

    /// Asks who leads the letters' topics now: the client may have been told that nobody does, and not
    /// ask again for minutes.
    fn look_for_leaders(&self, letters: &[DeadLetter]) {
        for topic in TopicKind::ALL {
            if letters.iter().any(|letter| letter.topic == topic) {
                let name = self.topics.of(topic);
                if let Err(error) = self.producer.client().fetch_metadata(Some(name), LOOK_TIMEOUT)
                {
                    tracing::debug!(name, %error, "who leads the topic is not known");
                }
            }
        }
    }

    /// Hands letters to the client until it takes no more; how many are under way then.
    fn send(
        &self,
        letters: &[DeadLetter],
        unsent: &mut VecDeque<usize>,
        mut in_flight: usize,
    ) -> Result<(usize, Option<KafkaError>), IngestError> {
        while let Some(index) = unsent.front().copied() {
            let Some(letter) = letters.get(index) else { break };
            let record = BaseRecord {
                topic: self.topics.of(letter.topic),
                partition: None,
                payload: letter.value.as_deref(),
                key: letter.key.as_deref(),
                timestamp: None,
                headers: Some(letter.headers.clone()),
                delivery_opaque: Box::new(Letter { delivery: self.deliveries.get(), index }),
            };
            match self.producer.send(record) {
                Ok(()) => {
                    unsent.pop_front();
                    in_flight += 1;
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if in_flight > 0 =>
                {
                    break;
                }
                Err((error, _)) => return Ok((in_flight, Some(error))),
            }
        }
        Ok((in_flight, None))
    }
}

/// Of what the broker does not say.
fn guess(error: &KafkaError) -> &'static str {
    match error {
        KafkaError::MessageProduction(RDKafkaErrorCode::InvalidTimestamp) => {
            "; perhaps this machine's clock is ahead: set it, or message.timestamp.type=LogAppendTime on \
             the topics for dead letters"
        }
        KafkaError::MessageProduction(RDKafkaErrorCode::InvalidRecord) => {
            "; perhaps the topic has cleanup.policy=compact, which takes nothing without a key: set \
             cleanup.policy=delete; or this machine's clock is ahead: set it, or \
             message.timestamp.type=LogAppendTime on the topics for dead letters"
        }
        _ => "",
    }
}

fn refuse_fatal(error: &KafkaError) -> Result<(), IngestError> {
    match error {
        KafkaError::MessageProduction(RDKafkaErrorCode::Fatal) => {
            Err(IngestError::Fatal(error.clone()))
        }
        _ => Ok(()),
    }
}

/// One letter that was sent.
#[derive(Debug, Clone, Copy)]
struct Letter {
    delivery: u64,
    /// Its place among those delivered together.
    index: usize,
}

/// What became of it.
struct Report {
    letter: Letter,
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
        tracing::debug!(%error, reason, "kafka, for dead letters");
    }
}

impl ProducerContext for Reporter {
    type DeliveryOpaque = Box<Letter>;

    fn delivery(&self, result: &DeliveryResult<'_>, letter: Box<Letter>) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        // Nobody listens any more only while the producer is dropped.
        let _ = self.reports.send(Report { letter: *letter, error });
    }
}
