//! librdkafka's settings, and what its callbacks bring.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use config::Kafka;
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaErrorCode;

use crate::error::IngestError;
use crate::retry::Throttle;
use crate::statistics::Statistics;

/// The longest dead letter, and so the longest record that can be passed.
pub const RECORD_BYTES_MAX: &str = "104857600";

/// The consumer with what its callbacks bring.
pub type Consumer = BaseConsumer<Callbacks>;

/// Names that librdkafka knows for settings made below: what the user says under one of them
/// has to replace ours.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("metadata.broker.list", "bootstrap.servers"),
    ("request.required.acks", "acks"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("delivery.timeout.ms", "message.timeout.ms"),
];

pub fn consumer(kafka: &Kafka) -> Result<Consumer, IngestError> {
    client(kafka, &consumer_settings(kafka))
        .create_with_context(Callbacks::default())
        .map_err(IngestError::of_client)
}

/// Brings what callbacks wait to be told, while nothing is assigned that could be read. A poll that
/// does not wait brings one thing, and there may be more of them than polls.
pub fn serve(consumer: &Consumer) {
    const TIME: Duration = Duration::from_millis(100);
    let started = Instant::now();
    while let Some(left) = TIME.checked_sub(started.elapsed()) {
        let _ = consumer.poll(left);
    }
}

fn consumer_settings(kafka: &Kafka) -> [(&str, &str); 10] {
    [
        ("group.id", kafka.group.as_str()),
        // Positions are the store's. Kafka's are told for dashboards, and never obeyed.
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        // A position that is gone is an error and no reason to go somewhere else.
        ("auto.offset.reset", "error"),
        ("isolation.level", "read_committed"),
        // The default, a second, makes reading a backlog three times as slow.
        ("fetch.queue.backoff.ms", "10"),
        // Of all partitions together: a backlog is read ahead no further.
        ("queued.max.messages.kbytes", "16384"),
        ("queued.min.messages", "10000"),
        ("statistics.interval.ms", "1000"),
        // A record that is longer than all fetch limits comes alone, if this lets it.
        ("receive.message.max.bytes", "134217728"),
    ]
}

/// For a command that reads a topic from here to there, and leaves no trace in Kafka. The group is
/// only named: a user who may read for the service may read for the command.
pub fn reader(kafka: &Kafka) -> Result<Consumer, IngestError> {
    let settings = [
        ("group.id", kafka.group.as_str()),
        ("receive.message.max.bytes", "134217728"),
        ("fetch.queue.backoff.ms", "10"),
        ("queued.max.messages.kbytes", "16384"),
    ];
    // After the user's own: the end of a topic is told by these.
    let forced = [
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("isolation.level", "read_committed"),
        // What expired while others were read is passed over.
        ("auto.offset.reset", "earliest"),
    ];
    let mut client = client(kafka, &settings);
    forced.into_iter().for_each(|(key, value)| {
        client.set(key, value);
    });
    client.create_with_context(Callbacks::default()).map_err(IngestError::of_client)
}

/// A producer of transactions. Of all that have one id, the one that began last may write.
pub fn transactional(kafka: &Kafka, id: &str) -> ClientConfig {
    let mut producer = producer(kafka);
    producer
        .set("transactional.id", id)
        .set("transaction.timeout.ms", "60000")
        // Within the transaction's.
        .set("message.timeout.ms", "45000");
    producer
}

/// For dead letters.
pub fn producer(kafka: &Kafka) -> ClientConfig {
    let settings = [
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("message.max.bytes", RECORD_BYTES_MAX),
        // So long until the reason of a failure is known; it is tried again.
        ("message.timeout.ms", "30000"),
        ("linger.ms", "5"),
    ];
    client(kafka, &settings)
}

pub fn admin(kafka: &Kafka) -> ClientConfig {
    client(kafka, &[])
}

/// The settings of the service's two clients, without brokers to connect to.
pub fn unconnected(kafka: &Kafka) -> [ClientConfig; 2] {
    [client(kafka, &consumer_settings(kafka)), producer(kafka)].map(|mut client| {
        client.remove("bootstrap.servers");
        client
    })
}

fn client(kafka: &Kafka, settings: &[(&str, &str)]) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &kafka.brokers).set("client.id", "adtrail");
    for (key, value) in settings {
        client.set(*key, *value);
    }
    for (key, value) in &kafka.librdkafka {
        let other_name = OTHER_NAMES.iter().find(|(other, _)| other == key);
        client.set(other_name.map_or(key.as_str(), |(_, name)| name), value.expose());
    }
    let is_debugged = kafka.librdkafka.contains_key("debug");
    let level = if is_debugged { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Warning };
    client.set_log_level(level);
    client
}

/// What to look at when a broker would not talk.
pub const REFUSAL_HELP: &str = "check security.protocol, sasl.… and ssl.… in [kafka.librdkafka], and that the user may connect";

