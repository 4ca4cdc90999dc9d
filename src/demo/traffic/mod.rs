//! Made-up traffic: believable, and the same whenever the plan is the same.
//!
//! Pure, so that a demo, a test and a measurement can all be fed with it: time and seed are
//! arguments. [`Traffic`] gives messages in the order in which a broker would receive them, which
//! is not the order in which things happened: some come late, some more than once, and a few are
//! no events at all. Apps and campaigns are in [`catalogue`], one device's doings in `journey`.

mod broken;
pub mod catalogue;
mod device;
mod journey;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use fastrand::Rng;
use ingest::TopicKind;

/// What to make up.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    /// Milliseconds since 1970; nothing happens before.
    pub from_ms: i64,
    /// Nothing happens from here on, and all that happened has been received.
    pub to_ms: i64,
    /// Devices, each with its doings in one app: three messages on average, mostly clicks.
    pub journeys: u32,
}

/// A record for a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub topic: TopicKind,
    /// The app's.
    pub key: &'static str,
    pub value: Vec<u8>,
    /// When it happened, in milliseconds since 1970.
    pub time_ms: i64,
    /// When the broker receives it, in milliseconds since 1970.
    pub arrival_ms: i64,
    /// Not an event: it has to end as a dead letter.
    pub is_broken: bool,
}

/// The messages of a plan, by time of arrival.
#[derive(Debug)]
pub struct Traffic {
    plan: Plan,
    rng: Rng,
    begun: u32,
    /// By time of arrival, and a number that sets apart what arrives at the same moment.
    under_way: BTreeMap<(i64, u64), Message>,
    sent: u64,
}

/// One journey in so many has a broken message.
const BROKEN_EVERY: u32 = 450;

impl Traffic {
    pub fn new(plan: Plan) -> Self {
        let rng = Rng::with_seed(plan.seed);
        Self { plan, rng, begun: 0, under_way: BTreeMap::new(), sent: 0 }
    }

    /// Begins the next journey.
    fn begin(&mut self) {
        let start_ms = self.next_start_ms();
        let messages = journey::draw(&mut self.rng, start_ms);
        if self.begun % BROKEN_EVERY == BROKEN_EVERY / 2
            && let Some(sample) = messages.first()
        {
            self.send(broken::message(self.begun / BROKEN_EVERY, sample));
        }
        let to_ms = self.plan.to_ms;
        for message in messages.into_iter().filter(|message| message.time_ms < to_ms) {
            self.send(message);
        }
        self.begun += 1;
    }

    fn send(&mut self, mut message: Message) {
        message.arrival_ms = message.arrival_ms.min(self.plan.to_ms);
        self.under_way.insert((message.arrival_ms, self.sent), message);
        self.sent += 1;
    }

    /// Journeys begin evenly over the plan's time.
    fn next_start_ms(&self) -> i64 {
        let span_ms = self.plan.to_ms.saturating_sub(self.plan.from_ms).max(0);
        let part = f64::from(self.begun) / f64::from(self.plan.journeys.max(1));
        self.plan.from_ms + (span_ms as f64 * part) as i64
    }

    /// Whether no journey to come can send anything before the first message under way.
    fn is_first_settled(&self) -> bool {
        let first = self.under_way.first_key_value();
        first.is_some_and(|((arrival_ms, _), _)| *arrival_ms <= self.next_start_ms())
    }
}

impl Iterator for Traffic {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        while self.begun < self.plan.journeys && !self.is_first_settled() {
            self.begin();
        }
        self.under_way.pop_first().map(|(_, message)| message)
    }
}
