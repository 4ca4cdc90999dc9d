//! Records into facts, empty ones and dead letters: one batch of them at a time.

use std::sync::Arc;
use std::time::Instant;

use attribution::event::Fact;
use attribution::policy::Policy;
use rdkafka::message::{BorrowedMessage, Message};

use crate::batch::{Accumulator, Batch, Limits, Source};
use crate::dead_letter::DeadLetter;
use crate::lateness;
use crate::topic::{TopicKind, TopicNames};
use crate::wire::{self, DecodeError};

pub struct Sorter {
    names: TopicNames,
    policy: Arc<Policy>,
    batch: Accumulator,
    letters: Vec<DeadLetter>,
}

impl Sorter {
    pub fn new(names: TopicNames, policy: Arc<Policy>, limits: Limits) -> Self {
        Self { names, policy, batch: Accumulator::new(limits), letters: Vec::new() }
    }

    pub fn batch(&self) -> &Accumulator {
        &self.batch
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
        if value.is_empty() {
            return self.batch.add_empty(source, now);
        }
        let broker_ms = message.timestamp().to_millis();
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
        (self.batch.finish(&self.names), std::mem::take(&mut self.letters))
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
