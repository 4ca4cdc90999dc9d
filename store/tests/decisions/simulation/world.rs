//! Workers in one group on one store: which of them takes the next step, and which faults occur.

use std::collections::BTreeMap;

use attribution::ledger::Position;
use fastrand::Rng;

use super::broker::Broker;
use super::invariants::{CheckResult, ReportTotals};
use super::plan::Plan;
use super::stats::{Stats, Trace};
use crate::support::cells::Model;

/// A run with more steps counts as endless.
const STEPS_MAX: u64 = 20_000_000;
/// The session timeout of group members, in steps.
pub const SESSION_TIMEOUT: u64 = 300;

pub struct World<'p> {
    pub plan: &'p Plan,
    pub rng: Rng,
    pub model: Model,
    pub broker: Broker,
    pub workers: Vec<WorkerState>,
    pub trace: Trace,
    pub stats: Stats,
    pub counted: ReportTotals,
    pub tick: u64,
    pub turn: usize,
    faults_remaining: u32,
    /// The result of the run, once it has ended.
    pub result: Option<CheckResult>,
}

/// The state of a worker.
#[derive(Debug, Default)]
pub struct WorkerState {
    pub asleep_until: u64,
    /// When its session in the group expires.
    pub session_ends_at: Option<u64>,
    /// True if it has crashed for good.
    pub is_gone: bool,
    /// True if it found nothing to read.
    pub is_idle: bool,
    pub generation: u64,
    /// The next offset to read of each of its logs.
    pub next: BTreeMap<usize, usize>,
    /// The next offsets after the batch in progress, and the number of its messages.
    pub batch: (Vec<(usize, usize)>, usize),
    /// True if a part of the batch in progress is written.
    pub has_written: bool,
}

/// How a step accesses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// Writes a decision.
    Decide,
}

/// A fault at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    /// The process crashes before the step.
    CrashBefore,
    /// The process crashes after the step.
    CrashAfter,
    /// The step is done, but its response is lost, so the ledger retries.
    ResponseLost,
    /// The worker is paused for a while.
    Pause,
}

impl<'p> World<'p> {
    pub fn new(plan: &'p Plan, workers: usize, broker: Broker, rng: Rng, trace: Trace) -> Self {
        let mut world = Self {
            plan,
            rng,
            model: Model::default(),
            broker,
            workers: (0..workers).map(|_| WorkerState::default()).collect(),
            trace,
            stats: Stats::default(),
            counted: ReportTotals::default(),
            tick: 0,
            turn: 0,
            faults_remaining: plan.odds.faults_max,
            result: None,
        };
        // Some workers start later.
        for worker in 1..workers {
            world.workers[worker].asleep_until = world.rng.u64(0..3_000);
        }
        world
    }

    pub fn note(&mut self, worker: usize, step: &'static str, numbers: [u64; 2]) {
        self.trace.note((self.tick, worker), step, numbers);
    }

    pub fn finish(&mut self, result: CheckResult) {
        self.result.get_or_insert(result);
    }

    /// Draws the worker that takes the next step.
    pub fn pass_turn(&mut self) {
        self.tick += 1;
        self.stats.count("steps");
        if self.tick > STEPS_MAX {
            self.finish(Err("the run does not end".into()));
        }
        self.run_background_events();
        let me = self.turn;
        let is_awake = |worker: &WorkerState, tick| !worker.is_gone && worker.asleep_until <= tick;
        if is_awake(&self.workers[me], self.tick) && self.rng.u32(0..self.plan.odds.switch) != 0 {
            return;
        }
        let present = self.workers.iter().filter(|worker| !worker.is_gone);
        let first = present.map(|worker| worker.asleep_until).min().unwrap_or_default();
        self.tick = self.tick.max(first);
        let tick = self.tick;
        let all = 0..self.workers.len();
        let awake: Vec<usize> =
            all.filter(|worker| is_awake(&self.workers[*worker], tick)).collect();
        self.turn = self.rng.choice(awake).unwrap_or(me);
    }

    /// Produces messages and expires sessions.
    fn run_background_events(&mut self) {
        if !self.broker.unproduced.is_empty() && self.rng.u32(0..self.plan.odds.produce) == 0 {
            self.produce(8);
        }
        for worker in 0..self.workers.len() {
            if self.workers[worker].session_ends_at.is_some_and(|at| at <= self.tick) {
                self.workers[worker].session_ends_at = None;
                if self.broker.group.members.remove(&worker) {
                    self.stats.count("sessions expired");
                    self.rebalance();
                }
            }
        }
    }

    pub fn produce(&mut self, max: usize) {
        let count = self.rng.usize(1..=max);
        let logs_before = self.broker.logs.len();
        if self.broker.produce(count) {
            if logs_before > 0 {
                self.stats.count("partitions added");
            }
            self.rebalance();
        }
        self.workers.iter_mut().for_each(|worker| worker.is_idle = false);
    }

    pub fn rebalance(&mut self) {
        self.stats.count("rebalances");
        self.broker.rebalance(&mut self.rng);
        self.workers.iter_mut().for_each(|worker| worker.is_idle = false);
    }

    /// Makes all members continue from the stored positions.
    pub fn restart_from_stored(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.next.clear());
        self.rebalance();
    }

    pub fn draw_fault(&mut self, me: usize, access: Access) -> Fault {
        let one_in = match access {
            Access::Read => self.plan.odds.fault * 8,
            Access::Write => self.plan.odds.fault,
            Access::Decide => (self.plan.odds.fault / self.plan.odds.decision_fault_factor).max(2),
        };
        if self.faults_remaining == 0 || self.rng.u32(0..one_in) != 0 {
            return Fault::Nothing;
        }
        self.faults_remaining -= 1;
        match self.rng.u8(0..13) {
            0..2 => return Fault::CrashBefore,
            2..5 => return Fault::CrashAfter,
            5..7 if access != Access::Read => return Fault::ResponseLost,
            7..10 => {
                self.pause(me);
                return Fault::Pause;
            }
            10 => self.rewind(1),
            11 => self.rewind(self.broker.logs.len()),
            _ => self.rebalance(),
        }
        Fault::Nothing
    }

    fn pause(&mut self, me: usize) {
        let ticks = self.rng.u64(1..=self.plan.odds.pause_max);
        self.note(me, "pauses", [ticks, 0]);
        self.stats.count("pauses");
        self.workers[me].asleep_until = self.tick + ticks;
        if ticks > SESSION_TIMEOUT {
            self.workers[me].session_ends_at = Some(self.tick + SESSION_TIMEOUT);
        }
    }

    /// Sets the positions of `logs` logs back: to the beginning if these are all logs, as when the group is deleted.
    fn rewind(&mut self, logs: usize) {
        let is_all = logs == self.broker.logs.len();
        self.stats.count(if is_all { "groups deleted" } else { "positions rewound" });
        let first = if is_all { 0 } else { self.rng.usize(0..self.broker.logs.len()) };
        for log in first..first + logs {
            let stored = self.stored_offset(log);
            let offset = if is_all { 0 } else { self.rng.usize(0..=stored) };
            let position = self.broker.position(log, offset);
            self.store_position(&position);
        }
        self.restart_from_stored();
    }

    /// Returns the stored offset of a log.
    pub fn stored_offset(&self, log: usize) -> usize {
        let Position { topic, partition, .. } = self.broker.position(log, 0);
        let stored = self.model.positions.get(&(topic, partition));
        stored.map_or(0, |position| position.next_offset as usize)
    }

    pub fn store_position(&mut self, position: &Position) {
        self.model.store(position);
    }
}
