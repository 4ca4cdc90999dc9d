//! Finds the partition with records that cannot be read: librdkafka's error does not name it.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::super::ConsumerThread;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::IngestError;
use crate::kafka::topics::TopicKind;

/// Time limit of the whole search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit of each request and of the reads of each partition.
const PARTITION_TIMEOUT: Duration = Duration::from_secs(3);

impl ConsumerThread {
    /// Reads each partition alone from its next offset until one returns the same error.
    pub fn locate_unreadable(&self, error: RDKafkaErrorCode) -> IngestError {
        let found = clients::reader(&self.kafka).ok().and_then(|consumer| {
            let started = Instant::now();
            let mut partitions =
                self.partitions.iter().take_while(|_| started.elapsed() < SEARCH_TIMEOUT);
            partitions.find_map(|(topic, partition)| {
                self.find_error(&consumer, (topic, partition), error)
                    .map(|offset| (self.names.of(topic), partition, offset))
            })
        });
        let location = match found {
            Some((topic, partition, offset)) => {
                format!("offset {offset} or later of partition {partition} of {topic}")
            }
            None => "partition unknown".to_owned(),
        };
        IngestError::UnreadableAt { location, error }
    }

    /// Returns the next offset of the partition if reading from there returns the error.
    fn find_error(
        &self,
        consumer: &Consumer,
        (topic, partition): (TopicKind, i32),
        expected: RDKafkaErrorCode,
    ) -> Option<i64> {
        let name = self.names.of(topic);
        let beginning =
            || Some(consumer.fetch_watermarks(name, partition, PARTITION_TIMEOUT).ok()?.0);
        let next = self.offsets.next(topic, partition).or_else(beginning)?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(name, partition, Offset::Offset(next)).ok()?;
        consumer.assign(&list).ok()?;
        let started = Instant::now();
        while let Some(remaining) = PARTITION_TIMEOUT.checked_sub(started.elapsed()) {
            match clients::poll(consumer, remaining) {
                Some(Err(KafkaError::MessageConsumption(code))) if code == expected => {
                    return Some(next);
                }
                Some(Err(KafkaError::PartitionEOF(_)) | Ok(_)) => return None,
                Some(Err(_)) | None => {}
            }
        }
        None
    }
}
