//! Which partitions are read, and from where: the store's positions against what the broker has.

use std::collections::HashMap;
use std::time::Duration;

use attribution::ledger::RecordFingerprint;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use super::clients::Consumer;
use super::error::IngestError;
use super::offsets::Offsets;
use super::partitions::{PartitionWatermarks, Partitions};
use super::topics::{PerTopic, TopicKind, TopicNames};
use super::watermarks::Watermarks;

/// A look at the cluster takes at most this long.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the topics' partitions are not known.
#[derive(Debug)]
pub enum Unfound {
    /// The cluster answers that there is no such topic, which it does for a moment after one
    /// was created too.
    NoTopic(TopicKind),
    /// The cluster does not let us look at it.
    Denied(TopicKind),
    Unreachable(KafkaError),
}

/// Asks the cluster for the topics' partitions.
pub fn find_partitions(consumer: &Consumer, names: &TopicNames) -> Result<Partitions, Unfound> {
    let mut counts = PerTopic::default();
    for topic in TopicKind::ALL {
        let count = partition_count(consumer, names.of(topic)).map_err(|error| {
            if is_denial(&error) { Unfound::Denied(topic) } else { Unfound::Unreachable(error) }
        })?;
        *counts.of_mut(topic) = count.ok_or(Unfound::NoTopic(topic))?;
    }
    Ok(Partitions::all(&counts))
}

/// Whether Kafka's rules of who may do what are the reason.
pub fn is_denial(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed)
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

/// Asks the brokers for the oldest and the last offset of every partition, in one request each. A client
/// that reads only what is committed would be told where the first open transaction begins.
pub fn find_watermarks(
    looker: &Consumer,
    names: &TopicNames,
    partitions: &Partitions,
) -> KafkaResult<PartitionWatermarks> {
    let extents = fetch_watermarks(looker, names, partitions);
    if !extents.as_ref().is_ok_and(|extents| extents.len() == partitions.len()) {
        // It fetches nothing, and would not hear of leaders that have changed.
        let _ = find_partitions(looker, names);
    }
    extents
}

fn fetch_watermarks(
    consumer: &Consumer,
    names: &TopicNames,
    partitions: &Partitions,
) -> KafkaResult<PartitionWatermarks> {
    if partitions.is_empty() {
        return Ok(PartitionWatermarks::new());
    }
    let ends = |of: Offset| -> KafkaResult<HashMap<(String, i32), Offset>> {
        let asked = list(names, partitions, |_, _| of)?;
        Ok(consumer.offsets_for_times(asked, LOOK_TIMEOUT)?.to_topic_map())
    };
    let (lows, highs) = (ends(Offset::Beginning)?, ends(Offset::End)?);
    let mut extents = PartitionWatermarks::new();
    for (topic, partition) in partitions.iter() {
        let key = (names.of(topic).to_string(), partition);
        if let (Some(Offset::Offset(low)), Some(Offset::Offset(high))) =
            (lows.get(&key), highs.get(&key))
        {
            extents.insert((topic, partition), Watermarks { low: *low, high: *high });
        }
    }
    Ok(extents)
}

/// Every partition that is not held, from its position, or from its beginning where none is known.
pub fn assignment(
    names: &TopicNames,
    partitions: &Partitions,
    offsets: &Offsets,
    is_held: impl Fn(TopicKind, i32) -> bool,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    let read = partitions.iter().filter(|(topic, partition)| !is_held(*topic, *partition));
    for (topic, partition) in read {
        let next = offsets.next(topic, partition);
        let next = next.map_or(Offset::Beginning, Offset::Offset);
        list.add_partition_offset(names.of(topic), partition, next)?;
    }
    Ok(list)
}

