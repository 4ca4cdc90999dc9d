//! Which partitions are read, and from where: the store's positions against what the broker has.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use crate::client::Consumer;
use crate::error::IngestError;
use crate::health::Extent;
use crate::offsets::Offsets;
use crate::topic::{PerTopic, TopicKind, TopicNames};

/// A look at the cluster takes at most this long.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

/// How many partitions each topic has.
pub type PartitionCounts = PerTopic<usize>;

/// What the broker has of each partition.
pub type Extents = BTreeMap<(TopicKind, i32), Extent>;

/// Why the topics' partitions are not known.
#[derive(Debug)]
pub enum Unfound {
    /// The cluster answers that there is no such topic, which it does for a moment after one
    /// was created too.
    NoTopic(TopicKind),
    Unreachable(KafkaError),
}

/// Asks the cluster for the topics' partitions.
pub fn find_partitions(
    consumer: &Consumer,
    names: &TopicNames,
) -> Result<PartitionCounts, Unfound> {
    let mut counts = PartitionCounts::default();
    for topic in TopicKind::ALL {
        let count = partition_count(consumer, names.of(topic)).map_err(Unfound::Unreachable)?;
        *counts.of_mut(topic) = count.ok_or(Unfound::NoTopic(topic))?;
    }
    Ok(counts)
}

/// `None` if there is no such topic.
pub fn partition_count(consumer: &Consumer, name: &str) -> KafkaResult<Option<usize>> {
    let metadata = consumer.fetch_metadata(Some(name), LOOK_TIMEOUT)?;
    let Some(topic) = metadata.topics().first() else { return Ok(None) };
    match topic.error() {
        None => Ok(Some(topic.partitions().len()).filter(|count| *count > 0)),
        Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => Ok(None),
        Some(error) => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::from(error))),
    }
}

/// Asks the brokers for the oldest and the last offset of every partition, in one request each.
pub fn find_extents(
    consumer: &Consumer,
    names: &TopicNames,
    counts: &PartitionCounts,
) -> KafkaResult<Extents> {
    let ends = |of: Offset| -> KafkaResult<HashMap<(String, i32), Offset>> {
        let asked = list(names, counts, |_, _| of)?;
        Ok(consumer.offsets_for_times(asked, LOOK_TIMEOUT)?.to_topic_map())
    };
    let (lows, highs) = (ends(Offset::Beginning)?, ends(Offset::End)?);
    let mut extents = Extents::new();
    for (topic, partition) in partitions(counts) {
        let key = (names.of(topic).to_string(), partition);
        if let (Some(Offset::Offset(low)), Some(Offset::Offset(high))) =
            (lows.get(&key), highs.get(&key))
        {
            extents.insert((topic, partition), Extent { low: *low, high: *high });
        }
    }
    Ok(extents)
}

/// Every partition that is not held, from what was read last, or from its beginning if nothing was
/// read of it yet.
pub fn assignment(
    names: &TopicNames,
    counts: &PartitionCounts,
    offsets: &Offsets,
    is_held: impl Fn(TopicKind, i32) -> bool,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    let read = partitions(counts).filter(|(topic, partition)| !is_held(*topic, *partition));
    for (topic, partition) in read {
        // What was read last once more, to see that it is the same topic.
        let last = offsets.last(topic, partition).map(|last| last.offset);
        let next = last.or_else(|| offsets.next(topic, partition));
        let next = next.map_or(Offset::Beginning, Offset::Offset);
        list.add_partition_offset(names.of(topic), partition, next)?;
    }
    Ok(list)
}

