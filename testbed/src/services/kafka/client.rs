//! Kafka operations for tests: topics, consumer groups, producing and consuming, with librdkafka and with kcat.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::Kafka;
use crate::{DEADLINE, eventually, run_ok};

/// A message to produce. Without a partition the key decides, without a time the clock.
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
    /// Creates a topic with the brokers' default replication factor. `settings` are topic settings such as
    /// `("retention.ms", "-1")`.
    pub fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
        let created = runtime.block_on(admin.create_topics([&topic], &options));
        for result in created.expect("Kafka responds") {
            result.unwrap_or_else(|(name, code)| panic!("topic {name}: {code}"));
        }
        let client: BaseConsumer = self.client().create().expect("a client");
        eventually("the partitions have leaders", || self.leaders_known(&client, name, partitions));
    }

    pub fn delete_topics(&self, names: &[String]) {
        self.forget_producer();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
        let deleted = runtime.block_on(admin.delete_topics(&names, &options));
        for result in deleted.expect("Kafka responds") {
            result.unwrap_or_else(|(name, code)| panic!("topic {name}: {code}"));
        }
    }

    /// Deletes all records of a topic, as retention does once they are old enough.
    pub fn forget(&self, topic: &str) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let metadata = admin.inner().fetch_metadata(Some(topic), DEADLINE).expect("Kafka responds");
        let mut ends = TopicPartitionList::new();
        for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
            ends.add_partition_offset(topic, partition.id(), Offset::End).expect("an offset");
        }
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
        let left = runtime.block_on(admin.delete_records(&ends, &options)).expect("Kafka responds");
        left.elements().iter().for_each(|one| one.error().expect("the records are deleted"));
    }

    /// Increases the number of partitions to this total.
    pub fn grow_topic(&self, name: &str, partitions: usize) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
        self.forget_producer();
        let more = NewPartitions::new(name, partitions);
        let grown = runtime.block_on(admin.create_partitions([&more], &options));
        for result in grown.expect("Kafka responds") {
            result.unwrap_or_else(|(name, code)| panic!("topic {name}: {code}"));
        }
        let client: BaseConsumer = self.client().create().expect("a client");
        eventually("the partitions have leaders", || {
            self.leaders_known(&client, name, partitions as i32)
        });
    }

    /// Returns the lag of a group on these topics.
    pub fn group_lag(&self, group: &str, topics: &[&str]) -> i64 {
        let client: BaseConsumer = self.client().set("group.id", group).create().expect("a client");
        let mut list = TopicPartitionList::new();
        for topic in topics {
            let metadata = client.fetch_metadata(Some(topic), DEADLINE).expect("Kafka responds");
            let partitions = metadata.topics()[0].partitions();
            partitions.iter().for_each(|one| {
                list.add_partition(topic, one.id());
            });
        }
        let committed = client.committed_offsets(list, DEADLINE).expect("Kafka responds");
        let lag = |at: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
            let ends = client.fetch_watermarks(at.topic(), at.partition(), DEADLINE);
            let (low, high) = ends.expect("Kafka responds");
            high - at.offset().to_raw().filter(|offset| *offset >= low).unwrap_or(low)
        };
        committed.elements().iter().map(lag).sum()
    }

    /// Waits until the committed offsets of the group are at the ends of these topics.
    #[track_caller]
    pub fn await_committed(&self, group: &str, topics: &[&str]) {
        eventually("the lag of the group is 0", || match self.group_lag(group, topics) {
            0 => Ok(()),
            lag => Err(format!("lag {lag}")),
        });
    }

    /// Deletes a group without members.
    pub fn delete_group(&self, name: &str) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
        let deleted = runtime.block_on(admin.delete_groups(&[name], &options));
        for result in deleted.expect("Kafka responds") {
            result.unwrap_or_else(|(name, code)| panic!("group {name}: {code}"));
        }
    }

    fn leaders_known(
        &self,
        client: &BaseConsumer,
        name: &str,
        partitions: i32,
    ) -> Result<(), String> {
        let metadata =
            client.fetch_metadata(Some(name), DEADLINE).map_err(|error| error.to_string())?;
        let led = metadata.topics().iter().flat_map(|topic| topic.partitions());
        match led.filter(|partition| partition.leader() >= 0).count() {
            count if count == partitions as usize => Ok(()),
            count => Err(format!("partitions with a leader: {count}")),
        }
    }

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
        let producer = client.create_with_context(deliveries.clone()).expect("a producer");
        Producer { producer, deliveries }
    }

    /// Changes settings of a topic, which take effect at once.
    pub fn set_topic(&self, name: &str, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(name));
        for (key, value) in settings {
            change = change.set(key, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
        let changed = runtime.block_on(admin.alter_configs([&change], &options));
        for result in changed.expect("Kafka responds") {
            result.unwrap_or_else(|(_, code)| panic!("topic {name}: {code}"));
        }
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
    fn query_client(&self, isolation: &'static str) -> Arc<BaseConsumer> {
        let mut cached = self.query_clients.lock().expect("starting a client does not panic");
        let client = cached.entry(isolation).or_insert_with(|| {
            let mut client = self.client();
            Arc::new(client.set("isolation.level", isolation).create().expect("a client"))
        });
        Arc::clone(client)
    }

    /// Returns the end offset of each partition for this isolation level. Fails during a leader election.
    fn ends(&self, topic: &str, isolation: &'static str) -> KafkaResult<Vec<i64>> {
        let client = self.query_client(isolation);
        let metadata = client.fetch_metadata(Some(topic), DEADLINE)?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        partitions
            .map(|partition| Ok(client.fetch_watermarks(topic, partition.id(), DEADLINE)?.1))
            .collect()
    }

    /// Returns the compression codecs of a topic's batches by their number in Kafka's format: 1 gzip, 2 snappy, 3
    /// lz4, 4 zstd. Reads the log files.
    pub fn codecs(&self, topic: &str) -> BTreeSet<u8> {
        let dirs = fs::read_dir(self.dir.join("data")).expect("the broker's data directory");
        let dirs = dirs.map(|dir| dir.expect("a directory entry").path());
        let is_of_topic = |dir: &PathBuf| {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.rsplit_once('-').is_some_and(|(name, _)| name == topic)
        };
        let logs = dirs.filter(is_of_topic).map(|dir| dir.join("00000000000000000000.log"));
        logs.flat_map(|log| batch_codecs(&fs::read(log).expect("a log"))).collect()
    }

    /// Returns the sum of a group's committed offsets on a topic. Partitions without one count 0.
    pub fn committed(&self, group: &str, topic: &str, partitions: i32) -> i64 {
        let consumer: BaseConsumer =
            self.client().set("group.id", group).create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition(topic, partition);
        }
        let committed = consumer.committed_offsets(list, DEADLINE).expect("Kafka responds");
        let offsets = committed.elements();
        offsets.iter().filter_map(|one| one.offset().to_raw()).filter(|offset| *offset > 0).sum()
    }

    /// Returns the number of members of a group that have not timed out.
    pub fn group_members(&self, group: &str) -> usize {
        let consumer: BaseConsumer = self.client().create().expect("a consumer");
        let groups = consumer.fetch_group_list(Some(group), DEADLINE).expect("Kafka responds");
        groups.groups().iter().map(|group| group.members().len()).sum()
    }

    /// Returns whether a group has committed an offset of a partition.
    pub fn has_position(&self, group: &str, topic: &str, partition: i32) -> bool {
        let consumer: BaseConsumer =
            self.client().set("group.id", group).create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, partition);
        let committed = consumer.committed_offsets(list, DEADLINE).expect("Kafka responds");
        committed.elements().iter().all(|one| one.offset() != Offset::Invalid)
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
            .expect("a consumer");
        let metadata = consumer.fetch_metadata(Some(topic), DEADLINE).expect("Kafka responds");
        let partitions: Vec<i32> = metadata
            .topics()
            .iter()
            .flat_map(|topic| topic.partitions().iter().map(|partition| partition.id()))
            .collect();
        assert!(!partitions.is_empty(), "topic {topic} does not exist");
        let mut assignment = TopicPartitionList::new();
        for &partition in &partitions {
            assignment
                .add_partition_offset(topic, partition, Offset::Beginning)
                .expect("an offset");
        }
        consumer.assign(&assignment).expect("an assignment");
        let mut records = read_to_ends(&consumer, partitions.len());
        records.sort_by_key(|record| (record.partition, record.offset));
        records
    }
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
        let failed = self.deliveries.failed.lock().expect("no callback panics");
        assert!(failed.is_empty(), "not acknowledged: {failed:?}");
    }
}

impl Producer {
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
        let length = u32::from_be_bytes(length.try_into().expect("4 bytes")) as usize;
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
            self.failed.lock().expect("no test panics while holding it").push(error.to_string());
        }
    }
}
