//! Positions that the store has committed, told to Kafka's group: for dashboards, where the store
//! keeps its own; else they are where its members go on.

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
    /// Committed by the store, not told to Kafka yet.
    untold: Offsets,
    /// Told, and by now perhaps taken.
    told: Offsets,
    told_at: Option<Instant>,
    /// Batches on their way.
    awaited: usize,
    /// Those of them that were read before the partitions were taken away.
    disowned: usize,
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
            untold: Offsets::default(),
            told: Offsets::default(),
            told_at: None,
            awaited: 0,
            disowned: 0,
        }
    }

    /// A batch is on its way: its positions come.
    pub fn expect(&mut self) {
        self.awaited += 1;
    }

    /// The partitions are taken away. What is on its way is waited for and told, unless they are
    /// lost; what comes later is told no more.
    pub fn give_back(&mut self, consumer: &Consumer, is_lost: bool) {
        if !is_lost {
            self.wait(|commits| commits.awaited == 0);
            self.tell(consumer, CommitMode::Sync);
        }
        (self.untold, self.told) = Default::default();
        self.disowned = self.awaited;
    }

    /// Takes what was committed meanwhile, and tells it if it is time.
    pub fn serve(&mut self, consumer: &Consumer) {
        while let Ok(positions) = self.committed.try_recv() {
            self.take(&positions);
        }
        let interval = self.timing.offset_commit_interval;
        if self.told_at.is_none_or(|told_at| told_at.elapsed() >= interval) {
            if consumer.context().take_unreported() {
                let told = std::mem::take(&mut self.told);
                let newer = std::mem::replace(&mut self.untold, told);
                self.untold.put_all(&newer);
            }
            self.tell(consumer, CommitMode::Async);
        }
    }

    /// Waits for the last positions, until their sender is gone, and tells them.
    pub fn finish(mut self, consumer: &Consumer) {
        self.wait(|_| false);
        let answered = consumer.context().commits();
        if !self.tell(consumer, CommitMode::Async) {
            return;
        }
        let (start, patience) = (Instant::now(), self.timing.last_commit_ack_patience);
        while consumer.context().commits() == answered && start.elapsed() < patience {
            // Whatever else comes was not read: its position stays where it is.
            let _ = clients::poll(consumer, Duration::from_millis(20));
        }
    }

    /// Until that is enough, nothing more comes, or it takes too long.
    fn wait(&mut self, is_enough: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + self.timing.last_positions_patience;
        while !is_enough(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.committed.recv_timeout(left) {
                Ok(positions) => self.take(&positions),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return,
            }
        }
    }

    fn take(&mut self, positions: &[Position]) {
        self.awaited = self.awaited.saturating_sub(1);
        if self.disowned > 0 {
            self.disowned -= 1;
            return;
        }
        let committed = Offsets::new(&self.names, positions);
        self.health.set_committed(&committed);
        self.untold.put_all(&committed);
    }

    /// Whether there was anything to tell.
    fn tell(&mut self, consumer: &Consumer, mode: CommitMode) -> bool {
        if self.untold.is_empty() {
            return false;
        }
        self.told_at = Some(Instant::now());
        config::crash_point!("offsets-untold");
        let untold = std::mem::take(&mut self.untold);
        self.told.put_all(&untold);
        let told = assignment::positions(&self.names, &untold)
            .and_then(|list| consumer.commit(&list, mode));
        if let Err(error) = told {
            consumer.context().commit_failed(&error);
        }
        config::crash_point!("offsets-told");
        true
    }
}
