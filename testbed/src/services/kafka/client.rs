//! Producing and consuming, with librdkafka and with kcat.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::Kafka;
use crate::{DEADLINE, eventually, run_ok};

/// A message to produce. Without a partition, the key determines it; without a time, the client sets the current one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Vec<u8>)>,
    pub time_ms: Option<i64>,
}

impl Message {
    pub fn new(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(key.into()), value: Some(value.into()), ..Self::default() }
    }

    /// Sets the timestamp.
    pub fn at(self, time_ms: i64) -> Self {
        Self { time_ms: Some(time_ms), ..self }
    }
}

/// A record of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Vec<u8>)>,
    pub time_ms: Option<i64>,
}

impl Kafka {
    /// Produces messages in the given order, and returns once all replicas have acknowledged them.
    pub fn produce(&self, topic: &str, messages: impl IntoIterator<Item = Message>) {
        self.produce_all(messages.into_iter().map(|message| (topic, message)));
    }

    /// Like [`Kafka::produce`], to several topics in turn.
    pub fn produce_all<'t>(&self, messages: impl IntoIterator<Item = (&'t str, Message)>) {
        let mut cached = self.producer.lock().expect("starting a producer does not panic");
        let producer = Arc::clone(cached.get_or_insert_with(|| Arc::new(self.producer())));
        drop(cached);
        producer.produce_all(messages);
    }

    /// Drops the cached producer, so that the next one reads the current topic metadata.
    pub(super) fn forget_producer(&self) {
        self.producer.lock().expect("starting a producer does not panic").take();
    }

    /// A new producer that is not shared, for use from many threads.
    pub fn producer(&self) -> Producer {
        self.producer_with(&[])
    }

    /// A transactional producer. Its transactions time out after ten minutes, longer than any test.
    pub fn transactional(&self, id: &str) -> Producer {
        let settings = [("transactional.id", id), ("transaction.timeout.ms", "600000")];
        let producer = self.producer_with(&settings);
        producer.producer.init_transactions(DEADLINE).expect("Kafka responds");
        producer
    }

    /// Like [`Kafka::producer`], with additional settings.
    pub fn producer_with(&self, settings: &[(&str, &str)]) -> Producer {
        let deliveries = Deliveries::default();
        let mut client = self.client();
        client
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .set("message.max.bytes", "20000000");
        settings.iter().for_each(|(key, value)| {
            client.set(*key, *value);
        });
        let producer =
            client.create_with_context(deliveries.clone()).expect("the producer is created");
        Producer { producer, deliveries }
    }

    /// Runs kcat, for example `kcat(&["-P", "-t", topic, "-K", "|"], b"key|value\n")`.
    pub fn kcat(&self, args: &[&str], stdin: &[u8]) -> Vec<u8> {
        run_ok(Command::new("kcat").args(["-b", &self.brokers()]).args(args), stdin)
    }

    /// Returns the sum of the end offsets of a topic's partitions, including records of open and aborted
    /// transactions.
    pub fn written(&self, topic: &str) -> i64 {
        eventually("Kafka responds", || self.ends(topic, "read_uncommitted")).into_iter().sum()
    }

    /// A cached client for metadata queries with this isolation level.
    pub(super) fn query_client(&self, isolation: &'static str) -> Arc<BaseConsumer> {
        let mut cached = self.query_clients.lock().expect("starting a client does not panic");
        let client = cached.entry(isolation).or_insert_with(|| {
            let mut client = self.client();
            Arc::new(
                client.set("isolation.level", isolation).create().expect("the client is created"),
            )
        });
        Arc::clone(client)
    }

    /// Returns the end offset of each partition for this isolation level. Fails during a leader election.
    fn ends(&self, topic: &str, isolation: &'static str) -> KafkaResult<Vec<i64>> {
        let client = self.query_client(isolation);
        let end = |partition| Ok(client.fetch_watermarks(topic, partition, DEADLINE)?.1);
        partitions(&client, topic)?.into_iter().map(end).collect()
    }

    /// Returns the compression codecs of a topic's batches by their number in Kafka's format: 1 gzip, 2 snappy, 3
    /// lz4, 4 zstd. Reads the log files.
    pub fn codecs(&self, topic: &str) -> BTreeSet<u8> {
        let dirs =
            fs::read_dir(self.dir.join("data")).expect("the broker's data directory can be read");
        let dirs = dirs.map(|dir| dir.expect("the entry can be read").path());
        let is_of_topic = |dir: &PathBuf| {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.rsplit_once('-').is_some_and(|(name, _)| name == topic)
        };
        let logs = dirs.filter(is_of_topic).map(|dir| dir.join("00000000000000000000.log"));
        logs.flat_map(|log| batch_codecs(&fs::read(log).expect("the log can be read"))).collect()
    }

    /// Returns all records of a topic, by partition and offset. Waits until committed transactions are visible to
    /// readers, which happens after the commit returns.
    pub fn consume_all(&self, topic: &str) -> Vec<Record> {
        let written = eventually("Kafka responds", || self.ends(topic, "read_uncommitted"));
        eventually("all transactions are visible", || {
            let visible = self.ends(topic, "read_committed").map_err(|error| error.to_string())?;
            let is_visible = visible.len() == written.len()
                && visible.iter().zip(&written).all(|(visible, written)| visible >= written);
            if is_visible { Ok(()) } else { Err(format!("{topic}: {visible:?} of {written:?}")) }
        });
        let consumer: BaseConsumer = self
            .client()
            .set("group.id", "adtrail-test-bed")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            // Fetches without records mark the end of a partition; keep them short.
            .set("fetch.wait.max.ms", "10")
            .create()
            .expect("the consumer is created");
        let partitions = partitions(&consumer, topic).expect("Kafka responds");
        assert!(!partitions.is_empty(), "topic {topic} does not exist");
        let mut assignment = TopicPartitionList::new();
        for &partition in &partitions {
            assignment
                .add_partition_offset(topic, partition, Offset::Beginning)
                .expect("the offset is valid");
        }
        consumer.assign(&assignment).expect("the partitions are assigned");
        let mut records = read_to_ends(&consumer, partitions.len());
        records.sort_by_key(|record| (record.partition, record.offset));
        records
    }
}

