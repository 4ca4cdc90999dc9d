//! Up to which broker time every partition is consumed: state expires by it.
//!
//! Of a partition with records it is told by their broker timestamps: the least of each batch,
//! since producers may stamp records out of order, and never later than this machine's clock,
//! since one of them may be wrong by years. A partition without records is asked for its end now
//! and then: once it is consumed up to there, it is as far as any other was when it was asked.

use std::collections::BTreeMap;

use attribution::facts::event::EventTime;
use attribution::rules::expiry::DISORDER_MS;

use crate::kafka::partitions::{PartitionWatermarks, Partitions};
use crate::kafka::topics::TopicKind;

#[derive(Debug, Default)]
pub struct LowWatermark {
    partitions: BTreeMap<(TopicKind, i32), Partition>,
    /// The furthest of any partition.
    newest: Option<EventTime>,
    /// The least of all partitions, as it was handed on.
    until: Option<EventTime>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Partition {
    until: Option<EventTime>,
    /// The least broker timestamp of the batch under way.
    least_ms: Option<i64>,
    /// Its end, and how far the furthest partition was before it was asked for.
    end: Option<(i64, EventTime)>,
}

impl LowWatermark {
    /// Goes on from what was consumed before.
    pub fn new(until: Option<EventTime>) -> Self {
        Self { newest: until, until, ..Self::default() }
    }

    pub fn set_partitions(&mut self, partitions: &Partitions) {
        for partition in partitions.iter() {
            self.partitions.entry(partition).or_default();
        }
    }

    /// Takes a record's broker timestamp, and says whether it is so far behind what is consumed
    /// already that state which it needs may have expired.
    pub fn take(&mut self, topic: TopicKind, partition: i32, broker_ms: i64) -> bool {
        let partition = self.partitions.entry((topic, partition)).or_default();
        partition.least_ms = Some(partition.least_ms.map_or(broker_ms, |ms| ms.min(broker_ms)));
        let allowed_ms = self.until.map_or(0, |until| until.minus(DISORDER_MS).millis());
        u64::try_from(broker_ms).unwrap_or(0) < allowed_ms
    }

    /// Takes where the broker says that partitions end.
    pub fn ask(&mut self, extents: &PartitionWatermarks) {
        let Some(newest) = self.newest else { return };
        for (partition, extent) in extents {
            if let Some(partition) = self.partitions.get_mut(partition) {
                partition.end = Some((extent.high, newest));
            }
        }
    }

    /// A partition is consumed up to here.
    pub fn reach(&mut self, topic: TopicKind, partition: i32, next_offset: i64) {
        let Some(partition) = self.partitions.get_mut(&(topic, partition)) else { return };
        partition.end.take_if(|(end, newest)| {
            let is_reached = next_offset >= *end;
            if is_reached {
                partition.until = partition.until.max(Some(*newest));
            }
            is_reached
        });
    }

    /// Up to which broker time each partition is consumed, as far as it was heard of.
    pub fn of_partitions(&self) -> impl Iterator<Item = ((TopicKind, i32), EventTime)> {
        let partitions = self.partitions.iter();
        partitions.filter_map(|(partition, low_watermark)| Some((*partition, low_watermark.until?)))
    }

    /// Forgets what was asked: partitions are taken up anew, and what was heard of them is old.
    pub fn forget_ends(&mut self) {
        self.partitions.values_mut().for_each(|partition| partition.end = None);
    }

    /// How far all partitions are consumed with the batch under way; `None` while one of them has
    /// not been heard of.
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
    use crate::kafka::topics::PerTopic;
    use crate::kafka::watermarks::Watermarks;
    use TopicKind::{Activations, Clicks};

