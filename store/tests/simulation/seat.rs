//! A worker's ledger on a shared store: every look and every write is a step of its own, writes
//! are compared with what was read, and anything can go wrong at each.

use std::collections::HashMap;

use adtrail_store::StoreError;
use attribution::event::{EventTime, Fact};
use attribution::ledger::{
    DecisionWrite, FactKey, FactWrite, Facts, Home, IndexEntry, Known, Ledger, Position, Progress,
    Scan,
};

use super::judge;
use super::table::Table;
use super::world::{Act, Trouble, World};
use crate::support::race::is_as_read;

pub struct Seat<'t, 'p> {
    table: &'t Table<'p>,
    me: usize,
    read: HashMap<FactKey, Option<Home>>,
}

/// One step: its name, the key that it is about, and what it does to the store.
#[derive(Clone, Copy)]
struct Step(&'static str, u64, Act);

impl<'t, 'p> Seat<'t, 'p> {
    pub fn new(table: &'t Table<'p>, me: usize) -> Self {
        Self { table, me, read: HashMap::new() }
    }

    fn step<T>(
        &self,
        step: Step,
        act: impl FnOnce(&mut World<'p>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.try_step(step, act).map(|(done, _)| done)
    }

    /// Whether a write was taken, as far as the worker is told.
    fn compared(
        &self,
        step: Step,
        act: impl FnOnce(&mut World<'p>) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let (is_taken, is_told) = self.try_step(step, act)?;
        Ok(is_taken && is_told)
    }

    /// Does one thing when it is this worker's turn. Whether the answer came, too.
    fn try_step<T>(
        &self,
        Step(what, key, does): Step,
        act: impl FnOnce(&mut World<'p>) -> Result<T, StoreError>,
    ) -> Result<(T, bool), StoreError> {
        let (mut world, trouble) = loop {
            let mut world = self.table.turn(self.me);
            if world.end.is_some() {
                return Err(over());
            }
            match world.trouble(self.me, does) {
                Trouble::Pause => {}
                trouble => break (world, trouble),
            }
        };
        world.note(self.me, what, [key, trouble as u64]);
        if trouble == Trouble::DieBefore {
            return Err(over());
        }
        let done = act(&mut world)?;
        world.hands[self.me].has_written |= does != Act::Reads;
        match trouble {
            Trouble::DieAfter if world.must_live(self.me) => Ok((done, true)),
            Trouble::DieAfter => Err(over()),
            Trouble::AnswerLost => {
                world.tally.count("answers lost");
                Ok((done, false))
            }
            _ => Ok((done, true)),
        }
    }
}

/// The process ends here.
fn over() -> StoreError {
    StoreError::Corrupt { what: "the process ends here".into() }
}

fn number(key: &FactKey) -> u64 {
    key.id.0 ^ u64::from(key.pid.0)
}

impl Facts for Seat<'_, '_> {
    type Error = StoreError;

    fn homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, StoreError> {
        let mut homes = Vec::with_capacity(keys.len());
        for key in keys {
            let home =
                self.step(Step("reads", number(key), Act::Reads), |world| world.home(key))?;
            self.read.insert(*key, home.clone());
            homes.push(home);
        }
        Ok(homes)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        let page = |scan: &Scan| {
            let step = Step("scans", scan.key.0, Act::Reads);
            Ok(self.step(step, |world| world.memory.scan(&[*scan]))?.remove(0))
        };
        scans.iter().map(page).collect()
    }

    /// Nothing expires here.
    fn consumed_until(&self) -> Option<EventTime> {
        None
    }
}

impl Ledger for Seat<'_, '_> {
    const SHARED: bool = true;

    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        self.step(Step("asks for positions", 0, Act::Reads), |world| world.memory.positions())
    }

    fn known(&mut self, keys: &[FactKey]) -> Result<Vec<Known>, StoreError> {
        let homes = self.homes(keys)?.into_iter();
        Ok(homes.map(|home| home.map_or(Known::Nothing, Known::Home)).collect())
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        let mut lost = Vec::new();
        for write in facts {
            let read = self.read.get(&write.key).expect("what is written was read before");
            let key = number(&write.key);
            self.step(Step("puts entries", key, Act::Writes), |world| world.put_entries(&write))?;
            let me = self.me;
            let put = |world: &mut World<'_>| world.put_home(me, &write, read.as_ref());
            if !self.compared(Step("puts a home", key, Act::Writes), put)? {
                lost.push(write);
            }
        }
        Ok(lost)
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        if !decisions.is_empty() && !progress.positions.is_empty() {
            self.table.end(Err("positions are given while something is left to decide".into()));
        }
        let mut lost = Vec::new();
        for write in decisions {
            let key = write.key;
            let step = Step("decides", number(&key), Act::Decides);
            if !self.compared(step, |world| world.put_decision(write))? {
                lost.push(key);
            }
        }
        if !progress.positions.is_empty() {
            let me = self.me;
            self.step(Step("gives positions", 0, Act::Writes), |world| {
                let verdict = world.take_positions(me, &progress.positions);
                verdict.unwrap_or_else(|what| world.finish(Err(what)));
                Ok(())
            })?;
        }
        Ok(lost)
    }
}

/// The store, where every key is for itself.
impl World<'_> {
    fn home(&mut self, key: &FactKey) -> Result<Option<Home>, StoreError> {
        if self.hidden.contains(key) {
            return Ok(None);
        }
        Ok(self.memory.homes(&[*key])?.remove(0))
    }

    /// Index entries come before the home that they lead to.
    fn put_entries(&mut self, write: &FactWrite) -> Result<(), StoreError> {
        let write = write.clone();
        let Some(home) = self.home(&write.key)? else {
            self.hidden.insert(write.key);
            self.memory.record(vec![FactWrite { stale: Vec::new(), ..write }])?;
            return Ok(());
        };
        let entry = IndexEntry { time: write.home.time(), fact: write.key };
        let entries = write.index.into_iter().map(|found_by| (found_by, entry));
        let marks = entries.chain(write.marks).collect();
        let (index, stale) = (Vec::new(), Vec::new());
        self.memory.record(vec![FactWrite { key: write.key, home, index, marks, stale }])?;
        Ok(())
    }

    /// Puts a home if it is still the one that was read.
    fn put_home(
        &mut self,
        me: usize,
        write: &FactWrite,
        read: Option<&Home>,
    ) -> Result<bool, StoreError> {
        self.trace.tell(|| format!("{:?} {:?}", write.key.family, write.home.id()));
        let stored = self.home(&write.key)?;
        if stored.as_ref() != read {
            self.tally.count("facts that came too late");
            return Ok(false);
        }
        self.hands[me].has_replaced |= read.is_some();
        self.hidden.remove(&write.key);
        let mut write = write.clone();
        // Stale entries mean nothing: some stay.
        if self.rng.bool() {
            write.stale.clear();
        }
        self.memory.record(vec![write])?;
        Ok(true)
    }

    fn put_decision(&mut self, write: DecisionWrite) -> Result<bool, StoreError> {
        self.trace.tell(|| format!("{:?} {:?} {:?}", write.key.family, write.home.id(), write.row));
        let stored = self.home(&write.key)?;
        if !stored.is_some_and(|stored| is_as_read(&stored, &write)) {
            self.tally.count("decisions that came too late");
            return Ok(false);
        }
        let fact = match &write.home {
            Home::Touch(touch) => Fact::Touch(touch.clone()),
            Home::Activation(home) => Fact::Activation(Box::new(home.fact.clone())),
            Home::Effect(home) => Fact::Effect(Box::new(home.fact.clone())),
        };
        let present = write.home.present().copied();
        self.memory.commit(vec![write], &Progress::default())?;
        if let Err(what) = judge::is_shown_once(&self.memory, &fact, present.as_ref()) {
            self.finish(Err(format!("{what}: {fact:?}")));
        }
        Ok(true)
    }
}