/// That every position can be read on from. Partitions whose extent is unknown pass: the broker
/// refuses a wrong offset when it is asked for it.
pub fn check(
    names: &TopicNames,
    partitions: &Partitions,
    extents: &PartitionWatermarks,
    offsets: &Offsets,
) -> Result<(), IngestError> {
    for (topic, partition, wanted) in offsets.iter() {
        let name = names.of(topic).clone();
        if !partitions.contains(topic, partition) {
            let partitions = partitions.count(topic);
            return Err(IngestError::PartitionGone { topic: name, partition, wanted, partitions });
        }
        match extents.get(&(topic, partition)) {
            Some(Watermarks { low, high }) if !(*low..=*high).contains(&wanted) => {
                let (low, high) = (*low, *high);
                return Err(IngestError::OutOfRange { topic: name, partition, wanted, low, high });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Records that the group was told of as committed and the store does not have: it is of an earlier moment,
/// or another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Kafka still has them.
    pub again: i64,
    /// Kafka may have had so many more, once: those before its oldest ones.
    pub gone: i64,
    /// In partitions of which the store has no position at all.
    pub unknown: i64,
}

/// What lies between the store's position of each partition and the group's. The group has none of a
/// partition that nothing was read of yet, so at the first start of all nothing is lost.
pub fn find_lost(
    partitions: &Partitions,
    told: &Offsets,
    ours: &Offsets,
    extents: &PartitionWatermarks,
) -> Lost {
    let mut lost = Lost::default();
    for (topic, partition) in partitions.iter() {
        let Some(told) = told.next(topic, partition) else { continue };
        let low = extents.get(&(topic, partition)).map_or(0, |extent| extent.low);
        let (from, gone) = match ours.next(topic, partition) {
            Some(next) => (next, 0),
            None => (low.min(told), low.min(told)),
        };
        lost.again += (told - from).max(0);
        lost.gone += gone;
        if ours.next(topic, partition).is_none() {
            lost.unknown += told;
        }
    }
    lost
}

/// The positions that the group has of partitions.
pub fn find_committed(
    consumer: &Consumer,
    names: &TopicNames,
    partitions: &Partitions,
) -> KafkaResult<Offsets> {
    let mut offsets = Offsets::default();
    if partitions.is_empty() {
        return Ok(offsets);
    }
    let asked = list(names, partitions, |_, _| Offset::Invalid)?;
    let committed = consumer.committed_offsets(asked, LOOK_TIMEOUT)?;
    for told in committed.elements() {
        told.error()?;
        if let (Some(topic), Offset::Offset(next)) = (names.kind(told.topic()), told.offset()) {
            offsets.put(topic, told.partition(), next, marks(told.metadata()));
        }
    }
    Ok(offsets)
}

/// What a position says of records that were read, as [`positions`] writes it.
fn marks(metadata: &str) -> [Option<RecordFingerprint>; 2] {
    let (looked_at, last) = metadata.split_once(' ').unwrap_or((metadata, ""));
    [looked_at, last].map(mark)
}

fn mark(text: &str) -> Option<RecordFingerprint> {
    let (offset, digest) = text.split_once(':')?;
    Some(RecordFingerprint {
        offset: offset.parse().ok()?,
        digest: u64::from_str_radix(digest, 16).ok()?,
    })
}

/// Positions, each with its marks.
pub fn positions(names: &TopicNames, offsets: &Offsets) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (topic, partition, next) in offsets.iter() {
        let mut told = list.add_partition(names.of(topic), partition);
        told.set_offset(Offset::Offset(next))?;
        let marks = [offsets.mark(topic, partition), offsets.last(topic, partition)];
        let marks = marks.into_iter().flatten();
        let marks: Vec<_> = marks
            .map(|RecordFingerprint { offset, digest }| format!("{offset}:{digest:016x}"))
            .collect();
        if !marks.is_empty() {
            told.set_metadata(marks.join(" "));
        }
    }
    Ok(list)
}

/// The partitions, each with an offset.
pub fn list(
    names: &TopicNames,
    partitions: &Partitions,
    offset: impl Fn(TopicKind, i32) -> Offset,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions.iter() {
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
        let partitions = Partitions::all(&PerTopic::from_fn(|_| 3));
        let extents =
            PartitionWatermarks::from([((TopicKind::Clicks, 0), Watermarks { low: 10, high: 20 })]);
        let mut offsets = Offsets::default();
        offsets.put(TopicKind::Clicks, partition, wanted, [None; 2]);
        check(&names(), &partitions, &extents, &offsets)
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

    /// One partition, of which the broker has 10 to 20.
    #[track_caller]
    fn check_lost(told: Option<i64>, ours: Option<i64>, expected: Lost) {
        let offsets = |next: Option<i64>| {
            let mut offsets = Offsets::default();
            next.into_iter().for_each(|next| offsets.put(TopicKind::Clicks, 0, next, [None; 2]));
            offsets
        };
        let partitions = Partitions::all(&PerTopic::from_fn(|_| 1));
        let extents =
            PartitionWatermarks::from([((TopicKind::Clicks, 0), Watermarks { low: 10, high: 20 })]);
        let lost = find_lost(&partitions, &offsets(told), &offsets(ours), &extents);
        assert_eq!(lost, expected, "{told:?} {ours:?}");
    }

    #[test]
    fn what_the_group_was_told_of_and_the_store_does_not_have_is_lost() {
        let lost = |again, gone, unknown| Lost { again, gone, unknown };
        check_lost(None, None, Lost::default());
        check_lost(None, Some(15), Lost::default());
        check_lost(Some(15), Some(15), Lost::default());
        check_lost(Some(14), Some(15), Lost::default());
        check_lost(Some(18), Some(15), lost(3, 0, 0));
        check_lost(Some(18), None, lost(8, 10, 18));
        check_lost(Some(7), None, lost(0, 7, 7));
        check_lost(Some(0), None, Lost::default());
    }

    #[test]
    fn unread_partitions_start_at_their_beginning() {
        let partitions = Partitions::all(&PerTopic::from_fn(|topic| match topic {
            TopicKind::Clicks => 2,
            _ => 1,
        }));
        let mut offsets = Offsets::default();
        offsets.put(TopicKind::Clicks, 1, 7, [None; 2]);
        let is_held = |topic, partition| (topic, partition) == (TopicKind::Effects, 0);
        let list = assignment(&names(), &partitions, &offsets, is_held).expect("valid offsets");
        let offset = |topic: &str, partition| {
            list.find_partition(topic, partition).map(|found| found.offset())
        };
        assert_eq!(list.count(), 3);
        assert_eq!(offset("kafka.clicks", 0), Some(Offset::Beginning));
        assert_eq!(offset("kafka.clicks", 1), Some(Offset::Offset(7)));
        assert_eq!(offset("kafka.activations", 0), Some(Offset::Beginning));
    }
}
