//! Workers in one group at one store: who of them takes the next step, and what goes wrong.

use std::collections::BTreeMap;

use attribution::ledger::Position;
use fastrand::Rng;

use super::broker::Broker;
use super::judge::{SummaryKey, Verdict};
use super::plan::Plan;
use super::tally::{Tally, Trace};
use crate::support::cells::Model;

/// A run that takes so many steps does not end.
const STEPS_MAX: u64 = 20_000_000;
/// A member that stands still for so many steps is no member any more.
pub const SESSION: u64 = 300;

pub struct World<'p> {
    pub plan: &'p Plan,
    pub rng: Rng,
    pub model: Model,
    pub broker: Broker,
    pub hands: Vec<Hand>,
    pub trace: Trace,
    pub tally: Tally,
    pub counted: SummaryKey,
    pub tick: u64,
    pub turn: usize,
    troubles_left: u32,
    /// How it ended.
    pub end: Option<Verdict>,
}

/// What is known of a worker.
#[derive(Debug, Default)]
pub struct Hand {
    pub asleep_until: u64,
    /// When the group gives it up.
    pub given_up_at: Option<u64>,
    /// It does not come back.
    pub is_gone: bool,
    /// It found nothing to read.
    pub is_idle: bool,
    pub generation: u64,
    /// The next offset to read of each of its logs.
    pub next: BTreeMap<usize, usize>,
    /// The next offsets after the batch under way, and how many messages that has.
    pub batch: (Vec<(usize, usize)>, usize),
    /// Something of the batch under way is written.
    pub has_written: bool,
}

/// What a step does to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Reads,
    Writes,
    /// Writes a decision.
    Decides,
}

/// What goes wrong with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Nothing,
    /// The process ends before it is done.
    DieBefore,
    /// It is done, and the process ends.
    DieAfter,
    /// It is done, the answer is lost, and the ledger asks again.
    AnswerLost,
    /// The worker stands still for a while.
    Pause,
}

impl<'p> World<'p> {
    pub fn new(plan: &'p Plan, workers: usize, broker: Broker, rng: Rng, trace: Trace) -> Self {
        let mut world = Self {
            plan,
            rng,
            model: Model::default(),
            broker,
            hands: (0..workers).map(|_| Hand::default()).collect(),
            trace,
            tally: Tally::default(),
            counted: SummaryKey::default(),
            tick: 0,
            turn: 0,
            troubles_left: plan.odds.troubles_max,
            end: None,
        };
        // Some come later.
        for hand in 1..workers {
            world.hands[hand].asleep_until = world.rng.u64(0..3_000);
        }
        world
    }

    pub fn note(&mut self, who: usize, what: &'static str, numbers: [u64; 2]) {
        self.trace.note((self.tick, who), what, numbers);
    }

    pub fn finish(&mut self, verdict: Verdict) {
        self.end.get_or_insert(verdict);
    }

    /// Draws who is next.
    pub fn pass(&mut self) {
        self.tick += 1;
        self.tally.count("steps");
        if self.tick > STEPS_MAX {
            self.finish(Err("it does not end".into()));
        }
        self.happen();
        let me = self.turn;
        let is_awake = |hand: &Hand, tick| !hand.is_gone && hand.asleep_until <= tick;
        if is_awake(&self.hands[me], self.tick) && self.rng.u32(0..self.plan.odds.switch) != 0 {
            return;
        }
        let here = || self.hands.iter().filter(|hand| !hand.is_gone);
        let first = here().map(|hand| hand.asleep_until).min().unwrap_or_default();
        self.tick = self.tick.max(first);
        let tick = self.tick;
        let awake = (0..self.hands.len()).filter(|hand| is_awake(&self.hands[*hand], tick));
        let awake: Vec<usize> = awake.collect();
        self.turn = self.rng.choice(awake).unwrap_or(me);
    }

    /// What happens by itself.
    fn happen(&mut self) {
        if !self.broker.coming.is_empty() && self.rng.u32(0..self.plan.odds.produce) == 0 {
            self.produce(8);
        }
        for hand in 0..self.hands.len() {
            if self.hands[hand].given_up_at.is_some_and(|at| at <= self.tick) {
                self.hands[hand].given_up_at = None;
                if self.broker.group.members.remove(&hand) {
                    self.tally.count("members given up");
                    self.rebalance();
                }
            }
        }
    }

    pub fn produce(&mut self, max: usize) {
        let count = self.rng.usize(1..=max);
        let had = self.broker.logs.len();
        if self.broker.produce(count) {
            if had > 0 {
                self.tally.count("partitions added");
            }
            self.rebalance();
        }
        self.hands.iter_mut().for_each(|hand| hand.is_idle = false);
    }

    pub fn rebalance(&mut self) {
        self.tally.count("rebalances");
        self.broker.rebalance(&mut self.rng);
        self.hands.iter_mut().for_each(|hand| hand.is_idle = false);
    }

    /// All members begin again at the stored positions.
    pub fn begin_again(&mut self) {
        self.hands.iter_mut().for_each(|hand| hand.next.clear());
        self.rebalance();
    }

    pub fn trouble(&mut self, me: usize, act: Act) -> Trouble {
        let one_in = match act {
            Act::Reads => self.plan.odds.trouble * 8,
            Act::Writes => self.plan.odds.trouble,
            Act::Decides => (self.plan.odds.trouble / self.plan.odds.deciding).max(2),
        };
        if self.troubles_left == 0 || self.rng.u32(0..one_in) != 0 {
            return Trouble::Nothing;
        }
        self.troubles_left -= 1;
        match self.rng.u8(0..13) {
            0..2 => return Trouble::DieBefore,
            2..5 => return Trouble::DieAfter,
            5..7 if act != Act::Reads => return Trouble::AnswerLost,
            7..10 => {
                self.pause(me);
                return Trouble::Pause;
            }
            10 => self.rewind(1),
            11 => self.rewind(self.broker.logs.len()),
            _ => self.rebalance(),
        }
        Trouble::Nothing
    }

    fn pause(&mut self, me: usize) {
        let ticks = self.rng.u64(1..=self.plan.odds.pause_max);
        self.note(me, "pauses", [ticks, 0]);
        self.tally.count("pauses");
        self.hands[me].asleep_until = self.tick + ticks;
        if ticks > SESSION {
            self.hands[me].given_up_at = Some(self.tick + SESSION);
        }
    }

    /// Sets positions of so many logs back, all of them to the beginning: the group is deleted.
    fn rewind(&mut self, logs: usize) {
        let is_all = logs == self.broker.logs.len();
        self.tally.count(if is_all { "groups deleted" } else { "positions rewound" });
        let first = if is_all { 0 } else { self.rng.usize(0..self.broker.logs.len()) };
        for place in first..first + logs {
            let stored = self.stored(place);
            let offset = if is_all { 0 } else { self.rng.usize(0..=stored) };
            let position = self.broker.position(place, offset);
            self.store(&position);
        }
        self.begin_again();
    }

    /// The stored position of a log.
    pub fn stored(&self, place: usize) -> usize {
        let Position { topic, partition, .. } = self.broker.position(place, 0);
        let stored = self.model.positions.get(&(topic, partition));
        stored.map_or(0, |position| position.next_offset as usize)
    }

    pub fn store(&mut self, position: &Position) {
        self.model.store(position);
    }
}
