//! Records into facts, empty ones and dead letters: one batch of them at a time.

use std::time::Instant;

use attribution::facts::event::{EventTime, Fact};
use jiff::Timestamp;
use rdkafka::message::{BorrowedMessage, Message};

use super::batch::{Accumulator, Batch, Limits, Source};
use super::partition_affinity::{Key, PartitionAffinity};
use super::paused_partitions::{BadRecordLimiter, PauseReason};
use super::trusted_clock::TrustedClock;
use super::watermark::LowWatermark;
use crate::dead_letters::producer::DeadLetter;
use crate::decode::decoder::{Decoded, Decoder};
use crate::decode::{DecodeError, framing, lateness};
use crate::kafka::headers;
use crate::kafka::partitions::Partitions;
use crate::kafka::retry::Throttle;
use crate::kafka::topics::{TopicKind, TopicNames};

pub struct RecordRouter {
    names: TopicNames,
    decoder: Decoder,
    breaker: BadRecordLimiter,
    batch: Accumulator,
    low_watermark: LowWatermark,
    clock: TrustedClock,
    placement: PartitionAffinity,
    misplaced_told: Throttle,
    letters: Vec<DeadLetter>,
}

impl RecordRouter {
    pub fn new(
        names: TopicNames,
        decoder: Decoder,
        breaker: BadRecordLimiter,
        limits: Limits,
        low_watermark: LowWatermark,
    ) -> Self {
        let batch = Accumulator::new(limits);
        Self {
            names,
            decoder,
            breaker,
            batch,
            low_watermark,
            clock: TrustedClock::default(),
            placement: PartitionAffinity::default(),
            misplaced_told: Throttle::default(),
            letters: Vec::new(),
        }
    }

    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    pub fn batch(&self) -> &Accumulator {
        &self.batch
    }

    /// How far every partition is consumed.
    pub fn low_watermark(&mut self) -> &mut LowWatermark {
        &mut self.low_watermark
    }

    /// These are read from now on.
    pub fn set_partitions(&mut self, partitions: &Partitions) {
        self.low_watermark.set_partitions(partitions);
        self.placement.forget();
    }

    /// Nothing is read yet of a partition, which begins there: its position is committed like any other.
    pub fn begin(&mut self, partition: (TopicKind, i32), low: i64) {
        self.batch.begin(partition, low, Instant::now());
    }

    /// Takes one record, decoded from where librdkafka holds it; or says why its partition can not
    /// be read on.
    pub fn take(
        &mut self,
        message: &BorrowedMessage<'_>,
        topic: TopicKind,
        now: Instant,
    ) -> Option<PauseReason> {
        let bytes = message.payload().map_or(0, <[u8]>::len);
        let source =
            Source { topic, partition: message.partition(), offset: message.offset(), bytes };
        let broker_ms = message.timestamp().to_millis();
        let taken = match self.decode(message, source, broker_ms) {
            Ok(taken) => taken,
            Err(hold) => return Some(hold),
        };
        if broker_ms.is_some_and(|ms| self.low_watermark.take(topic, source.partition, ms)) {
            self.batch.note_disorder(topic);
        }
        match taken {
            None => self.batch.add_empty(source, now),
            Some(Ok(fact)) => {
                self.place(message, source, &fact);
                self.batch.add_fact(source, fact, now);
            }
            Some(Err(error)) => {
                let name = self.names.of(topic);
                self.letters.push(DeadLetter::new(message, source, name, &error));
                self.batch.add_dead(source, error.code, now);
            }
        }
        None
    }

    /// `None` without a value.
    fn decode(
        &mut self,
        message: &BorrowedMessage<'_>,
        source: Source,
        broker_ms: Option<i64>,
    ) -> Result<Option<Result<Fact, DecodeError>>, PauseReason> {
        let Some(value) = message.payload().filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let header = headers::last(message, framing::HEADER);
        let decoded = match self.decoder.decode(value, header, Some(source.topic)) {
            Decoded::Fact(fact) => self.in_time(fact, broker_ms),
            Decoded::Bad(error) => Err(error),
            Decoded::Waits(key) => return Err(PauseReason::Schema(key)),
        };
        let Source { topic, partition, offset, .. } = source;
        if decoded.is_err() && !self.breaker.takes(topic, partition, offset) {
            return Err(PauseReason::Bad);
        }
        Ok(Some(decoded))
    }

    fn in_time(&self, fact: Fact, broker_ms: Option<i64>) -> Result<Fact, DecodeError> {
        if let (Some(broker_ms), Some(app)) = (broker_ms, self.decoder.policy().app(fact.pid())) {
            lateness::check(fact.time(), broker_ms, app.correction_horizon_ms)?;
        }
        Ok(fact)
    }

    /// Looks whether a fact's record is where others of its app are.
    fn place(&mut self, message: &BorrowedMessage<'_>, source: Source, fact: &Fact) {
        let Some(broker_ms) = message.timestamp().to_millis() else { return };
        let (pid, place) = (fact.pid(), (source.topic, source.partition, broker_ms));
        let app = || self.decoder.policy().app(pid).map_or("", |app| &*app.key);
        let key = Key::of(message.key(), app());
        let Some(misplaced) = self.placement.take(pid, place, key) else { return };
        self.batch.note_misplaced(&misplaced.count);
        self.misplaced_told.warn(|| misplaced.warn(app(), &self.names));
    }

    /// What was taken so far, and the dead letters that have to be acknowledged before it may be
    /// handed on.
    pub fn finish(&mut self) -> (Batch, Vec<DeadLetter>) {
        let now = Timestamp::now().as_millisecond();
        let now = EventTime::from_millis(now).unwrap_or_default();
        let now = self.clock.take(now, Instant::now());
        let consumed_until = self.low_watermark.finish_batch(now);
        (self.batch.finish(&self.names, consumed_until), std::mem::take(&mut self.letters))
    }
}
