//! Creates librdkafka clients, with their settings.

pub mod callbacks;
pub mod statistics;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use config::Kafka;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::message::BorrowedMessage;

use super::error::IngestError;
use super::topics::TopicNames;
use crate::timing::Timing;
use callbacks::Callbacks;
pub use callbacks::{LogOnly, log};

/// Maximum size of a dead letter, for the producer and for the topics that adtrail creates.
pub const RECORD_BYTES_MAX: &str = "104857600";

/// The value of `receive.message.max.bytes`. It bounds responses, and the buffers into which librdkafka decompresses a
/// zstd batch, each three times as large as the previous one; a larger batch is an error. Other codecs have no bound.
/// Brokers exceed the fetch limits by at most one batch, which is at most 100 MiB (`socket.request.max.bytes`): a
/// larger response would close the connection again and again.
const RECEIVED_BYTES_MAX: &str = "268435456";

/// The value of `fetch.max.bytes`: the size of a response, compressed, beyond which a broker adds no further batch.
/// librdkafka decompresses a whole response before it applies `queued.max.messages.kbytes`.
const FETCHED_BYTES_MAX: &str = "8388608";

/// Delay between two polls while nothing arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How long [`serve`] polls.
const SERVE_TIME: Duration = Duration::from_millis(100);

/// A consumer with its callbacks.
pub type Consumer = BaseConsumer<Callbacks>;

/// librdkafka's aliases of settings below, so that a user's value under an alias replaces ours.
const ALIASES: [(&str, &str); 4] = [
    ("metadata.broker.list", "bootstrap.servers"),
    ("request.required.acks", "acks"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("delivery.timeout.ms", "message.timeout.ms"),
];

pub fn consumer(kafka: &Kafka, timing: Timing) -> Result<Consumer, IngestError> {
    create(kafka, &consumer_config(kafka, timing))
}

fn create(kafka: &Kafka, client: &ClientConfig) -> Result<Consumer, IngestError> {
    let callbacks = Callbacks::new(TopicNames::new(&kafka.topics));
    client.create_with_context(callbacks).map_err(IngestError::of_client)
}

/// Creates a consumer that is a group member. The range assignor gives each member the same partition numbers of all
/// topics, so that one member reads all records of an app's key.
pub fn member(kafka: &Kafka, timing: Timing) -> Result<Consumer, IngestError> {
    let mut client = consumer_config(kafka, timing);
    // The group's leader notices added partitions.
    let refresh_ms = timing.partition_check_interval.as_millis();
    client
        .set("partition.assignment.strategy", "range")
        .set("topic.metadata.refresh.interval.ms", refresh_ms.to_string());
    create(kafka, &client)
}

/// Waits up to `wait` for the next record or error, by the monotonic clock. librdkafka itself waits by the wall clock,
/// and would wait an hour too long if that is set back by an hour.
pub fn poll(consumer: &Consumer, wait: Duration) -> Option<KafkaResult<BorrowedMessage<'_>>> {
    let started = Instant::now();
    loop {
        if let Some(polled) = consumer.poll(Duration::ZERO) {
            return Some(polled);
        }
        let remaining =
            wait.checked_sub(started.elapsed()).filter(|remaining| !remaining.is_zero())?;
        thread::sleep(remaining.min(POLL_INTERVAL));
    }
}

/// Returns the records and errors that arrive within `time`.
pub fn poll_all(
    consumer: &Consumer,
    time: Duration,
) -> impl Iterator<Item = KafkaResult<BorrowedMessage<'_>>> {
    let started = Instant::now();
    std::iter::from_fn(move || poll(consumer, time.checked_sub(started.elapsed())?))
}

/// Wakes librdkafka's main thread, which does heartbeats and statistics: it would oversleep when the wall clock is set
/// back.
pub fn wake(consumer: &Consumer) {
    // Any request to that thread wakes it.
    let _ = consumer.group_metadata();
}

/// Closes the client. Closing waits for responses to offset commits, a minute if no broker answers. A lost commit is
/// harmless, so after `timeout` the client is abandoned; the exit of the process closes it.
pub fn close(consumer: Consumer, timeout: Duration) {
    consumer.context().close();
    // Closing would wait for revoked partitions that are not unassigned yet.
    if let Err(error) = consumer.unassign() {
        tracing::debug!(%error, "partitions cannot be unassigned");
    }
    let (closed, is_closed) = mpsc::channel();
    thread::spawn(move || {
        drop(consumer);
        // The receiver is gone if closing took too long.
        let _ = closed.send(());
    });
    let _ = is_closed.recv_timeout(timeout);
}

/// Serves pending callbacks while nothing is assigned. A single poll serves only one, and more can be pending.
pub fn serve(consumer: &Consumer) {
    poll_all(consumer, SERVE_TIME).for_each(drop);
}

