//! Tests of the whole crate against librdkafka's mock broker in this process.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use attribution::facts::event::Fact;
use attribution::ledger::{Position, Progress};
use config::Config;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use super::*;
use crate::dead_letters::producer;
use crate::decode::ErrorCode;

const CLICKS: &str = "adtrail.clicks";
const EFFECTS: &str = "adtrail.effects";
const PATIENCE: Duration = Duration::from_secs(30);

struct Broker {
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: BaseProducer,
}

impl Broker {
    fn new() -> Self {
        let cluster = MockCluster::new(1).expect("a cluster");
        let producer = client(&cluster.bootstrap_servers()).create().expect("a producer");
        Self { cluster, producer }
    }

    /// Starts a broker with the three topics, of two partitions each, and the dead-letter topics, because the mock
    /// broker does not support creating topics by request.
    fn with_topics() -> Self {
        let broker = Self::new();
        for topic in [CLICKS, "adtrail.activations", EFFECTS] {
            broker.cluster.create_topic(topic, 2, 1).expect("a topic");
            broker.cluster.create_topic(&format!("{topic}.dlq"), 1, 1).expect("a topic");
        }
        broker
    }

    fn produce(&self, topic: &str, partition: i32, value: Option<&[u8]>) {
        let headers = OwnedHeaders::new()
            .insert(Header { key: "own", value: Some("kept") })
            .insert(Header { key: "null", value: None::<&str> });
        let record = BaseRecord {
            topic,
            partition: Some(partition),
            payload: value,
            key: Some("app-x"),
            timestamp: Some(BROKER_MS),
            headers: Some(headers),
            delivery_opaque: (),
        };
        self.producer.send(record).map_err(|(error, _)| error).expect("the queue is not full");
    }

    fn flush(&self) {
        self.producer.flush(PATIENCE).expect("the broker answers");
    }

    fn config(&self, more: &str) -> Config {
        config(&self.cluster.bootstrap_servers(), more)
    }
}

const BROKER_MS: i64 = 1_773_144_000_000;

fn client(brokers: &str) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", brokers).set("message.max.bytes", "100000000");
    client
}

fn config(brokers: &str, more: &str) -> Config {
    let text = format!(
        "[kafka]\nbrokers = \"{brokers}\"\n[[apps]]\npid = 1\nkey = \"app-x\"\nname = \"X\"\n{more}"
    );
    config::parse(&text).expect("a valid configuration")
}

