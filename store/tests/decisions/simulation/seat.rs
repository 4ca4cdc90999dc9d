//! A worker's way to a shared store: every row that it reads or writes is a step of its own, and
//! anything can go wrong at each.

use adtrail_store::StoreError;
use adtrail_store::hbase::ledger::cells::Table as Rows;
use attribution::facts::event::Family;
use attribution::ledger::Position;

use super::judge::Verdict;
use super::table::Table;
use super::world::{Act, Trouble, World};
use crate::support::cells::{Does, Model, Step, Turns};

pub struct Seat<'t, 'p> {
    table: &'t Table<'p>,
    me: usize,
}

impl<'t, 'p> Seat<'t, 'p> {
    pub fn new(table: &'t Table<'p>, me: usize) -> Self {
        Self { table, me }
    }

    /// A batch is committed: tells the group.
    pub fn give(&self, positions: &[Position]) -> Result<(), StoreError> {
        let me = self.me;
        let (verdict, _) = self.act(("gives positions", 0), Act::Writes, |world| -> Verdict {
            world.take_positions(me, positions)
        })?;
        verdict.map_err(|what| {
            self.table.end(Err(what));
            over()
        })
    }

    /// Does one thing when it is this worker's turn. Whether the answer came, too.
    fn act<T>(
        &self,
        (what, key): (&'static str, u64),
        does: Act,
        act: impl FnOnce(&mut World<'p>) -> T,
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
        let done = act(&mut world);
        world.hands[self.me].has_written |= does != Act::Reads;
        match trouble {
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

impl Turns for Seat<'_, '_> {
    fn step<T>(
        &mut self,
        Step { does, table, hash }: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError> {
        let (what, does) = match (does, table) {
            (Does::Gets, _) => ("reads", Act::Reads),
            (Does::GetsPage, _) => ("reads a page", Act::Reads),
            (Does::PutsWhere, Rows::Facts(Family::Touch)) => ("puts a home", Act::Writes),
            (Does::PutsWhere, _) => ("puts a home", Act::Decides),
            (Does::Puts, Rows::Events) => ("puts a row", Act::Decides),
            (Does::Puts, Rows::Facts(_)) => ("puts beside a home", Act::Writes),
            (Does::Deletes, Rows::Facts(_)) => ("deletes an entry", Act::Writes),
            (Does::Deletes, Rows::Events) => ("deletes a row", Act::Decides),
        };
        self.act((what, hash), does, |world| act(&mut world.model))
    }
}
