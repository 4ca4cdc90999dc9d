//! How far each partition is read.

use std::collections::BTreeMap;

use attribution::ledger::Position;

use crate::topic::{PerTopic, TopicKind, TopicNames};

/// The next offset of each partition that any was read of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offsets(PerTopic<BTreeMap<i32, i64>>);

impl Offsets {
    /// Those of the three topics; other topics' positions are left out.
    pub fn new(names: &TopicNames, positions: &[Position]) -> Self {
        let mut offsets = Self::default();
        for position in positions {
            if let Some(topic) = names.kind(&position.topic) {
                offsets.advance(topic, position.partition, position.next_offset);
            }
        }
        offsets
    }

    pub fn next(&self, topic: TopicKind, partition: i32) -> Option<i64> {
        self.0.of(topic).get(&partition).copied()
    }

    pub fn advance(&mut self, topic: TopicKind, partition: i32, next_offset: i64) {
        self.0.of_mut(topic).insert(partition, next_offset);
    }

    pub fn is_empty(&self) -> bool {
        TopicKind::ALL.into_iter().all(|topic| self.0.of(topic).is_empty())
    }

    pub fn iter(&self) -> impl Iterator<Item = (TopicKind, i32, i64)> {
        TopicKind::ALL.into_iter().flat_map(|topic| {
            self.0.of(topic).iter().map(move |(partition, next)| (topic, *partition, *next))
        })
    }

    pub fn positions(&self, names: &TopicNames) -> Vec<Position> {
        let position = |(topic, partition, next_offset)| Position {
            topic: names.of(topic).clone(),
            partition,
            next_offset,
        };
        self.iter().map(position).collect()
    }
}
