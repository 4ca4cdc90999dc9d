//! Two workers on one shared store at the same time. Only single rows are atomic, and every fact record is compared
//! with the version that its writer has read.
//!
//! The order of the workers' steps is drawn in advance, so that a race can be repeated.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use adtrail_store::StoreError;
use adtrail_store::hbase::ledger::cells::Table;
use attribution::facts::event::{Fact, Family};
use attribution::ledger::Progress;
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, BatchReport, MessageCounts, Worker};

use super::cells::{Conflicts, HookedClient, Model, Operation, Step, StepClient, ledger};
use super::row_text::{RowText, row_texts};

/// How a race ended.
pub struct Outcome {
    pub model: Model,
    pub rows: Vec<RowText>,
    /// Conditional puts that failed because the other worker had changed the record.
    pub conflicts: Conflicts,
    pub steps: usize,
    /// The sum over both workers and all families.
    pub counts: MessageCounts,
    /// True if the left worker processed all of its batches.
    pub is_complete: bool,
}

/// Runs a worker for each of the two lists of batches. The turns are repeated cyclically; when one worker is done, the
/// other continues without turns.
pub fn race(policy: &Arc<Policy>, batches: [Vec<Vec<Fact>>; 2], turns: &[Side]) -> Outcome {
    race_from((Model::default(), None), policy, batches, turns)
}

/// Like [`race`], on an existing store. If `left_crashes_after` is set, the process of the left worker crashes after it
/// has put this number of records of events.
pub fn race_from(
    (model, left_crashes_after): (Model, Option<usize>),
    policy: &Arc<Policy>,
    batches: [Vec<Vec<Fact>>; 2],
    turns: &[Side],
) -> Outcome {
    let conflicts_before = model.conflicts;
    let state = State { model, turns: turns.to_vec(), steps: 0, is_done: [false; 2] };
    let scheduler = Scheduler { state: Mutex::new(state), turn_changed: Condvar::new() };
    let counted = Mutex::new((MessageCounts::default(), true));
    std::thread::scope(|scope| {
        for (side, batches) in [Side::Left, Side::Right].into_iter().zip(batches) {
            let crashes_after = left_crashes_after.filter(|_| side == Side::Left);
            let client = RaceClient { scheduler: &scheduler, side, crashes_after };
            let counted = &counted;
            scope.spawn(move || {
                let mut worker = Worker::new(ledger(client), Arc::clone(policy));
                for facts in batches {
                    let report = worker.process(Batch { facts, progress: Progress::default() });
                    let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                    let Ok(report) = report else {
                        counted.1 = false;
                        return;
                    };
                    add(&mut counted.0, &report);
                }
            });
        }
    });
    let (counts, is_complete) = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    let State { model, steps, .. } =
        scheduler.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let conflicts = Conflicts {
        facts: model.conflicts.facts - conflicts_before.facts,
        decisions: model.conflicts.decisions - conflicts_before.decisions,
    };
    Outcome { rows: row_texts(&model.rows()), model, conflicts, steps, counts, is_complete }
}

/// Returns the store after a single worker has processed the batches.
pub fn model_after(policy: &Arc<Policy>, batches: Vec<Vec<Fact>>) -> Model {
    let model = Arc::new(Mutex::new(Model::default()));
    let client = HookedClient::new(&model, Box::new(|| Ok(())));
    let mut worker = Worker::new(ledger(client), Arc::clone(policy));
    for facts in batches {
        worker.process(Batch { facts, ..Batch::default() }).expect("memory does not fail");
    }
    drop(worker);
    let model = model.lock().unwrap_or_else(PoisonError::into_inner);
    model.clone()
}

fn add(sum: &mut MessageCounts, report: &BatchReport) {
    for family in Family::ALL {
        let counts = report.counts(family);
        sum.accepted += counts.accepted;
        sum.redelivered += counts.redelivered;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

struct Scheduler {
    state: Mutex<State>,
    turn_changed: Condvar,
}

struct State {
    model: Model,
    turns: Vec<Side>,
    steps: usize,
    is_done: [bool; 2],
}

/// One worker's client of the store.
struct RaceClient<'a> {
    scheduler: &'a Scheduler,
    side: Side,
    /// The number of records of events to put before the crash; `None`: no crash.
    crashes_after: Option<usize>,
}

impl State {
    fn is_turn_of(&self, side: Side) -> bool {
        let other = 1 - side as usize;
        let turn = self.turns.get(self.steps % self.turns.len().max(1));
        self.is_done[other] || turn.is_none_or(|turn| *turn == side)
    }
}

impl RaceClient<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.scheduler.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether the process crashes before this step.
    fn crashes(&mut self, step: Step) -> bool {
        let is_event = !matches!(step.table, Table::Facts(Family::Touch) | Table::Events);
        if step.operation != Operation::PutWhere || !is_event {
            return false;
        }
        let crashes = self.crashes_after == Some(0);
        self.crashes_after = self.crashes_after.map(|remaining| remaining.saturating_sub(1));
        crashes
    }
}

impl StepClient for RaceClient<'_> {
    /// Waits for this worker's turn.
    fn step<T>(
        &mut self,
        step: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError> {
        if self.crashes(step) {
            return Err(StoreError::Corrupt { what: "the process crashes here".into() });
        }
        let mut state = self.lock();
        while !state.is_turn_of(self.side) {
            state = self.scheduler.turn_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.steps += 1;
        let done = act(&mut state.model);
        self.scheduler.turn_changed.notify_all();
        Ok((done, true))
    }
}

impl Drop for RaceClient<'_> {
    fn drop(&mut self) {
        self.lock().is_done[self.side as usize] = true;
        self.scheduler.turn_changed.notify_all();
    }
}