/// What to look at when none answers. One that is spoken to in another way than it expects hangs up
/// without a word, or waits for more.
pub const UNREACHABLE_HELP: &str =
    "if one runs there, check security.protocol in [kafka.librdkafka]";

/// Whether a broker was reached and would not talk: no waiting helps, but somebody may.
fn is_refusal(code: RDKafkaErrorCode, reason: &str) -> bool {
    // What a broker says of the client's certificate comes once the connection stands.
    reason.contains("SSL alert")
        || matches!(
            code,
            RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::SSL
                | RDKafkaErrorCode::UnsupportedSASLMechanism
                | RDKafkaErrorCode::IllegalSASLState
        )
}

/// What librdkafka tells the consumer's thread while that polls.
#[derive(Default)]
pub struct Callbacks {
    statistics: Mutex<Option<Statistics>>,
    errors: Throttle,
    refusals: Throttle,
    refusal: Mutex<Option<String>>,
    commits: AtomicU64,
    commit_failed: AtomicBool,
}

impl Callbacks {
    /// The newest statistics, once.
    pub fn take_statistics(&self) -> Option<Statistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why a broker was reached and would not talk, in librdkafka's words, until one does.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_refusal(&self, refusal: Option<String>) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// Commits that the broker answered.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Commits serve dashboards: a failure is worth one line, not one a second.
    pub fn commit_failed(&self, error: &KafkaError) {
        if self.commit_failed.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "positions cannot be told to kafka");
        } else {
            tracing::warn!(%error, "positions cannot be told to kafka, its lag will not be right");
        }
    }
}

impl ClientContext for Callbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        match Statistics::parse(statistics) {
            Ok(parsed) => {
                if parsed.is_connected() {
                    self.set_refusal(None);
                }
                let mut newest = self.statistics.lock().unwrap_or_else(PoisonError::into_inner);
                *newest = Some(parsed);
            }
            Err(error) => tracing::debug!(%error, "statistics of librdkafka cannot be read"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // Asked for by who reads to an end.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PartitionEOF) {
            return;
        }
        if error.rdkafka_error_code().is_some_and(|code| is_refusal(code, reason)) {
            self.set_refusal(Some(reason.to_owned()));
            return self.refusals.warn(|| {
                tracing::warn!(reason, "kafka refuses the connection: {REFUSAL_HELP}");
            });
        }
        self.errors.warn(|| tracing::warn!(%error, reason, "kafka"));
    }
}

impl ConsumerContext for Callbacks {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = result {
            self.commit_failed(&error);
        }
    }
}

/// The admin client's callbacks.
pub struct Logged;

impl ClientContext for Logged {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka");
    }
}

/// librdkafka's log as ours. It calls every lost connection an error, and connects again.
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => tracing::warn!(facility, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(facility, "{message}"),
        RDKafkaLogLevel::Debug => tracing::debug!(facility, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use config::{ClientSetting, Place};

    use super::*;

    fn kafka(librdkafka: &[(&str, &str)]) -> Kafka {
        let mut kafka = config::parse("").expect("the defaults are valid").kafka;
        let own = |(key, value): &(&str, &str)| {
            ((*key).to_owned(), ClientSetting::new(Place::Flag, key, value))
        };
        kafka.librdkafka = librdkafka.iter().map(own).collect();
        kafka
    }

    #[track_caller]
    fn check(librdkafka: &[(&str, &str)], key: &str, expected: Option<&str>) {
        assert_eq!(producer(&kafka(librdkafka)).get(key), expected);
    }

    #[test]
    fn the_users_settings_come_last() {
        check(&[], "acks", Some("all"));
        check(&[("acks", "1")], "acks", Some("1"));
        check(&[("request.required.acks", "1")], "acks", Some("1"));
        check(&[("request.required.acks", "1")], "request.required.acks", None);
        check(&[("metadata.broker.list", "k:1")], "bootstrap.servers", Some("k:1"));
        check(&[("delivery.timeout.ms", "7")], "message.timeout.ms", Some("7"));
        check(&[("socket.keepalive.enable", "true")], "socket.keepalive.enable", Some("true"));
    }

    #[test]
    fn a_refused_setting_is_named_without_its_value() {
        let error = |key, value| {
            let outcome = consumer(&kafka(&[(key, value)])).map(|_| ());
            outcome.expect_err("the setting is wrong").to_string()
        };
        let unknown = error("no.such.setting", "hunter2");
        assert!(unknown.contains("kafka.librdkafka.no.such.setting"), "{unknown}");
        assert!(!unknown.contains("hunter2"), "{unknown}");
        let wrong = error("fetch.min.bytes", "hunter2");
        assert!(wrong.contains("kafka.librdkafka.fetch.min.bytes"), "{wrong}");
    }
}
