//! Emits finished batches, and applies librdkafka's statistics.

pub mod backpressure;
pub mod offset_commits;

use std::time::Instant;

use rdkafka::consumer::Consumer as _;

use super::ConsumerThread;
use super::read::batch::Batch;
use crate::kafka::assignment;
use crate::kafka::clients::Consumer;
use crate::kafka::clients::statistics::Statistics;
use crate::kafka::error::IngestError;
use crate::kafka::topics::TopicKind;
use crate::kafka::watermarks::Watermarks;
use crate::observability::health::Health;
use backpressure::PollPause;

impl ConsumerThread {
    pub fn observe(&mut self, statistics: &Statistics) {
        self.health.has_reported();
        update_connection(&self.health, &self.consumer, &self.kafka.brokers, statistics);
        for (name, number, partition) in statistics.partitions() {
            let (Some(topic), Some(high)) = (self.names.kind(name), partition.high()) else {
                continue;
            };
            // The statistics of a partition that is not fetched are stale.
            if self.paused.contains(topic, number) || self.health.is_denied(topic) {
                continue;
            }
            if let Some(polled) = partition.polled() {
                self.router.low_watermark().reach(topic, number, polled);
            }
            self.open_transactions.observe((topic, name), number, partition.blocked_at());
            let low = partition.low();
            let read = self.offsets.next(topic, number);
            let high = if partition.is_drained() { read.unwrap_or(low) } else { high };
            self.health.set_watermarks(topic, number, Watermarks { low, high });
        }
    }

    /// Emits the batch once its dead letters are acknowledged. If they are not by the end of a shutdown, the batch is
    /// dropped; it will be read again.
    pub fn emit_batch(&mut self) -> Result<(), IngestError> {
        if self.router.batch().is_empty() {
            return Ok(());
        }
        config::crash_point!("batch-read");
        if self.router.batch().has_records() {
            self.health.saw_message();
        }
        let (mut batch, letters) = self.router.finish();
        for position in &mut batch.progress.positions {
            let Some(topic) = self.names.kind(&position.topic) else { continue };
            position.mark = self.offsets.mark(topic, position.partition);
            position.last = self.offsets.last(topic, position.partition);
        }
        if self.is_member {
            // Other members read the other partitions, so the low watermark is unknown.
            batch.progress.consumed_until = None;
        }
        let first_letter = letters.first().map(|letter| (letter.topic(), letter.code()));
        self.await_commits();
        let (consumer, names, partitions) = (&self.consumer, &self.names, &self.partitions);
        let inspector = self.identity_checker.consumer();
        let (health, brokers, timing) = (&self.health, &self.kafka.brokers, self.timing);
        let refresh_watermarks = || {
            // Without fetches, the client learns of new leaders only by a metadata request.
            if let Err(unfound) = assignment::find_partitions(consumer, names) {
                tracing::debug!(?unfound, "partitions cannot be looked up");
            }
            health.update_watermarks(|| assignment::find_watermarks(inspector, names, partitions));
        };
        let observe = |statistics: &Statistics| {
            update_connection(health, consumer, brokers, statistics);
        };
        let mut pause =
            PollPause::new(consumer, &mut self.commits, &refresh_watermarks, &observe, timing);
        let mut stop_at = None;
        let (shutdown, dead_letters) = (&self.shutdown, &self.dead_letters);
        let since = Instant::now();
        let acknowledged = dead_letters.deliver(&letters, || {
            pause.serve()?;
            if since.elapsed() >= timing.dead_letter_ack_warning_delay {
                dead_letters.warn_unacknowledged(consumer, &letters);
                health.set_dead_letters_waiting(true);
            }
            if shutdown.is_requested() {
                let patience = timing.last_dead_letters_timeout;
                stop_at.get_or_insert_with(|| Instant::now() + patience);
            }
            let is_assigned = !consumer.context().has_changed();
            Ok(is_assigned && stop_at.is_none_or(|stop_at| Instant::now() < stop_at))
        })?;
        self.health.set_dead_letters_waiting(false);
        if !acknowledged {
            self.drop_batch(&batch, letters.len());
            return Ok(());
        }
        let is_sent = backpressure::send(&self.batches, batch, shutdown, &mut pause)?;
        let has_unassigned = pause.has_unassigned;
        if let Some(first_letter) = first_letter {
            self.warn_of_letters(first_letter, letters.len());
        }
        if is_sent {
            self.commits.add_in_flight();
        }
        config::crash_point!("batch-emitted");
        if has_unassigned && !self.consumer.context().has_changed() {
            self.assign()
        } else {
            Ok(())
        }
    }

    /// Logs that the batch is dropped. Its records will be read again.
    fn drop_batch(&mut self, batch: &Batch, letters: usize) {
        if self.shutdown.is_requested() {
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

    /// Records how far each partition is complete once the batch is committed.
    fn await_commits(&mut self) {
        self.health.set_read_until(self.router.low_watermark().of_partitions());
        for ((topic, partition), until) in self.router.low_watermark().of_partitions() {
            if let Some(next_offset) = self.offsets.next(topic, partition) {
                self.health.await_commit((topic, partition), next_offset, until.millis());
            }
        }
    }

    fn warn_of_letters(&self, (topic, code): (TopicKind, &'static str), count: usize) {
        let topic = self.names.of(topic);
        self.letter_warnings.warn(|| {
            tracing::warn!(
                count,
                %topic,
                code,
                "invalid records were produced to the dead-letter topic; `adtrail peek {topic}.dlq` shows \
                 their errors"
            );
        });
    }
}

/// Records whether a broker answers or refuses the connection, and logs each change.
fn update_connection(health: &Health, consumer: &Consumer, brokers: &str, statistics: &Statistics) {
    health.set_refusal(consumer.context().refusal());
    let is_connected = statistics.is_connected();
    match (health.is_connected(), is_connected) {
        (false, true) => tracing::info!("kafka answers again"),
        (true, false) => {
            tracing::warn!(brokers, "kafka does not answer any more; reading resumes once it does");
        }
        _ => {}
    }
    health.set_connected(is_connected);
}