/// That every position can be read on from. Partitions whose extent is unknown pass: the broker
/// refuses a wrong offset when it is asked for it.
pub fn check(
    names: &TopicNames,
    counts: &PartitionCounts,
    extents: &Extents,
    offsets: &Offsets,
) -> Result<(), IngestError> {
    for (topic, partition, wanted) in offsets.iter() {
        let partitions = *counts.of(topic);
        let name = names.of(topic).clone();
        if !usize::try_from(partition).is_ok_and(|partition| partition < partitions) {
            return Err(IngestError::PartitionGone { topic: name, partition, wanted, partitions });
        }
        match extents.get(&(topic, partition)) {
            Some(Extent { low, high }) if !(*low..=*high).contains(&wanted) => {
                let (low, high) = (*low, *high);
                return Err(IngestError::OutOfRange { topic: name, partition, wanted, low, high });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Records that the group was told of as committed and the store has lost since: of each partition
/// those between its position and the group's.
pub fn find_lost(
    consumer: &Consumer,
    names: &TopicNames,
    counts: &PartitionCounts,
    offsets: &Offsets,
) -> KafkaResult<i64> {
    let asked = list(names, counts, |_, _| Offset::Invalid)?;
    let told = consumer.committed_offsets(asked, LOOK_TIMEOUT)?.to_topic_map();
    let lost = partitions(counts).filter_map(|(topic, partition)| {
        match told.get(&(names.of(topic).to_string(), partition)) {
            Some(Offset::Offset(told)) => Some(told - offsets.next(topic, partition)?),
            _ => None,
        }
    });
    Ok(lost.filter(|lost| *lost > 0).sum())
}

/// Every partition of every topic.
pub fn partitions(counts: &PartitionCounts) -> impl Iterator<Item = (TopicKind, i32)> {
    TopicKind::ALL
        .into_iter()
        .flat_map(|topic| (0..).take(*counts.of(topic)).map(move |partition| (topic, partition)))
}

fn list(
    names: &TopicNames,
    counts: &PartitionCounts,
    offset: impl Fn(TopicKind, i32) -> Offset,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions(counts) {
        list.add_partition_offset(names.of(topic), partition, offset(topic, partition))?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> TopicNames {
        TopicNames::from_fn(|topic| topic.setting().into())
    }

    /// Three partitions; the broker has 10 to 20 of partition 0, nothing is known of partition 1.
    fn outcome(partition: i32, wanted: i64) -> Result<(), IngestError> {
        let counts = PartitionCounts::from_fn(|_| 3);
        let extents = Extents::from([((TopicKind::Clicks, 0), Extent { low: 10, high: 20 })]);
        let mut offsets = Offsets::default();
        offsets.advance(TopicKind::Clicks, partition, wanted);
        check(&names(), &counts, &extents, &offsets)
    }

    #[track_caller]
    fn check_passes(partition: i32, wanted: i64, expected: bool) {
        assert_eq!(outcome(partition, wanted).is_ok(), expected, "{partition} {wanted}");
    }

    #[test]
    fn positions_are_within_what_the_broker_has() {
        check_passes(0, 10, true);
        check_passes(0, 20, true);
        check_passes(0, 9, false);
        check_passes(0, 21, false);
        check_passes(1, 1_000, true);
        check_passes(3, 0, false);
        check_passes(-1, 0, false);
    }

    #[test]
    fn the_error_says_where_and_how_to_go_on() {
        let error = outcome(0, 9).expect_err("offset 9 is gone").to_string();
        for part in ["kafka.clicks", "partition 0", "offset 9", "10 to 20", "store.path"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn unread_partitions_start_at_their_beginning() {
        let counts = PartitionCounts::from_fn(|topic| match topic {
            TopicKind::Clicks => 2,
            _ => 1,
        });
        let mut offsets = Offsets::default();
        offsets.advance(TopicKind::Clicks, 1, 7);
        let is_held = |topic, partition| (topic, partition) == (TopicKind::Effects, 0);
        let list = assignment(&names(), &counts, &offsets, is_held).expect("valid offsets");
        let offset = |topic: &str, partition| {
            list.find_partition(topic, partition).map(|found| found.offset())
        };
        assert_eq!(list.count(), 3);
        assert_eq!(offset("kafka.clicks", 0), Some(Offset::Beginning));
        assert_eq!(offset("kafka.clicks", 1), Some(Offset::Offset(7)));
        assert_eq!(offset("kafka.activations", 0), Some(Offset::Beginning));
    }
}