    const NOW: i64 = 1_773_144_000_000;

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis).unwrap()
    }

    fn clicks_and_activations() -> Partitions {
        Partitions::all(&PerTopic::from_fn(|topic| usize::from(topic != TopicKind::Effects)))
    }

    /// One partition of clicks, one of activations.
    fn two() -> LowWatermark {
        let mut low_watermark = LowWatermark::default();
        low_watermark.set_partitions(&clicks_and_activations());
        low_watermark
    }

    fn finish(low_watermark: &mut LowWatermark) -> Option<i64> {
        let until = low_watermark.finish_batch(at(NOW))?;
        i64::try_from(until.millis()).ok()
    }

    #[test]
    fn the_slowest_partition_tells() {
        let mut low_watermark = two();
        low_watermark.take(Clicks, 0, 5_000);
        assert_eq!(finish(&mut low_watermark), None, "nothing is known of activations");
        low_watermark.take(Activations, 0, 3_000);
        assert_eq!(finish(&mut low_watermark), Some(3_000));
        low_watermark.take(Clicks, 0, 9_000);
        assert_eq!(finish(&mut low_watermark), Some(3_000));
        low_watermark.take(Activations, 0, 7_000);
        low_watermark.take(Activations, 0, 8_000);
        assert_eq!(finish(&mut low_watermark), Some(7_000), "the least of a batch");
        low_watermark.take(Activations, 0, 100);
        assert_eq!(finish(&mut low_watermark), Some(7_000), "never back");
    }

    #[test]
    fn no_record_is_from_the_future() {
        let mut low_watermark = two();
        low_watermark.take(Clicks, 0, i64::MAX);
        low_watermark.take(Activations, 0, NOW + 1);
        assert_eq!(finish(&mut low_watermark), Some(NOW));
        let mut low_watermark = two();
        low_watermark.take(Clicks, 0, -1);
        low_watermark.take(Activations, 0, NOW);
        assert_eq!(finish(&mut low_watermark), None, "before 1970 is no time");
    }

    fn extents(high: i64) -> PartitionWatermarks {
        PartitionWatermarks::from([((Activations, 0), Watermarks { low: 0, high })])
    }

    #[test]
    fn a_partition_at_its_end_is_as_far_as_any_was_when_it_was_asked() {
        let mut low_watermark = two();
        low_watermark.ask(&extents(0));
        low_watermark.reach(Activations, 0, 0);
        low_watermark.take(Clicks, 0, 5_000);
        assert_eq!(finish(&mut low_watermark), None, "nothing was known when it was asked");
        low_watermark.ask(&extents(2));
        low_watermark.take(Clicks, 0, 6_000);
        low_watermark.reach(Activations, 0, 1);
        assert_eq!(finish(&mut low_watermark), None, "one record is left");
        low_watermark.reach(Activations, 0, 2);
        assert_eq!(finish(&mut low_watermark), Some(5_000));
        low_watermark.ask(&extents(2));
        low_watermark.forget_ends();
        low_watermark.reach(Activations, 0, 2);
        assert_eq!(finish(&mut low_watermark), Some(5_000));
    }

    #[test]
    fn it_goes_on_after_a_restart() {
        let mut low_watermark = LowWatermark::new(Some(at(5_000)));
        low_watermark.set_partitions(&clicks_and_activations());
        low_watermark.ask(&extents(3));
        low_watermark.take(Clicks, 0, 9_000);
        assert_eq!(finish(&mut low_watermark), Some(5_000));
        low_watermark.reach(Activations, 0, 3);
        assert_eq!(finish(&mut low_watermark), Some(5_000));
        low_watermark.ask(&extents(3));
        low_watermark.reach(Activations, 0, 3);
        assert_eq!(finish(&mut low_watermark), Some(9_000));
    }

    #[test]
    fn records_far_behind_are_noticed() {
        let disorder = i64::try_from(DISORDER_MS).unwrap();
        let mut low_watermark = two();
        for topic in [Clicks, Activations] {
            assert!(!low_watermark.take(topic, 0, NOW));
        }
        finish(&mut low_watermark);
        assert!(!low_watermark.take(Clicks, 0, NOW - disorder));
        assert!(low_watermark.take(Clicks, 0, NOW - disorder - 1));
        assert!(low_watermark.take(Clicks, 0, i64::MIN));
    }
}
