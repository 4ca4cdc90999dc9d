//! A ledger whose process crashes before a commit.

use adtrail_store::StoreError;
use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::received_md5::ReceivedMd5;
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{
    DecisionWrite, FactWrite, Facts, Ledger, Position, Progress, Unfinished,
};
use attribution::rules::expiry::ExpiryFloor;

/// Borrows a ledger that outlives the crash.
pub struct CrashingOnCommit<'a, L> {
    pub ledger: &'a mut L,
    /// The least number of decisions to commit before the crash; `None`: no crash.
    pub crashes_after: Option<usize>,
}

impl<L: Ledger<Error = StoreError>> Facts for CrashingOnCommit<'_, L> {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        self.ledger.records(keys)
    }

    fn forget(&mut self, key: &FactKey) {
        self.ledger.forget(key);
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        self.ledger.scan(scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.ledger.consumed_until()
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.ledger.expiry_floor(pid)
    }

    fn received_md5(&self, pid: Pid) -> ReceivedMd5 {
        self.ledger.received_md5(pid)
    }
}

impl<L: Ledger<Error = StoreError>> Ledger for CrashingOnCommit<'_, L> {
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        self.ledger.positions()
    }

    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        self.ledger.lookup(keys)
    }

    fn lookup_up_to(
        &mut self,
        keys: &[FactKey],
        bytes_max: usize,
    ) -> Result<Vec<Lookup>, StoreError> {
        self.ledger.lookup_up_to(keys, bytes_max)
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        self.ledger.record(facts)
    }

    fn unfinished(&self) -> Unfinished {
        self.ledger.unfinished()
    }

    fn set_unfinished(&mut self, unfinished: Unfinished) {
        self.ledger.set_unfinished(unfinished);
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        let Some(remaining) = self.crashes_after else {
            return self.ledger.commit(decisions, progress);
        };
        if remaining == 0 {
            return Err(StoreError::Corrupt { what: "the process crashes here".into() });
        }
        self.crashes_after = Some(remaining.saturating_sub(decisions.len()));
        self.ledger.commit(decisions, progress)
    }

    fn wait_for_commit(&mut self) -> Result<(), StoreError> {
        self.ledger.wait_for_commit()
    }
}
