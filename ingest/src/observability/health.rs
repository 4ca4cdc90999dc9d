//! Health of the intake: connection, readiness, lag, and up to when exports are complete.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use attribution::facts::event::EventTime;
use dashmap::DashMap;
use parking_lot::Mutex;
use rdkafka::error::KafkaResult;

use super::partition_progress::Partition;
use crate::kafka::offsets::Offsets;
use crate::kafka::partitions::{PartitionWatermarks, Watermarks};
use crate::kafka::topics::{PerTopic, TopicKind};

/// A reading thread that has not reported for this long hangs.
const SILENT_AFTER: Duration = Duration::from_secs(60);

/// State that the reading thread writes, and that probes and metrics read.
#[derive(Debug, Default)]
pub struct Health {
    connected: AtomicBool,
    assigned: AtomicBool,
    registry_down: AtomicBool,
    dead_letters_waiting: AtomicBool,
    refusal: Mutex<Option<String>>,
    /// Topics that may not be read, by name.
    denied: Mutex<BTreeMap<TopicKind, String>>,
    /// When the last record was read, in milliseconds since 1970; 0 if none was read yet.
    last_message_ms: AtomicU64,
    /// When the reading thread last reported its progress.
    reported_at: Mutex<Option<Instant>>,
    partitions: DashMap<(TopicKind, i32), Partition>,
    /// Number of partitions of each topic, including those of other group members; 0 while unknown.
    counts: PerTopic<AtomicUsize>,
}

impl Health {
    /// Returns true if the brokers answer.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Returns the reason if a broker refused the connection and no other connection is established.
    pub fn refusal(&self) -> Option<String> {
        let refusal = self.refusal.lock();
        refusal.clone().filter(|_| !self.is_connected())
    }

    /// Returns true if partitions are assigned and being read.
    pub fn is_assigned(&self) -> bool {
        self.assigned.load(Ordering::Relaxed)
    }

    /// Returns true if records wait for schemas of a registry that does not answer.
    pub fn is_registry_down(&self) -> bool {
        self.registry_down.load(Ordering::Relaxed)
    }

    /// Returns true if the reading thread has not reported for a minute.
    pub fn is_silent(&self) -> bool {
        self.reported_at.lock().is_some_and(|reported_at| reported_at.elapsed() > SILENT_AFTER)
    }

    /// Returns true if nothing prevents reading any partition.
    pub fn is_ready(&self) -> bool {
        self.is_connected()
            && self.is_assigned()
            && !self.is_registry_down()
            && !self.is_silent()
            && !self.are_dead_letters_waiting()
            && self.denied.lock().is_empty()
    }

    /// Returns true if reading waits for dead letters that are not acknowledged.
    pub fn are_dead_letters_waiting(&self) -> bool {
        self.dead_letters_waiting.load(Ordering::Relaxed)
    }

