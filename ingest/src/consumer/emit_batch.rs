//! What was read goes on its way, and what the client tells of the partitions is kept.

use std::time::Instant;

use rdkafka::consumer::Consumer as _;

use super::Reader;
use super::backpressure::{self, PollPause};
use super::batch::Batch;
use crate::kafka::assignment;
use crate::kafka::clients::Consumer;
use crate::kafka::error::IngestError;
use crate::kafka::statistics::Statistics;
use crate::kafka::topics::TopicKind;
use crate::kafka::watermarks::Watermarks;
use crate::observability::health::Health;

impl Reader {
    pub fn observe(&mut self, statistics: &Statistics) {
        self.health.has_reported();
        tell_connection(&self.health, &self.consumer, &self.kafka.brokers, statistics);
        for (name, partition, seen) in statistics.partitions() {
            let (Some(topic), Some(high)) = (self.names.kind(name), seen.high()) else { continue };
            // Of a partition that is not read the client knows nothing new.
            if self.held.holds(topic, partition) || self.health.is_denied(topic) {
                continue;
            }
            if let Some(polled) = seen.polled() {
                self.sorter.low_watermark().reach(topic, partition, polled);
            }
            self.open.note((topic, name), partition, seen.held_at());
            let low = seen.low();
            let read = self.offsets.next(topic, partition);
            let high = if seen.is_drained() { read.unwrap_or(low) } else { high };
            self.health.set_watermarks(topic, partition, Watermarks { low, high });
        }
    }

    /// Hands on what was read, once its dead letters are acknowledged. Asked to stop, a batch
    /// whose dead letters are not acknowledged is dropped: it will be read again.
    pub fn hand_on(&mut self) -> Result<(), IngestError> {
        if self.sorter.batch().is_empty() {
            return Ok(());
        }
        config::crash_point!("batch-read");
        if self.sorter.batch().has_records() {
            self.health.saw_message();
        }
        let (mut batch, letters) = self.sorter.finish();
        for position in &mut batch.progress.positions {
            let Some(topic) = self.names.kind(&position.topic) else { continue };
            position.mark = self.offsets.mark(topic, position.partition);
            position.last = self.offsets.last(topic, position.partition);
        }
        if self.is_member {
            // Others read the other partitions.
            batch.progress.consumed_until = None;
        }
        let told = letters.first().map(|letter| (letter.topic(), letter.code()));
        self.await_commits();
        let (consumer, names, partitions) = (&self.consumer, &self.names, &self.partitions);
        let looker = self.witness.consumer();
        let (health, brokers, timing) = (&self.health, &self.kafka.brokers, self.timing);
        let look = || {
            // Nothing is fetched: without being asked for, leaders that have changed stay unknown.
            if let Err(unfound) = assignment::find_partitions(consumer, names) {
                tracing::debug!(?unfound, "partitions cannot be looked up");
            }
            health.take_extents(|| assignment::find_watermarks(looker, names, partitions));
        };
        let observe = |statistics: &Statistics| {
            tell_connection(health, consumer, brokers, statistics);
        };
        let mut stall = PollPause::new(consumer, &mut self.commits, &look, &observe, timing);
        let mut stop_at = None;
        let (shutdown, dead_letters) = (&self.shutdown, &self.dead_letters);
        let since = Instant::now();
        let acknowledged = dead_letters.deliver(&letters, || {
            stall.serve()?;
            if since.elapsed() >= timing.dead_letter_ack_patience {
                dead_letters.tell_waiting(consumer, &letters);
                health.set_letters_waiting(true);
            }
            if shutdown.is_requested() {
                let patience = timing.last_dead_letters_patience;
                stop_at.get_or_insert_with(|| Instant::now() + patience);
            }
            let is_ours = !consumer.context().has_changed();
            Ok(is_ours && stop_at.is_none_or(|stop_at| Instant::now() < stop_at))
        })?;
        self.health.set_letters_waiting(false);
        if !acknowledged {
            self.leave(&batch, letters.len());
            return Ok(());
        }
        let is_sent = backpressure::send(&self.batches, batch, shutdown, &mut stall)?;
        let has_unassigned = stall.has_unassigned;
        if let Some(first) = told {
            self.tell_letters(first, letters.len());
        }
        if is_sent {
            self.commits.expect();
        }
        config::crash_point!("batch-handed-on");
        if has_unassigned && !self.consumer.context().has_changed() {
            self.assign()
        } else {
            Ok(())
        }
    }

    /// The batch is dropped: its records are read again.
    fn leave(&mut self, batch: &Batch, letters: usize) {
        if self.shutdown.is_requested() {
            tracing::warn!(
                letters,
                "stopped before dead letters were acknowledged: their records are read again"
            );
            self.left = TopicKind::ALL.map(|topic| batch.intake.of(topic).read).iter().sum();
        } else {
            tracing::warn!(
                letters,
                "the group has taken partitions back before dead letters were acknowledged: their records \
                 are read again by whoever has the partitions now"
            );
        }
    }

    /// How far everything is read that the batch brings.
    fn await_commits(&mut self) {
        self.health.set_read_until(self.sorter.low_watermark().of_partitions());
        for ((topic, partition), until) in self.sorter.low_watermark().of_partitions() {
            if let Some(next_offset) = self.offsets.next(topic, partition) {
                self.health.await_commit((topic, partition), next_offset, until.millis());
            }
        }
    }

    fn tell_letters(&self, (topic, code): (TopicKind, &'static str), count: usize) {
        let topic = self.names.of(topic);
        self.letters_told.warn(|| {
            tracing::warn!(
                count,
                %topic,
                code,
                "records that are no events went to the dead letters: adtrail peek {topic}.dlq \
                 tells what was wrong"
            );
        });
    }
}

/// Whether the brokers answer, and why not.
fn tell_connection(health: &Health, consumer: &Consumer, brokers: &str, statistics: &Statistics) {
    health.set_refusal(consumer.context().refusal());
    let is_connected = statistics.is_connected();
    match (health.is_connected(), is_connected) {
        (false, true) => tracing::info!("kafka answers again"),
        (true, false) => tracing::warn!(
            brokers,
            "kafka does not answer any more; what it has is read once it does"
        ),
        _ => {}
    }
    health.set_connected(is_connected);
}
