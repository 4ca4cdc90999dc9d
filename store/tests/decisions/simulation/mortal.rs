//! A ledger of one process, which may end with any call.

use adtrail_store::StoreError;
use adtrail_store::memory::Memory;
use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{DecisionWrite, FactWrite, Facts, Ledger, Position, Progress};
use attribution::rules::expiry::ExpiryFloor;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// Before the ledger does what it is asked for, after so many calls.
    Before(u32),
    AfterCommit,
}

/// A ledger whose process may end with a call.
pub struct Mortal<'a> {
    pub memory: &'a mut Memory,
    /// As it was after the last commit.
    pub durable: Memory,
    pub calls: u32,
    pub death: Option<Death>,
}

impl Mortal<'_> {
    fn call(&mut self) -> Result<&mut Memory, StoreError> {
        self.calls += 1;
        match self.death {
            Some(Death::Before(calls)) if calls < self.calls => Err(over()),
            _ => Ok(self.memory),
        }
    }
}

/// The process ends here.
fn over() -> StoreError {
    StoreError::Corrupt { what: "the process ends here".into() }
}

impl Facts for Mortal<'_> {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        self.call()?.records(keys)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        self.call()?.scan(scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.memory.consumed_until()
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.memory.expiry_floor(pid)
    }
}

impl Ledger for Mortal<'_> {
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        self.call()?.positions()
    }

    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        self.call()?.lookup(keys)
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        self.call()?.record(facts)
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        let lost = self.call()?.commit(decisions, progress)?;
        self.durable = self.memory.clone();
        if self.death == Some(Death::AfterCommit) { Err(over()) } else { Ok(lost) }
    }
}
