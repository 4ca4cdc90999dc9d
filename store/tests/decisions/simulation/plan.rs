//! What a seed stands for: the facts, how they are produced, and how much goes wrong.

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
    /// Messages of the facts, each once or more.
    pub messages: usize,
    pub odds: Odds,
}

/// Which world it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One worker and a store of its own, which commits all or nothing.
    Alone,
    /// The same, and state expires.
    Expiring,
    /// Workers in one group at one store, where nothing is atomic but one key.
    Shared { workers: usize },
}

/// How much goes wrong, and when.
#[derive(Debug, Clone, Copy)]
pub struct Odds {
    /// One step in so many is another worker's.
    pub switch: u32,
    /// At one write in so many, and one read in eight times as many, something goes wrong; alone,
    /// at one batch in a quarter as many.
    pub trouble: u32,
    /// So many times as often it goes wrong when a decision is written.
    pub deciding: u32,
    /// Then nothing does any more.
    pub troubles_max: u32,
    /// Messages are produced at one step in so many.
    pub produce: u32,
    pub batch_max: usize,
    /// Whether the broker refuses positions of members of past generations.
    pub is_fenced: bool,
    /// Whether members keep their place in partitions that a rebalance leaves them.
    pub is_cooperative: bool,
    /// How many steps a worker stands still at most.
    pub pause_max: u64,
}

impl Plan {
    /// The plan and the broker as they are at first; what is drawn from the generator after that
    /// is the schedule.
    pub fn new(seed: u64, rng: &mut Rng) -> (Self, Broker) {
        let kind = match rng.u8(0..8) {
            0 => Kind::Alone,
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
            let counts = rng.bool();
            plan.rules = if counts { "short, 2 clicks" } else { "short" };
            plan.policy = traffic::counting(counts);
            plan.facts = draw(&traffic::traffic(), &mut runner);
            let lateness = draw(&traffic::lateness(), &mut runner);
            let partitions = traffic::partitions(&plan.facts, &lateness);
            for (place, messages) in partitions.into_iter().enumerate() {
                let log = broker.log(Family::ALL[place / 2], (place % 2) as i32);
                plan.messages += messages.len();
                broker.logs[log].messages = messages;
            }
        } else {
            let Rules(name, policy) = draw(&random::policies(), &mut runner);
            let max = *rng.choice(&[4, 12, 25, 40]).expect("some sizes");
            let Facts(facts) = draw(&random::facts(max), &mut runner);
            (plan.rules, plan.policy, plan.facts) = (name, policy, facts);
            broker.coming = produced(&plan.facts, rng);
            plan.messages = broker.coming.len();
        }
        (plan, broker)
    }
}

impl Odds {
    fn draw(rng: &mut Rng) -> Self {
        let mut one = |of: &[u32]| *rng.choice(of).expect("some odds");
        Self {
            switch: one(&[1, 2, 3, 8, 30, 200]),
            trouble: one(&[4, 12, 40, 150]),
            deciding: one(&[1, 4, 20]),
            troubles_max: one(&[0, 2, 5, 12, 30]),
            produce: one(&[1, 20, 200]),
            batch_max: one(&[1, 3, 8, 30, 200]) as usize,
            is_fenced: one(&[0, 1]) == 1,
            is_cooperative: one(&[0, 1]) == 1,
            pause_max: one(&[50, 1_000, 8_000]).into(),
        }
    }
}

/// Each fact once or up to five times, in an order near to that of time or in none, to partitions
/// of which some come later; by app, or by nothing at all.
fn produced(facts: &[Fact], rng: &mut Rng) -> VecDeque<(Family, i32, Message)> {
    const HOUR: u64 = 3_600_000;
    let copies_max = rng.usize(1..=5);
    let late_max = *rng.choice(&[1, HOUR, 48 * HOUR, 1 << 40]).expect("some spans");
    let mut messages: Vec<(u64, Message)> = Vec::new();
    for fact in facts {
        for _ in 0..rng.usize(1..=copies_max) {
            let when = fact.time().millis() + rng.u64(0..late_max);
            messages.push((when, Message { fact: fact.clone(), broker_ms: 0 }));
        }
    }
    rng.shuffle(&mut messages);
    messages.sort_by_key(|(when, _)| *when);
    let is_by_app = rng.bool();
    let (first, more) = (rng.u32(1..=4), rng.u32(0..=2));
    let grows_at = rng.usize(0..=messages.len());
    let mut coming = VecDeque::new();
    for (place, (_, message)) in messages.into_iter().enumerate() {
        let partitions = if place < grows_at { first } else { first + more };
        let key = if is_by_app { message.fact.pid().0 } else { rng.u32(..) };
        coming.push_back((message.fact.family(), (key % partitions) as i32, message));
    }
    coming
}

fn runner(rng: &mut Rng) -> TestRunner {
    let mut bytes = [0; 32];
    rng.fill(&mut bytes);
    let config = Config { failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn draw<S: Strategy>(strategy: &S, runner: &mut TestRunner) -> S::Value {
    strategy.new_tree(runner).expect("nothing is refused").current()
}
