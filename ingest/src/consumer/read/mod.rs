//! State of reading that is not emitted yet: the unfinished batch, the next offsets, the paused partitions.
//!
//! Start with [`ReadState::poll`]. `record_router` decodes a record and adds it to the batch.

pub(crate) mod batch;
mod consumer_positions;
pub(crate) mod low_watermark;
mod open_transactions;
pub(crate) mod partition_affinity;
pub(crate) mod paused_partitions;
pub(crate) mod record_router;
pub(crate) mod trusted_clock;

use std::ops::Range;
use std::time::{Duration, Instant};

use attribution::ledger::{Progress, RecordFingerprint};
use config::Config;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::types::RDKafkaErrorCode;

use super::context::Context;
use super::topic_client::TopicClient;
use crate::dead_letters::letter::DeadLetter;
use crate::decode::decoder::LivePolicy;
use crate::digest::digest;
use crate::kafka::clients::{self, statistics::Statistics};
use crate::kafka::error::IngestError;
use crate::kafka::offsets::Offsets;
use crate::kafka::partitions::Watermarks;
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::observability::health::Health;
use crate::registry::SchemaLookup;
use crate::timing::Timing;
use batch::{Batch, Source};
use consumer_positions::{StalePositions, find_positions};
use low_watermark::LowWatermark;
use open_transactions::OpenTransactions;
use paused_partitions::PausedPartitions;
use record_router::RecordRouter;

/// Maximum number of polls before the thread does its other work.
const POLLS_MAX: usize = 256;
const POLL_TIMEOUT: Duration = Duration::from_millis(50);

/// The records that are not emitted yet, and the offsets at which reading continues.
pub struct ReadState {
    pub router: RecordRouter,
    /// Next offsets to read, including records of the unfinished batch.
    pub offsets: Offsets,
    pub paused: PausedPartitions,
    open_transactions: OpenTransactions,
    stale_positions: StalePositions,
}

/// Why a round of polls has ended.
pub enum PollEnd {
    /// There is no record for now, or other work is due.
    Idle,
    /// The batch is full, or old enough.
    BatchDue,
    /// A partition was paused, so partitions must be assigned again.
    Paused,
    Error(KafkaError),
}

impl ReadState {
    pub fn new(
        config: &Config,
        policy: LivePolicy,
        names: &TopicNames,
        progress: &Progress,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let until = progress.consumed_until;
        Ok(Self {
            router: RecordRouter::new(config, policy, names.clone(), until, timing)?,
            offsets: Offsets::new(names, &progress.positions),
            paused: PausedPartitions::new(names),
            open_transactions: OpenTransactions::default(),
            stale_positions: StalePositions::default(),
        })
    }

    /// Polls records and adds them to the batch.
    pub fn poll(&mut self, client: &TopicClient) -> PollEnd {
        for _ in 0..POLLS_MAX {
            let now = Instant::now();
            let batch = &self.router.batch;
            let wait = batch.remaining(now).unwrap_or(POLL_TIMEOUT).min(POLL_TIMEOUT);
            if batch.is_full() || wait.is_zero() {
                return PollEnd::BatchDue;
            }
            let polled = clients::poll(&client.consumer, wait);
            if client.consumer.context().has_pending_rebalance() {
                return PollEnd::Idle;
            }
            let message = match polled {
                None => return PollEnd::Idle,
                Some(Err(error)) => return PollEnd::Error(error),
                Some(Ok(message)) => message,
            };
            let Some(topic) = client.names.kind(message.topic()) else { continue };
            let (partition, offset) = (message.partition(), message.offset());
            // A record that was fetched before the last assignment can still arrive.
            if self.offsets.next(topic, partition).is_some_and(|next| offset < next)
                || self.paused.contains(topic, partition)
            {
                continue;
            }
            if let Some(reason) = self.router.route(&message, topic, now) {
                self.paused.pause(topic, partition, reason);
                reason.log(client.names.of(topic), partition);
                return PollEnd::Paused;
            }
            let record = RecordFingerprint { offset, digest: digest(&message) };
            self.offsets.advance(topic, partition, record);
        }
        PollEnd::Idle
    }

