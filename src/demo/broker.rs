//! A Kafka broker in this process, and a producer to it.
//!
//! librdkafka's own, made for tests: it keeps 5 MiB of a partition and forgets the oldest beyond
//! that. The demo's traffic is bounded and compressed so that what is not read yet stays far
//! below it.

use std::time::Duration;

use anyhow::Context;
use ingest::{TopicKind, TopicNames};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::RDKafkaErrorCode;

use super::traffic::Message;

const PARTITIONS: i32 = 8;
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Broker {
    // Dropped before the cluster that it is connected to.
    producer: BaseProducer,
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl Broker {
    pub fn start() -> anyhow::Result<Self> {
        let start = || {
            let cluster = MockCluster::new(1)?;
            let producer = ClientConfig::new()
                .set("bootstrap.servers", cluster.bootstrap_servers())
                .set("compression.type", "zstd")
                .set("linger.ms", "20")
                .create()?;
            Ok::<_, KafkaError>(Self { producer, cluster })
        };
        start().context("the broker in this process does not start")
    }

    pub fn address(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    /// The topics, and those for dead letters, which this broker cannot be asked for later.
    pub fn create_topics(&self, names: &TopicNames) -> anyhow::Result<()> {
        for topic in TopicKind::ALL {
            let name = names.of(topic);
            for (name, partitions) in [(&**name, PARTITIONS), (&*format!("{name}.dlq"), 1)] {
                self.cluster
                    .create_topic(name, partitions, 1)
                    .with_context(|| format!("no topic {name} in the broker of this process"))?;
            }
        }
        Ok(())
    }

    /// Waits while the producer's queue is full.
    pub fn send(&self, names: &TopicNames, message: &Message) -> anyhow::Result<()> {
        let mut record =
            BaseRecord::to(names.of(message.topic)).key(message.key).payload(&message.value);
        while let Err((error, unsent)) = self.producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error).context("an event cannot be produced");
            }
            record = unsent;
            self.producer.poll(Duration::from_millis(10));
        }
        self.producer.poll(Duration::ZERO);
        Ok(())
    }

    /// Waits until the broker has all that was sent.
    pub fn flush(&self) -> anyhow::Result<()> {
        self.producer.flush(PATIENCE).context("the broker in this process does not answer")
    }
}
