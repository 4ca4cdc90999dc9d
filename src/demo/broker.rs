//! A Kafka broker in this process, and a producer for it.
//!
//! The broker is librdkafka's mock broker. It keeps 5 MiB per partition and deletes older records. The demo's traffic
//! is bounded and compressed, so that unread records stay far below this limit.

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
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Broker {
    // Dropped before the cluster to which it is connected.
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
                // As the collector.
                .set("partitioner", "murmur2_random")
                .create()?;
            Ok::<_, KafkaError>(Self { producer, cluster })
        };
        start().context("the built-in broker cannot be started")
    }

    pub fn address(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    /// Creates the topics and the dead-letter topics, because the mock broker does not support creating topics by
    /// request.
    pub fn create_topics(&self, names: &TopicNames) -> anyhow::Result<()> {
        for topic in TopicKind::ALL {
            let name = names.of(topic);
            for (name, partitions) in [(&**name, PARTITIONS), (&*format!("{name}.dlq"), 1)] {
                self.cluster
                    .create_topic(name, partitions, 1)
                    .with_context(|| format!("the built-in broker cannot create topic {name}"))?;
            }
        }
        Ok(())
    }

    /// Produces a message; waits while the producer's queue is full.
    pub fn send(&self, names: &TopicNames, message: &Message) -> anyhow::Result<()> {
        let mut record =
            BaseRecord::to(names.of(message.topic)).key(message.key).payload(&message.value);
        while let Err((error, unsent)) = self.producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error).context("a message cannot be produced");
            }
            record = unsent;
            self.producer.poll(Duration::from_millis(10));
        }
        self.producer.poll(Duration::ZERO);
        Ok(())
    }

    /// Waits until the broker has acknowledged all messages.
    pub fn flush(&self) -> anyhow::Result<()> {
        self.producer.flush(FLUSH_TIMEOUT).context("the built-in broker does not respond")
    }
}
