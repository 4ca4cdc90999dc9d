//! Sets of partitions of the three topics, and their watermarks.

use std::collections::{BTreeMap, BTreeSet};

use rdkafka::topic_partition_list::TopicPartitionList;

use super::topics::{PerTopic, TopicKind, TopicNames};

/// A set of partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partitions(BTreeSet<(TopicKind, i32)>);

/// The range of offsets of a partition that the broker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Offset of the oldest record.
    pub low: i64,
    /// Offset after the last record.
    pub high: i64,
}

/// The watermarks of each partition.
pub type PartitionWatermarks = BTreeMap<(TopicKind, i32), Watermarks>;

impl Partitions {
    /// Returns all partitions of topics with these partition counts.
    pub fn all(counts: &PerTopic<usize>) -> Self {
        let of_topic =
            |topic| (0..).take(*counts.of(topic)).map(move |partition| (topic, partition));
        Self(TopicKind::ALL.into_iter().flat_map(of_topic).collect())
    }

    /// Returns the partitions of an assignment. Other topics are left out.
    pub fn of_list(names: &TopicNames, list: &TopicPartitionList) -> Self {
        let elements = list.elements();
        let known = |(topic, partition): (&str, i32)| Some((names.kind(topic)?, partition));
        let elements = elements.iter().map(|element| (element.topic(), element.partition()));
        Self(elements.filter_map(known).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (TopicKind, i32)> {
        self.0.iter().copied()
    }

    pub fn contains(&self, topic: TopicKind, partition: i32) -> bool {
        self.0.contains(&(topic, partition))
    }

    pub fn count(&self, topic: TopicKind) -> usize {
        self.iter().filter(|(found, _)| *found == topic).count()
    }
}
