//! Finds partitions and watermarks, and checks positions against them.

use std::collections::HashMap;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use super::clients::Consumer;
use super::error::IngestError;
use super::offsets::Offsets;
use super::partitions::{PartitionWatermarks, Partitions, Watermarks};
use super::topics::{PerTopic, TopicKind, TopicNames};

/// Timeout of each request to the cluster.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the topics' partitions cannot be found.
#[derive(Debug)]
pub enum LookupError {
    /// The topic does not exist, or was created a moment ago.
    NoTopic(TopicKind),
    /// The user has no permission to describe the topic.
    Denied(TopicKind),
    Unreachable(KafkaError),
}

/// Finds all partitions of the topics.
pub fn find_partitions(consumer: &Consumer, names: &TopicNames) -> Result<Partitions, LookupError> {
    let mut counts = PerTopic::default();
    for topic in TopicKind::ALL {
        let count = partition_count(consumer, names.of(topic)).map_err(|error| {
            if is_denial(&error) {
                LookupError::Denied(topic)
            } else {
                LookupError::Unreachable(error)
            }
        })?;
        *counts.of_mut(topic) = count.ok_or(LookupError::NoTopic(topic))?;
    }
    Ok(Partitions::all(&counts))
}

/// Returns true if the user lacks permission for the topic.
pub fn is_denial(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed)
}

/// Returns the number of partitions of a topic; `None` if it does not exist.
pub fn partition_count(consumer: &Consumer, name: &str) -> KafkaResult<Option<usize>> {
    let metadata = consumer.fetch_metadata(Some(name), REQUEST_TIMEOUT)?;
    let Some(topic) = metadata.topics().first() else { return Ok(None) };
    match topic.error() {
        None => Ok(Some(topic.partitions().len()).filter(|count| *count > 0)),
        Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => Ok(None),
        Some(error) => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::from(error))),
    }
}

/// Fetches the watermarks of every partition, with one request for the low ones and one for the high ones. The client
/// must read uncommitted records: with `read_committed`, brokers return the last stable offset as the high watermark.
pub fn find_watermarks(
    inspector: &Consumer,
    names: &TopicNames,
    partitions: &Partitions,
) -> KafkaResult<PartitionWatermarks> {
    let watermarks = fetch_watermarks(inspector, names, partitions);
    if !watermarks.as_ref().is_ok_and(|watermarks| watermarks.len() == partitions.len()) {
        // A client that fetches nothing learns of new leaders only by a metadata request.
        let _ = find_partitions(inspector, names);
    }
    watermarks
}

fn fetch_watermarks(
    consumer: &Consumer,
    names: &TopicNames,
    partitions: &Partitions,
) -> KafkaResult<PartitionWatermarks> {
    if partitions.is_empty() {
        return Ok(PartitionWatermarks::new());
    }
    let fetch = |offset: Offset| -> KafkaResult<HashMap<(String, i32), Offset>> {
        let request = list_with_offset(names, partitions, offset)?;
        Ok(consumer.offsets_for_times(request, REQUEST_TIMEOUT)?.to_topic_map())
    };
    let (lows, highs) = (fetch(Offset::Beginning)?, fetch(Offset::End)?);
    let mut watermarks = PartitionWatermarks::new();
    for (topic, partition) in partitions.iter() {
        let key = (names.of(topic).to_string(), partition);
        if let (Some(Offset::Offset(low)), Some(Offset::Offset(high))) =
            (lows.get(&key), highs.get(&key))
        {
            watermarks.insert((topic, partition), Watermarks { low: *low, high: *high });
        }
    }
    Ok(watermarks)
}

/// Lists every partition that is not paused, each with its position or, without one, its beginning.
pub fn assignable_partitions(
    names: &TopicNames,
    partitions: &Partitions,
    offsets: &Offsets,
    is_paused: impl Fn(TopicKind, i32) -> bool,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    let unpaused = partitions.iter().filter(|(topic, partition)| !is_paused(*topic, *partition));
    for (topic, partition) in unpaused {
        let next = offsets.next(topic, partition);
        let next = next.map_or(Offset::Beginning, Offset::Offset);
        list.add_partition_offset(names.of(topic), partition, next)?;
    }
    Ok(list)
}

/// Checks that every position is within the watermarks of its partition. Partitions with unknown watermarks pass: the
/// broker rejects a wrong offset when it is fetched.
pub fn check_offsets(
    names: &TopicNames,
    partitions: &Partitions,
    watermarks: &PartitionWatermarks,
    offsets: &Offsets,
) -> Result<(), IngestError> {
    for (topic, partition, wanted) in offsets.iter() {
        let name = names.of(topic).clone();
        if !partitions.contains(topic, partition) {
            let partitions = partitions.count(topic);
            return Err(IngestError::PartitionGone { topic: name, partition, wanted, partitions });
        }
        if let Some(Watermarks { low, high }) = watermarks.get(&(topic, partition)).copied()
            && !(low..=high).contains(&wanted)
        {
            return Err(IngestError::OutOfRange { topic: name, partition, wanted, low, high });
        }
    }
    Ok(())
}

