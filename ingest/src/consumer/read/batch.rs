//! Batches of facts, each with the positions after it.
//!
//! They are bounded by records, bytes and age. Time is an argument: nothing here reads a clock or waits.

use std::time::{Duration, Instant};

use attribution::facts::event::{EventTime, Fact};
use attribution::ledger::Progress;

use crate::decode::ErrorCode;
use crate::decode::event::Built;
use crate::kafka::offsets::Offsets;
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};
use crate::observability::value_counts::ValueCounts;

/// The facts and positions of one commit.
#[derive(Debug)]
pub struct Batch {
    /// In reading order.
    pub facts: Vec<Fact>,
    /// The next offset of every partition with records in the batch, and offset 0 of partitions whose reading starts.
    pub progress: Progress,
    pub intake: Intake,
    pub values: ValueCounts,
}

/// Counts of the records of a batch, by topic.
pub type Intake = PerTopic<TopicIntake>;

/// Counts of the records of one topic. Records that are neither empty nor dead-lettered are facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicIntake {
    pub read: u64,
    /// Bytes of the values.
    pub bytes: u64,
    pub empty: u64,
    /// Late records: their broker timestamp is further before the low watermark than allowed.
    pub late: u64,
    /// Newly detected records on another partition than most records of their app, including records of earlier
    /// batches.
    pub key_mismatches: u64,
    /// In the order of [`ErrorCode::ALL`].
    dead_lettered: [u64; ErrorCode::ALL.len()],
}

/// Location and size of a record.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    pub topic: TopicKind,
    pub partition: i32,
    pub offset: i64,
    pub bytes: usize,
}

/// Limits of a batch; the first one reached ends it.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub records_max: usize,
    pub bytes_max: usize,
    pub age_max: Duration,
}

/// A batch under construction.
#[derive(Debug)]
pub struct Accumulator {
    limits: Limits,
    facts: Vec<Fact>,
    offsets: Offsets,
    intake: Intake,
    values: ValueCounts,
    records: usize,
    bytes: usize,
    /// When its first record or beginning was added.
    since: Option<Instant>,
}

impl Accumulator {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            facts: Vec::new(),
            offsets: Offsets::default(),
            intake: Intake::default(),
            values: ValueCounts::default(),
            records: 0,
            bytes: 0,
            since: None,
        }
    }

    pub fn add_fact(&mut self, source: Source, built: Built, now: Instant) {
        self.count(source, now);
        self.values.add(&built);
        self.facts.push(built.fact);
    }

    /// Counts a record without a value.
    pub fn add_empty(&mut self, source: Source, now: Instant) {
        self.count(source, now).empty += 1;
    }

    /// Counts a record that became a dead letter.
    pub fn add_dead(&mut self, source: Source, code: ErrorCode, now: Instant) {
        self.count(source, now).dead_lettered[code as usize] += 1;
    }

    /// Adds bytes that the batch holds in addition to values: the keys and headers of dead letters.
    pub fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub fn count_late(&mut self, topic: TopicKind) {
        self.intake.of_mut(topic).late += 1;
    }

    pub fn count_key_mismatches(&mut self, count: &PerTopic<u64>) {
        for topic in TopicKind::ALL {
            self.intake.of_mut(topic).key_mismatches += count.of(topic);
        }
    }

    /// Adds the beginning of an unread partition, offset 0, so that it is committed as its position.
    pub fn add_beginning(&mut self, topic: TopicKind, partition: i32, now: Instant) {
        self.add_position(topic, partition, 0, now);
    }

    /// Adds a position without a record: the one after transaction markers, or the beginning of a partition.
    pub fn add_position(&mut self, topic: TopicKind, partition: i32, next: i64, now: Instant) {
        self.since.get_or_insert(now);
        self.offsets.set(topic, partition, next);
    }

    /// Returns true if there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub fn has_records(&self) -> bool {
        self.records > 0
    }

    pub fn is_full(&self) -> bool {
        self.records >= self.limits.records_max || self.bytes >= self.limits.bytes_max
    }

    /// Returns how long the batch may still wait for more records; `None` while it is empty.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.since?);
        Some(self.limits.age_max.saturating_sub(age))
    }

    /// Returns the batch, with `consumed_until` as the low watermark after it, and starts an empty one.
    pub fn finish(&mut self, names: &TopicNames, consumed_until: Option<EventTime>) -> Batch {
        let finished = std::mem::replace(self, Self::new(self.limits));
        self.facts.reserve(finished.facts.len());
        let progress = Progress { positions: finished.offsets.positions(names), consumed_until };
        let Self { facts, intake, values, .. } = finished;
        Batch { facts, progress, intake, values }
    }

    fn count(&mut self, source: Source, now: Instant) -> &mut TopicIntake {
        self.since.get_or_insert(now);
        self.records += 1;
        self.bytes += source.bytes;
        self.offsets.set(source.topic, source.partition, source.offset + 1);
        let intake = self.intake.of_mut(source.topic);
        intake.read += 1;
        intake.bytes += source.bytes as u64;
        intake
    }
}

