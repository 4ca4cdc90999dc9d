//! Decodes records and routes each into the current batch: as a fact, as an empty record or as a dead letter.

use std::sync::Arc;
use std::time::Instant;

use attribution::facts::event::{EventTime, Fact};
use config::Config;
use jiff::Timestamp;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::types::RDKafkaErrorCode;

use super::batch::{Accumulator, Batch, Limits, Source};
use super::low_watermark::LowWatermark;
use super::partition_affinity::{Key, PartitionAffinity};
use super::paused_partitions::{BadRecordLimiter, PauseReason};
use super::trusted_clock::TrustedClock;
use crate::dead_letters::letter::{self, DeadLetter};
use crate::decode::decoder::{Decoded, Decoder, LivePolicy};
use crate::decode::event::Built;
use crate::decode::{DecodeError, ErrorCode, framing};
use crate::kafka::error::IngestError;
use crate::kafka::headers;
use crate::kafka::partitions::Partitions;
use crate::kafka::retry::Throttle;
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::observability::value_counts::ValueLog;
use crate::timing::Timing;

pub struct RecordRouter {
    names: TopicNames,
    policy: LivePolicy,
    pub decoder: Decoder,
    bad_records: BadRecordLimiter,
    pub batch: Accumulator,
    pub low_watermark: LowWatermark,
    clock: TrustedClock,
    affinity: PartitionAffinity,
    mismatch_warnings: Throttle,
    value_log: ValueLog,
    letters: Vec<DeadLetter>,
}

impl RecordRouter {
    /// Creates a router that continues from the low watermark `consumed_until` of an earlier run.
    pub fn new(
        config: &Config,
        policy: LivePolicy,
        names: TopicNames,
        consumed_until: Option<EventTime>,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let limits = Limits {
            records_max: config.ingest.batch_records_max,
            bytes_max: config.ingest.batch_bytes_max,
            age_max: config.ingest.batch_age_max,
        };
        Ok(Self {
            names,
            policy,
            decoder: Decoder::new(config, timing.schema_timeout, timing)?,
            bad_records: BadRecordLimiter::new(config.ingest.bad_records_max),
            batch: Accumulator::new(limits),
            low_watermark: LowWatermark::new(consumed_until),
            clock: TrustedClock::default(),
            affinity: PartitionAffinity::default(),
            mismatch_warnings: Throttle::default(),
            value_log: ValueLog::default(),
            letters: Vec::new(),
        })
    }

    pub fn set_partitions(&mut self, partitions: &Partitions) {
        self.low_watermark.set_partitions(partitions);
        self.affinity.clear();
    }

    /// Adds one record, decoded in place from librdkafka's memory. If its partition must be paused, returns the reason
    /// and adds nothing.
    pub fn route(
        &mut self,
        message: &BorrowedMessage<'_>,
        topic: TopicKind,
        now: Instant,
    ) -> Option<PauseReason> {
        let bytes = message.payload().map_or(0, <[u8]>::len);
        let source =
            Source { topic, partition: message.partition(), offset: message.offset(), bytes };
        let broker_ms = message.timestamp().to_millis();
        self.follow_settings();
        let decoded = match self.decode(message, source, broker_ms) {
            Ok(decoded) => decoded,
            Err(reason) => return Some(reason),
        };
        if broker_ms.is_some_and(|ms| self.low_watermark.observe(topic, source.partition, ms)) {
            self.batch.count_late(topic);
        }
        match decoded {
            None => self.batch.add_empty(source, now),
            Some(Ok(built)) => {
                self.check_affinity(message, source, &built.fact);
                self.batch.add_fact(source, built, now);
            }
            Some(Err(error)) => {
                let name = self.names.of(topic);
                self.letters.push(DeadLetter::new(message, source, name, &error));
                self.batch.add_dead(source, error.code, now);
                self.batch.add_bytes(letter::rest_bytes(message));
            }
        }
        None
    }

    /// Adds a record that cannot be read. If its partition must be paused, returns the reason and adds nothing.
    pub fn route_unreadable(
        &mut self,
        source: Source,
        error: RDKafkaErrorCode,
        now: Instant,
    ) -> Option<PauseReason> {
        let Source { topic, partition, offset, .. } = source;
        if !self.bad_records.allows(topic, partition, offset) {
            return Some(PauseReason::Bad);
        }
        let message = format!(
            "the batch of the record cannot be fetched and decompressed ({error}); expected at most a third \
             of kafka.librdkafka.receive.message.max.bytes"
        );
        let error = DecodeError::new(ErrorCode::Unreadable, message);
        self.letters.push(DeadLetter::of_unread(source, self.names.of(topic), &error));
        self.batch.add_dead(source, error.code, now);
        None
    }

    /// Returns the name of a topic.
    pub fn name(&self, topic: TopicKind) -> &str {
        self.names.of(topic)
    }

    /// Decodes by the latest settings from here on. The worker that gets the batch has them too, or later ones.
    fn follow_settings(&mut self) {
        let latest = self.policy.load();
        if !Arc::ptr_eq(&latest, &self.decoder.policy) {
            self.decoder.policy = Arc::clone(&latest);
        }
    }

    /// Decodes a record; `None` if it has no value.
    fn decode(
        &mut self,
        message: &BorrowedMessage<'_>,
        source: Source,
        broker_ms: Option<i64>,
    ) -> Result<Option<Result<Built, DecodeError>>, PauseReason> {
        let Some(value) = message.payload().filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let header = headers::last(message, framing::HEADER);
        let decoded = match self.decoder.decode(value, header, Some(source.topic)) {
            Decoded::Fact(built) => {
                self.decoder.check_lateness(&built.fact, broker_ms).map(|()| built)
            }
            Decoded::Bad(error) => Err(error),
            Decoded::AwaitingSchema(key) => return Err(PauseReason::Schema(key)),
        };
        let Source { topic, partition, offset, .. } = source;
        if decoded.is_err() && !self.bad_records.allows(topic, partition, offset) {
            return Err(PauseReason::Bad);
        }
        Ok(Some(decoded))
    }

    /// Checks whether a fact's record is on the partition of its app.
    fn check_affinity(&mut self, message: &BorrowedMessage<'_>, source: Source, fact: &Fact) {
        let Some(broker_ms) = message.timestamp().to_millis() else { return };
        let (pid, Source { topic, partition, .. }) = (fact.pid(), source);
        let app = || self.decoder.policy.app(pid).map_or("", |app| &*app.key);
        let key = Key::of(message.key(), app());
        let mismatch = self.affinity.observe(pid, topic, partition, broker_ms, key);
        let Some(mismatch) = mismatch else { return };
        self.batch.count_key_mismatches(&mismatch.count);
        self.mismatch_warnings.warn(|| mismatch.warn(app(), &self.names));
    }

    /// Ends the batch. Returns it with its dead letters, which must be acknowledged before it may be emitted.
    pub fn finish(&mut self) -> (Batch, Vec<DeadLetter>) {
        let now = Timestamp::now().as_millisecond();
        let now = EventTime::from_millis(now).unwrap_or_default();
        let now = self.clock.observe(now, Instant::now());
        let consumed_until = self.low_watermark.finish_batch(now);
        let batch = self.batch.finish(&self.names, consumed_until);
        self.value_log.log(&batch.values, &self.decoder.policy, Instant::now());
        (batch, std::mem::take(&mut self.letters))
    }
}
