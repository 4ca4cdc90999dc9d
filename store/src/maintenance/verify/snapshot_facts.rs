//! The facts that decisions are made from: as the process that writes sees them.

use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::Facts;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::Home;
use attribution::rules::expiry::Expired;

use crate::StoreError;
use crate::embedded::read::index;
use crate::embedded::tables::Tables;
use crate::embedded::write::pending::Pending;
use crate::expiry::Expiry;

/// Without those that have expired, whether or not a compaction came by.
pub struct Present {
    pub tables: Tables,
    pub expiry: Expiry,
}

impl Facts for Present {
    type Error = StoreError;

    fn homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, StoreError> {
        let mut homes = vec![None; keys.len()];
        let wanted: Vec<(usize, FactKey)> = keys.iter().copied().enumerate().collect();
        self.tables.homes(&wanted, &mut homes)?;
        for (fact, home) in keys.iter().zip(&mut homes) {
            home.take_if(|home| self.expiry.has_expired(fact.pid, home));
        }
        Ok(homes)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        index::scan(&self.tables, &Pending::default(), scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.expiry.until().get()
    }

    fn held(&self, pid: Pid) -> Expired {
        self.expiry.held(pid)
    }
}
