//! A worker's client of the shared store: every row that it reads or writes is one step, at which a fault can occur.

use adtrail_store::StoreError;
use adtrail_store::hbase::ledger::cells::Table;
use attribution::facts::event::Family;
use attribution::ledger::Position;

use super::invariants::CheckResult;
use super::scheduler::Scheduler;
use super::world::{Access, Fault, World};
use crate::support::cells::{Model, Operation, Step, StepClient};

pub struct FaultyClient<'t, 'p> {
    scheduler: &'t Scheduler<'p>,
    me: usize,
}

impl<'t, 'p> FaultyClient<'t, 'p> {
    pub fn new(scheduler: &'t Scheduler<'p>, me: usize) -> Self {
        Self { scheduler, me }
    }

    /// Commits positions to the group.
    pub fn commit_positions(&self, positions: &[Position]) -> Result<(), StoreError> {
        let me = self.me;
        let (result, _) =
            self.act(("commits positions", 0), Access::Write, |world| -> CheckResult {
                world.commit_positions(me, positions)
            })?;
        result.map_err(|problem| {
            self.scheduler.end_run(Err(problem));
            crashed()
        })
    }

    /// Runs `act` when it is this worker's turn. Also returns whether the response arrived.
    fn act<T>(
        &self,
        (step, key): (&'static str, u64),
        access: Access,
        act: impl FnOnce(&mut World<'p>) -> T,
    ) -> Result<(T, bool), StoreError> {
        let (mut world, fault) = loop {
            let mut world = self.scheduler.turn(self.me);
            if world.result.is_some() {
                return Err(crashed());
            }
            match world.draw_fault(self.me, access) {
                Fault::Pause => {}
                fault => break (world, fault),
            }
        };
        world.note(self.me, step, [key, fault as u64]);
        if fault == Fault::CrashBefore {
            return Err(crashed());
        }
        let done = act(&mut world);
        world.workers[self.me].has_written |= access != Access::Read;
        match fault {
            Fault::CrashAfter => Err(crashed()),
            Fault::ResponseLost => {
                world.stats.count("responses lost");
                Ok((done, false))
            }
            _ => Ok((done, true)),
        }
    }
}

fn crashed() -> StoreError {
    StoreError::Corrupt { what: "the process crashes here".into() }
}

impl StepClient for FaultyClient<'_, '_> {
    fn step<T>(
        &mut self,
        Step { operation, table, hash }: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError> {
        let (step, access) = match (operation, table) {
            (Operation::Get, _) => ("reads", Access::Read),
            (Operation::GetPage | Operation::Scan, _) => ("reads a page", Access::Read),
            (Operation::PutWhere, Table::Facts(Family::Touch)) => ("puts a record", Access::Write),
            (Operation::PutWhere, _) => ("puts a record", Access::Decide),
            (Operation::Put, Table::Events) => ("puts a row", Access::Decide),
            (Operation::Put, Table::Facts(_)) => ("puts an entry", Access::Write),
            (Operation::Put, Table::Outbox | Table::OutboxDue) => {
                ("puts a due time", Access::Decide)
            }
            (Operation::Delete, Table::Facts(_)) => ("deletes an entry", Access::Write),
            (Operation::Delete, Table::Events) => ("deletes a row", Access::Decide),
            (Operation::Delete, Table::Outbox | Table::OutboxDue) => {
                ("deletes a due time", Access::Decide)
            }
        };
        self.act((step, hash), access, |world| act(&mut world.model))
    }
}
