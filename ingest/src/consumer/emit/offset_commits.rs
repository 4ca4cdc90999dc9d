//! Commits to the consumer group the offsets that are already durable in the store. With an embedded store they only
//! serve dashboards; with a shared store, group members resume from them.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use attribution::ledger::Position;
use rdkafka::consumer::{CommitMode, Consumer as _};

use crate::kafka::clients::{self, Consumer};
use crate::kafka::committed::{self, StoreName};
use crate::kafka::offsets::Offsets;
use crate::kafka::topics::TopicNames;
use crate::observability::health::Health;
use crate::timing::Timing;

pub struct OffsetCommitter {
    names: TopicNames,
    health: Arc<Health>,
    store: StoreName,
    store_commits: Receiver<Vec<Position>>,
    timing: Timing,
    /// Offsets that the store has committed and that are not sent to Kafka yet.
    pending: Offsets,
    /// Offsets sent to Kafka, possibly not acknowledged.
    sent: Offsets,
    sent_at: Option<Instant>,
    /// Number of emitted batches that the store has not committed yet.
    in_flight: usize,
    /// Number of batches in flight that were read before the last revocation; their offsets are ignored.
    stale_batches: usize,
}

impl OffsetCommitter {
    pub fn new(
        names: TopicNames,
        health: Arc<Health>,
        store: StoreName,
        store_commits: Receiver<Vec<Position>>,
        timing: Timing,
    ) -> Self {
        Self {
            names,
            health,
            store,
            store_commits,
            timing,
            pending: Offsets::default(),
            sent: Offsets::default(),
            sent_at: None,
            in_flight: 0,
            stale_batches: 0,
        }
    }

    /// Counts an emitted batch.
    pub fn add_in_flight(&mut self) {
        self.in_flight += 1;
    }

    /// Unless the partitions are lost, waits for the store to commit the batches in flight and commits their offsets to
    /// the group. The offsets of batches that the store commits later are ignored.
    pub fn on_revoke(&mut self, consumer: &Consumer, is_lost: bool) {
        if !is_lost {
            self.wait(|committer| committer.in_flight == 0);
            self.commit(consumer, CommitMode::Sync);
        }
        (self.pending, self.sent) = Default::default();
        self.stale_batches = self.in_flight;
    }

    /// Receives the offsets that the store has committed, and commits them to the group once per interval. Offsets
    /// whose commit failed are sent again.
    pub fn poll(&mut self, consumer: &Consumer) {
        while let Ok(positions) = self.store_commits.try_recv() {
            self.receive(&positions);
        }
        let interval = self.timing.offset_commit_interval;
        if self.sent_at.is_none_or(|sent_at| sent_at.elapsed() >= interval) {
            if consumer.context().take_commit_failed() {
                // Put unacknowledged offsets back; newer ones win.
                let sent = std::mem::take(&mut self.sent);
                let newer = std::mem::replace(&mut self.pending, sent);
                self.pending.set_all(&newer);
            }
            self.commit(consumer, CommitMode::Async);
        }
    }

    /// Receives the last positions until their sender is dropped, and commits them to the group.
    pub fn finish(mut self, consumer: &Consumer) {
        let until_disconnected = |_: &Self| false;
        self.wait(until_disconnected);
        let responses_before = consumer.context().commit_responses();
        if !self.commit(consumer, CommitMode::Async) {
            return;
        }
        let (start, timeout) = (Instant::now(), self.timing.shutdown_commit_ack_timeout);
        while consumer.context().commit_responses() == responses_before && start.elapsed() < timeout
        {
            // Records polled here are dropped. No offset beyond them is committed, so they are read again.
            let _ = clients::poll(consumer, Duration::from_millis(20));
        }
    }

    /// Receives positions until `is_done` returns true, the sender is dropped, or `drain_timeout` has passed.
    fn wait(&mut self, is_done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + self.timing.drain_timeout;
        while !is_done(self) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            match self.store_commits.recv_timeout(remaining) {
                Ok(positions) => self.receive(&positions),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return,
            }
        }
    }

    fn receive(&mut self, positions: &[Position]) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.stale_batches > 0 {
            self.stale_batches -= 1;
            return;
        }
        let committed = Offsets::new(&self.names, positions);
        self.health.set_committed(&committed);
        self.pending.set_all(&committed);
    }

    /// Commits the pending offsets to the group. Returns false if there are none.
    fn commit(&mut self, consumer: &Consumer, mode: CommitMode) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.sent_at = Some(Instant::now());
        config::crash_point!("offsets-to-commit");
        let pending = std::mem::take(&mut self.pending);
        self.sent.set_all(&pending);
        let result = committed::to_partition_list(&self.names, &pending, from_ref(&self.store))
            .and_then(|list| consumer.commit(&list, mode));
        if let Err(error) = result {
            consumer.context().record_commit_failure(&error);
        }
        config::crash_point!("offsets-committed");
        true
    }
}
