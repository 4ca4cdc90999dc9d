//! Checks that all records of an app arrive on the same partition number. They do if every record has the app's key,
//! all topics have the same number of partitions, and all producers use the same partitioner.
//!
//! The partitioner is unknown, so the check only compares the partitions of an app's records. After partitions are
//! added, an app may move to another partition while its older records stay, so two partitions alone are not a
//! mismatch. They are if both are used at the same time, by broker timestamps, for longer than producers take to learn
//! of new partitions. Then all records outside the app's majority partition count as mismatches, including those read
//! before the mismatch was detected.
//!
//! Memory is bounded: a few partitions per app.

use std::collections::HashMap;

use attribution::facts::event::Pid;

use crate::kafka::partitions::Partitions;
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};

/// Twice the interval at which producers refresh their metadata: five minutes in the Java client and in librdkafka.
const OVERLAP_MAX_MS: i64 = 10 * 60 * 1000;
/// Partitions counted separately per app. Any further partition replaces the one with the fewest records and takes over
/// its counts.
const PARTITIONS_PER_APP_MAX: usize = 4;

/// The partitions of every app's records, since the number of partitions last changed.
#[derive(Debug, Default)]
pub struct PartitionAffinity(HashMap<Pid, Vec<AppPartition>>);

/// An app's records with one partition number, in all topics.
#[derive(Debug)]
struct AppPartition {
    partition: i32,
    /// Range of the broker timestamps.
    first_ms: i64,
    last_ms: i64,
    records: u64,
    /// Records that were not reported as mismatches.
    unreported: PerTopic<u64>,
    /// Key of the newest record.
    key: Key,
}

/// The kind of a record's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Missing,
    App,
    Other,
}

/// Newly detected mismatches.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyMismatch {
    pub count: PerTopic<u64>,
    pub partition: i32,
    /// The partition with most of the app's records read so far. If partitions are read one after another, it can be
    /// the wrong one at first.
    pub majority: i32,
    /// The wrong kind of key that either partition has; `App` if neither has.
    key: Key,
}

impl PartitionAffinity {
    /// Counts a record of an app, and returns the mismatches that it reveals.
    pub fn observe(
        &mut self,
        pid: Pid,
        topic: TopicKind,
        partition: i32,
        broker_ms: i64,
        key: Key,
    ) -> Option<KeyMismatch> {
        // The first element is the majority partition.
        let partitions = self.0.entry(pid).or_default();
        if let [majority] = &mut partitions[..]
            && majority.partition == partition
        {
            majority.count(topic, broker_ms, key);
            return None;
        }
        let index = find_or_add(partitions, partition, broker_ms);
        let found = &mut partitions[index];
        found.count(topic, broker_ms, key);
        if found.records > partitions[0].records.saturating_mul(2) {
            partitions.swap(0, index);
        }
        take_mismatches(partitions)
    }

    /// Forgets all counts after partitions were added, because apps may move then.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl AppPartition {
    fn count(&mut self, topic: TopicKind, broker_ms: i64, key: Key) {
        self.key = key;
        self.first_ms = self.first_ms.min(broker_ms);
        self.last_ms = self.last_ms.max(broker_ms);
        self.records += 1;
        *self.unreported.of_mut(topic) += 1;
    }

    /// Returns true if each partition was used long after the first record of the other one. An app that moves never
    /// returns to its old partition.
    fn overlaps(&self, other: &Self) -> bool {
        let outlasts = |a: &Self, b: &Self| a.last_ms.saturating_sub(b.first_ms) > OVERLAP_MAX_MS;
        outlasts(self, other) && outlasts(other, self)
    }
}

fn find_or_add(partitions: &mut Vec<AppPartition>, partition: i32, broker_ms: i64) -> usize {
    if let Some(index) = partitions.iter().position(|found| found.partition == partition) {
        return index;
    }
    if partitions.len() < PARTITIONS_PER_APP_MAX {
        let (first_ms, last_ms, key) = (broker_ms, broker_ms, Key::App);
        let (records, unreported) = Default::default();
        partitions.push(AppPartition { partition, first_ms, last_ms, records, unreported, key });
        return partitions.len() - 1;
    }
    // The counts are kept, so that a partition with many records can outgrow those with few.
    let fewest = (1..partitions.len()).min_by_key(|index| partitions[*index].records).unwrap_or(0);
    partitions[fewest].partition = partition;
    fewest
}

