//! A ledger whose process can crash at any call.

use adtrail_store::StoreError;
use adtrail_store::memory::Memory;
use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::received_md5::ReceivedMd5;
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{
    DecisionWrite, FactWrite, Facts, Ledger, Position, Progress, Unfinished,
};
use attribution::rules::expiry::ExpiryFloor;

/// When a process crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// After this number of calls, instead of the next one.
    AfterCalls(u32),
    /// After a commit, before its response.
    AfterCommit,
}

/// A ledger in memory whose process crashes as `crash` says.
pub struct CrashingLedger<'a> {
    pub memory: &'a mut Memory,
    /// The state after the last commit.
    pub durable: Memory,
    pub calls: u32,
    pub commits: u32,
    pub crash: Option<Crash>,
}

impl CrashingLedger<'_> {
    fn call(&mut self) -> Result<&mut Memory, StoreError> {
        self.calls += 1;
        match self.crash {
            Some(Crash::AfterCalls(calls)) if calls < self.calls => Err(crashed()),
            _ => Ok(self.memory),
        }
    }
}

fn crashed() -> StoreError {
    StoreError::Corrupt { what: "the process crashes here".into() }
}

impl Facts for CrashingLedger<'_> {
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

    fn received_md5(&self, pid: Pid) -> ReceivedMd5 {
        self.memory.received_md5(pid)
    }
}

impl Ledger for CrashingLedger<'_> {
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        self.call()?.positions()
    }

    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        self.call()?.lookup(keys)
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        self.call()?.record(facts)
    }

    fn unfinished(&self) -> Unfinished {
        self.memory.unfinished()
    }

    fn set_unfinished(&mut self, unfinished: Unfinished) {
        self.memory.set_unfinished(unfinished);
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        let conflicts = self.call()?.commit(decisions, progress)?;
        self.durable = self.memory.clone();
        self.commits += 1;
        if self.crash == Some(Crash::AfterCommit) { Err(crashed()) } else { Ok(conflicts) }
    }
}
