//! The facts from which decisions are recomputed, as the writing process sees them.

use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::Facts;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::FactRecord;
use attribution::rules::expiry::ExpiryFloor;

use crate::StoreError;
use crate::embedded::read::index;
use crate::embedded::tables::Tables;
use crate::embedded::write::pending::Pending;
use crate::expiry::Expiry;

/// The facts of a store, without expired ones that no compaction has removed yet.
pub struct SnapshotFacts {
    pub tables: Tables,
    pub expiry: Expiry,
}

impl Facts for SnapshotFacts {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let mut records = vec![None; keys.len()];
        let wanted: Vec<(usize, FactKey)> = keys.iter().copied().enumerate().collect();
        self.tables.records(&wanted, &mut records)?;
        for (fact, record) in keys.iter().zip(&mut records) {
            record.take_if(|record| self.expiry.has_expired(fact.pid, record));
        }
        Ok(records)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        index::scan(&self.tables, &Pending::default(), scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.expiry.until().get()
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.expiry.floor(pid)
    }
}
