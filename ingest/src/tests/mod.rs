//! Tests of the whole crate against librdkafka's mock broker in this process.
//!
//! This file has the broker and the running reader; each other file has the tests of a subject.

mod dead_letters;
mod outages;
mod reading;
mod start_position;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
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
use crate::dead_letters::{letter, producer};
use crate::decode::ErrorCode;

const CLICKS: &str = "adtrail.clicks";
const EFFECTS: &str = "adtrail.effects";
/// Timeout of each wait, far longer than any wait takes on a slow machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

struct Broker {
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: BaseProducer,
}

impl Broker {
    fn new() -> Self {
        let cluster = MockCluster::new(1).expect("the cluster starts");
        let producer =
            client(&cluster.bootstrap_servers()).create().expect("the producer is created");
        Self { cluster, producer }
    }

    /// Starts a broker with the three topics, of two partitions each, and the dead-letter topics, because the mock
    /// broker does not support creating topics by request.
    fn with_topics() -> Self {
        let broker = Self::new();
        for topic in [CLICKS, "adtrail.activations", EFFECTS] {
            broker.cluster.create_topic(topic, 2, 1).expect("the topic is created");
            broker
                .cluster
                .create_topic(&format!("{topic}.dlq"), 1, 1)
                .expect("the topic is created");
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

    /// Makes every request for the topic fail with this error.
    fn set_error(&self, topic: &str, error: RDKafkaRespErr) {
        self.cluster.topic_error(topic, error).expect("the broker sets the error");
    }

    fn flush(&self) {
        self.producer.flush(TIMEOUT).expect("the broker answers");
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
    config::parse(&text).expect("the configuration is valid")
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
        let (committed, store_commits) = mpsc::channel();
        let (shutdown, health) = (Shutdown::default(), Arc::new(Health::default()));
        let progress = Progress { positions: positions.to_vec(), consumed_until: None };
        let thread = start(
            config,
            Arc::new(ArcSwap::new(Arc::clone(&config.policy))),
            &progress,
            Queues { batches: batch_sender, store_commits },
            shutdown.clone(),
            health.clone(),
            timing,
        )
        .expect("the settings are valid");
        Self { batches, committed: Some(committed), shutdown, health, thread }
    }

    /// Receives and commits batches until `records` records were read.
    fn take(&self, records: u64) -> Vec<Batch> {
        let (mut taken, mut read) = (Vec::new(), 0);
        while read < records {
            let batch = self.batches.recv_timeout(TIMEOUT).expect("a batch is emitted");
            read += TopicKind::ALL.iter().map(|topic| batch.intake.of(*topic).read).sum::<u64>();
            let committed = self.committed.as_ref().expect("the reader is not stopped");
            committed.send(batch.progress.positions.clone()).expect("the reader is running");
            taken.push(batch);
        }
        assert_eq!(read, records);
        taken
    }

    /// Waits until the reader ends by itself, and returns its error.
    fn failure(self) -> IngestError {
        self.thread.join().expect("the thread does not panic").expect_err("the reader fails")
    }

    /// Stops the reader and returns the number of records that will be re-read.
    fn stop(mut self) -> Result<u64, IngestError> {
        self.shutdown.request();
        self.committed = None;
        self.thread.join().expect("the thread does not panic")
    }
}

#[track_caller]
pub(crate) fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn position(topic: &str, partition: i32, next_offset: i64) -> Position {
    Position { topic: topic.into(), partition, next_offset, known: None, last: None }
}

/// Returns the positions of all partitions, so that no batch adds one.
fn beginnings() -> Vec<Position> {
    let of_topic = |topic| [0, 1].map(|partition| position(topic, partition, 0));
    [CLICKS, "adtrail.activations", EFFECTS].into_iter().flat_map(of_topic).collect()
}

/// Returns the ids of the facts of the batches, in order.
fn ids(batches: &[Batch]) -> Vec<String> {
    batches.iter().flat_map(|batch| batch.facts.iter().map(|fact| fact.id().to_owned())).collect()
}
