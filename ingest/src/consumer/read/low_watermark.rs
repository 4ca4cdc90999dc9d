//! The low watermark: the broker time up to which every partition is consumed. State expires by it.
//!
//! A partition's watermark is the least broker timestamp of its records in the last batch, because producers may stamp
//! records out of order. It never decreases, and is never later than this machine's clock, because a timestamp may be
//! wrong by years. For partitions without records the end offset is fetched regularly: once such a partition is
//! consumed up to this offset, its watermark becomes the highest one that any partition had when the offset was
//! fetched.

use std::collections::BTreeMap;

use attribution::facts::event::EventTime;
use attribution::rules::expiry::DISORDER_MS;

use crate::kafka::partitions::{PartitionWatermarks, Partitions};
use crate::kafka::topics::TopicKind;

#[derive(Debug, Default)]
pub struct LowWatermark {
    partitions: BTreeMap<(TopicKind, i32), Partition>,
    /// The highest watermark of any partition.
    newest: Option<EventTime>,
    /// The least watermark of all partitions after the last batch.
    until: Option<EventTime>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Partition {
    until: Option<EventTime>,
    /// The least broker timestamp of the unfinished batch.
    least_ms: Option<i64>,
    /// The end offset of the partition, and the highest watermark of any partition before the offset was fetched.
    end: Option<(i64, EventTime)>,
}

impl LowWatermark {
    /// Continues from the watermark of an earlier run.
    pub fn new(until: Option<EventTime>) -> Self {
        Self { newest: until, until, ..Self::default() }
    }

    pub fn set_partitions(&mut self, partitions: &Partitions) {
        for partition in partitions.iter() {
            self.partitions.entry(partition).or_default();
        }
    }

    /// Records a broker timestamp. Returns true if the record is late: so far before the low watermark that state
    /// which it needs may have expired.
    pub fn observe(&mut self, topic: TopicKind, partition: i32, broker_ms: i64) -> bool {
        let partition = self.partitions.entry((topic, partition)).or_default();
        partition.least_ms = Some(partition.least_ms.map_or(broker_ms, |ms| ms.min(broker_ms)));
        let allowed_ms = self.until.map_or(0, |until| until.minus(DISORDER_MS).millis());
        u64::try_from(broker_ms).unwrap_or(0) < allowed_ms
    }

    /// Records the end offsets that the brokers report.
    pub fn set_ends(&mut self, watermarks: &PartitionWatermarks) {
        let Some(newest) = self.newest else { return };
        for (partition, watermarks) in watermarks {
            if let Some(partition) = self.partitions.get_mut(partition) {
                partition.end = Some((watermarks.high, newest));
            }
        }
    }

    /// Records that a partition is consumed up to `next_offset`.
    pub fn set_consumed(&mut self, topic: TopicKind, partition: i32, next_offset: i64) {
        let Some(partition) = self.partitions.get_mut(&(topic, partition)) else { return };
        if let Some((_, newest)) = partition.end.take_if(|(end, _)| next_offset >= *end) {
            partition.until = partition.until.max(Some(newest));
        }
    }

    /// Returns the watermark of each partition for which it is known.
    pub fn of_partitions(&self) -> impl Iterator<Item = ((TopicKind, i32), EventTime)> {
        let partitions = self.partitions.iter();
        partitions.filter_map(|(partition, low_watermark)| Some((*partition, low_watermark.until?)))
    }

    /// Forgets the end offsets, which are outdated once partitions are assigned again.
    pub fn forget_ends(&mut self) {
        self.partitions.values_mut().for_each(|partition| partition.end = None);
    }

    /// Ends the batch, and returns the low watermark after it; `None` while the watermark of any partition is unknown.
    pub fn finish_batch(&mut self, now: EventTime) -> Option<EventTime> {
        for partition in self.partitions.values_mut() {
            let now_ms = i64::try_from(now.millis()).unwrap_or(i64::MAX);
            let least_ms = partition.least_ms.take().map(|least_ms| least_ms.min(now_ms));
            partition.until = partition.until.max(least_ms.and_then(EventTime::from_millis));
        }
        let all = || self.partitions.values().map(|partition| partition.until);
        self.newest = self.newest.max(all().max().flatten());
        self.until = self.until.max(all().min().flatten());
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::partitions::Watermarks;
    use crate::kafka::topics::PerTopic;
    use TopicKind::{Activations, Clicks};

    const NOW: i64 = 1_773_144_000_000;

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis).unwrap()
    }

