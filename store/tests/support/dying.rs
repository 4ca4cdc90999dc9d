//! A ledger whose process ends with a commit, or in the middle of one.

use adtrail_store::StoreError;
use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{DecisionWrite, FactWrite, Facts, Ledger, Position, Progress};
use attribution::rules::expiry::ExpiryFloor;

/// A ledger that comes back.
pub struct Dying<'a, L> {
    pub ledger: &'a mut L,
    /// The process ends when it would commit a decision or positions after so many decisions.
    pub dies_after: Option<usize>,
}

impl<L: Ledger<Error = StoreError>> Facts for Dying<'_, L> {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        self.ledger.records(keys)
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
}

impl<L: Ledger<Error = StoreError>> Ledger for Dying<'_, L> {
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        self.ledger.positions()
    }

    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        self.ledger.lookup(keys)
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        self.ledger.record(facts)
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        let Some(left) = self.dies_after else { return self.ledger.commit(decisions, progress) };
        if decisions.len() < left {
            self.dies_after = Some(left - decisions.len());
            return self.ledger.commit(decisions, progress);
        }
        // Even a commit of nothing makes durable what was recorded.
        if left > 0 {
            let some = decisions.into_iter().take(left).collect();
            self.ledger.commit(some, &Progress::default())?;
        }
        Err(StoreError::Corrupt { what: "the process ends here".into() })
    }
}