fn click(id: usize) -> Vec<u8> {
    format!(r#"{{"app":"app-x","spreadid":7,"time":{BROKER_MS},"click_id":"c-{id}"}}"#).into_bytes()
}

struct Running {
    batches: Receiver<Batch>,
    committed: Option<Sender<Vec<Position>>>,
    shutdown: Shutdown,
    health: Arc<Health>,
    thread: JoinHandle<Result<u64, IngestError>>,
}

impl Running {
    fn start(config: &Config, positions: &[Position]) -> Self {
        Self::start_with(config, positions, Timing::default())
    }

    /// Starts with short waiting times, for tests that wait for a timeout.
    fn start_quick(config: &Config, positions: &[Position]) -> Self {
        Self::start_with(config, positions, Timing::default() / 20)
    }

    fn start_with(config: &Config, positions: &[Position], timing: Timing) -> Self {
        // The mock broker never answers admin requests.
        let timing = Timing { admin_request_timeout: Duration::from_millis(100), ..timing };
        let (batch_sender, batches) = mpsc::sync_channel(2);
        let (committed, positions_committed) = mpsc::channel();
        let (shutdown, health) = (Shutdown::default(), Arc::new(Health::default()));
        let progress = Progress { positions: positions.to_vec(), consumed_until: None };
        let thread = start(
            config,
            &progress,
            batch_sender,
            positions_committed,
            shutdown.clone(),
            health.clone(),
            timing,
        )
        .expect("valid settings");
        Self { batches, committed: Some(committed), shutdown, health, thread }
    }

    /// Receives and commits batches until `records` records were read.
    fn take(&self, records: u64) -> Vec<Batch> {
        let (mut taken, mut read) = (Vec::new(), 0);
        while read < records {
            let batch = self.batches.recv_timeout(PATIENCE).expect("a batch");
            read += TopicKind::ALL.iter().map(|topic| batch.intake.of(*topic).read).sum::<u64>();
            let committed = self.committed.as_ref().expect("the reader is not stopped");
            committed.send(batch.progress.positions.clone()).expect("the reader runs");
            taken.push(batch);
        }
        assert_eq!(read, records);
        taken
    }

    /// Stops the reader and returns the number of records that will be re-read.
    fn stop(mut self) -> Result<u64, IngestError> {
        self.shutdown.request();
        self.committed = None;
        self.thread.join().expect("no panic")
    }
}

#[track_caller]
fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {condition}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn position(topic: &str, partition: i32, next_offset: i64) -> Position {
    Position { topic: topic.into(), partition, next_offset, mark: None, last: None }
}

/// Returns the positions of all partitions, so that no batch adds one.
fn beginnings() -> Vec<Position> {
    let of = |topic| [0, 1].map(|partition| position(topic, partition, 0));
    [CLICKS, "adtrail.activations", EFFECTS].into_iter().flat_map(of).collect()
}

/// Returns the ids of the facts of the batches, in order.
fn ids(batches: &[Batch]) -> Vec<String> {
    batches.iter().flat_map(|batch| batch.facts.iter().map(|fact| fact.id().to_owned())).collect()
}

type Letter = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

/// Reads the first `count` dead letters of a topic: key, value and headers.
fn letters(broker: &Broker, topic: &str, count: usize) -> Vec<Letter> {
    let consumer: BaseConsumer = client(&broker.cluster.bootstrap_servers())
        .set("group.id", "letters")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Beginning).expect("an offset");
    consumer.assign(&list).expect("assigned");
    let (mut found, start) = (Vec::new(), Instant::now());
    while found.len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count} dead letters", found.len());
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
        let header =
            |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        found.push((
            message.key().map(<[u8]>::to_vec),
            message.payload().map(<[u8]>::to_vec),
            headers.map(header).collect(),
        ));
    }
    found
}

/// Checks that the dead letter of the first invalid click has its value, its headers and the error headers.
#[track_caller]
fn check_letter(broker: &Broker, bad: &[u8]) {
    let found = letters(broker, "adtrail.clicks.dlq", 1).remove(0);
    assert_eq!(found.0.as_deref(), Some(&b"app-x"[..]));
    assert_eq!(found.1.as_deref(), Some(bad));
    let header = |key: &str| {
        let value = found.2.iter().find(|(name, _)| name == key).expect(key).1.clone();
        value.map(|value| String::from_utf8(value).expect("text"))
    };
    assert_eq!(header("own").as_deref(), Some("kept"));
    assert_eq!(header("null"), None);
    assert_eq!(header("__connect.errors.topic").as_deref(), Some(CLICKS));
    assert_eq!(header("__connect.errors.partition").as_deref(), Some("1"));
    assert_eq!(header("__connect.errors.offset").as_deref(), Some("0"));
    assert_eq!(header("__connect.errors.stage").as_deref(), Some("VALUE_CONVERTER"));
    let class = header("__connect.errors.exception.class.name");
    assert_eq!(class.as_deref(), Some("adtrail.not_json"));
    assert!(header("__connect.errors.exception.message").is_some());
    assert_eq!(header("adtrail.error.code").as_deref(), Some("not_json"));
}

