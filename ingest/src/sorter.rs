//! Records into facts, empty ones and dead letters: one batch of them at a time.

use std::sync::Arc;
use std::time::Instant;

use attribution::event::{EventTime, Fact};
use attribution::policy::Policy;
use jiff::Timestamp;
use rdkafka::message::{BorrowedMessage, Message};

use crate::batch::{Accumulator, Batch, Limits, Source};
use crate::consumed::Consumed;
use crate::dead_letter::DeadLetter;
use crate::lateness;
use crate::topic::{TopicKind, TopicNames};
use crate::wire::{self, DecodeError};

pub struct Sorter {
    names: TopicNames,
    policy: Arc<Policy>,
    batch: Accumulator,
    consumed: Consumed,
    letters: Vec<DeadLetter>,
}

impl Sorter {
    pub fn new(names: TopicNames, policy: Arc<Policy>, limits: Limits, consumed: Consumed) -> Self {
        let batch = Accumulator::new(limits);
        Self { names, policy, batch, consumed, letters: Vec::new() }
    }

    pub fn batch(&self) -> &Accumulator {
        &self.batch
    }

    /// How far every partition is consumed.
    pub fn consumed(&mut self) -> &mut Consumed {
        &mut self.consumed
    }

    /// Takes one record, decoded from where librdkafka holds it.
    pub fn take(&mut self, message: &BorrowedMessage<'_>, topic: TopicKind, now: Instant) {
        let value = message.payload().unwrap_or_default();
        let source = Source {
            topic,
            partition: message.partition(),
            offset: message.offset(),
            bytes: value.len(),
        };
        let broker_ms = message.timestamp().to_millis();
        if broker_ms.is_some_and(|ms| self.consumed.take(topic, source.partition, ms)) {
            self.batch.note_disorder(topic);
        }
        if value.is_empty() {
            return self.batch.add_empty(source, now);
        }
        match decode(value, topic, broker_ms, &self.policy) {
            Ok(fact) => self.batch.add_fact(source, fact, broker_ms, now),
            Err(error) => {
                let name = self.names.of(topic);
                self.letters.push(DeadLetter::new(message, source, name, &error));
                self.batch.add_dead(source, error.code, now);
            }
        }
    }

    /// What was taken so far, and the dead letters that have to be acknowledged before it may be
    /// handed on.
    pub fn finish(&mut self) -> (Batch, Vec<DeadLetter>) {
        let now = Timestamp::now().as_millisecond();
        let now = EventTime::from_millis(now).unwrap_or_default();
        let consumed_until = self.consumed.finish_batch(now);
        (self.batch.finish(&self.names, consumed_until), std::mem::take(&mut self.letters))
    }
}

fn decode(
    value: &[u8],
    topic: TopicKind,
    broker_ms: Option<i64>,
    policy: &Policy,
) -> Result<Fact, DecodeError> {
    let fact = wire::decode(value, Some(topic), policy)?;
    if let (Some(broker_ms), Some(app)) = (broker_ms, policy.app(fact.pid())) {
        lateness::check(fact.time(), broker_ms, app.correction_horizon_ms)?;
    }
    Ok(fact)
}