    /// Returns the names of the topics without read permission.
    pub fn denied(&self) -> Option<String> {
        let denied = self.denied.lock();
        let names: Vec<&str> = denied.values().map(String::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Returns when the last record was read, in milliseconds since 1970.
    pub fn last_message_ms(&self) -> Option<u64> {
        Some(self.last_message_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0)
    }

    /// Returns the number of records of the topic that are not committed yet.
    pub fn lag_messages(&self, topic: TopicKind) -> u64 {
        let of_topic = self.partitions.iter().filter(|partition| partition.key().0 == topic);
        let known = of_topic.map(|partition| partition.lag_messages()).sum();
        // The lag of a denied topic is unknown, and must not appear as 0.
        if self.is_denied(topic) { u64::max(known, 1) } else { known }
    }

    /// Returns an upper bound of the time since the broker received the next record of the partition that is furthest
    /// behind; 0 if everything is committed.
    pub fn lag_ms(&self, topic: TopicKind, now_ms: u64) -> u64 {
        let is_denied = self.is_denied(topic);
        let of_topic = self.partitions.iter_mut().filter(|partition| partition.key().0 == topic);
        of_topic.map(|mut partition| partition.lag_ms(now_ms, is_denied)).max().unwrap_or(0)
    }

    /// Returns the time before which everything that Kafka received is committed: the least of all partitions. `None`
    /// while it is unknown for any of them.
    pub fn complete_until(&self) -> Option<EventTime> {
        let least_ms = self.partitions.iter().map(|partition| partition.complete_ms).min()?;
        (least_ms > 0).then(|| EventTime::default().plus(least_ms))
    }

    /// Returns [`Health::complete_until`] of each single partition of this process for which it is known.
    pub fn complete(&self) -> Vec<(TopicKind, i32, EventTime)> {
        let known = self.partitions.iter().filter(|partition| partition.complete_ms > 0);
        known
            .map(|partition| {
                let (topic, number) = *partition.key();
                (topic, number, EventTime::default().plus(partition.complete_ms))
            })
            .collect()
    }

    /// Returns the number of partitions of a topic, including those of other group members; `None` while unknown.
    pub fn partition_count(&self, topic: TopicKind) -> Option<usize> {
        Some(self.counts.of(topic).load(Ordering::Relaxed)).filter(|count| *count > 0)
    }

    pub(crate) fn set_partition_count(&self, topic: TopicKind, count: usize) {
        self.counts.of(topic).store(count, Ordering::Relaxed);
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }

    pub(crate) fn set_refusal(&self, refusal: Option<String>) {
        *self.refusal.lock() = refusal;
    }

    pub(crate) fn set_registry_down(&self, is_down: bool) {
        self.registry_down.store(is_down, Ordering::Relaxed);
    }

    pub(crate) fn set_dead_letters_waiting(&self, are_waiting: bool) {
        self.dead_letters_waiting.store(are_waiting, Ordering::Relaxed);
    }

    pub(crate) fn is_denied(&self, topic: TopicKind) -> bool {
        self.denied.lock().contains_key(&topic)
    }

    /// Sets whether a topic may be read. Returns true if that has changed.
    pub(crate) fn set_denied(&self, topic: TopicKind, name: &str, is_denied: bool) -> bool {
        let mut denied = self.denied.lock();
        if is_denied {
            denied.insert(topic, name.to_owned()).is_none()
        } else {
            denied.remove(&topic).is_some()
        }
    }

    pub(crate) fn set_assigned(&self, assigned: bool) {
        self.assigned.store(assigned, Ordering::Relaxed);
    }

    pub(crate) fn record_message(&self) {
        self.last_message_ms.store(now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn record_report(&self) {
        *self.reported_at.lock() = Some(Instant::now());
    }

    /// Sets the broker time up to which a partition is read.
    pub(crate) fn set_read_until(&self, topic: TopicKind, partition: i32, until: EventTime) {
        let mut partition = self.partitions.entry((topic, partition)).or_default();
        partition.until_ms = partition.until_ms.max(until.millis());
    }

    /// Records that everything the broker received before `until_ms` is committed once all offsets before `next_offset`
    /// are.
    pub(crate) fn track_commit(
        &self,
        topic: TopicKind,
        partition: i32,
        next_offset: i64,
        until_ms: u64,
    ) {
        let mut partition = self.partitions.entry((topic, partition)).or_default();
        partition.track_commit(next_offset, until_ms);
    }

    pub(crate) fn set_watermarks(&self, topic: TopicKind, partition: i32, watermarks: Watermarks) {
        self.partitions.entry((topic, partition)).or_default().watermarks = Some(watermarks);
    }

    /// Fetches and stores the watermarks; returns none if the brokers do not answer, because fetching records then
    /// fails as well.
    pub(crate) fn update_watermarks(
        &self,
        find: impl FnOnce() -> KafkaResult<PartitionWatermarks>,
    ) -> PartitionWatermarks {
        let requested_ms = now_ms();
        match find() {
            Ok(all) => {
                for ((topic, partition), watermarks) in &all {
                    self.set_watermarks(*topic, *partition, *watermarks);
                    self.track_commit(*topic, *partition, watermarks.high, requested_ms);
                }
                self.record_report();
                all
            }
            Err(error) => {
                tracing::warn!(%error, "the watermarks of the partitions cannot be fetched");
                PartitionWatermarks::new()
            }
        }
    }

    pub(crate) fn set_committed(&self, offsets: &Offsets) {
        for (topic, partition, next_offset) in offsets.iter() {
            let mut partition = self.partitions.entry((topic, partition)).or_default();
            partition.committed = Some(next_offset);
            partition.update_complete();
        }
    }

    /// Forgets all partitions, after they were revoked.
    pub(crate) fn forget_partitions(&self) {
        self.partitions.clear();
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_lag_is_that_of_the_partition_furthest_behind() {
        let health = Health::default();
        let lag_ms = |now_ms| health.lag_ms(TopicKind::Clicks, now_ms);
        let at = |ms| EventTime::from_millis(ms).unwrap();
        health.set_watermarks(TopicKind::Clicks, 0, Watermarks { low: 0, high: 5 });
        health.set_watermarks(TopicKind::Clicks, 1, Watermarks { low: 0, high: 0 });
        health.set_watermarks(TopicKind::Effects, 0, Watermarks { low: 0, high: 9 });
        assert_eq!(lag_ms(10_000), 0, "nothing is known");
        assert_eq!(lag_ms(11_000), 1_000, "nothing was read since");
        health.set_read_until(TopicKind::Clicks, 0, at(10_500));
        health.set_read_until(TopicKind::Clicks, 1, at(7_000));
        assert_eq!(lag_ms(12_000), 1_500);
        let mut committed = Offsets::default();
        committed.set(TopicKind::Clicks, 0, 5);
        health.set_committed(&committed);
        assert_eq!(lag_ms(13_000), 0);
        health.set_watermarks(TopicKind::Clicks, 1, Watermarks { low: 0, high: 1 });
        assert_eq!(lag_ms(15_000), 2_000, "since everything was committed");
        assert_eq!(lag_ms(1_000), 0, "the clock was set back");
    }

    #[test]
    fn only_committed_records_are_complete() {
        let health = Health::default();
        let complete_ms = || health.complete_until().map(|until| until.millis());
        assert_eq!(complete_ms(), None);
        let commit = |next_offset| {
            let mut committed = Offsets::default();
            committed.set(TopicKind::Clicks, 0, next_offset);
            health.set_committed(&committed);
        };
        let track_commit =
            |topic, next_offset, until_ms| health.track_commit(topic, 0, next_offset, until_ms);
        track_commit(TopicKind::Clicks, 5, 1_000);
        track_commit(TopicKind::Effects, 0, 2_000);
        assert_eq!(complete_ms(), None, "five records are not committed");
        commit(4);
        assert_eq!(complete_ms(), None);
        commit(5);
        assert_eq!(complete_ms(), Some(1_000));
        track_commit(TopicKind::Clicks, 5, 3_000);
        assert_eq!(complete_ms(), Some(2_000), "the earlier time of the two topics");
        // When reading is far behind, the earliest tracked offset is reached first, however many follow.
        for request in 0..100 {
            track_commit(TopicKind::Clicks, 100 + request, 4_000 + request.unsigned_abs());
            track_commit(TopicKind::Effects, 0, 9_000);
        }
        commit(99);
        assert_eq!(complete_ms(), Some(3_000));
        commit(100);
        assert_eq!(complete_ms(), Some(4_000));
        commit(1_000);
        assert_eq!(complete_ms(), Some(4_099));
    }

    #[test]
    fn a_thread_that_hangs_is_not_ready() {
        let health = Health::default();
        health.set_connected(true);
        health.set_assigned(true);
        assert!(health.is_ready());
        health.record_report();
        assert!(health.is_ready());
        *health.reported_at.lock() =
            Instant::now().checked_sub(SILENT_AFTER + Duration::from_secs(1));
        assert!(!health.is_ready() && health.is_silent());
    }

    #[test]
    fn a_denied_topic_has_lag() {
        let health = Health::default();
        health.set_connected(true);
        health.set_assigned(true);
        health.set_watermarks(TopicKind::Clicks, 0, Watermarks { low: 0, high: 0 });
        let lag_ms = |now_ms| health.lag_ms(TopicKind::Clicks, now_ms);
        assert_eq!((lag_ms(10_000), health.lag_messages(TopicKind::Clicks)), (0, 0));
        assert!(health.set_denied(TopicKind::Clicks, "c", true) && !health.is_ready());
        assert_eq!((lag_ms(12_000), health.lag_messages(TopicKind::Clicks)), (2_000, 1));
        assert_eq!(health.denied().as_deref(), Some("c"));
        assert!(health.set_denied(TopicKind::Clicks, "c", false) && health.is_ready());
        assert_eq!((lag_ms(12_000), health.lag_messages(TopicKind::Clicks)), (0, 0));
    }

    #[test]
    fn lag_is_summed_by_topic() {
        let health = Health::default();
        let mut committed = Offsets::default();
        // A partition without watermarks has no lag.
        committed.set(TopicKind::Clicks, 9, 5);
        for (topic, partition, low, high, next) in [
            (TopicKind::Clicks, 0, 0, 5, None),
            (TopicKind::Clicks, 1, 0, 7, Some(7)),
            (TopicKind::Clicks, 2, 2, 10, None),
            (TopicKind::Clicks, 3, 2, 10, Some(4)),
            (TopicKind::Clicks, 4, 2, 10, Some(12)),
            (TopicKind::Effects, 0, 8, 10, Some(4)),
        ] {
            health.set_watermarks(topic, partition, Watermarks { low, high });
            next.into_iter().for_each(|next| committed.set(topic, partition, next));
        }
        health.set_committed(&committed);
        assert_eq!(health.lag_messages(TopicKind::Clicks), 5 + 8 + 6);
        assert_eq!(health.lag_messages(TopicKind::Effects), 2);
        assert_eq!(health.lag_messages(TopicKind::Activations), 0);
    }
}
