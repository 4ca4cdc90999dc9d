//! Sets of partitions of the three topics.

use std::collections::{BTreeMap, BTreeSet};

use rdkafka::topic_partition_list::TopicPartitionList;

use super::topics::{PerTopic, TopicKind, TopicNames};
use super::watermarks::Watermarks;

/// The partitions that are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partitions(BTreeSet<(TopicKind, i32)>);

/// What the broker has of each partition.
pub type PartitionWatermarks = BTreeMap<(TopicKind, i32), Watermarks>;

impl Partitions {
    /// All of topics that have so many.
    pub fn all(counts: &PerTopic<usize>) -> Self {
        let of = |topic| (0..).take(*counts.of(topic)).map(move |partition| (topic, partition));
        Self(TopicKind::ALL.into_iter().flat_map(of).collect())
    }

    /// Those that a group gives.
    pub fn of_list(names: &TopicNames, list: &TopicPartitionList) -> Self {
        let elements = list.elements();
        let of = |(topic, partition): (&str, i32)| Some((names.kind(topic)?, partition));
        Self(elements.iter().filter_map(|given| of((given.topic(), given.partition()))).collect())
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
        self.iter().filter(|(of, _)| *of == topic).count()
    }
}
