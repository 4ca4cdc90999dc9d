//! Emits finished batches, once their dead letters are acknowledged.
//!
//! Start with [`Output::emit`]. `backpressure` does the work of the thread while it waits; `offset_commits` commits to
//! Kafka the offsets that the store has committed.

pub mod backpressure;
pub mod offset_commits;

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use rdkafka::consumer::Consumer as _;

use super::assign::assign_partitions;
use super::context::Context;
use super::read::ReadState;
use super::read::batch::Batch;
use super::topic_client::TopicClient;
use crate::dead_letters::letter::DeadLetter;
use crate::dead_letters::producer::DeadLetters;
use crate::kafka::error::IngestError;
use crate::kafka::retry::Throttle;
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::observability::health::Health;
use backpressure::PollPause;
use offset_commits::OffsetCommitter;

/// The outputs of the thread: batches, dead letters and offset commits.
pub struct Output {
    pub batches: SyncSender<Batch>,
    pub dead_letters: DeadLetters,
    pub committer: OffsetCommitter,
    letter_warnings: Throttle,
    /// Records of the batch that a shutdown dropped; they will be read again.
    pub dropped_records: u64,
}

impl Output {
    pub fn new(
        batches: SyncSender<Batch>,
        dead_letters: DeadLetters,
        committer: OffsetCommitter,
    ) -> Self {
        let letter_warnings = Throttle::default();
        Self { batches, dead_letters, committer, letter_warnings, dropped_records: 0 }
    }

    /// Emits the batch once its dead letters are acknowledged. If a shutdown times out before that, drops the batch;
    /// its records will be read again.
    pub fn emit(
        &mut self,
        read: &mut ReadState,
        client: &TopicClient,
        context: &Context,
    ) -> Result<(), IngestError> {
        if read.router.batch.is_empty() {
            return Ok(());
        }
        config::crash_point!("batch-read");
        // `PollPause` may unassign the partitions.
        read.skip_markers(client);
        if read.router.batch.has_records() {
            context.health.record_message();
        }
        let (mut batch, letters) = read.finish_batch(&client.names);
        if client.is_member {
            // Other members read the other partitions, so the low watermark is unknown.
            batch.progress.consumed_until = None;
        }
        track_commits(read, &context.health);
        let mut pause = PollPause::new(client, &mut self.committer, context);
        if !pause.deliver(&self.dead_letters, &letters)? {
            self.drop_batch(&batch, letters.len(), context.shutdown.is_requested());
            return Ok(());
        }
        let is_sent = pause.send(&self.batches, batch)?;
        let has_unassigned = pause.has_unassigned;
        self.warn_of_letters(&letters, &client.names);
        if is_sent {
            self.committer.add_in_flight();
        }
        config::crash_point!("batch-emitted");
        if has_unassigned && !client.consumer.context().has_pending_rebalance() {
            assign_partitions(client, read, &context.health)
        } else {
            Ok(())
        }
    }

    /// Logs that the batch is dropped. Its records will be read again.
    fn drop_batch(&mut self, batch: &Batch, letters: usize, is_shutdown: bool) {
        if is_shutdown {
            tracing::warn!(
                letters,
                "stopped before dead letters were acknowledged: their batch is dropped and will be read again"
            );
            self.dropped_records =
                TopicKind::ALL.map(|topic| batch.intake.of(topic).read).iter().sum();
        } else {
            tracing::warn!(
                letters,
                "partitions were revoked before dead letters were acknowledged: their batch is dropped, and \
                 the new owners of the partitions will read it again"
            );
        }
    }

    fn warn_of_letters(&self, letters: &[DeadLetter], names: &TopicNames) {
        if letters.is_empty() {
            return;
        }
        self.letter_warnings.warn(|| {
            for ((topic, code), count) in counted(letters) {
                let topic = names.of(topic);
                tracing::warn!(
                    count,
                    %topic,
                    code,
                    "invalid records were produced to the dead-letter topic; `adtrail peek {topic}.dlq` shows \
                     their errors"
                );
            }
        });
    }
}

/// Counts the letters of each topic by their codes.
fn counted(letters: &[DeadLetter]) -> BTreeMap<(TopicKind, &'static str), u64> {
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for letter in letters {
        *counts.entry((letter.topic, letter.code)).or_default() += 1;
    }
    counts
}

/// Records up to which time each partition is complete once the batch is committed.
fn track_commits(read: &ReadState, health: &Health) {
    for ((topic, partition), until) in read.router.low_watermark.of_partitions() {
        health.set_read_until(topic, partition, until);
        if let Some(next_offset) = read.offsets.next(topic, partition) {
            health.track_commit(topic, partition, next_offset, until.millis());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted_by_topic() {
        let topics = [TopicKind::Effects, TopicKind::Clicks, TopicKind::Effects];
        let letters = topics.map(|topic| DeadLetter::of_value(topic, b"bad"));
        let expected =
            [((TopicKind::Clicks, "not_json"), 1), ((TopicKind::Effects, "not_json"), 2)];
        assert_eq!(counted(&letters), BTreeMap::from(expected));
    }
}
