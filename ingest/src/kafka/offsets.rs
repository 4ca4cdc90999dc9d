//! The next offset of each partition, with fingerprints of its records that detect a recreated topic.

use std::collections::BTreeMap;

use attribution::ledger::{Position, RecordFingerprint};

use super::topics::{PerTopic, TopicKind, TopicNames};

/// The next offset of each partition that is read, or from which reading starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offsets(PerTopic<BTreeMap<i32, PartitionOffset>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartitionOffset {
    next: i64,
    /// A record that the last check found unchanged; it is stored with the position.
    verified: Option<RecordFingerprint>,
    /// A record to check next.
    candidate: Option<RecordFingerprint>,
    /// The last record read.
    last: Option<RecordFingerprint>,
}

impl Offsets {
    /// Converts the positions of the three topics. Other topics are left out.
    pub fn new(names: &TopicNames, positions: &[Position]) -> Self {
        let mut offsets = Self::default();
        for Position { topic, partition, next_offset, known, last } in positions {
            if let Some(topic) = names.kind(topic) {
                offsets.restore(topic, *partition, *next_offset, *known, *last);
            }
        }
        offsets
    }

    pub fn next(&self, topic: TopicKind, partition: i32) -> Option<i64> {
        self.0.of(topic).get(&partition).map(|offset| offset.next)
    }

    /// Returns the record by which the topic is recognised after a restart.
    pub fn known(&self, topic: TopicKind, partition: i32) -> Option<RecordFingerprint> {
        self.0.of(topic).get(&partition).and_then(|offset| offset.verified.or(offset.candidate))
    }

    /// Returns the last record read.
    pub fn last(&self, topic: TopicKind, partition: i32) -> Option<RecordFingerprint> {
        self.0.of(topic).get(&partition).and_then(|offset| offset.last)
    }

    /// Returns, for each partition that has one, the record that must be checked next.
    pub fn candidates(&self) -> impl Iterator<Item = (TopicKind, i32, RecordFingerprint)> {
        self.all()
            .filter_map(|(topic, partition, offset)| Some((topic, partition, offset.candidate?)))
    }

    /// Advances the next offset past a record. If no check is pending, schedules one of the previous record: `record`
    /// belongs to the same topic only if the previous one still exists.
    pub fn advance(&mut self, topic: TopicKind, partition: i32, record: RecordFingerprint) {
        let next = record.offset + 1;
        let new = PartitionOffset { next, verified: None, candidate: None, last: None };
        let offset = self.0.of_mut(topic).entry(partition).or_insert(new);
        offset.next = next;
        let previous = offset.last.replace(record);
        offset.candidate.get_or_insert(previous.unwrap_or(record));
    }

    /// Moves the next offset ahead, past offsets that have no record.
    pub fn skip_to(&mut self, topic: TopicKind, partition: i32, next: i64) {
        if let Some(offset) = self.0.of_mut(topic).get_mut(&partition) {
            offset.next = next;
        }
    }

    /// Moves the next offset past a record that cannot be read, and so has no fingerprint.
    pub fn pass(&mut self, topic: TopicKind, partition: i32, next: i64) {
        if self.next(topic, partition).is_some() {
            self.skip_to(topic, partition, next);
        } else {
            self.set(topic, partition, next);
        }
    }

    /// Sets the next offset of a partition, without a known record.
    pub fn set(&mut self, topic: TopicKind, partition: i32, next: i64) {
        self.restore(topic, partition, next, None, None);
    }

    /// Sets the next offset of a partition, and schedules checks of its known record and then of its last one.
    pub fn restore(
        &mut self,
        topic: TopicKind,
        partition: i32,
        next: i64,
        known: Option<RecordFingerprint>,
        last: Option<RecordFingerprint>,
    ) {
        let offset = PartitionOffset { next, verified: known, candidate: known.or(last), last };
        self.0.of_mut(topic).insert(partition, offset);
    }

