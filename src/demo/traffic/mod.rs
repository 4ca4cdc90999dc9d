//! Generated traffic: realistic, and always the same for the same plan.
//!
//! The generator is pure: time and seed are arguments, so that both the demo and tests can use it. [`Traffic`] yields
//! messages in the order in which a broker receives them. That is not the order of event times: some messages are
//! late, some are redelivered, and a few are invalid. [`catalogue`] has the apps and campaigns, `journey` the events
//! of one device.

pub mod catalogue;
mod device;
mod invalid;
mod journey;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use fastrand::Rng;
use ingest::TopicKind;

/// The parameters of the traffic.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    /// The earliest event time, in milliseconds since 1970.
    pub from_ms: i64,
    /// The end of event times, exclusive, and the latest arrival, in milliseconds since 1970.
    pub to_ms: i64,
    /// The number of journeys, each of one device in one app: three messages on average, mostly clicks.
    pub journeys: u32,
}

/// A record for a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub topic: TopicKind,
    /// The app's key.
    pub key: &'static str,
    pub value: Vec<u8>,
    /// The event time, in milliseconds since 1970.
    pub time_ms: i64,
    /// Time at which the broker receives the message, in milliseconds since 1970.
    pub arrival_ms: i64,
    /// True if the message is invalid and must become a dead letter.
    pub is_invalid: bool,
}

/// The messages of a plan, in order of arrival.
#[derive(Debug)]
pub struct Traffic {
    plan: Plan,
    rng: Rng,
    started_journeys: u32,
    /// Messages by arrival time and a sequence number, which distinguishes messages with the same time.
    pending: BTreeMap<(i64, u64), Message>,
    sent: u64,
}

/// One of this many journeys has an invalid message.
const INVALID_EVERY: u32 = 450;

impl Traffic {
    pub fn new(plan: Plan) -> Self {
        let rng = Rng::with_seed(plan.seed);
        Self { plan, rng, started_journeys: 0, pending: BTreeMap::new(), sent: 0 }
    }

    /// Generates the next journey.
    fn begin(&mut self) {
        let start_ms = self.next_start_ms();
        let messages = journey::draw(&mut self.rng, start_ms);
        if self.started_journeys % INVALID_EVERY == INVALID_EVERY / 2
            && let Some(sample) = messages.first()
        {
            self.send(invalid::message(self.started_journeys / INVALID_EVERY, sample));
        }
        let to_ms = self.plan.to_ms;
        for message in messages.into_iter().filter(|message| message.time_ms < to_ms) {
            self.send(message);
        }
        self.started_journeys += 1;
    }

    fn send(&mut self, mut message: Message) {
        message.arrival_ms = message.arrival_ms.min(self.plan.to_ms);
        self.pending.insert((message.arrival_ms, self.sent), message);
        self.sent += 1;
    }

    /// Returns the start of the next journey. Journeys start evenly over the plan's time.
    fn next_start_ms(&self) -> i64 {
        let span_ms = self.plan.to_ms.saturating_sub(self.plan.from_ms).max(0);
        let fraction = f64::from(self.started_journeys) / f64::from(self.plan.journeys.max(1));
        self.plan.from_ms + (span_ms as f64 * fraction) as i64
    }

    /// Checks whether no later journey can send a message that arrives before the first pending one.
    fn is_first_final(&self) -> bool {
        let first = self.pending.first_key_value();
        first.is_some_and(|((arrival_ms, _), _)| *arrival_ms <= self.next_start_ms())
    }
}

impl Iterator for Traffic {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        while self.started_journeys < self.plan.journeys && !self.is_first_final() {
            self.begin();
        }
        self.pending.pop_first().map(|(_, message)| message)
    }
}
