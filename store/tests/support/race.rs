//! Two workers at one store at the same moment: as it is on a shared store, where nothing is
//! atomic but one key, and every write is compared with what its writer has read.
//!
//! Which worker takes the next step is drawn beforehand, so that a race can be run again.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use adtrail_store::StoreError;
use adtrail_store::memory::Memory;
use attribution::event::{EventTime, Fact, Family};
use attribution::ledger::{
    DecisionWrite, FactKey, FactWrite, Facts, Home, IndexEntry, Known, Ledger, Position, Progress,
    Scan,
};
use attribution::policy::Policy;
use attribution::worker::{Admitted, Batch, Report, Worker};

use super::run::{Shelf, position};
use super::show::Shown;

/// How a race ended.
pub struct Outcome {
    pub memory: Memory,
    pub rows: Vec<Shown>,
    pub positions: Vec<Position>,
    pub lost: Lost,
    pub steps: usize,
    /// By both workers, of all families.
    pub admitted: Admitted,
}

/// Writes that came too late.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lost {
    pub facts: usize,
    pub decisions: usize,
}

/// Runs a worker for each of the two lists of batches. The turns are cycled through; a worker
/// alone needs none.
pub fn race(policy: &Arc<Policy>, batches: [Vec<Vec<Fact>>; 2], turns: &[Side]) -> Outcome {
    race_from((Memory::default(), None), policy, batches, turns)
}

/// The same over a store with something in it; the left one's process ends before it writes another
/// decision than so many.
pub fn race_from(
    (memory, left_ends_after): (Memory, Option<usize>),
    policy: &Arc<Policy>,
    batches: [Vec<Vec<Fact>>; 2],
    turns: &[Side],
) -> Outcome {
    let state = State {
        memory,
        turns: turns.to_vec(),
        steps: 0,
        is_done: [false; 2],
        lost: Lost::default(),
    };
    let table = Table { state: Mutex::new(state), moved: Condvar::new() };
    let counted = Mutex::new(Admitted::default());
    std::thread::scope(|scope| {
        for (side, batches) in [Side::Left, Side::Right].into_iter().zip(batches) {
            let ends_after = left_ends_after.filter(|_| side == Side::Left);
            let seat = Seat { table: &table, side, read: HashMap::new(), ends_after };
            let counted = &counted;
            scope.spawn(move || {
                let mut worker = Worker::new(seat, Arc::clone(policy));
                for (number, facts) in batches.into_iter().enumerate() {
                    let positions = vec![position("race", side as i32, number as i64 + 1)];
                    let progress = Progress { positions, consumed_until: None };
                    let report = worker.process(Batch { facts, progress });
                    let Ok(report) = report else {
                        assert_eq!(worker.ledger().ends_after, Some(0), "memory does not fail");
                        return;
                    };
                    add(&mut counted.lock().unwrap_or_else(PoisonError::into_inner), &report);
                }
            });
        }
    });
    let admitted = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    let State { mut memory, lost, steps, .. } =
        table.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let positions = memory.positions().expect("memory does not fail");
    Outcome { rows: memory.shown(), memory, positions, lost, steps, admitted }
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
    memory: Memory,
    turns: Vec<Side>,
    steps: usize,
    is_done: [bool; 2],
    lost: Lost,
}

/// One worker's view of the store.
struct Seat<'a> {
    table: &'a Table,
    side: Side,
    read: HashMap<FactKey, Option<Home>>,
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
    /// Does one thing when it is this worker's turn.
    fn step<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        while !state.is_turn_of(self.side) {
            state = self.table.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.steps += 1;
        let done = act(&mut state);
        self.table.moved.notify_all();
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.table.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.lock().is_done[self.side as usize] = true;
        self.table.moved.notify_all();
    }
}

impl Facts for Seat<'_> {
    type Error = StoreError;

    fn homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, StoreError> {
        let mut homes = Vec::new();
        for key in keys {
            let home = self.step(|state| state.memory.homes(&[*key]))?.remove(0);
            self.read.insert(*key, home.clone());
            homes.push(home);
        }
        Ok(homes)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        scans
            .iter()
            .map(|scan| Ok(self.step(|state| state.memory.scan(&[*scan]))?.remove(0)))
            .collect()
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.lock().memory.consumed_until()
    }
}

impl Ledger for Seat<'_> {
    const SHARED: bool = true;

    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        self.step(|state| state.memory.positions())
    }

    /// Nothing expires here.
    fn known(&mut self, keys: &[FactKey]) -> Result<Vec<Known>, StoreError> {
        let homes = self.homes(keys)?.into_iter();
        Ok(homes.map(|home| home.map_or(Known::Nothing, Known::Home)).collect())
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        let mut lost = Vec::new();
        for write in facts {
            let read = self.read.get(&write.key).expect("what is written was read before");
            let outcome = self.step(|state| {
                if state.memory.homes(&[write.key])?[0] == *read {
                    return state.memory.record(vec![write]);
                }
                state.lost.facts += 1;
                Ok(vec![write])
            });
            lost.extend(outcome?);
        }
        Ok(lost)
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        assert!(
            decisions.is_empty() || progress.positions.is_empty(),
            "positions come once nothing is left to decide"
        );
        let mut lost = Vec::new();
        for write in decisions {
            if self.ends_after == Some(0) {
                return Err(StoreError::Corrupt { what: "the process ends here".into() });
            }
            self.ends_after = self.ends_after.map(|left| left - 1);
            let key = write.key;
            let is_lost = self.step(|state| {
                let stored = state.memory.homes(&[key])?.remove(0);
                if stored.is_some_and(|stored| is_as_read(&stored, &write)) {
                    state.memory.commit(vec![write], &Progress::default())?;
                    return Ok::<bool, StoreError>(false);
                }
                state.lost.decisions += 1;
                Ok(true)
            });
            lost.extend(is_lost?.then_some(key));
        }
        if *progress != Progress::default() {
            self.step(|state| state.memory.commit(Vec::new(), progress))?;
        }
        Ok(lost)
    }
}

/// Whether nobody has decided about the event, or replaced its fact, since it was read.
pub fn is_as_read(stored: &Home, write: &DecisionWrite) -> bool {
    let same_fact = match (stored, &write.home) {
        (Home::Activation(stored), Home::Activation(home)) => stored.fact == home.fact,
        (Home::Effect(stored), Home::Effect(home)) => stored.fact == home.fact,
        _ => false,
    };
    let revision = |present: Option<&attribution::ledger::Present>| present.map(|one| one.revision);
    same_fact && revision(stored.present()) == revision(write.replaced.as_ref())
}