    fn clicks_and_activations() -> Partitions {
        Partitions::all(&PerTopic::from_fn(|topic| usize::from(topic != TopicKind::Effects)))
    }

    /// One partition of clicks, one of activations.
    fn two_partitions() -> LowWatermark {
        let mut low_watermark = LowWatermark::default();
        low_watermark.set_partitions(&clicks_and_activations());
        low_watermark
    }

    fn finish(low_watermark: &mut LowWatermark) -> Option<i64> {
        let until = low_watermark.finish_batch(at(NOW))?;
        i64::try_from(until.millis()).ok()
    }

    #[test]
    fn the_slowest_partition_determines_the_watermark() {
        let mut low_watermark = two_partitions();
        low_watermark.observe(Clicks, 0, 5_000);
        assert_eq!(finish(&mut low_watermark), None, "nothing is known of activations");
        low_watermark.observe(Activations, 0, 3_000);
        assert_eq!(finish(&mut low_watermark), Some(3_000));
        low_watermark.observe(Clicks, 0, 9_000);
        assert_eq!(finish(&mut low_watermark), Some(3_000));
        low_watermark.observe(Activations, 0, 7_000);
        low_watermark.observe(Activations, 0, 8_000);
        assert_eq!(finish(&mut low_watermark), Some(7_000), "the least of the batch");
        low_watermark.observe(Activations, 0, 100);
        assert_eq!(finish(&mut low_watermark), Some(7_000), "it never decreases");
    }

    #[test]
    fn no_watermark_is_in_the_future() {
        let mut low_watermark = two_partitions();
        low_watermark.observe(Clicks, 0, i64::MAX);
        low_watermark.observe(Activations, 0, NOW + 1);
        assert_eq!(finish(&mut low_watermark), Some(NOW));
        let mut low_watermark = two_partitions();
        low_watermark.observe(Clicks, 0, -1);
        low_watermark.observe(Activations, 0, NOW);
        assert_eq!(finish(&mut low_watermark), None, "a time before 1970 is invalid");
    }

    fn watermarks(high: i64) -> PartitionWatermarks {
        PartitionWatermarks::from([((Activations, 0), Watermarks { low: 0, high })])
    }

    #[test]
    fn a_partition_at_its_end_has_the_highest_watermark_when_the_end_was_fetched() {
        let mut low_watermark = two_partitions();
        low_watermark.set_ends(&watermarks(0));
        low_watermark.set_consumed(Activations, 0, 0);
        low_watermark.observe(Clicks, 0, 5_000);
        assert_eq!(
            finish(&mut low_watermark),
            None,
            "no watermark was known when the end was fetched"
        );
        low_watermark.set_ends(&watermarks(2));
        low_watermark.observe(Clicks, 0, 6_000);
        low_watermark.set_consumed(Activations, 0, 1);
        assert_eq!(finish(&mut low_watermark), None, "one record is left");
        low_watermark.set_consumed(Activations, 0, 2);
        assert_eq!(finish(&mut low_watermark), Some(5_000));
        low_watermark.set_ends(&watermarks(2));
        low_watermark.forget_ends();
        low_watermark.set_consumed(Activations, 0, 2);
        assert_eq!(finish(&mut low_watermark), Some(5_000));
    }

    #[test]
    fn the_watermark_continues_after_a_restart() {
        let mut low_watermark = LowWatermark::new(Some(at(5_000)));
        low_watermark.set_partitions(&clicks_and_activations());
        low_watermark.set_ends(&watermarks(3));
        low_watermark.observe(Clicks, 0, 9_000);
        assert_eq!(finish(&mut low_watermark), Some(5_000));
        low_watermark.set_consumed(Activations, 0, 3);
        assert_eq!(finish(&mut low_watermark), Some(5_000));
        low_watermark.set_ends(&watermarks(3));
        low_watermark.set_consumed(Activations, 0, 3);
        assert_eq!(finish(&mut low_watermark), Some(9_000));
    }

    #[test]
    fn late_records_are_detected() {
        let disorder = i64::try_from(DISORDER_MS).unwrap();
        let mut low_watermark = two_partitions();
        for topic in [Clicks, Activations] {
            assert!(!low_watermark.observe(topic, 0, NOW));
        }
        finish(&mut low_watermark);
        assert!(!low_watermark.observe(Clicks, 0, NOW - disorder));
        assert!(low_watermark.observe(Clicks, 0, NOW - disorder - 1));
        assert!(low_watermark.observe(Clicks, 0, i64::MIN));
    }
}