pub(super) fn partitions(client: &BaseConsumer, topic: &str) -> KafkaResult<Vec<i32>> {
    let metadata = client.fetch_metadata(Some(topic), DEADLINE)?;
    let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
    Ok(partitions.map(|partition| partition.id()).collect())
}

pub struct Producer {
    producer: BaseProducer<Deliveries>,
    deliveries: Deliveries,
}

impl Producer {
    /// Like [`Kafka::produce_all`].
    pub fn produce_all<'t>(&self, messages: impl IntoIterator<Item = (&'t str, Message)>) {
        for (topic, message) in messages {
            send(&self.producer, topic, &message);
        }
        self.producer.flush(DEADLINE).expect("Kafka acknowledges");
        let failed = self.deliveries.failed.lock().expect("the lock is not poisoned");
        assert!(failed.is_empty(), "not acknowledged: {failed:?}");
    }

    pub fn begin(&self) {
        self.producer.begin_transaction().expect("the transaction begins");
    }

    pub fn commit(&self) {
        self.producer.commit_transaction(DEADLINE).expect("Kafka responds");
    }

    pub fn abort(&self) {
        self.producer.abort_transaction(DEADLINE).expect("Kafka responds");
    }
}

/// Batch header: length at byte 8, attributes at byte 21, whose last 3 bits are the codec.
fn batch_codecs(mut log: &[u8]) -> Vec<u8> {
    let mut codecs = Vec::new();
    while let Some(length) = log.get(8..12) {
        let length = u32::from_be_bytes(length.try_into().expect("the slice has 4 bytes")) as usize;
        let Some(batch) = log.get(..12 + length).filter(|_| length > 0) else { break };
        codecs.push(batch[22] & 7);
        log = &log[12 + length..];
    }
    codecs
}

fn read_to_ends(consumer: &BaseConsumer, partitions: usize) -> Vec<Record> {
    let started = Instant::now();
    let mut records = Vec::new();
    let mut ended = BTreeSet::new();
    while ended.len() < partitions {
        assert!(
            started.elapsed() < DEADLINE,
            "only read to the end of {ended:?} of {partitions} partitions"
        );
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Ok(message)) => records.push(record(&message)),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            // librdkafka reports an unavailable broker, and reconnects by itself.
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown,
            ))) => {}
            Some(Err(error)) => panic!("cannot read: {error}"),
        }
    }
    records
}

fn record(message: &rdkafka::message::BorrowedMessage) -> Record {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Record {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers
            .map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec()))
            .collect(),
        time_ms: message.timestamp().to_millis(),
    }
}

fn send(producer: &BaseProducer<Deliveries>, topic: &str, message: &Message) {
    let mut record = BaseRecord::<[u8], [u8]>::to(topic);
    record.partition = message.partition;
    record.key = message.key.as_deref();
    record.payload = message.value.as_deref();
    record.timestamp = message.time_ms;
    if !message.headers.is_empty() {
        let headers = message.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        record.headers = Some(headers);
    }
    let started = Instant::now();
    loop {
        record = match producer.send(record) {
            Ok(()) => break,
            // The queue is full: wait for deliveries.
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back))
                if started.elapsed() < DEADLINE =>
            {
                producer.poll(Duration::from_millis(10));
                back
            }
            Err((error, _)) => panic!("cannot produce to {topic}: {error}"),
        };
    }
    producer.poll(Duration::ZERO);
}

/// Collects the messages that were not acknowledged.
#[derive(Debug, Clone, Default)]
struct Deliveries {
    failed: Arc<Mutex<Vec<String>>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.failed.lock().expect("the lock is not poisoned").push(error.to_string());
        }
    }
}