#[test]
fn records_become_facts_positions_and_dead_letters() {
    let broker = Broker::with_topics();
    for id in 0..10 {
        broker.produce(CLICKS, 0, Some(&click(id)));
    }
    let bad = b"{\"spreadid\":7,\xff\0";
    broker.produce(CLICKS, 1, Some(bad));
    broker.produce(CLICKS, 1, None);
    broker.produce(CLICKS, 1, Some(b""));
    let effect = format!(r#"{{"app":"app-x","name":"n","time":{BROKER_MS}}}"#).into_bytes();
    broker.produce(EFFECTS, 0, Some(&effect));
    let late = format!(r#"{{"app":"app-x","name":"n","time":{}}}"#, BROKER_MS - 8 * 86_400_000);
    broker.produce(EFFECTS, 0, Some(late.as_bytes()));
    broker.flush();

    let running = Running::start(&broker.config(""), &[]);
    let batches = running.take(15);
    let mut ids = ids(&batches);
    ids.retain(|id| id.starts_with("c-"));
    assert_eq!(ids, (0..10).map(|id| format!("c-{id}")).collect::<Vec<_>>());
    let effects = |fact: &&Fact| matches!(fact, Fact::Effect(_));
    assert_eq!(batches.iter().flat_map(|batch| &batch.facts).filter(effects).count(), 1);

    let sum = |count: &dyn Fn(&Intake) -> u64| -> u64 {
        batches.iter().map(|batch| count(&batch.intake)).sum()
    };
    assert_eq!(sum(&|intake| intake.of(TopicKind::Clicks).read), 13);
    assert_eq!(sum(&|intake| intake.of(TopicKind::Clicks).empty), 2);
    assert_eq!(sum(&|i| i.of(TopicKind::Clicks).dead_lettered(ErrorCode::NotJson)), 1);
    assert_eq!(sum(&|intake| intake.of(TopicKind::Effects).read), 2);
    assert_eq!(sum(&|i| i.of(TopicKind::Effects).dead_lettered(ErrorCode::TooLate)), 1);
    let mut reached: Vec<_> =
        batches.into_iter().flat_map(|batch| batch.progress.positions).collect();
    // The other partitions have their start position only.
    reached.retain(|at| at.next_offset > 0);
    reached.sort();
    reached.reverse();
    reached.dedup_by(|a, b| (&a.topic, a.partition) == (&b.topic, b.partition));
    let last: Vec<_> = reached.iter().map(|at| at.last.map(|last| last.offset)).collect();
    assert_eq!(last, [Some(1), Some(2), Some(9)]);
    let without = |at: Position| Position { mark: None, last: None, ..at };
    let reached: Vec<_> = reached.into_iter().map(without).collect();
    assert_eq!(reached, [position(EFFECTS, 0, 2), position(CLICKS, 1, 3), position(CLICKS, 0, 10)]);

    check_letter(&broker, bad);

    wait_until("ready", || running.health.is_ready());
    assert!(running.health.last_message_ms().is_some());
    for topic in TopicKind::ALL {
        wait_until("lag 0", || running.health.lag_messages(topic) == 0);
    }
    broker.produce(CLICKS, 0, Some(&click(10)));
    broker.flush();
    wait_until("lag 1", || running.health.lag_messages(TopicKind::Clicks) == 1);
    running.take(1);
    wait_until("lag 0 again", || running.health.lag_messages(TopicKind::Clicks) == 0);
    let health = running.health.clone();
    running.stop().expect("a clean stop");
    assert!(!health.is_ready());

    let group: BaseConsumer = client(&broker.cluster.bootstrap_servers())
        .set("group.id", "adtrail")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    list.add_partition(CLICKS, 0);
    let committed = group.committed_offsets(list, PATIENCE).expect("the group's offsets");
    assert_eq!(committed.elements()[0].offset(), Offset::Offset(11));
}

#[test]
fn reading_continues_from_the_positions_of_the_store() {
    let broker = Broker::with_topics();
    for id in 0..10 {
        broker.produce(CLICKS, (id % 2) as i32, Some(&click(id)));
    }
    broker.flush();
    let positions = [position(CLICKS, 0, 3), position(CLICKS, 1, 5), position("other", 0, 9)];
    let running = Running::start(&broker.config(""), &positions);
    assert_eq!(ids(&running.take(2)), ["c-6", "c-8"]);
    running.stop().expect("a clean stop");
}

#[track_caller]
fn check_out_of_range(wanted: i64) {
    let broker = Broker::with_topics();
    for id in 0..4 {
        broker.produce(CLICKS, 1, Some(&click(id)));
    }
    broker.flush();
    let running = Running::start(&broker.config(""), &[position(CLICKS, 1, wanted)]);
    match running.thread.join().expect("no panic") {
        Err(IngestError::OutOfRange { topic, partition: 1, wanted: found, low: 0, high: 4 }) => {
            assert_eq!((&*topic, found), (CLICKS, wanted));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_position_beyond_the_end_is_fatal() {
    check_out_of_range(5);
}

#[test]
fn a_position_on_a_missing_partition_is_fatal() {
    let broker = Broker::with_topics();
    let running = Running::start(&broker.config(""), &[position(CLICKS, 2, 1)]);
    let outcome = running.thread.join().expect("no panic");
    assert!(
        matches!(outcome, Err(IngestError::PartitionGone { partition: 2, partitions: 2, .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_missing_topic_is_named_with_its_setting() {
    let broker = Broker::new();
    broker.cluster.create_topic(CLICKS, 1, 1).expect("a topic");
    let running = Running::start_quick(&broker.config(""), &[]);
    let error = running.thread.join().expect("no panic").expect_err("no such topic").to_string();
    assert!(error.contains("kafka.activations"), "{error}");
    assert!(error.contains("\"adtrail.activations\""), "{error}");
}

#[test]
fn an_unreachable_broker_is_retried_until_shutdown() {
    // Accepts each connection and closes it, like a broker that is shutting down.
    let broker = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = broker.local_addr().expect("an address").to_string();
    let running = Running::start_quick(&config(&address, ""), &[]);
    for _ in 0..3 {
        broker.accept().expect("another connection");
    }
    assert!(!running.health.is_connected());
    assert!(!running.health.is_ready());
    assert!(!running.thread.is_finished());
    running.stop().expect("a clean stop");
}

#[test]
fn no_batch_overtakes_unacknowledged_dead_letters() {
    let broker = Broker::with_topics();
    let dlq = "adtrail.clicks.dlq";
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    broker.cluster.topic_error(dlq, denied).expect("a topic that fails");
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.produce(CLICKS, 0, Some(b"bad"));
    broker.flush();

    let running = Running::start_quick(&broker.config(""), &beginnings());
    wait_until("dead letters wait", || running.health.are_letters_waiting());
    // The records can be in one batch or in two; the batch of the second waits either way.
    let emitted: usize = running.batches.try_iter().map(|batch| batch.facts.len()).sum();
    assert!(emitted <= 1, "{emitted} emitted");
    let uncommitted = running.stop().expect("a clean stop");
    assert_eq!(uncommitted, 2 - emitted as u64);

    let running = Running::start_quick(
        &broker.config(""),
        &[&[position(CLICKS, 0, 1)], &beginnings()[1..]].concat(),
    );
    wait_until("dead letters wait again", || running.health.are_letters_waiting());
    assert!(running.batches.try_recv().is_err());
    let fine = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
    broker.cluster.topic_error(dlq, fine).expect("a topic that works");
    let batches = running.take(1);
    let reached = &batches[0].progress.positions[0];
    assert_eq!(Position { mark: None, last: None, ..reached.clone() }, position(CLICKS, 0, 2));
    assert_eq!(letters(&broker, dlq, 1)[0].1.as_deref(), Some(&b"bad"[..]));
    running.stop().expect("a clean stop");
}

#[test]
fn large_values_become_complete_dead_letters() {
    let broker = Broker::with_topics();
    let large = vec![b'x'; 4 << 20];
    broker.produce(CLICKS, 0, Some(&large));
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    let running = Running::start(&broker.config(""), &[]);
    let batches = running.take(2);
    let too_large =
        |batch: &Batch| batch.intake.of(TopicKind::Clicks).dead_lettered(ErrorCode::TooLarge);
    assert_eq!(batches.iter().map(too_large).sum::<u64>(), 1);
    let found = letters(&broker, "adtrail.clicks.dlq", 1).remove(0);
    assert!(found.1.as_ref() == Some(&large));
    running.stop().expect("a clean stop");
}

/// The queue is full long enough for the reader to unassign its partitions.
#[test]
fn nothing_is_lost_or_duplicated_by_long_backpressure() {
    const COUNT: usize = 2_000;
    let broker = Broker::with_topics();
    for id in 0..COUNT {
        broker.produce(CLICKS, 0, Some(&click(id)));
    }
    broker.flush();
    let running = Running::start_quick(&broker.config("[ingest]\nbatch_records_max = 100"), &[]);
    wait_until("a batch is emitted", || running.health.last_message_ms().is_some());
    // While batches wait, the end of a partition is queried only after the reader has unassigned it. Twice, because the
    // first lag may be from before the queue was full.
    for added in 1..=2 {
        broker.produce(CLICKS, 0, Some(&click(COUNT + added - 1)));
        broker.flush();
        let lag = (COUNT + added) as u64;
        wait_until("the lag includes the new record", || {
            running.health.lag_messages(TopicKind::Clicks) == lag
        });
    }
    let expected: Vec<_> = (0..COUNT + 2).map(|id| format!("c-{id}")).collect();
    assert_eq!(ids(&running.take(COUNT as u64 + 2)), expected);
    running.stop().expect("a clean stop");
}

#[test]
fn reading_ends_if_the_receiver_is_dropped() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    let Running { batches, thread, .. } = Running::start(&broker.config(""), &[]);
    drop(batches);
    // The first batch may have been emitted before.
    broker.produce(CLICKS, 0, Some(&click(1)));
    broker.flush();
    let outcome = thread.join().expect("no panic");
    assert!(matches!(outcome, Err(IngestError::NoReceiver)), "{outcome:?}");
}

/// The last record is invalid and pauses its partition, which shows that all records before it were read.
#[test]
fn the_partial_batch_is_emitted_at_shutdown() {
    let broker = Broker::with_topics();
    (0..3).for_each(|id| broker.produce(CLICKS, 0, Some(&click(id))));
    broker.produce(CLICKS, 0, Some(b"bad"));
    broker.flush();
    let settings = "[ingest]\nbatch_age_max = \"1h\"\nbatch_records_max = 2\nbad_records_max = 0";
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let config = broker.config(settings);
    let running = ::metrics::with_local_recorder(&recorder, || Running::start(&config, &[]));
    assert_eq!(ids(&running.take(2)), ["c-0", "c-1"]);
    let paused = "adtrail_ingest_paused_partitions{topic=\"adtrail.clicks\",reason=\"bad\"} 1";
    wait_until("the other records are read", || handle.render().lines().any(|line| line == paused));
    assert!(running.batches.try_recv().is_err(), "the batch is not full");
    running.shutdown.request();
    assert_eq!(ids(&running.take(1)), ["c-2"]);
    let disconnected = running.batches.recv_timeout(PATIENCE);
    assert_eq!(disconnected.err(), Some(mpsc::RecvTimeoutError::Disconnected));
    running.stop().expect("a clean stop");
}

/// While a topic cannot be read, its lag is unknown, so neither a lag of 0 nor readiness may be reported.
#[test]
fn a_topic_without_read_access_is_reported_and_read_once_allowed() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    let running = Running::start_quick(&broker.config(""), &[]);
    running.take(1);
    wait_until("ready", || running.health.is_ready());
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    broker.cluster.topic_error(CLICKS, denied).expect("a topic that fails");
    wait_until("not ready", || !running.health.is_ready());
    assert_eq!(running.health.denied().as_deref(), Some(CLICKS));
    assert!(running.health.is_connected());
    // This does not change while the other topics are read.
    let lag = |topic| running.health.lag_messages(topic);
    broker.produce(EFFECTS, 0, None);
    broker.flush();
    wait_until("another topic has a lag", || lag(TopicKind::Effects) == 1);
    running.take(1);
    wait_until("another topic has no lag", || lag(TopicKind::Effects) == 0);
    assert!(lag(TopicKind::Clicks) > 0);
    let fine = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
    broker.cluster.topic_error(CLICKS, fine).expect("a topic that works");
    broker.produce(CLICKS, 0, Some(&click(1)));
    broker.flush();
    assert_eq!(ids(&running.take(1)), ["c-1"]);
    wait_until("ready again", || running.health.is_ready());
    running.stop().expect("a clean stop");
}

/// The client retries for half a minute before it reports a missing topic.
#[test]
fn dead_letters_that_wait_for_their_topic_are_reported_early() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(b"bad"));
    broker.flush();
    let gone = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    broker.cluster.topic_error("adtrail.clicks.dlq", gone).expect("a missing topic");
    let running = Running::start_quick(&broker.config(""), &[]);
    let health = running.health.clone();
    wait_until("a record is read", || health.last_message_ms().is_some());
    wait_until("the wait is reported", || health.are_letters_waiting());
    assert!(!health.is_ready());
    let fine = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
    broker.cluster.topic_error("adtrail.clicks.dlq", fine).expect("a topic that works");
    running.take(1);
    wait_until("ready again", || health.is_ready());
    running.stop().expect("a clean stop");
}

/// A few kilobytes of zstd that decompress to 90 MB of records.
#[test]
fn a_batch_that_decompresses_to_much_is_read_or_named() {
    let broker = Broker::with_topics();
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    let producer: BaseProducer = client(&broker.cluster.bootstrap_servers())
        .set("message.max.bytes", "1000000000")
        .set("batch.size", "1000000000")
        // Long enough to collect all records in one batch, even on a slow machine.
        .set("linger.ms", "5000")
        .set("compression.type", "zstd")
        .create()
        .expect("a producer");
    let large = vec![b'0'; 900_000];
    for _ in 0..100 {
        let record = BaseRecord::<(), _>::to(CLICKS).partition(1).payload(&large);
        producer.send(record).map_err(|(error, _)| error).expect("the queue is not full");
    }
    producer.flush(PATIENCE).expect("the broker answers");

    let low = "[kafka.librdkafka]\nreceive.message.max.bytes = 60000000\n";
    let running = Running::start(&broker.config(low), &[]);
    let error = running.thread.join().expect("no panic").expect_err("too long").to_string();
    for part in ["offset 0", "partition 1 of adtrail.clicks", "receive.message.max.bytes"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let running = Running::start(&broker.config(""), &[]);
    running.take(101);
    running.stop().expect("a clean stop");
}

fn invalid_clicks(count: usize) -> Vec<producer::DeadLetter> {
    (0..count).map(|_| producer::DeadLetter::of_value(TopicKind::Clicks, b"bad")).collect()
}

/// A rebalance interrupts a delivery whose dead letters are not acknowledged. Their delivery reports arrive later.
#[test]
fn delivery_reports_of_an_interrupted_delivery_do_not_count_for_the_next() {
    const UNACKNOWLEDGED: usize = 5;
    let broker = Broker::with_topics();
    let config = broker.config("");
    let names = TopicNames::new(&config.kafka.topics);
    let letters_out =
        producer::DeadLetters::new(&config.kafka, &names, Timing::default()).expect("a producer");
    let deliver = |count, tries: usize| {
        let mut tries = 0..tries;
        letters_out.deliver(&invalid_clicks(count), || Ok(tries.next().is_some()))
    };
    assert!(deliver(1, usize::MAX).expect("Kafka accepts it"));
    broker.cluster.broker_down(1).expect("a broker");
    assert!(!deliver(UNACKNOWLEDGED, 20).expect("no error while the broker is down"));
    // Fewer than are in flight, so that counting one of those would be noticed.
    assert!(
        !deliver(2, 20).expect("no error while the broker is down"),
        "nothing is acknowledged yet"
    );
    broker.cluster.broker_up(1).expect("a broker");
    assert!(deliver(3, usize::MAX).expect("Kafka accepts them"));
    let count = 1 + UNACKNOWLEDGED + 2 + 3;
    assert_eq!(letters(&broker, "adtrail.clicks.dlq", count).len(), count);
}

/// Without a position, records that Kafka deletes before they are read would be skipped without a warning.
#[test]
fn partitions_without_records_get_a_position() {
    let broker = Broker::with_topics();
    let running = Running::start(&broker.config(""), &[]);
    let batch = running.batches.recv_timeout(PATIENCE).expect("a batch");
    let mut positions = batch.progress.positions.clone();
    positions.sort();
    let mut expected = beginnings();
    expected.sort();
    assert_eq!(positions, expected);
    assert!(batch.facts.is_empty() && running.health.last_message_ms().is_none());
    broker.produce(CLICKS, 0, Some(&click(0)));
    broker.flush();
    // The start positions are reported once.
    let batches = running.take(1);
    assert_eq!(batches[0].progress.positions.len(), 1);
    running.stop().expect("a clean stop");
}