fn consumer_config(kafka: &Kafka, timing: Timing) -> ClientConfig {
    let fetch_wait_ms = timing.fetch_wait_max.as_millis().max(1).to_string();
    let settings = [
        ("group.id", kafka.group.as_str()),
        // Offsets are committed only after the store has committed the records.
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        // A position out of range is an error and must not be replaced by another offset.
        ("auto.offset.reset", "error"),
        ("isolation.level", "read_committed"),
        // The default, a second, makes reading a backlog three times as slow.
        ("fetch.queue.backoff.ms", "10"),
        // Bounds prefetching of a backlog, over all partitions together.
        ("queued.max.messages.kbytes", "16384"),
        ("queued.min.messages", "10000"),
        ("fetch.max.bytes", FETCHED_BYTES_MAX),
        ("statistics.interval.ms", "1000"),
        ("receive.message.max.bytes", RECEIVED_BYTES_MAX),
        ("fetch.wait.max.ms", &fetch_wait_ms),
    ];
    client(kafka, &settings)
}

/// Creates a client for a command that scans a topic and changes nothing in Kafka. The group is named only so that the
/// service's ACLs are enough.
pub fn reader(kafka: &Kafka) -> Result<Consumer, IngestError> {
    create_reader(kafka, "read_committed")
}

/// Creates a client for checks beside the reading one. It sees the records of open transactions too, and so the high
/// watermarks.
pub fn inspector(kafka: &Kafka) -> Result<Consumer, IngestError> {
    create_reader(kafka, "read_uncommitted")
}

/// Creates a client that looks for records which the service cannot read. It has the same limits, and distinguishes
/// records that are damaged from those that exceed a limit.
pub fn prober(kafka: &Kafka) -> Result<Consumer, IngestError> {
    let mut client = reader_config(kafka, "read_committed");
    client.set("check.crcs", "true").set("fetch.error.backoff.ms", "20");
    create(kafka, &client)
}

fn create_reader(kafka: &Kafka, isolation: &str) -> Result<Consumer, IngestError> {
    create(kafka, &reader_config(kafka, isolation))
}

fn reader_config(kafka: &Kafka, isolation: &str) -> ClientConfig {
    let settings = [
        ("group.id", kafka.group.as_str()),
        ("receive.message.max.bytes", RECEIVED_BYTES_MAX),
        ("fetch.queue.backoff.ms", "10"),
        // The next assignment waits for the fetch in progress, which takes this long at the end of a log.
        ("fetch.wait.max.ms", "20"),
        ("queued.max.messages.kbytes", "16384"),
        ("fetch.max.bytes", FETCHED_BYTES_MAX),
    ];
    // These override the user's settings, because finding the end of a topic depends on them.
    let forced = [
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("isolation.level", isolation),
        // If records expire during a scan or a check, reading continues at the oldest remaining one. The inspector
        // relies on this: a record at another offset than the expected one shows that the expected one is gone.
        ("auto.offset.reset", "earliest"),
    ];
    let mut client = client(kafka, &settings);
    forced.into_iter().for_each(|(key, value)| {
        client.set(key, value);
    });
    client
}

/// Returns the settings of a transactional producer. Kafka fences all earlier producers with the same id.
pub fn transactional(kafka: &Kafka, id: &str) -> ClientConfig {
    let mut producer = producer(kafka);
    producer
        .set("transactional.id", id)
        .set("transaction.timeout.ms", "60000")
        // Must be shorter than the transaction's timeout.
        .set("message.timeout.ms", "45000")
        // A commit flushes all records, so a longer delay would only slow it down.
        .set("linger.ms", "5");
    producer
}

/// Returns the settings of the dead-letter producer.
pub fn producer(kafka: &Kafka) -> ClientConfig {
    let settings = [
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("message.max.bytes", RECORD_BYTES_MAX),
        // Time until a failure is reported with its reason; adtrail then retries.
        ("message.timeout.ms", "30000"),
        ("linger.ms", "5"),
    ];
    client(kafka, &settings)
}

/// Returns the settings of the service's two clients without brokers, to check them.
pub fn unconnected(kafka: &Kafka) -> [ClientConfig; 2] {
    [consumer_config(kafka, Timing::default()), producer(kafka)].map(|mut client| {
        client.remove("bootstrap.servers");
        client
    })
}

/// Returns the user's settings over these and over those of all clients.
pub fn client(kafka: &Kafka, settings: &[(&str, &str)]) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &kafka.brokers).set("client.id", "adtrail");
    for (key, value) in settings {
        client.set(*key, *value);
    }
    for (key, value) in &kafka.librdkafka {
        let alias = ALIASES.iter().find(|(alias, _)| alias == key);
        client.set(alias.map_or(key.as_str(), |(_, name)| name), value.expose());
    }
    let has_debug = kafka.librdkafka.contains_key("debug");
    let level = if has_debug { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Warning };
    client.set_log_level(level);
    client
}

#[cfg(test)]
mod tests {
    use config::{ClientSetting, Location};

    use super::*;

    fn kafka(librdkafka: &[(&str, &str)]) -> Kafka {
        let mut kafka = config::parse("").expect("the defaults are valid").kafka;
        let setting = |(key, value): &(&str, &str)| {
            ((*key).to_owned(), ClientSetting::new(Location::Flag, key, value))
        };
        kafka.librdkafka = librdkafka.iter().map(setting).collect();
        kafka
    }

    #[track_caller]
    fn check(librdkafka: &[(&str, &str)], key: &str, expected: Option<&str>) {
        assert_eq!(producer(&kafka(librdkafka)).get(key), expected);
    }

    #[test]
    fn the_users_settings_take_precedence() {
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
