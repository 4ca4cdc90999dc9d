//! librdkafka's settings, and the clients that they make.

use std::thread;
use std::time::{Duration, Instant};

use config::Kafka;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::message::BorrowedMessage;

use super::callbacks::Callbacks;
pub use super::callbacks::{Logged, log};
use super::error::IngestError;
use crate::timing::Timing;

/// The longest dead letter, and so the longest record that can be passed.
pub const RECORD_BYTES_MAX: &str = "104857600";

/// A record that is longer than all fetch limits comes alone, if this lets it; and a batch by zstd is
/// unpacked if no try, each three times the one before, is longer. Nothing bounds batches by other codecs,
/// and brokers send no more than fetch limits but for one batch: it costs memory only where one needs it.
const RECEIVED_BYTES_MAX: &str = "1000000000";

/// A record that comes while nothing is there is seen so soon.
const POLL_EVERY: Duration = Duration::from_millis(5);

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

pub fn consumer(kafka: &Kafka, timing: Timing) -> Result<Consumer, IngestError> {
    consumer_config(kafka, timing)
        .create_with_context(Callbacks::default())
        .map_err(IngestError::of_client)
}

/// As [`consumer`], as a member of its group: each is given the same partitions of all topics, so that
/// one of them has all that an app's key brings.
pub fn member(kafka: &Kafka, timing: Timing) -> Result<Consumer, IngestError> {
    let mut client = consumer_config(kafka, timing);
    // The group's leader notices added partitions.
    let refresh_ms = timing.partition_check_interval.as_millis();
    client
        .set("partition.assignment.strategy", "range")
        .set("topic.metadata.refresh.interval.ms", refresh_ms.to_string());
    client.create_with_context(Callbacks::default()).map_err(IngestError::of_client)
}

/// The next record or error. It is waited for by a clock that only goes on: the client itself waits by the
/// machine's, and for an hour more where that is set back by an hour.
pub fn poll(consumer: &Consumer, wait: Duration) -> Option<KafkaResult<BorrowedMessage<'_>>> {
    let started = Instant::now();
    loop {
        if let Some(polled) = consumer.poll(Duration::ZERO) {
            return Some(polled);
        }
        let left = wait.checked_sub(started.elapsed()).filter(|left| !left.is_zero())?;
        thread::sleep(left.min(POLL_EVERY));
    }
}

/// Has the client's own thread look at its clock again, for the same reason: it keeps the group and tells
/// statistics.
pub fn wake(consumer: &Consumer) {
    // Whatever that thread is asked does.
    let _ = consumer.group_metadata();
}

/// Brings what callbacks wait to be told, while nothing is assigned that could be read. A poll that
/// does not wait brings one thing, and there may be more of them than polls.
pub fn serve(consumer: &Consumer) {
    const TIME: Duration = Duration::from_millis(100);
    let started = Instant::now();
    while let Some(left) = TIME.checked_sub(started.elapsed()) {
        let _ = poll(consumer, left);
    }
}

fn consumer_config(kafka: &Kafka, timing: Timing) -> ClientConfig {
    let fetch_wait_ms = timing.fetch_wait_max.as_millis().max(1).to_string();
    let settings = [
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
        ("receive.message.max.bytes", RECEIVED_BYTES_MAX),
        ("fetch.wait.max.ms", &fetch_wait_ms),
    ];
    client(kafka, &settings)
}

/// For a command that reads a topic from here to there, and leaves no trace in Kafka. The group is
/// only named: a user who may read for the service may read for the command.
pub fn reader(kafka: &Kafka) -> Result<Consumer, IngestError> {
    reader_of(kafka, "read_committed")
}

/// For looking beside the service: it sees what is in a topic, of open transactions too, and so where
/// partitions really end.
pub fn looker(kafka: &Kafka) -> Result<Consumer, IngestError> {
    reader_of(kafka, "read_uncommitted")
}

fn reader_of(kafka: &Kafka, isolation: &str) -> Result<Consumer, IngestError> {
    let settings = [
        ("group.id", kafka.group.as_str()),
        ("receive.message.max.bytes", RECEIVED_BYTES_MAX),
        ("fetch.queue.backoff.ms", "10"),
        // The next partitions to look at wait for the fetch before, which is long at the end of a log.
        ("fetch.wait.max.ms", "20"),
        ("queued.max.messages.kbytes", "16384"),
    ];
    // After the user's own: the end of a topic is told by these.
    let forced = [
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("isolation.level", isolation),
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
        .set("message.timeout.ms", "45000")
        // A transaction ends when all of it is there, however long others would gather.
        .set("linger.ms", "5");
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
    [consumer_config(kafka, Timing::default()), producer(kafka)].map(|mut client| {
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

#[cfg(test)]
mod tests {
    use config::{ClientSetting, Location};

    use super::*;

    fn kafka(librdkafka: &[(&str, &str)]) -> Kafka {
        let mut kafka = config::parse("").expect("the defaults are valid").kafka;
        let own = |(key, value): &(&str, &str)| {
            ((*key).to_owned(), ClientSetting::new(Location::Flag, key, value))
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
            let outcome = consumer(&kafka(&[(key, value)]), Timing::default()).map(|_| ());
            outcome.expect_err("the setting is wrong").to_string()
        };
        let unknown = error("no.such.setting", "hunter2");
        assert!(unknown.contains("kafka.librdkafka.no.such.setting"), "{unknown}");
        assert!(!unknown.contains("hunter2"), "{unknown}");
        let wrong = error("fetch.min.bytes", "hunter2");
        assert!(wrong.contains("kafka.librdkafka.fetch.min.bytes"), "{wrong}");
    }
}
