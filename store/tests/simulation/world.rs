//! Workers in one group at one store, and who of them takes the next step.
//!
//! Only whoever has the turn runs: all that happens is a function of the seed.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use adtrail_store::memory::Memory;
use attribution::ledger::{FactKey, Ledger, Position, Progress};
use attribution::worker::{Batch, Report};
use fastrand::Rng;

use super::broker::Broker;
use super::judge::{self, Counted, Verdict};
use super::plan::Plan;
use super::tally::{Tally, Trace};

/// A run that takes so many steps does not end.
const STEPS_MAX: u64 = 20_000_000;
/// A member that stands still for so many steps is no member any more.
const SESSION: u64 = 300;

/// Where the workers sit.
pub struct Table<'p> {
    world: Mutex<World<'p>>,
    /// One for each worker.
    turns: Vec<Condvar>,
}

pub struct World<'p> {
    pub plan: &'p Plan,
    pub rng: Rng,
    pub memory: Memory,
    /// Of these the index entries are there and the home is not.
    pub hidden: HashSet<FactKey>,
    pub broker: Broker,
    pub hands: Vec<Hand>,
    pub trace: Trace,
    pub tally: Tally,
    pub counted: Counted,
    tick: u64,
    turn: usize,
    troubles_left: u32,
    /// How it ended.
    pub end: Option<Verdict>,
}

/// What is known of a worker.
#[derive(Debug, Default)]
pub struct Hand {
    asleep_until: u64,
    /// When the group gives it up.
    given_up_at: Option<u64>,
    /// It does not come back.
    pub is_gone: bool,
    /// It found nothing to read.
    is_idle: bool,
    generation: u64,
    /// The next offset to read of each of its logs.
    next: BTreeMap<usize, usize>,
    /// The next offsets after the batch under way, and how many messages that has.
    batch: (Vec<(usize, usize)>, usize),
    /// A fact took the place of another in the batch under way.
    pub has_replaced: bool,
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

/// What a worker does next.
pub enum Poll {
    Batch(Batch),
    Nothing,
    Over,
}

impl<'p> Table<'p> {
    pub fn new(world: World<'p>) -> Self {
        let turns = world.hands.iter().map(|_| Condvar::new()).collect();
        Self { world: Mutex::new(world), turns }
    }

    /// Gives the turn away and waits until it is back, or all is over.
    pub fn turn(&self, me: usize) -> MutexGuard<'_, World<'p>> {
        let mut world = self.lock();
        world.pass();
        self.wait(me, world)
    }

    /// Waits for the first turn.
    pub fn first_turn(&self, me: usize) -> MutexGuard<'_, World<'p>> {
        self.wait(me, self.lock())
    }

    /// Gives the turn away for good.
    pub fn leave(&self) {
        let mut world = self.lock();
        world.pass();
        self.turns[world.turn].notify_one();
    }

    fn wait<'t>(
        &'t self,
        me: usize,
        mut world: MutexGuard<'t, World<'p>>,
    ) -> MutexGuard<'t, World<'p>> {
        while world.turn != me && world.end.is_none() {
            self.turns[world.turn].notify_one();
            world = self.turns[me].wait(world).unwrap_or_else(PoisonError::into_inner);
        }
        if world.end.is_some() {
            self.turns.iter().for_each(Condvar::notify_one);
        }
        world
    }

    pub fn lock(&self) -> MutexGuard<'_, World<'p>> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it all, unless it has ended.
    pub fn end(&self, verdict: Verdict) {
        self.lock().finish(verdict);
        self.turns.iter().for_each(Condvar::notify_one);
    }

