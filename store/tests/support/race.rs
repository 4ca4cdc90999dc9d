//! Two workers at one store at the same moment: as it is on a shared store, where nothing is
//! atomic but one row, and every home is compared with what its writer has read.
//!
//! Which worker takes the next step is drawn beforehand, so that a race can be run again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use adtrail_store::StoreError;
use adtrail_store::hbase::ledger::cells::Table as Rows;
use attribution::facts::event::{Fact, Family};
use attribution::ledger::Progress;
use attribution::rules::policy::Policy;
use attribution::worker::{Admitted, Batch, Report, Worker};

use super::cells::{Does, Late, Model, Step, Turns, Visitor, ledger};
use super::show::{Shown, show_all};

/// How a race ended.
pub struct Outcome {
    pub model: Model,
    pub rows: Vec<Shown>,
    /// Homes that were put too late.
    pub late: Late,
    pub steps: usize,
    /// By both workers, of all families.
    pub admitted: Admitted,
    /// The left one's process did not end before its time.
    pub is_whole: bool,
}

/// Runs a worker for each of the two lists of batches. The turns are cycled through; a worker
/// alone needs none.
pub fn race(policy: &Arc<Policy>, batches: [Vec<Vec<Fact>>; 2], turns: &[Side]) -> Outcome {
    race_from((Model::default(), None), policy, batches, turns)
}

/// The same over a store with something in it; the left one's process ends before it puts more homes of
/// events than so many.
pub fn race_from(
    (model, left_ends_after): (Model, Option<usize>),
    policy: &Arc<Policy>,
    batches: [Vec<Vec<Fact>>; 2],
    turns: &[Side],
) -> Outcome {
    let late = model.late;
    let state = State { model, turns: turns.to_vec(), steps: 0, is_done: [false; 2] };
    let table = Table { state: Mutex::new(state), moved: Condvar::new() };
    let counted = Mutex::new((Admitted::default(), true));
    std::thread::scope(|scope| {
        for (side, batches) in [Side::Left, Side::Right].into_iter().zip(batches) {
            let ends_after = left_ends_after.filter(|_| side == Side::Left);
            let seat = Seat { table: &table, side, ends_after };
            let counted = &counted;
            scope.spawn(move || {
                let mut worker = Worker::new(ledger(seat), Arc::clone(policy));
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
    let (admitted, is_whole) = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    let State { model, steps, .. } =
        table.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let late = Late {
        facts: model.late.facts - late.facts,
        decisions: model.late.decisions - late.decisions,
    };
    Outcome { rows: show_all(&model.rows()), model, late, steps, admitted, is_whole }
}

/// What a worker alone leaves behind that is given the batches.
pub fn left_by(policy: &Arc<Policy>, batches: Vec<Vec<Fact>>) -> Model {
    let model = Arc::new(Mutex::new(Model::default()));
    let visitor = Visitor::new(&model, Box::new(|| Ok(())));
    let mut worker = Worker::new(ledger(visitor), Arc::clone(policy));
    for facts in batches {
        worker.process(Batch { facts, ..Batch::default() }).expect("memory does not fail");
    }
    drop(worker);
    let model = model.lock().unwrap_or_else(PoisonError::into_inner);
    model.clone()
}

fn add(sum: &mut Admitted, report: &Report) {
    for family in Family::ALL {
        let admitted = report.admitted(family);
        sum.accepted += admitted.accepted;
        sum.redelivered += admitted.redelivered;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

struct Table {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    model: Model,
    turns: Vec<Side>,
    steps: usize,
    is_done: [bool; 2],
}

/// One worker's view of the store.
struct Seat<'a> {
    table: &'a Table,
    side: Side,
    ends_after: Option<usize>,
}

impl State {
    fn is_turn_of(&self, side: Side) -> bool {
        let other = 1 - side as usize;
        let turn = self.turns.get(self.steps % self.turns.len().max(1));
        self.is_done[other] || turn.is_none_or(|turn| *turn == side)
    }
}

impl Seat<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.table.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process ends before this step.
    fn ends(&mut self, step: Step) -> bool {
        let is_event = !matches!(step.table, Rows::Facts(Family::Touch) | Rows::Events);
        if step.does != Does::PutsWhere || !is_event {
            return false;
        }
        let ends = self.ends_after == Some(0);
        self.ends_after = self.ends_after.map(|left| left.saturating_sub(1));
        ends
    }
}

impl Turns for Seat<'_> {
    /// Does one thing when it is this worker's turn.
    fn step<T>(
        &mut self,
        step: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError> {
        if self.ends(step) {
            return Err(StoreError::Corrupt { what: "the process ends here".into() });
        }
        let mut state = self.lock();
        while !state.is_turn_of(self.side) {
            state = self.table.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.steps += 1;
        let done = act(&mut state.model);
        self.table.moved.notify_all();
        Ok((done, true))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.lock().is_done[self.side as usize] = true;
        self.table.moved.notify_all();
    }
}
