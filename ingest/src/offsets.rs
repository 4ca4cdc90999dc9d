//! How far each partition is read, and a record of each by which it is known again.

use std::collections::BTreeMap;

use attribution::ledger::{Mark, Position};

use crate::topic::{PerTopic, TopicKind, TopicNames};

/// The next offset of each partition that any was read of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offsets(PerTopic<BTreeMap<i32, Read>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Read {
    next: i64,
    /// A record that was there when the topic was looked at last; it is kept with the position.
    mark: Option<Mark>,
    /// A record that was read since, to be looked at next.
    candidate: Option<Mark>,
}

impl Offsets {
    /// Those of the three topics; other topics' positions are left out.
    pub fn new(names: &TopicNames, positions: &[Position]) -> Self {
        let mut offsets = Self::default();
        for Position { topic, partition, next_offset, mark } in positions {
            if let Some(topic) = names.kind(topic) {
                offsets.put(topic, *partition, *next_offset, *mark);
            }
        }
        offsets
    }

    pub fn next(&self, topic: TopicKind, partition: i32) -> Option<i64> {
        self.0.of(topic).get(&partition).map(|read| read.next)
    }

    /// By which the partition is known again.
    pub fn mark(&self, topic: TopicKind, partition: i32) -> Option<Mark> {
        self.0.of(topic).get(&partition).and_then(|read| read.mark.or(read.candidate))
    }

    /// Marks that nobody has looked at since they were read.
    pub fn candidates(&self) -> impl Iterator<Item = (TopicKind, i32, Mark)> {
        self.all().filter_map(|(topic, partition, read)| Some((topic, partition, read.candidate?)))
    }

    /// A record was read.
    pub fn pass(
        &mut self,
        topic: TopicKind,
        partition: i32,
        offset: i64,
        digest: impl FnOnce() -> u64,
    ) {
        let read = Read { next: offset, mark: None, candidate: None };
        let read = self.0.of_mut(topic).entry(partition).or_insert(read);
        read.next = offset + 1;
        read.candidate.get_or_insert_with(|| Mark { offset, digest: digest() });
    }

    /// A partition is read up to here; the mark is looked at next.
    pub fn put(&mut self, topic: TopicKind, partition: i32, next: i64, mark: Option<Mark>) {
        self.0.of_mut(topic).insert(partition, Read { next, mark, candidate: mark });
    }

    /// Takes the other's partitions, in the place of its own.
    pub fn put_all(&mut self, other: &Self) {
        for topic in TopicKind::ALL {
            self.0.of_mut(topic).extend(other.0.of(topic));
        }
    }

    /// A candidate was looked at: it is there, or it is there no more, as records go.
    pub fn settle(&mut self, topic: TopicKind, partition: i32, mark: Mark, is_there: bool) {
        let read = self.0.of_mut(topic).get_mut(&partition);
        if let Some(read) = read.filter(|read| read.candidate == Some(mark)) {
            read.candidate = None;
            read.mark =
                if is_there { Some(mark) } else { read.mark.filter(|other| *other != mark) };
        }
    }

    pub fn is_empty(&self) -> bool {
        TopicKind::ALL.into_iter().all(|topic| self.0.of(topic).is_empty())
    }

    pub fn iter(&self) -> impl Iterator<Item = (TopicKind, i32, i64)> {
        self.all().map(|(topic, partition, read)| (topic, partition, read.next))
    }

    fn all(&self) -> impl Iterator<Item = (TopicKind, i32, &Read)> {
        let of =
            |topic| self.0.of(topic).iter().map(move |(partition, read)| (topic, *partition, read));
        TopicKind::ALL.into_iter().flat_map(of)
    }

    pub fn positions(&self, names: &TopicNames) -> Vec<Position> {
        let position = |(topic, partition, next_offset)| Position {
            topic: names.of(topic).clone(),
            partition,
            next_offset,
            mark: self.mark(topic, partition),
        };
        self.iter().map(position).collect()
    }
}
