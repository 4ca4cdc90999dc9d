//! The committed offsets of the consumer group, and the metadata that they have in Kafka.

use attribution::ledger::RecordFingerprint;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::assignment::{REQUEST_TIMEOUT, list_with_offset};
use super::clients::Consumer;
use super::offsets::Offsets;
use super::partitions::Partitions;
use super::topics::TopicNames;

/// Fetches the group's committed offsets.
pub fn find_committed(
    consumer: &Consumer,
    names: &TopicNames,
    partitions: &Partitions,
) -> KafkaResult<Offsets> {
    let mut offsets = Offsets::default();
    if partitions.is_empty() {
        return Ok(offsets);
    }
    let request = list_with_offset(names, partitions, Offset::Invalid)?;
    let committed = consumer.committed_offsets(request, REQUEST_TIMEOUT)?;
    for element in committed.elements() {
        element.error()?;
        let topic = names.kind(element.topic());
        if let (Some(topic), Offset::Offset(next)) = (topic, element.offset()) {
            let [known, last] = parse_metadata(element.metadata());
            offsets.restore(topic, element.partition(), next, known, last);
        }
    }
    Ok(offsets)
}

/// Parses the fingerprints of the verified and the last record, as [`to_partition_list`] writes them.
fn parse_metadata(metadata: &str) -> [Option<RecordFingerprint>; 2] {
    let (verified, last) = metadata.split_once(' ').unwrap_or((metadata, ""));
    [verified, last].map(parse_fingerprint)
}

fn parse_fingerprint(text: &str) -> Option<RecordFingerprint> {
    let (offset, digest) = text.split_once(':')?;
    Some(RecordFingerprint {
        offset: offset.parse().ok()?,
        digest: u64::from_str_radix(digest, 16).ok()?,
    })
}

/// Lists offsets to commit, each with the fingerprints of its records as metadata.
pub fn to_partition_list(names: &TopicNames, offsets: &Offsets) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (topic, partition, next) in offsets.iter() {
        let mut element = list.add_partition(names.of(topic), partition);
        element.set_offset(Offset::Offset(next))?;
        let records = [offsets.known(topic, partition), offsets.last(topic, partition)];
        let records = records.into_iter().flatten();
        let records: Vec<_> = records
            .map(|RecordFingerprint { offset, digest }| format!("{offset}:{digest:016x}"))
            .collect();
        if !records.is_empty() {
            element.set_metadata(records.join(" "));
        }
    }
    Ok(list)
}
