//! The plan that is drawn from a seed: the facts, how they are produced, and which faults occur.

use std::collections::VecDeque;
use std::sync::Arc;

use attribution::facts::event::{Fact, Family};
use attribution::rules::policy::Policy;
use fastrand::Rng;
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::broker::Broker;
use crate::support::random::{self, Facts, Rules};
use crate::support::traffic::{self, Message};

pub struct Plan {
    pub seed: u64,
    pub kind: Kind,
    pub rules: &'static str,
    pub policy: Arc<Policy>,
    pub facts: Vec<Fact>,
    /// The number of messages; a fact can have several.
    pub messages: usize,
    pub odds: Odds,
}

/// The kind of simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One worker with its own store, which commits atomically.
    Single,
    /// Like [`Kind::Single`], with expiry.
    Expiring,
    /// Workers in one group on one store, in which only single keys are atomic.
    Shared { workers: usize },
}

/// The probabilities of faults and other events, as one in n.
#[derive(Debug, Clone, Copy)]
pub struct Odds {
    /// Steps until another worker takes the turn.
    pub switch: u32,
    /// Writes per fault. Faults are an eighth as frequent at reads, and four times as frequent at batches of a single
    /// worker.
    pub fault: u32,
    /// The factor by which faults are more frequent for writes of decisions.
    pub decision_fault_factor: u32,
    /// The maximum number of faults.
    pub faults_max: u32,
    /// Steps until more messages are produced.
    pub produce: u32,
    pub batch_max: usize,
    /// True if the broker refuses positions from members of past generations.
    pub is_fenced: bool,
    /// True if members continue partitions that they keep in a rebalance, instead of restarting from the stored
    /// positions.
    pub is_cooperative: bool,
    /// The maximum pause of a worker, in steps.
    pub pause_max: u64,
}

impl Plan {
    /// Draws the plan and the initial broker. Everything drawn from the generator afterwards is the schedule.
    pub fn new(seed: u64, rng: &mut Rng) -> (Self, Broker) {
        let kind = match rng.u8(0..8) {
            0 => Kind::Single,
            1 => Kind::Expiring,
            _ => Kind::Shared { workers: rng.usize(1..=4) },
        };
        let mut runner = runner(rng);
        let odds = Odds::draw(rng);
        let mut plan = Self {
            seed,
            kind,
            rules: "",
            policy: Arc::default(),
            facts: vec![],
            messages: 0,
            odds,
        };
        let mut broker = Broker::default();
        if kind == Kind::Expiring {
            let is_limited = rng.bool();
            plan.rules = if is_limited { "short, 2 clicks" } else { "short" };
            plan.policy = traffic::click_limit(is_limited);
            plan.facts = draw(&traffic::traffic(), &mut runner);
            let lateness = draw(&traffic::lateness(), &mut runner);
            let partitions = traffic::partitions(&plan.facts, &lateness);
            for (index, messages) in partitions.into_iter().enumerate() {
                let (family, number) = (Family::ALL[index / 2], (index % 2) as i32);
                let log = broker.find_or_add_log(family, number);
                plan.messages += messages.len();
                broker.logs[log].messages = messages;
            }
        } else {
            let Rules(name, policy) = draw(&random::policies(), &mut runner);
            let max = *rng.choice(&[4, 12, 25, 40]).expect("the list is not empty");
            let Facts(facts) = draw(&random::facts(max), &mut runner);
            (plan.rules, plan.policy, plan.facts) = (name, policy, facts);
            broker.unproduced = messages(&plan.facts, rng);
            plan.messages = broker.unproduced.len();
        }
        (plan, broker)
    }
}

impl Odds {
    fn draw(rng: &mut Rng) -> Self {
        let mut one_of = |odds: &[u32]| *rng.choice(odds).expect("the list is not empty");
        Self {
            switch: one_of(&[1, 2, 3, 8, 30, 200]),
            fault: one_of(&[4, 12, 40, 150]),
            decision_fault_factor: one_of(&[1, 4, 20]),
            faults_max: one_of(&[0, 2, 5, 12, 30]),
            produce: one_of(&[1, 20, 200]),
            batch_max: one_of(&[1, 3, 8, 30, 200]) as usize,
            is_fenced: one_of(&[0, 1]) == 1,
            is_cooperative: one_of(&[0, 1]) == 1,
            pause_max: one_of(&[50, 1_000, 8_000]).into(),
        }
    }
}

/// Draws one to five messages per fact, in roughly chronological or random order. The partition depends on the app or
/// is random; some partitions are added later.
fn messages(facts: &[Fact], rng: &mut Rng) -> VecDeque<(Family, i32, Message)> {
    const HOUR: u64 = 3_600_000;
    let copies_max = rng.usize(1..=5);
    let late_max = *rng.choice(&[1, HOUR, 48 * HOUR, 1 << 40]).expect("the list is not empty");
    let mut messages: Vec<(u64, Message)> = Vec::new();
    for fact in facts {
        for _ in 0..rng.usize(1..=copies_max) {
            let produced_ms = fact.time().millis() + rng.u64(0..late_max);
            messages.push((produced_ms, Message { fact: fact.clone(), broker_ms: 0 }));
        }
    }
    rng.shuffle(&mut messages);
    messages.sort_by_key(|(produced_ms, _)| *produced_ms);
    let is_by_app = rng.bool();
    let (initial, added) = (rng.u32(1..=4), rng.u32(0..=2));
    let grows_at = rng.usize(0..=messages.len());
    let mut unproduced = VecDeque::new();
    for (index, (_, message)) in messages.into_iter().enumerate() {
        let partitions = if index < grows_at { initial } else { initial + added };
        let key = if is_by_app { message.fact.pid().0 } else { rng.u32(..) };
        let family = message.fact.id_space().family();
        unproduced.push_back((family, (key % partitions) as i32, message));
    }
    unproduced
}

fn runner(rng: &mut Rng) -> TestRunner {
    let mut bytes = [0; 32];
    rng.fill(&mut bytes);
    let config = Config { failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn draw<S: Strategy>(strategy: &S, runner: &mut TestRunner) -> S::Value {
    strategy.new_tree(runner).expect("the strategy rejects nothing").current()
}
