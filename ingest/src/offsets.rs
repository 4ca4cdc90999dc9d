//! How far each partition is read.

use std::collections::BTreeMap;

use attribution::ledger::{LastRead, Position};

use crate::topic::{PerTopic, TopicKind, TopicNames};

/// The next offset of each partition that any was read of, and what was read last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offsets(PerTopic<BTreeMap<i32, Read>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Read {
    next: i64,
    last: Option<LastRead>,
}

impl Offsets {
    /// Those of the three topics; other topics' positions are left out.
    pub fn new(names: &TopicNames, positions: &[Position]) -> Self {
        let mut offsets = Self::default();
        for Position { topic, partition, next_offset, last } in positions {
            if let Some(topic) = names.kind(topic) {
                let read = Read { next: *next_offset, last: *last };
                offsets.0.of_mut(topic).insert(*partition, read);
            }
        }
        offsets
    }

    pub fn next(&self, topic: TopicKind, partition: i32) -> Option<i64> {
        self.0.of(topic).get(&partition).map(|read| read.next)
    }

    /// The record that was read last, where it is known and may be there yet.
    pub fn last(&self, topic: TopicKind, partition: i32) -> Option<LastRead> {
        self.0.of(topic).get(&partition)?.last
    }

    /// A record was read.
    pub fn pass(&mut self, topic: TopicKind, partition: i32, last: LastRead) {
        let read = Read { next: last.offset + 1, last: Some(last) };
        self.0.of_mut(topic).insert(partition, read);
    }

    pub fn advance(&mut self, topic: TopicKind, partition: i32, next: i64) {
        self.0.of_mut(topic).insert(partition, Read { next, last: None });
    }

    /// Nobody looks any more at what was read last, where that is so.
    pub fn forget_last(&mut self, is_gone: impl Fn(TopicKind, i32, LastRead) -> bool) {
        for topic in TopicKind::ALL {
            for (partition, read) in self.0.of_mut(topic) {
                read.last.take_if(|last| is_gone(topic, *partition, *last));
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        TopicKind::ALL.into_iter().all(|topic| self.0.of(topic).is_empty())
    }

    pub fn iter(&self) -> impl Iterator<Item = (TopicKind, i32, i64)> {
        TopicKind::ALL.into_iter().flat_map(|topic| {
            self.0.of(topic).iter().map(move |(partition, read)| (topic, *partition, read.next))
        })
    }

    pub fn positions(&self, names: &TopicNames) -> Vec<Position> {
        let position = |(topic, partition, next_offset)| Position {
            topic: names.of(topic).clone(),
            partition,
            next_offset,
            last: self.last(topic, partition),
        };
        self.iter().map(position).collect()
    }
}
