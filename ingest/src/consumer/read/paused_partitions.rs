//! Partitions that are not read for now, while the others are, and the limit on bad records.

use std::collections::{BTreeMap, VecDeque};

use metrics::{Gauge, describe_gauge, gauge};

use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};
use crate::registry::SchemaKey;

/// Size of the window, in offsets of a partition, in which bad records are counted.
const WINDOW: i64 = 10_000;

const METRIC: &str = "adtrail_ingest_paused_partitions";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseReason {
    /// Paused until the registry has answered for this schema.
    Schema(SchemaKey),
    /// Paused until the next start: too many bad records.
    Bad,
}

impl PauseReason {
    pub fn log(self, topic: &str, partition: i32) {
        match self {
            Self::Schema(key) => {
                tracing::info!(%topic, partition, schema = %key, "waiting for the schema");
            }
            Self::Bad => tracing::error!(
                %topic,
                partition,
                "partition paused: more than ingest.bad_records_max of its last 10000 records are invalid; \
                 fix the producer or the settings, or raise the limit, and restart; the dead letters \
                 contain the errors"
            ),
        }
    }
}

/// The paused partitions, with their reasons.
pub struct PausedPartitions {
    partitions: BTreeMap<(TopicKind, i32), PauseReason>,
    /// In the order of the reasons: schema, bad.
    gauges: PerTopic<[Gauge; 2]>,
}

impl PausedPartitions {
    pub fn new(names: &TopicNames) -> Self {
        describe_gauge!(METRIC, "Paused partitions, by reason: schema, bad.");
        let gauges = PerTopic::from_fn(|topic| {
            ["schema", "bad"].map(|reason| {
                let gauge =
                    gauge!(METRIC, "topic" => names.of(topic).to_string(), "reason" => reason);
                gauge.set(0.0);
                gauge
            })
        });
        Self { partitions: BTreeMap::new(), gauges }
    }

    pub fn contains(&self, topic: TopicKind, partition: i32) -> bool {
        !self.partitions.is_empty() && self.partitions.contains_key(&(topic, partition))
    }

    pub fn pause(&mut self, topic: TopicKind, partition: i32, reason: PauseReason) {
        self.partitions.insert((topic, partition), reason);
        self.update_gauges();
    }

    /// Forgets all partitions, after they were revoked.
    pub fn clear(&mut self) {
        self.partitions.clear();
        self.update_gauges();
    }

    /// Resumes the partitions whose schema is resolved. Returns true if any was resumed.
    pub fn resume(&mut self, mut is_resolved: impl FnMut(SchemaKey) -> bool) -> bool {
        let before = self.partitions.len();
        self.partitions.retain(|_, reason| match reason {
            PauseReason::Schema(key) => !is_resolved(*key),
            PauseReason::Bad => true,
        });
        let has_resumed = self.partitions.len() < before;
        if has_resumed {
            self.update_gauges();
        }
        has_resumed
    }

    fn update_gauges(&self) {
        for topic in TopicKind::ALL {
            let mut counts = [0_u32; 2];
            for ((paused_topic, _), reason) in &self.partitions {
                if *paused_topic == topic {
                    counts[usize::from(*reason == PauseReason::Bad)] += 1;
                }
            }
            let gauges = self.gauges.of(topic).iter().zip(counts);
            gauges.for_each(|(gauge, count)| gauge.set(f64::from(count)));
        }
    }
}

/// Limits the bad records among the last [`WINDOW`] records of each partition.
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

    /// Counts a bad record, and returns false if it exceeds the limit. A record that is read again counts once.
    pub fn allows(&mut self, topic: TopicKind, partition: i32, offset: i64) -> bool {
        let bad = self.bad.entry((topic, partition)).or_default();
        while bad.back().is_some_and(|newest| *newest >= offset) {
            bad.pop_back();
        }
        while bad.front().is_some_and(|oldest| *oldest <= offset - WINDOW) {
            bad.pop_front();
        }
        let is_allowed = bad.len() < self.bad_max || self.bad_max >= WINDOW as usize;
        if is_allowed {
            bad.push_back(offset);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_record_above_the_limit_is_not_allowed() {
        let mut limiter = BadRecordLimiter::new(2);
        let mut allows = |partition, offset| limiter.allows(TopicKind::Clicks, partition, offset);
        assert!(allows(0, 5) && allows(0, 9_000));
        assert!(allows(1, 9_001));
        assert!(!allows(0, 10_004));
        assert!(allows(0, 10_005));
        assert!(!allows(0, 10_006));
    }

    #[test]
    fn records_that_are_read_again_count_once() {
        let mut limiter = BadRecordLimiter::new(3);
        let mut allows = |offset| limiter.allows(TopicKind::Clicks, 0, offset);
        for _ in 0..5 {
            assert!(allows(10) && allows(20) && allows(30));
        }
        assert!(!allows(40));
        // Reading again from an earlier offset counts each record once, too.
        assert!(allows(5) && allows(10) && allows(20));
        assert!(!allows(30));
    }

    #[test]
    fn the_limit_can_be_off_or_zero() {
        let mut off = BadRecordLimiter::new(10_000);
        assert!((0..30_000).all(|offset| off.allows(TopicKind::Effects, 0, offset)));
        assert!(!BadRecordLimiter::new(0).allows(TopicKind::Effects, 0, 0));
    }

    #[test]
    fn only_partitions_with_a_resolved_schema_resume() {
        let mut paused = PausedPartitions::new(&TopicNames::of_settings());
        paused.pause(TopicKind::Clicks, 0, PauseReason::Schema(SchemaKey::Id(1)));
        paused.pause(TopicKind::Clicks, 1, PauseReason::Schema(SchemaKey::Id(2)));
        paused.pause(TopicKind::Effects, 0, PauseReason::Bad);
        assert!(!paused.resume(|_| false));
        assert!(paused.resume(|key| key == SchemaKey::Id(2)));
        let is_paused = |topic, partition| paused.contains(topic, partition);
        assert!(is_paused(TopicKind::Clicks, 0) && !is_paused(TopicKind::Clicks, 1));
        assert!(is_paused(TopicKind::Effects, 0) && !is_paused(TopicKind::Effects, 1));
    }
}
