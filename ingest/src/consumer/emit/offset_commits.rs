//! Commits the offsets that the store has committed to Kafka's group. With an embedded store they are for dashboards
//! only; with a shared store, group members resume from them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use attribution::ledger::Position;
use rdkafka::consumer::{CommitMode, Consumer as _};

use crate::kafka::assignment;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::offsets::Offsets;
use crate::kafka::topics::TopicNames;
use crate::observability::health::Health;
use crate::timing::Timing;

pub struct Commits {
    names: TopicNames,
    health: Arc<Health>,
    committed: Receiver<Vec<Position>>,
    timing: Timing,
    /// Committed by the store, not sent to Kafka yet.
    pending: Offsets,
    /// Sent to Kafka, possibly not acknowledged.
    sent: Offsets,
    sent_at: Option<Instant>,
    /// Number of emitted batches that the store has not committed yet.
    in_flight: usize,
    /// How many of these were read before the last revocation: their offsets are ignored.
    revoked: usize,
}

impl Commits {
    pub fn new(
        names: TopicNames,
        health: Arc<Health>,
        committed: Receiver<Vec<Position>>,
        timing: Timing,
    ) -> Self {
        Self {
            names,
            health,
            committed,
            timing,
            pending: Offsets::default(),
            sent: Offsets::default(),
            sent_at: None,
            in_flight: 0,
            revoked: 0,
        }
    }

    /// Counts an emitted batch.
    pub fn add_in_flight(&mut self) {
        self.in_flight += 1;
    }

    /// Waits for the batches in flight and commits their offsets, unless the partitions are lost. Ignores the offsets
    /// of batches that the store commits later.
    pub fn on_revoke(&mut self, consumer: &Consumer, is_lost: bool) {
        if !is_lost {
            self.wait(|commits| commits.in_flight == 0);
            self.commit(consumer, CommitMode::Sync);
        }
        (self.pending, self.sent) = Default::default();
        self.revoked = self.in_flight;
    }

    /// Receives what the store has committed, and commits it to Kafka when the interval has passed. Offsets whose
    /// commit failed are sent again.
    pub fn serve(&mut self, consumer: &Consumer) {
        while let Ok(positions) = self.committed.try_recv() {
            self.receive(&positions);
        }
        let interval = self.timing.offset_commit_interval;
        if self.sent_at.is_none_or(|sent_at| sent_at.elapsed() >= interval) {
            if consumer.context().take_commit_failed() {
                let sent = std::mem::take(&mut self.sent);
                let newer = std::mem::replace(&mut self.pending, sent);
                self.pending.set_all(&newer);
            }
            self.commit(consumer, CommitMode::Async);
        }
    }

    /// Waits for the last positions, until their sender is dropped, and commits them.
    pub fn finish(mut self, consumer: &Consumer) {
        self.wait(|_| false);
        let answered = consumer.context().commits();
        if !self.commit(consumer, CommitMode::Async) {
            return;
        }
        let (start, patience) = (Instant::now(), self.timing.last_commit_ack_timeout);
        while consumer.context().commits() == answered && start.elapsed() < patience {
            // A record that is polled here is ignored; no position passes it.
            let _ = clients::poll(consumer, Duration::from_millis(20));
        }
    }

    /// Receives positions until `is_done`, the sender is dropped, or the time limit.
    fn wait(&mut self, is_done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + self.timing.last_positions_timeout;
        while !is_done(self) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            match self.committed.recv_timeout(remaining) {
                Ok(positions) => self.receive(&positions),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return,
            }
        }
    }

    fn receive(&mut self, positions: &[Position]) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.revoked > 0 {
            self.revoked -= 1;
            return;
        }
        let committed = Offsets::new(&self.names, positions);
        self.health.set_committed(&committed);
        self.pending.set_all(&committed);
    }

    /// Commits the pending offsets. Returns false if there are none.
    fn commit(&mut self, consumer: &Consumer, mode: CommitMode) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        self.sent_at = Some(Instant::now());
        config::crash_point!("offsets-to-commit");
        let pending = std::mem::take(&mut self.pending);
        self.sent.set_all(&pending);
        let outcome = assignment::positions(&self.names, &pending)
            .and_then(|list| consumer.commit(&list, mode));
        if let Err(error) = outcome {
            consumer.context().commit_failed(&error);
        }
        config::crash_point!("offsets-committed");
        true
    }
}
