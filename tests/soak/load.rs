//! Produces the traffic: first as fast as it is consumed, to measure the full rate, then steadily.

use std::time::{Duration, Instant};

use crate::traffic::{Becomes, Sent, Traffic};
use testbed::adtrail::Adtrail;
use testbed::kafka::{Kafka, Producer};
use testbed::site::{Site, Topics};

/// Interval between two ticks of a steady load.
pub const TICK: Duration = Duration::from_millis(100);
/// Maximum number of unread records while the full rate is measured.
const UNREAD_MAX: f64 = 100_000.0;
/// Number of devices per tick while the full rate is measured.
const DEVICES: u64 = 1_000;

/// Counts of a topic's records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub facts: u64,
    pub repeats: u64,
    pub dead_letters: u64,
    pub empty: u64,
}

impl Counts {
    fn add(&mut self, becomes: Becomes) {
        match becomes {
            Becomes::Fact => self.facts += 1,
            Becomes::Repeat => self.repeats += 1,
            Becomes::DeadLetter => self.dead_letters += 1,
            Becomes::Nothing => self.empty += 1,
        }
    }

    pub fn all(&self) -> u64 {
        self.facts + self.repeats + self.dead_letters + self.empty
    }
}

pub struct Load<'k> {
    pub traffic: Traffic,
    topics: Topics,
    producer: &'k Producer,
    /// Counts of each family.
    pub produced: [Counts; 3],
    /// Maximum delay of a tick.
    pub delay_max: Duration,
}

impl<'k> Load<'k> {
    pub fn new(traffic: Traffic, topics: &Topics, producer: &'k Producer) -> Self {
        let (topics, produced, delay_max) = (topics.clone(), Default::default(), Duration::ZERO);
        Self { traffic, topics, producer, produced, delay_max }
    }

    /// Produces the records of a tick. Returns when they are acknowledged, so that records are in Kafka in the order of
    /// ticks.
    pub fn produce(&mut self, tick: u64) {
        let records = self.traffic.records(tick);
        let time_ms = self.traffic.time_ms(tick);
        for sent in &records {
            self.produced[sent.family as usize].add(sent.becomes);
        }
        let topics = self.topics.all();
        let message = |sent: &Sent| (topics[sent.family as usize], sent.message(time_ms));
        self.producer.produce_all(records.iter().map(message));
    }

    /// Waits until a tick is due.
    pub fn await_due(&mut self, tick: u64, started: Instant) {
        let due = TICK * u32::try_from(tick).expect("the tick fits into u32");
        let passed = started.elapsed();
        self.delay_max = self.delay_max.max(passed.saturating_sub(due));
        std::thread::sleep(due.saturating_sub(passed));
    }

    pub fn all(&self) -> u64 {
        self.produced.iter().map(Counts::all).sum()
    }
}

/// Returns the number of records of a tick per device that starts in it.
pub fn records_per_device(traffic: &Traffic) -> f64 {
    let sample = Traffic { devices: DEVICES, ..traffic.clone() };
    // A tick that is late enough to have records of every stage.
    sample.records(sample.tick_of(crate::traffic::START_MS + crate::traffic::MEMORY_MS)).len()
        as f64
        / DEVICES as f64
}

/// Measures how many records per second this machine can produce, store in Kafka and commit, all at the same time. A
/// separate service consumes them.
pub fn full_rate(kafka: &Kafka, site: &Site, traffic: &Traffic, duration: Duration) -> f64 {
    let producer = kafka.producer();
    let traffic = Traffic { devices: DEVICES, ..traffic.clone() };
    let mut load = Load::new(traffic, &site.topics, &producer);
    let adtrail = site.start();
    let read = |adtrail: &Adtrail| adtrail.metric("adtrail_ingest_read_total").unwrap_or(0.0);
    let started = Instant::now();
    let (mut tick, mut warm) = (0, None);
    while started.elapsed() < duration {
        if load.all() as f64 - read(&adtrail) > UNREAD_MAX {
            std::thread::sleep(Duration::from_millis(20));
        } else {
            load.produce(tick);
            tick += 1;
        }
        if warm.is_none() && started.elapsed() > duration / 4 {
            warm = Some((Instant::now(), read(&adtrail)));
        }
    }
    let (since, before) = warm.expect("the warm-up is a quarter of the time");
    let rate = (read(&adtrail) - before) / since.elapsed().as_secs_f64();
    adtrail.kill9();
    let topics = site.topics.all().map(|topic| [topic.to_owned(), format!("{topic}.dlq")]);
    kafka.delete_topics(topics.as_flattened());
    rate
}
