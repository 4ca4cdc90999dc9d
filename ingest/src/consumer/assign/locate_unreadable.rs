//! Finds the partition with records that cannot be read: librdkafka's error does not name it.

use std::time::{Duration, Instant};

use config::Kafka;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use crate::consumer::topic_client::TopicClient;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::IngestError;
use crate::kafka::offsets::Offsets;

/// Time limit of the whole search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit of each request and of the reads of each partition.
const PARTITION_TIMEOUT: Duration = Duration::from_secs(3);

/// Reads each partition alone from its next offset until one returns the same error.
pub fn locate_unreadable(
    error: RDKafkaErrorCode,
    client: &TopicClient,
    offsets: &Offsets,
    kafka: &Kafka,
) -> IngestError {
    let found = clients::reader(kafka).ok().and_then(|consumer| {
        let started = Instant::now();
        let mut partitions =
            client.partitions.iter().take_while(|_| started.elapsed() < SEARCH_TIMEOUT);
        partitions.find_map(|(topic, partition)| {
            let (name, next) = (client.names.of(topic), offsets.next(topic, partition));
            find_error(&consumer, name, partition, next, error).map(|offset| {
                format!("offset {offset} or later of partition {partition} of {name}")
            })
        })
    });
    let location = found.unwrap_or_else(|| "partition unknown".to_owned());
    IngestError::UnreadableAt { location, error }
}

/// Reads a partition from the offset `next`, or from its beginning. Returns that offset if reading fails with the
/// expected error.
fn find_error(
    consumer: &Consumer,
    topic: &str,
    partition: i32,
    next: Option<i64>,
    expected: RDKafkaErrorCode,
) -> Option<i64> {
    let beginning = || Some(consumer.fetch_watermarks(topic, partition, PARTITION_TIMEOUT).ok()?.0);
    let next = next.or_else(beginning)?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(next)).ok()?;
    consumer.assign(&list).ok()?;
    let has_error =
        clients::poll_all(consumer, PARTITION_TIMEOUT).find_map(|polled| match polled {
            Err(KafkaError::MessageConsumption(code)) if code == expected => Some(true),
            Err(KafkaError::PartitionEOF(_)) | Ok(_) => Some(false),
            Err(_) => None,
        });
    has_error?.then_some(next)
}
