//! What tests say to Kafka: topics, records in and out, by librdkafka and by stock kcat.

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

use super::super::{DEADLINE, eventually, run_ok};
use super::Kafka;

/// What is produced. Without a partition the key decides, without a time the clock.
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

    /// With the timestamp that the broker keeps.
    pub fn at(self, time_ms: i64) -> Self {
        Self { time_ms: Some(time_ms), ..self }
    }
}

/// What a topic holds.
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
    /// Of as many replicas as the brokers make by themselves. `settings` are the topic's own, as
    /// `("retention.ms", "-1")`.
    pub fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let created = runtime.block_on(admin.create_topics([&topic], &options));
        for result in created.expect("kafka answers") {
            result.unwrap_or_else(|(name, code)| panic!("topic {name}: {code}"));
        }
        let client: BaseConsumer = self.client().create().expect("a client");
        eventually("the new topic has its leaders", || {
            self.leaders_known(&client, name, partitions)
        });
    }

    pub fn delete_topics(&self, names: &[String]) {
        self.forget_producer();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let deleted = runtime.block_on(admin.delete_topics(&names, &options));
        for result in deleted.expect("kafka answers") {
            result.unwrap_or_else(|(name, code)| panic!("topic {name}: {code}"));
        }
    }

    /// What Kafka's retention does once records are old enough: all that a topic has is gone.
    pub fn forget(&self, topic: &str) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let metadata = admin.inner().fetch_metadata(Some(topic), DEADLINE).expect("kafka answers");
        let mut ends = TopicPartitionList::new();
        for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
            ends.add_partition_offset(topic, partition.id(), Offset::End).expect("an offset");
        }
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let left = runtime.block_on(admin.delete_records(&ends, &options)).expect("kafka answers");
        left.elements().iter().for_each(|one| one.error().expect("the records are deleted"));
    }

    /// So many partitions in all.
    pub fn grow_topic(&self, name: &str, partitions: usize) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        self.forget_producer();
        let more = NewPartitions::new(name, partitions);
        let grown = runtime.block_on(admin.create_partitions([&more], &options));
        for result in grown.expect("kafka answers") {
            result.unwrap_or_else(|(name, code)| panic!("topic {name}: {code}"));
        }
        let client: BaseConsumer = self.client().create().expect("a client");
        eventually("the partitions have leaders", || {
            self.leaders_known(&client, name, partitions as i32)
        });
    }

    /// Records of these topics after the group's positions.
    pub fn group_lag(&self, group: &str, topics: &[&str]) -> i64 {
        let client: BaseConsumer = self.client().set("group.id", group).create().expect("a client");
        let mut list = TopicPartitionList::new();
        for topic in topics {
            let metadata = client.fetch_metadata(Some(topic), DEADLINE).expect("kafka answers");
            let partitions = metadata.topics()[0].partitions();
            partitions.iter().for_each(|one| {
                list.add_partition(topic, one.id());
            });
        }
        let committed = client.committed_offsets(list, DEADLINE).expect("kafka answers");
        let lag = |at: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
            let ends = client.fetch_watermarks(at.topic(), at.partition(), DEADLINE);
            let (low, high) = ends.expect("kafka answers");
            high - at.offset().to_raw().filter(|offset| *offset >= low).unwrap_or(low)
        };
        committed.elements().iter().map(lag).sum()
    }

    /// Until the group's positions are at the ends of these topics.
    #[track_caller]
    pub fn await_told(&self, group: &str, topics: &[&str]) {
        eventually("the group has the positions", || match self.group_lag(group, topics) {
            0 => Ok(()),
            lag => Err(format!("{lag} records are behind them")),
        });
    }

    /// A group that nobody is a member of.
    pub fn delete_group(&self, name: &str) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let deleted = runtime.block_on(admin.delete_groups(&[name], &options));
        for result in deleted.expect("kafka answers") {
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

    /// Returns once all replicas have acknowledged every message, in the order given.
    pub fn produce(&self, topic: &str, messages: impl IntoIterator<Item = Message>) {
        self.produce_all(messages.into_iter().map(|message| (topic, message)));
    }

    /// As [`Kafka::produce`], to several topics by turns.
    pub fn produce_all<'t>(&self, messages: impl IntoIterator<Item = (&'t str, Message)>) {
        let mut kept = self.producer.lock().expect("starting a producer does not panic");
        let producer = Arc::clone(kept.get_or_insert_with(|| Arc::new(self.producer())));
        drop(kept);
        producer.produce_all(messages);
    }

    /// The next records are produced by a client that knows the topics as they are then.
    pub(super) fn forget_producer(&self) {
        self.producer.lock().expect("starting a producer does not panic").take();
    }

    /// One of the test's own, for many threads.
    pub fn producer(&self) -> Producer {
        self.producer_with(&[])
    }

    /// One that begins and ends transactions. Brokers take back what is open for ten minutes, which no test is.
    pub fn transactional(&self, id: &str) -> Producer {
        let settings = [("transactional.id", id), ("transaction.timeout.ms", "600000")];
        let producer = self.producer_with(&settings);
        producer.producer.init_transactions(DEADLINE).expect("kafka answers");
        producer
    }

    /// As [`Kafka::producer`], with settings of its own.
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

    /// Changes a topic's own settings, which takes effect at once.
    pub fn set_topic(&self, name: &str, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("a client");
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(name));
        for (key, value) in settings {
            change = change.set(key, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let changed = runtime.block_on(admin.alter_configs([&change], &options));
        for result in changed.expect("kafka answers") {
            result.unwrap_or_else(|(_, code)| panic!("topic {name}: {code}"));
        }
    }

    /// The stock producer: `kcat(&["-P", "-t", topic, "-K", "|"], b"key|value\n")`.
    pub fn kcat(&self, args: &[&str], stdin: &[u8]) -> Vec<u8> {
        run_ok(Command::new("kcat").args(["-b", &self.brokers()]).args(args), stdin)
    }

    /// Offsets that were given out in all partitions of the topic, those of transactions that are
    /// not ended or were taken back too.
    pub fn written(&self, topic: &str) -> i64 {
        eventually("kafka answers", || self.ends(topic, "read_uncommitted")).into_iter().sum()
    }

    /// A client that asks again and again, and reads nothing.
    fn looker(&self, isolation: &'static str) -> Arc<BaseConsumer> {
        let mut kept = self.lookers.lock().expect("starting a client does not panic");
        let looker = kept.entry(isolation).or_insert_with(|| {
            let mut client = self.client();
            Arc::new(client.set("isolation.level", isolation).create().expect("a client"))
        });
        Arc::clone(looker)
    }

    /// What comes next in each partition, for readers of this isolation. Not told while a leader is chosen.
    fn ends(&self, topic: &str, isolation: &'static str) -> KafkaResult<Vec<i64>> {
        let client = self.looker(isolation);
        let metadata = client.fetch_metadata(Some(topic), DEADLINE)?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        partitions
            .map(|partition| Ok(client.fetch_watermarks(topic, partition.id(), DEADLINE)?.1))
            .collect()
    }

    /// The ways in which the topic's batches are compressed, by their numbers in Kafka's format: 1
    /// gzip, 2 snappy, 3 lz4, 4 zstd. Read from the log itself.
    pub fn codecs(&self, topic: &str) -> BTreeSet<u8> {
        let folders = fs::read_dir(self.dir.join("data")).expect("the broker's folder");
        let folders = folders.map(|folder| folder.expect("a folder").path());
        let is_its = |folder: &PathBuf| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.rsplit_once('-').is_some_and(|(name, _)| name == topic)
        };
        let logs = folders.filter(is_its).map(|folder| folder.join("00000000000000000000.log"));
        logs.flat_map(|log| batch_codecs(&fs::read(log).expect("a log"))).collect()
    }

    /// The positions of a group, summed over the partitions of a topic; those it has none of count 0.
    pub fn committed(&self, group: &str, topic: &str, partitions: i32) -> i64 {
        let consumer: BaseConsumer =
            self.client().set("group.id", group).create().expect("a consumer");
        let mut asked = TopicPartitionList::new();
        for partition in 0..partitions {
            asked.add_partition(topic, partition);
        }
        let told = consumer.committed_offsets(asked, DEADLINE).expect("kafka answers");
        let offsets = told.elements();
        offsets.iter().filter_map(|one| one.offset().to_raw()).filter(|offset| *offset > 0).sum()
    }

    /// How many there are whom the broker has not given up.
    pub fn group_members(&self, group: &str) -> usize {
        let consumer: BaseConsumer = self.client().create().expect("a consumer");
        let groups = consumer.fetch_group_list(Some(group), DEADLINE).expect("kafka answers");
        groups.groups().iter().map(|group| group.members().len()).sum()
    }

    /// Whether a group has told how far it is with a partition.
    pub fn has_position(&self, group: &str, topic: &str, partition: i32) -> bool {
        let consumer: BaseConsumer =
            self.client().set("group.id", group).create().expect("a consumer");
        let mut asked = TopicPartitionList::new();
        asked.add_partition(topic, partition);
        let told = consumer.committed_offsets(asked, DEADLINE).expect("kafka answers");
        told.elements().iter().all(|one| one.offset() != Offset::Invalid)
    }

    /// All that the topic holds now, by partition and offset. Kafka says that a transaction is
    /// committed before it shows its records to readers: they are waited for.
    pub fn consume_all(&self, topic: &str) -> Vec<Record> {
        let written = eventually("kafka answers", || self.ends(topic, "read_uncommitted"));
        eventually("no transaction is open", || {
            let shown = self.ends(topic, "read_committed").map_err(|error| error.to_string())?;
            let is_shown = shown.len() == written.len()
                && shown.iter().zip(&written).all(|(shown, written)| shown >= written);
            if is_shown { Ok(()) } else { Err(format!("{topic}: {shown:?} of {written:?}")) }
        });
        let consumer: BaseConsumer = self
            .client()
            .set("group.id", "adtrail-test-bed")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            // A fetch that returns no records marks the end of a partition: keep it short.
            .set("fetch.wait.max.ms", "10")
            .create()
            .expect("a consumer");
        let metadata = consumer.fetch_metadata(Some(topic), DEADLINE).expect("kafka answers");
        let partitions: Vec<i32> = metadata
            .topics()
            .iter()
            .flat_map(|topic| topic.partitions().iter().map(|partition| partition.id()))
            .collect();
        assert!(!partitions.is_empty(), "no such topic: {topic}");
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
    /// As [`Kafka::produce_all`].
    pub fn produce_all<'t>(&self, messages: impl IntoIterator<Item = (&'t str, Message)>) {
        for (topic, message) in messages {
            send(&self.producer, topic, &message);
        }
        self.producer.flush(DEADLINE).expect("kafka acknowledges");
        let failed = self.deliveries.failed.lock().expect("no callback panics");
        assert!(failed.is_empty(), "not acknowledged: {failed:?}");
    }
}

impl Producer {
    pub fn begin(&self) {
        self.producer.begin_transaction().expect("a transaction can begin");
    }

    pub fn commit(&self) {
        self.producer.commit_transaction(DEADLINE).expect("kafka answers");
    }

    pub fn abort(&self) {
        self.producer.abort_transaction(DEADLINE).expect("kafka answers");
    }
}

/// Of each batch: its length is at byte 8, its attributes at byte 21, the codec their last 3 bits.
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
        assert!(started.elapsed() < DEADLINE, "read to the end of {ended:?} of {partitions} only");
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Ok(message)) => records.push(record(&message)),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            // librdkafka tells of a broker that is away, and goes on by itself.
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
            // Full: let deliveries make room.
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

/// Gathers the messages that were not acknowledged.
#[derive(Debug, Clone, Default)]
struct Deliveries {
    failed: Arc<Mutex<Vec<String>>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.failed.lock().expect("no test panics while it holds it").push(error.to_string());
        }
    }
}
