//! Produces the events to Kafka.

use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use testbed::traffic::Family;

/// Produces events to the topics of clicks, activations and effects; returns bytes and seconds.
pub fn produce(
    brokers: &str,
    topics: [&str; 3],
    events: impl Iterator<Item = (Family, String)>,
) -> (u64, f64) {
    let producer: ThreadedProducer<_> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("queue.buffering.max.messages", "1000000")
        .set("linger.ms", "20")
        .set("partitioner", "random")
        .create()
        .expect("the producer is created");
    let started = Instant::now();
    let mut bytes = 0;
    for (family, json) in events {
        bytes += json.len() as u64;
        let mut record: BaseRecord<'_, (), str> =
            BaseRecord::to(topics[family as usize]).payload(&json);
        while let Err((_, returned)) = producer.send(record) {
            record = returned;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    producer.flush(Duration::from_secs(120)).expect("all records are acknowledged");
    (bytes, started.elapsed().as_secs_f64())
}
