//! How far each partition is read, and a record of each by which it is known again.

use std::collections::BTreeMap;

use attribution::ledger::{Position, RecordFingerprint};

use super::topics::{PerTopic, TopicKind, TopicNames};

/// The next offset of each partition that any was read of, or that is to be read from there on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offsets(PerTopic<BTreeMap<i32, Read>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Read {
    next: i64,
    /// A record that was there when the topic was looked at last; it is kept with the position.
    mark: Option<RecordFingerprint>,
    /// A record that was read since, to be looked at next.
    candidate: Option<RecordFingerprint>,
    /// The last one that was read.
    last: Option<RecordFingerprint>,
}

impl Offsets {
    /// Those of the three topics; other topics' positions are left out.
    pub fn new(names: &TopicNames, positions: &[Position]) -> Self {
        let mut offsets = Self::default();
        for Position { topic, partition, next_offset, mark, last } in positions {
            if let Some(topic) = names.kind(topic) {
                offsets.put(topic, *partition, *next_offset, [*mark, *last]);
            }
        }
        offsets
    }

    pub fn next(&self, topic: TopicKind, partition: i32) -> Option<i64> {
        self.0.of(topic).get(&partition).map(|read| read.next)
    }

    /// By which the partition is known again.
    pub fn mark(&self, topic: TopicKind, partition: i32) -> Option<RecordFingerprint> {
        self.0.of(topic).get(&partition).and_then(|read| read.mark.or(read.candidate))
    }

    /// The last record that was read.
    pub fn last(&self, topic: TopicKind, partition: i32) -> Option<RecordFingerprint> {
        self.0.of(topic).get(&partition).and_then(|read| read.last)
    }

    /// Of each partition a record that nobody has looked at since it was read.
    pub fn candidates(&self) -> impl Iterator<Item = (TopicKind, i32, RecordFingerprint)> {
        self.all().filter_map(|(topic, partition, read)| Some((topic, partition, read.candidate?)))
    }

    /// A record was read. Where nobody would look at another before, the one before it is looked at once more: this
    /// one is of the same topic only if that one is still there.
    pub fn pass(&mut self, topic: TopicKind, partition: i32, mark: RecordFingerprint) {
        let next = mark.offset + 1;
        let read = Read { next, mark: None, candidate: None, last: None };
        let read = self.0.of_mut(topic).entry(partition).or_insert(read);
        read.next = next;
        let before = read.last.replace(mark);
        read.candidate.get_or_insert(before.unwrap_or(mark));
    }

    /// A partition is read up to here; its mark is looked at next, and then the last record.
    pub fn put(
        &mut self,
        topic: TopicKind,
        partition: i32,
        next: i64,
        [mark, last]: [Option<RecordFingerprint>; 2],
    ) {
        let read = Read { next, mark, candidate: mark.or(last), last };
        self.0.of_mut(topic).insert(partition, read);
    }

    /// Takes the other's partitions, in the place of its own.
    pub fn put_all(&mut self, other: &Self) {
        for topic in TopicKind::ALL {
            self.0.of_mut(topic).extend(other.0.of(topic));
        }
    }

    /// A candidate was looked at: it is there, or it is there no more, as records go. The next one is what
    /// was read last by now.
    pub fn settle(
        &mut self,
        topic: TopicKind,
        partition: i32,
        mark: RecordFingerprint,
        is_there: bool,
    ) {
        let read = self.0.of_mut(topic).get_mut(&partition);
        if let Some(read) = read.filter(|read| read.candidate == Some(mark)) {
            read.candidate = read.last.filter(|last| last.offset > mark.offset);
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
            last: self.last(topic, partition),
        };
        self.iter().map(position).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(offset: i64) -> RecordFingerprint {
        RecordFingerprint { offset, digest: offset as u64 }
    }

    fn candidates(offsets: &Offsets) -> Vec<i64> {
        offsets.candidates().map(|(_, _, mark)| mark.offset).collect()
    }

    #[test]
    fn after_the_first_record_since_a_look_the_last_is_looked_at() {
        let (topic, mut offsets) = (TopicKind::Clicks, Offsets::default());
        [3, 4, 5].into_iter().for_each(|offset| offsets.pass(topic, 0, mark(offset)));
        assert_eq!((candidates(&offsets), offsets.next(topic, 0)), (vec![3], Some(6)));
        offsets.settle(topic, 0, mark(3), true);
        assert_eq!((offsets.mark(topic, 0), candidates(&offsets)), (Some(mark(3)), vec![5]));
        offsets.pass(topic, 0, mark(6));
        assert_eq!((candidates(&offsets), offsets.last(topic, 0)), (vec![5], Some(mark(6))));
        offsets.settle(topic, 0, mark(5), true);
        offsets.settle(topic, 0, mark(6), true);
        // Nothing has come since.
        assert_eq!((offsets.mark(topic, 0), candidates(&offsets)), (Some(mark(6)), vec![]));
        // What comes now may be another topic's.
        [7, 8].into_iter().for_each(|offset| offsets.pass(topic, 0, mark(offset)));
        assert_eq!((offsets.mark(topic, 0), candidates(&offsets)), (Some(mark(6)), vec![6]));
        offsets.settle(topic, 0, mark(6), true);
        assert_eq!(candidates(&offsets), [8]);
    }

    #[test]
    fn what_is_kept_is_looked_at_before_reading() {
        let topic = TopicKind::Effects;
        let mut offsets = Offsets::default();
        offsets.put(topic, 2, 9, [Some(mark(4)), Some(mark(8))]);
        assert_eq!(candidates(&offsets), [4]);
        // It has expired.
        offsets.settle(topic, 2, mark(4), false);
        assert_eq!((offsets.mark(topic, 2), candidates(&offsets)), (Some(mark(8)), vec![8]));
        offsets.put(topic, 2, 9, [None, Some(mark(8))]);
        assert_eq!(candidates(&offsets), [8]);
    }
}
