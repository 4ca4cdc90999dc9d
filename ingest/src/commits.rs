//! Positions that the store has committed, told to Kafka's group for dashboards alone.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use attribution::ledger::Position;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::client::Consumer;
use crate::health::Health;
use crate::offsets::Offsets;
use crate::topic::TopicNames;

/// Kafka is told so often at most.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// So long the last positions are waited for, and their acknowledgement.
const LAST_POSITIONS: Duration = Duration::from_secs(5);
const LAST_COMMIT: Duration = Duration::from_secs(1);

pub struct Commits {
    names: TopicNames,
    health: Arc<Health>,
    committed: Receiver<Vec<Position>>,
    /// Committed by the store, not told to Kafka yet.
    untold: Offsets,
    told_at: Option<Instant>,
}

impl Commits {
    pub fn new(names: TopicNames, health: Arc<Health>, committed: Receiver<Vec<Position>>) -> Self {
        Self { names, health, committed, untold: Offsets::default(), told_at: None }
    }

    /// Takes what was committed meanwhile, and tells it if it is time.
    pub fn serve(&mut self, consumer: &Consumer) {
        while let Ok(positions) = self.committed.try_recv() {
            self.take(&positions);
        }
        if self.told_at.is_none_or(|told_at| told_at.elapsed() >= COMMIT_EVERY) {
            self.tell(consumer);
        }
    }

    /// Waits for the last positions, until their sender is gone, and tells them.
    pub fn finish(mut self, consumer: &Consumer) {
        let deadline = Instant::now() + LAST_POSITIONS;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.committed.recv_timeout(left) {
                Ok(positions) => self.take(&positions),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => break,
            }
        }
        let answered = consumer.context().commits();
        if !self.tell(consumer) {
            return;
        }
        let start = Instant::now();
        while consumer.context().commits() == answered && start.elapsed() < LAST_COMMIT {
            // Whatever else comes was not read: its position stays where it is.
            let _ = consumer.poll(Duration::from_millis(20));
        }
    }

    fn take(&mut self, positions: &[Position]) {
        let committed = Offsets::new(&self.names, positions);
        self.health.set_committed(&committed);
        for (topic, partition, next_offset) in committed.iter() {
            self.untold.advance(topic, partition, next_offset);
        }
    }

    /// Whether there was anything to tell.
    fn tell(&mut self, consumer: &Consumer) -> bool {
        if self.untold.is_empty() {
            return false;
        }
        self.told_at = Some(Instant::now());
        crash_point!("offsets-untold");
        let untold = std::mem::take(&mut self.untold);
        let told =
            list(&self.names, &untold).and_then(|list| consumer.commit(&list, CommitMode::Async));
        if let Err(error) = told {
            consumer.context().commit_failed(&error);
        }
        crash_point!("offsets-told");
        true
    }
}

fn list(names: &TopicNames, offsets: &Offsets) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (topic, partition, next_offset) in offsets.iter() {
        list.add_partition_offset(names.of(topic), partition, Offset::Offset(next_offset))?;
    }
    Ok(list)
}