    /// Adds a dead letter for each record that cannot be read, and moves the next offset past it. If these are too many
    /// invalid records, pauses the partition instead.
    pub fn pass_over(
        &mut self,
        topic: TopicKind,
        partition: i32,
        offsets: Range<i64>,
        error: RDKafkaErrorCode,
    ) {
        for offset in offsets {
            let source = Source { topic, partition, offset, bytes: 0 };
            if let Some(reason) = self.router.route_unreadable(source, error, Instant::now()) {
                self.paused.pause(topic, partition, reason);
                reason.log(self.router.name(topic), partition);
                return;
            }
            self.offsets.pass(topic, partition, offset + 1);
        }
    }

    /// Records which of the consumer's positions are stale. Must be called after partitions were assigned, before the
    /// next poll.
    pub fn note_assignment(&mut self, client: &TopicClient) -> KafkaResult<()> {
        self.stale_positions.set(find_positions(client)?);
        Ok(())
    }

    /// Moves the next offsets past transaction markers, which are consumed but never polled. Otherwise the last offsets
    /// of a partition would never count as committed.
    ///
    /// Must be called before partitions are assigned or unassigned, because the consumer then forgets its positions.
    pub fn skip_markers(&mut self, client: &TopicClient) {
        // The positions include the records that `poll` drops while a rebalance is pending.
        if client.consumer.context().has_pending_rebalance() {
            return;
        }
        let Ok(positions) = find_positions(client) else { return };
        for (topic, partition, next) in self.stale_positions.find_ahead(&positions, &self.offsets) {
            // The position of a paused partition is after the record at which it was paused.
            if !self.paused.contains(topic, partition) {
                self.offsets.skip_to(topic, partition, next);
                self.router.batch.add_position(topic, partition, next, Instant::now());
            }
        }
    }

    /// Applies librdkafka's statistics: watermarks, lag, open transactions, and which partitions are read to their end.
    pub fn observe(&mut self, statistics: &Statistics, client: &TopicClient, context: &Context) {
        let health = &context.health;
        health.record_report();
        context.update_connection(&client.consumer, statistics);
        self.skip_markers(client);
        for (name, number, partition) in statistics.partitions() {
            let (Some(topic), Some(high)) = (client.names.kind(name), partition.high()) else {
                continue;
            };
            // The statistics of a partition that is not fetched are stale, and the client keeps those of partitions that
            // other members of the group have now.
            let is_fetched = client.partitions.contains(topic, number)
                && !self.paused.contains(topic, number)
                && !health.is_denied(topic);
            if !is_fetched {
                continue;
            }
            if let Some(polled) = partition.polled() {
                self.router.low_watermark.set_consumed(topic, number, polled);
            }
            self.open_transactions.observe(topic, name, number, partition.blocked_at());
            let low = partition.low();
            let next = self.offsets.next(topic, number);
            let high = if partition.is_drained() { next.unwrap_or(low) } else { high };
            health.set_watermarks(topic, number, Watermarks { low, high });
        }
    }

    /// Resumes the partitions whose schema is now known. Returns true if any was resumed.
    pub fn resume(&mut self, health: &Health) -> bool {
        let Some(registry) = &self.router.decoder.registry else { return false };
        health.set_registry_down(registry.health().is_blocking());
        self.paused.resume(|key| !matches!(registry.look_up(key), SchemaLookup::Waiting))
    }

    /// Ends the batch. Returns it with its dead letters, which must be acknowledged before it may be emitted.
    pub fn finish_batch(&mut self, names: &TopicNames) -> (Batch, Vec<DeadLetter>) {
        let (mut batch, letters) = self.router.finish();
        for position in &mut batch.progress.positions {
            let Some(topic) = names.kind(&position.topic) else { continue };
            position.known = self.offsets.known(topic, position.partition);
            position.last = self.offsets.last(topic, position.partition);
        }
        (batch, letters)
    }

    /// Drops the unfinished batch and forgets all partitions, after they were revoked.
    pub fn clear(&mut self) {
        drop(self.router.finish());
        self.router.low_watermark = LowWatermark::default();
        self.offsets = Offsets::default();
        self.paused.clear();
    }
}