/// Returns the unreported mismatches, and marks them as reported.
fn take_mismatches(partitions: &mut [AppPartition]) -> Option<KeyMismatch> {
    let (majority, others) = partitions.split_first_mut()?;
    let mut found: Option<KeyMismatch> = None;
    for other in others.iter_mut().filter(|other| other.overlaps(majority)) {
        let unreported = std::mem::take(&mut other.unreported);
        if unreported == PerTopic::default() {
            continue;
        }
        let mismatch = found.get_or_insert_with(|| KeyMismatch {
            count: PerTopic::default(),
            partition: other.partition,
            majority: majority.partition,
            key: if other.key == Key::App { majority.key } else { other.key },
        });
        for topic in TopicKind::ALL {
            *mismatch.count.of_mut(topic) += unreported.of(topic);
        }
    }
    found
}

impl Key {
    pub fn of(key: Option<&[u8]>, app: &str) -> Self {
        match key {
            None | Some([]) => Self::Missing,
            Some(key) if key == app.as_bytes() => Self::App,
            Some(_) => Self::Other,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Missing => "some have no message key; use the app's key for each",
            Self::Other => {
                "some have a message key other than the app's; use the app's key for each"
            }
            Self::App => {
                "use the same partitioner in all producers, and the same number of partitions for all three topics"
            }
        }
    }
}

impl KeyMismatch {
    pub fn warn(&self, app: &str, names: &TopicNames) {
        let Self { count, partition, majority, key } = self;
        let of_topic = |topic: &TopicKind| *count.of(*topic) > 0;
        let Some(topic) = TopicKind::ALL.into_iter().find(of_topic) else { return };
        tracing::warn!(
            topic = %names.of(topic),
            app,
            partition,
            majority,
            "records of an app arrive on another partition than most of its records: {}; exports are still correct",
            key.advice()
        );
    }
}

/// Warns if the topics have different numbers of partitions: an app's records are then on different partition numbers.
pub fn warn_of_counts(names: &TopicNames, partitions: &Partitions) {
    let counts = TopicKind::ALL.map(|topic| partitions.count(topic));
    if counts.iter().all(|count| *count == counts[0]) {
        return;
    }
    let counts =
        TopicKind::ALL.map(|topic| format!("{} {}", names.of(topic), partitions.count(topic)));
    tracing::warn!(
        partitions = counts.join(", "),
        "the three topics have different numbers of partitions, so that an app's records are on different \
         partition numbers: add partitions to the smaller topics; exports are still correct"
    );
}

#[cfg(test)]
mod tests {
    use TopicKind::{Activations, Clicks, Effects};

    use super::*;

    const MINUTE_MS: i64 = 60_000;

    /// Observes records of one app, each as partition and minute, and returns the number of mismatches.
    fn mismatches(
        affinity: &mut PartitionAffinity,
        records: impl IntoIterator<Item = (i32, i64)>,
    ) -> u64 {
        let mut total = 0;
        for (partition, minute) in records {
            let broker_ms = minute * MINUTE_MS;
            let found = affinity.observe(Pid(1), Clicks, partition, broker_ms, Key::App);
            total += found.map_or(0, |found| *found.count.of(Clicks));
        }
        total
    }

    #[track_caller]
    fn check(records: impl IntoIterator<Item = (i32, i64)>, expected: u64) {
        assert_eq!(mismatches(&mut PartitionAffinity::default(), records), expected);
    }

    fn records(partition: i32, minutes: std::ops::Range<i64>) -> impl Iterator<Item = (i32, i64)> {
        minutes.map(move |minute| (partition, minute))
    }

    fn interleaved(
        first: impl Iterator<Item = (i32, i64)>,
        second: impl Iterator<Item = (i32, i64)>,
    ) -> impl Iterator<Item = (i32, i64)> {
        first.zip(second).flat_map(|(first, second)| [first, second])
    }

    #[test]
    fn an_app_may_move_whatever_the_reading_order() {
        check(records(3, 0..100).chain(records(5, 100..200)), 0);
        check(records(5, 100..200).chain(records(3, 0..100)), 0);
        check(interleaved(records(3, 0..100), records(5, 100..200)), 0);
        check(records(3, 0..100).chain(records(5, 100..200)).chain(records(1, 200..300)), 0);
        // Producers learn of new partitions one after another.
        check(records(3, 0..110).chain(records(5, 100..200)), 0);
        check(interleaved(records(3, 0..110), records(5, 99..209)), 0);
    }

    #[test]
    fn two_partitions_used_at_the_same_time_are_a_mismatch() {
        check(records(3, 0..112).chain(records(5, 100..112)), 12);
        check(records(5, 100..112).chain(records(3, 0..112)), 12);
        check(records(3, 0..1000).chain((0..10).map(|n| (5, n * 100))), 10);
        check(interleaved(records(3, 0..100), records(5, 0..100)), 100);
    }