/// Records before the group's offsets that the store lacks, because it is older than the offsets or a different store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissingRecords {
    /// Records that Kafka still has.
    pub available: i64,
    /// Records that Kafka has deleted; an upper bound.
    pub deleted: i64,
    /// True if records are missing in a partition for which the store has no position.
    pub is_without_position: bool,
}

/// Counts the records between the store's position and the group's offset of each partition. The group has no offset
/// of an unread partition, so at the very first start nothing is missing.
pub fn find_missing(
    partitions: &Partitions,
    group_offsets: &Offsets,
    store_offsets: &Offsets,
    watermarks: &PartitionWatermarks,
) -> MissingRecords {
    let mut missing = MissingRecords::default();
    for (topic, partition) in partitions.iter() {
        let Some(group) = group_offsets.next(topic, partition) else { continue };
        let low = watermarks.get(&(topic, partition)).map_or(0, |watermarks| watermarks.low);
        let position = store_offsets.next(topic, partition);
        missing.available += (group - position.unwrap_or(low.min(group))).max(0);
        if position.is_none() {
            missing.deleted += low.min(group);
            missing.is_without_position |= group > 0;
        }
    }
    missing
}

/// Lists the partitions, each with the same offset.
pub fn list_with_offset(
    names: &TopicNames,
    partitions: &Partitions,
    offset: Offset,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions.iter() {
        list.add_partition_offset(names.of(topic), partition, offset)?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the watermarks of the first partition of clicks are known.
    fn watermarks() -> PartitionWatermarks {
        PartitionWatermarks::from([((TopicKind::Clicks, 0), Watermarks { low: 10, high: 20 })])
    }

    /// Checks a position among three partitions.
    fn outcome(partition: i32, wanted: i64) -> Result<(), IngestError> {
        let partitions = Partitions::all(&PerTopic::from_fn(|_| 3));
        let mut offsets = Offsets::default();
        offsets.set(TopicKind::Clicks, partition, wanted);
        check_offsets(&TopicNames::of_settings(), &partitions, &watermarks(), &offsets)
    }

    #[track_caller]
    fn check_passes(partition: i32, wanted: i64, expected: bool) {
        assert_eq!(outcome(partition, wanted).is_ok(), expected, "{partition} {wanted}");
    }

    #[test]
    fn positions_must_be_within_the_watermarks() {
        check_passes(0, 10, true);
        check_passes(0, 20, true);
        check_passes(0, 9, false);
        check_passes(0, 21, false);
        check_passes(1, 1_000, true);
        check_passes(-1, 0, false);
        let gone = outcome(3, 0);
        let is_named =
            matches!(gone, Err(IngestError::PartitionGone { partition: 3, partitions: 3, .. }));
        assert!(is_named, "{gone:?}");
    }

    #[test]
    fn the_error_names_the_partition_and_the_remedy() {
        let error = outcome(0, 9).expect_err("offset 9 is below the low watermark").to_string();
        for part in ["kafka.clicks", "partition 0", "offset 9", "10 to 20", "store.path"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    /// Checks one partition per topic.
    #[track_caller]
    fn check_missing(group: Option<i64>, store: Option<i64>, expected: MissingRecords) {
        let offsets = |next: Option<i64>| {
            let mut offsets = Offsets::default();
            next.into_iter().for_each(|next| offsets.set(TopicKind::Clicks, 0, next));
            offsets
        };
        let partitions = Partitions::all(&PerTopic::from_fn(|_| 1));
        let missing = find_missing(&partitions, &offsets(group), &offsets(store), &watermarks());
        assert_eq!(missing, expected, "{group:?} {store:?}");
    }

    #[test]
    fn records_between_the_stores_and_the_groups_offsets_are_missing() {
        let missing = |available, deleted, is_without_position| MissingRecords {
            available,
            deleted,
            is_without_position,
        };
        check_missing(None, None, MissingRecords::default());
        check_missing(None, Some(15), MissingRecords::default());
        check_missing(Some(15), Some(15), MissingRecords::default());
        check_missing(Some(14), Some(15), MissingRecords::default());
        check_missing(Some(18), Some(15), missing(3, 0, false));
        check_missing(Some(18), None, missing(8, 10, true));
        check_missing(Some(7), None, missing(0, 7, true));
        check_missing(Some(0), None, MissingRecords::default());
    }

    #[test]
    fn unread_partitions_start_at_their_beginning() {
        let partitions = Partitions::all(&PerTopic::from_fn(|topic| match topic {
            TopicKind::Clicks => 2,
            _ => 1,
        }));
        let mut offsets = Offsets::default();
        offsets.set(TopicKind::Clicks, 1, 7);
        let is_paused = |topic, partition| (topic, partition) == (TopicKind::Effects, 0);
        let names = TopicNames::of_settings();
        let list = assignable_partitions(&names, &partitions, &offsets, is_paused)
            .expect("the offsets are valid");
        let offset = |topic: &str, partition| {
            list.find_partition(topic, partition).map(|found| found.offset())
        };
        assert_eq!(list.count(), 3);
        assert_eq!(offset("kafka.clicks", 0), Some(Offset::Beginning));
        assert_eq!(offset("kafka.clicks", 1), Some(Offset::Offset(7)));
        assert_eq!(offset("kafka.activations", 0), Some(Offset::Beginning));
    }
}