    pub fn into_world(self) -> World<'p> {
        self.world.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'p> World<'p> {
    pub fn new(plan: &'p Plan, workers: usize, broker: Broker, rng: Rng, trace: Trace) -> Self {
        let mut world = Self {
            plan,
            rng,
            memory: Memory::default(),
            hidden: HashSet::new(),
            broker,
            hands: (0..workers).map(|_| Hand::default()).collect(),
            trace,
            tally: Tally::default(),
            counted: Counted::default(),
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
    fn pass(&mut self) {
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

    fn produce(&mut self, max: usize) {
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

    fn rebalance(&mut self) {
        self.tally.count("rebalances");
        self.broker.rebalance(&mut self.rng);
        self.hands.iter_mut().for_each(|hand| hand.is_idle = false);
    }

    /// All members begin again at the stored positions.
    fn begin_again(&mut self) {
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
            0..5 if self.must_live(me) => {}
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

    /// What a replaced fact reached is known to its batch alone, as docs/decisions/ledger-port.md
    /// says: so no process ends between recording that and deciding.
    pub fn must_live(&mut self, me: usize) -> bool {
        let must_live = self.hands[me].has_replaced;
        if must_live {
            self.tally.count("deaths put off");
        }
        must_live
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
            self.store(self.broker.position(place, offset));
        }
        self.begin_again();
    }

    /// The stored position of a log.
    fn stored(&mut self, place: usize) -> usize {
        let wanted = self.broker.position(place, 0);
        let positions = self.memory.positions().expect("memory does not fail");
        let is_it =
            |one: &&Position| (&one.topic, one.partition) == (&wanted.topic, wanted.partition);
        positions.iter().find(is_it).map_or(0, |one| one.next_offset as usize)
    }

    fn store(&mut self, position: Position) {
        let progress = Progress { positions: vec![position], consumed_until: None };
        self.memory.commit(Vec::new(), &progress).expect("memory does not fail");
    }

    /// A process starts and joins the group.
    pub fn start(&mut self, me: usize) {
        self.note(me, "starts", [0, 0]);
        self.tally.count("processes");
        self.hands[me] = Hand::default();
        self.broker.group.members.insert(me);
        self.rebalance();
    }

    /// A process has ended. It may be the last of this worker.
    pub fn died(&mut self, me: usize) {
        self.note(me, "dies", [0, 0]);
        self.tally.count("deaths");
        if self.hands[me].has_written {
            self.tally.count("deaths between two writes of a batch");
        }
        let others = self.hands.iter().filter(|hand| !hand.is_gone).count() - 1;
        self.hands[me] = Hand {
            asleep_until: self.tick + self.rng.u64(1..=self.plan.odds.pause_max),
            given_up_at: Some(self.tick + self.rng.u64(1..=SESSION)),
            is_gone: others > 0 && self.rng.u8(0..6) == 0,
            ..Hand::default()
        };
    }

    pub fn poll(&mut self, me: usize) -> Poll {
        if self.end.is_some() {
            return Poll::Over;
        }
        self.keep_up(me);
        let has_more = |place: &usize| {
            let next = self.hands[me].next.get(place);
            next.is_some_and(|next| *next < self.broker.logs[*place].messages.len())
        };
        let mut open: Vec<usize> = (0..self.broker.logs.len()).filter(has_more).collect();
        if open.is_empty() {
            self.rest(me);
            return if self.end.is_some() { Poll::Over } else { Poll::Nothing };
        }
        self.rng.shuffle(&mut open);
        let mut left = self.rng.usize(1..=self.plan.odds.batch_max);
        let (mut facts, mut nexts) = (Vec::new(), Vec::new());
        for place in open {
            let from = self.hands[me].next[&place];
            let messages = &self.broker.logs[place].messages[from..];
            let least = usize::from(facts.is_empty());
            let count = self.rng.usize(least..=left.min(messages.len()).max(least));
            left = left.saturating_sub(count);
            facts.extend(messages[..count].iter().map(|message| message.fact.clone()));
            if count > 0 {
                nexts.push((place, from + count));
            }
        }
        nexts.sort_unstable();
        let of = |(place, next): &(usize, usize)| self.broker.position(*place, *next);
        let positions = nexts.iter().map(of).collect();
        self.note(me, "takes a batch", [facts.len() as u64, nexts.len() as u64]);
        self.hands[me].batch = (nexts, facts.len());
        Poll::Batch(Batch { facts, progress: Progress { positions, consumed_until: None } })
    }

    /// Learns which logs are its own now, and begins at their stored positions.
    fn keep_up(&mut self, me: usize) {
        self.hands[me].given_up_at = None;
        if self.broker.group.members.insert(me) {
            self.rebalance();
        }
        if self.hands[me].generation == self.broker.group.generation {
            return;
        }
        let before = std::mem::take(&mut self.hands[me].next);
        self.hands[me].generation = self.broker.group.generation;
        for place in 0..self.broker.logs.len() {
            if self.broker.group.is_owner(me, place) {
                let kept = before.get(&place).filter(|_| self.plan.odds.is_cooperative).copied();
                let next = kept.unwrap_or_else(|| self.stored(place));
                self.hands[me].next.insert(place, next);
            }
        }
    }

    /// There is nothing to read. If that is so for all, it goes on, or it is over.
    fn rest(&mut self, me: usize) {
        self.hands[me].is_idle = true;
        self.hands[me].asleep_until = self.tick + self.rng.u64(1..20);
        if !self.hands.iter().all(|hand| hand.is_gone || hand.is_idle) {
            return;
        }
        if !self.broker.coming.is_empty() {
            return self.produce(20);
        }
        let is_read = |world: &mut Self, place: usize| {
            world.stored(place) == world.broker.logs[place].messages.len()
        };
        if (0..self.broker.logs.len()).all(|place| is_read(self, place)) {
            return self.finish(Ok(()));
        }
        self.tally.count("read again from the stored positions");
        self.begin_again();
    }

    /// Positions that a worker gives; whether or not it is late.
    pub fn take_positions(&mut self, me: usize, positions: &[Position]) -> Verdict {
        let generation = self.hands[me].generation;
        let is_late = generation != self.broker.group.generation;
        if is_late {
            self.tally.count("batches finished by whoever was no owner any more");
        }
        for position in positions {
            let (place, next) = (self.broker.place(position), position.next_offset as usize);
            let log = &mut self.broker.logs[place];
            judge::is_kept(self.plan, (&mut self.memory, &self.hidden), log, next)?;
            if is_late && self.plan.odds.is_fenced {
                self.tally.count("positions refused");
                continue;
            }
            if next < self.stored(place) {
                self.tally.count("positions set back by whoever was late");
            }
            self.store(position.clone());
        }
        Ok(())
    }

    /// A batch is done.
    pub fn processed(&mut self, me: usize, report: &Report) -> Verdict {
        self.tally.count("batches");
        let hand = &mut self.hands[me];
        let (nexts, messages) = std::mem::take(&mut hand.batch);
        (hand.has_replaced, hand.has_written) = (false, false);
        for (place, next) in nexts {
            hand.next.entry(place).and_modify(|known| *known = next);
        }
        self.tally.add("messages processed", messages as u64);
        self.counted.add(report, messages)
    }
}