impl TopicIntake {
    pub fn dead_lettered(&self, code: ErrorCode) -> u64 {
        self.dead_lettered[code as usize]
    }
}

#[cfg(test)]
mod tests {
    use attribution::ledger::Position;

    use super::*;

    const LIMITS: Limits =
        Limits { records_max: 3, bytes_max: 100, age_max: Duration::from_millis(200) };

    fn source(partition: i32, offset: i64, bytes: usize) -> Source {
        Source { topic: TopicKind::Clicks, partition, offset, bytes }
    }

    #[track_caller]
    fn check_full(sizes_bytes: &[usize], expected: bool) {
        let mut batch = Accumulator::new(LIMITS);
        for (offset, bytes) in (0..).zip(sizes_bytes) {
            batch.add_empty(source(0, offset, *bytes), Instant::now());
        }
        assert_eq!(batch.is_full(), expected, "{sizes_bytes:?}");
    }

    #[test]
    fn a_batch_is_full_by_bytes_that_are_not_values() {
        let mut batch = Accumulator::new(LIMITS);
        batch.add_dead(source(0, 0, 40), ErrorCode::NotJson, Instant::now());
        assert!(!batch.is_full());
        batch.add_bytes(60);
        assert!(batch.is_full());
    }

    #[test]
    fn a_batch_is_full_by_records_or_by_bytes() {
        check_full(&[], false);
        check_full(&[1, 1], false);
        check_full(&[1, 1, 1], true);
        check_full(&[99], false);
        check_full(&[100], true);
        check_full(&[60, 40], true);
    }

    #[test]
    fn a_batch_ages_from_its_first_record() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut batch = Accumulator::new(LIMITS);
        assert_eq!(batch.remaining(after(5_000)), None);
        batch.add_empty(source(0, 0, 1), start);
        batch.add_empty(source(0, 1, 1), after(150));
        assert_eq!(batch.remaining(after(150)), Some(Duration::from_millis(50)));
        assert_eq!(batch.remaining(after(200)), Some(Duration::ZERO));
        assert_eq!(batch.remaining(after(900)), Some(Duration::ZERO));
        batch.finish(&TopicNames::of_settings(), None);
        assert_eq!(batch.remaining(after(900)), None);
    }

    #[test]
    fn the_beginning_of_a_partition_is_committed_without_a_record() {
        let start = Instant::now();
        let mut batch = Accumulator::new(LIMITS);
        batch.add_beginning(TopicKind::Clicks, 2, start);
        assert!(!batch.is_empty() && !batch.has_records() && !batch.is_full());
        assert_eq!(batch.remaining(start + LIMITS.age_max), Some(Duration::ZERO));
        batch.add_beginning(TopicKind::Clicks, 3, start);
        batch.add_empty(source(2, 7, 0), start);
        let positions = batch.finish(&TopicNames::of_settings(), None).progress.positions;
        let next = |at: &Position| (at.partition, at.next_offset);
        assert_eq!(positions.iter().map(next).collect::<Vec<_>>(), [(2, 8), (3, 0)]);
        assert!(batch.is_empty());
    }
}