    /// Copies all partitions of `other`, replacing those that exist here.
    pub fn set_all(&mut self, other: &Self) {
        for topic in TopicKind::ALL {
            self.0.of_mut(topic).extend(other.0.of(topic));
        }
    }

    /// Applies the check of a candidate: if it is still present, it becomes the verified one; otherwise it has expired.
    /// The last record read becomes the next candidate.
    pub fn apply_check(
        &mut self,
        topic: TopicKind,
        partition: i32,
        record: RecordFingerprint,
        is_present: bool,
    ) {
        let offset = self.0.of_mut(topic).get_mut(&partition);
        if let Some(offset) = offset.filter(|offset| offset.candidate == Some(record)) {
            offset.candidate = offset.last.filter(|last| last.offset > record.offset);
            offset.verified =
                if is_present { Some(record) } else { offset.verified.filter(|of| *of != record) };
        }
    }

    pub fn is_empty(&self) -> bool {
        TopicKind::ALL.into_iter().all(|topic| self.0.of(topic).is_empty())
    }

    pub fn iter(&self) -> impl Iterator<Item = (TopicKind, i32, i64)> {
        self.all().map(|(topic, partition, offset)| (topic, partition, offset.next))
    }

    fn all(&self) -> impl Iterator<Item = (TopicKind, i32, &PartitionOffset)> {
        let of_topic = |topic| {
            self.0.of(topic).iter().map(move |(partition, offset)| (topic, *partition, offset))
        };
        TopicKind::ALL.into_iter().flat_map(of_topic)
    }

    pub fn positions(&self, names: &TopicNames) -> Vec<Position> {
        let position = |(topic, partition, next_offset)| Position {
            topic: names.of(topic).clone(),
            partition,
            next_offset,
            known: self.known(topic, partition),
            last: self.last(topic, partition),
        };
        self.iter().map(position).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: i64) -> RecordFingerprint {
        RecordFingerprint { offset, digest: offset as u64 }
    }

    fn candidates(offsets: &Offsets) -> Vec<i64> {
        offsets.candidates().map(|(_, _, candidate)| candidate.offset).collect()
    }

    #[test]
    fn the_first_record_after_a_check_is_checked_before_the_last_one() {
        let (topic, mut offsets) = (TopicKind::Clicks, Offsets::default());
        [3, 4, 5].into_iter().for_each(|offset| offsets.advance(topic, 0, record(offset)));
        assert_eq!((candidates(&offsets), offsets.next(topic, 0)), (vec![3], Some(6)));
        offsets.apply_check(topic, 0, record(3), true);
        assert_eq!((offsets.known(topic, 0), candidates(&offsets)), (Some(record(3)), vec![5]));
        offsets.advance(topic, 0, record(6));
        assert_eq!((candidates(&offsets), offsets.last(topic, 0)), (vec![5], Some(record(6))));
        offsets.apply_check(topic, 0, record(5), true);
        offsets.apply_check(topic, 0, record(6), true);
        // No record was read since.
        assert_eq!((offsets.known(topic, 0), candidates(&offsets)), (Some(record(6)), vec![]));
        // The following records may belong to a recreated topic.
        [7, 8].into_iter().for_each(|offset| offsets.advance(topic, 0, record(offset)));
        assert_eq!((offsets.known(topic, 0), candidates(&offsets)), (Some(record(6)), vec![6]));
        offsets.apply_check(topic, 0, record(6), true);
        assert_eq!(candidates(&offsets), [8]);
    }

    #[test]
    fn stored_records_are_checked_before_reading() {
        let topic = TopicKind::Effects;
        let mut offsets = Offsets::default();
        offsets.restore(topic, 2, 9, Some(record(4)), Some(record(8)));
        assert_eq!(candidates(&offsets), [4]);
        // The verified record has expired.
        offsets.apply_check(topic, 2, record(4), false);
        assert_eq!((offsets.known(topic, 2), candidates(&offsets)), (Some(record(8)), vec![8]));
        offsets.restore(topic, 2, 9, None, Some(record(8)));
        assert_eq!(candidates(&offsets), [8]);
    }
}
