//! Partitions that are not read on for the time being: others are.

use std::collections::{BTreeMap, VecDeque};

use metrics::{Gauge, describe_gauge, gauge};

use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};
use crate::registry::SchemaKey;

/// So many records of a partition, the last ones, are looked at for how many are bad.
const LAST_RECORDS: i64 = 10_000;

const HELD: &str = "adtrail_ingest_paused_partitions";

/// Why a partition is not read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseReason {
    /// Until the registry has said something about this schema.
    Schema(SchemaKey),
    /// Until the next start: too many of its records are bad.
    Bad,
}

/// What is held, by partition.
pub struct PausedPartitions {
    partitions: BTreeMap<(TopicKind, i32), PauseReason>,
    /// By reason: schema, bad.
    gauges: PerTopic<[Gauge; 2]>,
}

impl PausedPartitions {
    pub fn new(names: &TopicNames) -> Self {
        describe_gauge!(HELD, "Partitions that are not read on, by reason: schema, bad.");
        let gauges = PerTopic::from_fn(|topic| {
            ["schema", "bad"].map(|reason| {
                let gauge =
                    gauge!(HELD, "topic" => names.of(topic).to_string(), "reason" => reason);
                gauge.set(0.0);
                gauge
            })
        });
        Self { partitions: BTreeMap::new(), gauges }
    }

    pub fn holds(&self, topic: TopicKind, partition: i32) -> bool {
        !self.partitions.is_empty() && self.partitions.contains_key(&(topic, partition))
    }

    pub fn hold(&mut self, topic: TopicKind, partition: i32, hold: PauseReason) {
        self.partitions.insert((topic, partition), hold);
        self.show();
    }

    /// Others read them now.
    pub fn clear(&mut self) {
        self.partitions.clear();
        self.show();
    }

    /// Lets those go on whose schema is settled; whether there are any.
    pub fn resume(&mut self, mut is_settled: impl FnMut(SchemaKey) -> bool) -> bool {
        let before = self.partitions.len();
        self.partitions.retain(|_, hold| match hold {
            PauseReason::Schema(key) => !is_settled(*key),
            PauseReason::Bad => true,
        });
        let any = self.partitions.len() < before;
        if any {
            self.show();
        }
        any
    }

    fn show(&self) {
        for topic in TopicKind::ALL {
            let mut counts = [0_u32; 2];
            for ((of, _), hold) in &self.partitions {
                if *of == topic {
                    counts[usize::from(*hold == PauseReason::Bad)] += 1;
                }
            }
            let gauges = self.gauges.of(topic).iter().zip(counts);
            gauges.for_each(|(gauge, count)| gauge.set(f64::from(count)));
        }
    }
}

/// Counts bad records among the last ones of each partition.
#[derive(Debug, Default)]
pub struct BadRecordLimiter {
    bad_max: usize,
    /// Offsets of bad records, by partition.
    bad: BTreeMap<(TopicKind, i32), VecDeque<i64>>,
}

impl BadRecordLimiter {
    pub fn new(bad_max: usize) -> Self {
        Self { bad_max, bad: BTreeMap::new() }
    }

    /// Takes a bad record, unless it is one too many. Those that are read again count once.
    pub fn takes(&mut self, topic: TopicKind, partition: i32, offset: i64) -> bool {
        let bad = self.bad.entry((topic, partition)).or_default();
        while bad.back().is_some_and(|newest| *newest >= offset) {
            bad.pop_back();
        }
        while bad.front().is_some_and(|oldest| *oldest <= offset - LAST_RECORDS) {
            bad.pop_front();
        }
        let takes = bad.len() < self.bad_max || self.bad_max >= LAST_RECORDS as usize;
        if takes {
            bad.push_back(offset);
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_record_too_many_is_not_taken() {
        let mut breaker = BadRecordLimiter::new(2);
        let mut takes = |partition, offset| breaker.takes(TopicKind::Clicks, partition, offset);
        assert!(takes(0, 5) && takes(0, 9_000));
        assert!(takes(1, 9_001));
        assert!(!takes(0, 10_004));
        assert!(takes(0, 10_005));
        assert!(!takes(0, 10_006));
    }

    #[test]
    fn what_is_read_again_counts_once() {
        let mut breaker = BadRecordLimiter::new(3);
        let mut takes = |offset| breaker.takes(TopicKind::Clicks, 0, offset);
        for _ in 0..5 {
            assert!(takes(10) && takes(20) && takes(30));
        }
        assert!(!takes(40));
        // From further back, too.
        assert!(takes(5) && takes(10) && takes(20));
        assert!(!takes(30));
    }

    #[test]
    fn it_can_be_off_or_forbid_every_bad_record() {
        let mut off = BadRecordLimiter::new(10_000);
        assert!((0..30_000).all(|offset| off.takes(TopicKind::Effects, 0, offset)));
        assert!(!BadRecordLimiter::new(0).takes(TopicKind::Effects, 0, 0));
    }

    #[test]
    fn what_is_settled_goes_on() {
        let names = TopicNames::from_fn(|topic| topic.setting().into());
        let mut held = PausedPartitions::new(&names);
        held.hold(TopicKind::Clicks, 0, PauseReason::Schema(SchemaKey::Id(1)));
        held.hold(TopicKind::Clicks, 1, PauseReason::Schema(SchemaKey::Id(2)));
        held.hold(TopicKind::Effects, 0, PauseReason::Bad);
        assert!(!held.resume(|_| false));
        assert!(held.resume(|key| key == SchemaKey::Id(2)));
        let holds = |topic, partition| held.holds(topic, partition);
        assert!(holds(TopicKind::Clicks, 0) && !holds(TopicKind::Clicks, 1));
        assert!(holds(TopicKind::Effects, 0) && !holds(TopicKind::Effects, 1));
    }
}
