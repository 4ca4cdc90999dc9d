//! Where the records are that cannot be read: the client does not say.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::Reader;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::IngestError;
use crate::kafka::topics::TopicKind;

/// All partitions together are looked through for so long, and each.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_OF_ONE: Duration = Duration::from_secs(3);

impl Reader {
    /// Reads every partition on from where it is, by itself, until one gives the same error.
    pub fn unreadable(&self, error: RDKafkaErrorCode) -> IngestError {
        let found = clients::reader(&self.kafka).ok().and_then(|consumer| {
            let started = Instant::now();
            let mut left = self.partitions.iter().take_while(|_| started.elapsed() < PATIENCE);
            left.find_map(|(topic, partition)| {
                self.fails(&consumer, (topic, partition), error)
                    .map(|offset| (self.names.of(topic), partition, offset))
            })
        });
        let place = match found {
            Some((topic, partition, offset)) => {
                format!("offset {offset} or later of partition {partition} of {topic}")
            }
            None => "in which partition is not known".to_owned(),
        };
        IngestError::UnreadableAt { place, error }
    }

    /// The offset from which it does.
    fn fails(
        &self,
        consumer: &Consumer,
        (topic, partition): (TopicKind, i32),
        expected: RDKafkaErrorCode,
    ) -> Option<i64> {
        let name = self.names.of(topic);
        let beginning =
            || Some(consumer.fetch_watermarks(name, partition, PATIENCE_OF_ONE).ok()?.0);
        let next = self.offsets.next(topic, partition).or_else(beginning)?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(name, partition, Offset::Offset(next)).ok()?;
        consumer.assign(&list).ok()?;
        let started = Instant::now();
        while let Some(left) = PATIENCE_OF_ONE.checked_sub(started.elapsed()) {
            match clients::poll(consumer, left) {
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