    #[test]
    fn a_single_mismatch_is_reported_after_the_app_has_stayed_on_its_partition() {
        let mut affinity = PartitionAffinity::default();
        assert_eq!(mismatches(&mut affinity, records(3, 0..50).chain([(5, 50)])), 0);
        assert_eq!(mismatches(&mut affinity, records(3, 50..61)), 0);
        assert_eq!(mismatches(&mut affinity, records(3, 61..62)), 1);
        assert_eq!(mismatches(&mut affinity, records(3, 62..99)), 0, "once");
    }

    #[test]
    fn the_majority_partition_has_most_records() {
        check([(5, 0)].into_iter().chain(records(3, 0..50)), 0);
        check([(5, 0)].into_iter().chain(records(3, 0..50)).chain([(5, 50)]), 2);
    }

    #[test]
    fn records_spread_over_all_partitions_are_mostly_mismatches() {
        let mut affinity = PartitionAffinity::default();
        let count = mismatches(&mut affinity, (0..10_000).map(|n| ((n % 64) as i32, n / 100)));
        assert!((8_000..10_000).contains(&count), "{count}");
        assert_eq!(affinity.0[&Pid(1)].len(), PARTITIONS_PER_APP_MAX);
        // A majority partition that comes late is found, too.
        let mut affinity = PartitionAffinity::default();
        assert_eq!(
            mismatches(&mut affinity, (0..64).map(|n| (n, 0)).chain(records(70, 0..10_000))),
            0
        );
        let count = mismatches(&mut affinity, [(5, 9_000)]);
        assert!((1..=64).contains(&count), "{count}");
    }

    #[test]
    fn apps_and_topics_are_counted_separately() {
        let mut affinity = PartitionAffinity::default();
        let mut observe = |pid, topic, partition, minute| {
            affinity.observe(Pid(pid), topic, partition, minute * MINUTE_MS, Key::Missing)
        };
        for minute in 0..50 {
            assert_eq!(observe(1, Clicks, 3, minute), None);
            assert_eq!(observe(2, Clicks, 4, minute), None);
        }
        for (topic, expected) in [(Effects, [0, 0, 1]), (Activations, [0, 1, 0])] {
            let mismatch = observe(1, topic, 4, 20).expect("both partitions are in use");
            assert_eq!((mismatch.partition, mismatch.majority), (4, 3));
            assert_eq!(TopicKind::ALL.map(|topic| *mismatch.count.of(topic)), expected);
        }
    }

    /// The result must not depend on which partition is read first, nor on the key of its first record.
    #[test]
    fn a_wrong_key_on_either_partition_is_reported() {
        for wrong in [Key::Missing, Key::Other] {
            for partitions in [[(3, Key::App), (5, wrong)], [(5, wrong), (3, Key::App)]] {
                let mut affinity = PartitionAffinity::default();
                affinity.observe(Pid(1), Clicks, partitions[0].0, 0, Key::App);
                let records = partitions.iter().flat_map(|on| (0..50).map(move |n| (on, n)));
                let reported: Vec<Key> = records
                    .filter_map(|((partition, key), minute)| {
                        let broker_ms = minute * MINUTE_MS;
                        Some(affinity.observe(Pid(1), Clicks, *partition, broker_ms, *key)?.key)
                    })
                    .collect();
                let are_wrong = reported.iter().all(|key| *key == wrong);
                assert!(!reported.is_empty() && are_wrong, "{reported:?}");
            }
        }
    }

    #[test]
    fn added_partitions_restart_the_comparison() {
        let mut affinity = PartitionAffinity::default();
        assert_eq!(mismatches(&mut affinity, records(3, 0..50)), 0);
        affinity.clear();
        assert_eq!(mismatches(&mut affinity, records(5, 0..50)), 0);
    }

    #[test]
    fn any_timestamp_is_accepted() {
        let mut affinity = PartitionAffinity::default();
        for broker_ms in [i64::MAX, 0, i64::MIN, -1] {
            for partition in [0, i32::MAX] {
                let _ = affinity.observe(Pid(1), Clicks, partition, broker_ms, Key::Missing);
            }
        }
    }

    #[test]
    fn a_key_is_missing_or_the_apps_key_or_another() {
        assert_eq!(Key::of(None, "app-x"), Key::Missing);
        assert_eq!(Key::of(Some(b""), "app-x"), Key::Missing);
        assert_eq!(Key::of(Some(b"app-x"), "app-x"), Key::App);
        assert_eq!(Key::of(Some(b"app-y"), "app-x"), Key::Other);
    }
}
