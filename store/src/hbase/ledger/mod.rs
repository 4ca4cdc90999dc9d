//! The ledger over a store in which only single rows are atomic.
//!
//! Facts are written as index entries, then records. Decisions are written as the record, then the new row, then the
//! delete of the replaced row. So only the worker that wins the compare-and-set of the record writes a row of that
//! revision, and the redelivery after a crash completes the remaining steps. `docs/decisions/ledger-port.md` explains
//! each step. Start with [`SharedLedger`].

pub mod cells;
mod commit;
pub mod fact_record;
mod index_entries;

use std::collections::{BTreeMap, HashMap};

use attribution::facts::event::{EventTime, Fact, Family, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{
    DecisionWrite, FactWrite, Facts, Ledger, Position, Progress, Unfinished,
};
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::Policy;
use foldhash::fast::FixedState;

use super::schema::tables::record_ttl_ms;
use crate::StoreError;
use crate::apps::record::App;
use crate::clock::now;
use crate::expiry::Expiry;
use crate::expiry::floor::RetainedFloor;
use crate::layout::key::{self, Key};
use cells::{CellDelete, Cells, NOW, Page, Put, PutWhere, Table};
pub(super) use commit::row_time;
use index_entries::{entry, fact_entries, index_entry, page};
pub(super) use index_entries::{join, split};

/// The ledger of one worker, over a store that other workers write too.
pub struct SharedLedger<C> {
    cells: C,
    apps: HashMap<Pid, App, FixedState>,
    partitions: u16,
    /// Only its floors hide facts: it knows no low watermark, and ordinary expiry is done by TTLs.
    expiry: Expiry,
    /// The stored bytes of the records that the current batch has read or put and not forgotten, for compare-and-set.
    read: HashMap<FactKey, Vec<u8>, FixedState>,
    /// Touches of the current batch that were assumed to be new but exist already.
    collisions: HashMap<FactKey, Collision, FixedState>,
}

/// The index entries that were put for a touch before its record was found to exist.
struct Collision {
    entries: Vec<Put>,
    ttl_ms: Option<u64>,
}

/// What a ledger needs of the apps of the settings.
#[derive(Debug, Clone)]
pub struct LedgerApps {
    pub(in crate::hbase) apps: BTreeMap<Pid, App>,
    pub(in crate::hbase) expiry: Expiry,
}

impl<C> SharedLedger<C> {
    pub fn new(cells: C, apps: impl IntoIterator<Item = (Pid, App)>, partitions: u16) -> Self {
        Self {
            cells,
            apps: apps.into_iter().collect(),
            partitions,
            expiry: Expiry::default(),
            read: HashMap::default(),
            collisions: HashMap::default(),
        }
    }

    /// Takes the apps, their expiry floors, and the settings from which the TTLs of touches are derived, for the next
    /// batches.
    pub fn set_apps(&mut self, apps: &LedgerApps) {
        self.apps = apps.apps.iter().map(|(pid, app)| (*pid, *app)).collect();
        self.expiry = apps.expiry.clone();
    }

    /// State that expired under shorter, earlier settings and stays expired.
    pub fn retained_floors(&self, policy: &Policy) -> Vec<RetainedFloor> {
        self.expiry.retained_floors(policy, Some(now()))
    }

    pub fn cells(&self) -> &C {
        &self.cells
    }
}

/// A record to put.
struct NewRecord {
    key: FactKey,
    value: Vec<u8>,
    ttl_ms: Option<u64>,
}

impl<C: Cells> SharedLedger<C> {
    /// Stores the bytes of a record for the compare-and-set that replaces it.
    fn remember(&mut self, key: &FactKey, value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.read.insert(*key, value),
            None => self.read.remove(key),
        };
    }

    /// Puts index entries. Must be called before the records are put; until then the entries are ignored.
    fn put_entries(&mut self, facts: &[FactWrite]) -> Result<(), StoreError> {
        for family in Family::ALL {
            let of_family = facts.iter().filter(|write| write.key.family == family);
            let (mut replaced, mut entries) = (Vec::new(), Vec::new());
            for write in of_family {
                let ttl_ms = record_ttl_ms(&self.expiry, &write.key, &write.record);
                if let Some(fact) = &write.superseded {
                    let (column, value) = fact_record::superseded(fact);
                    let row = key::record(&write.key).to_vec();
                    replaced.push(Put { row, column, value, time: None, ttl_ms });
                }
                entries.extend(fact_entries(write, ttl_ms));
                for (found_by, IndexEntry { time, fact }) in &write.bucket_markers {
                    entries.push(entry(key::index(*found_by, fact, *time), fact.id.0, None));
                }
            }
            // Replaced facts are stored before any part of the facts that replace them.
            if !replaced.is_empty() {
                self.cells.put(Table::Facts(family), replaced)?;
            }
            if !entries.is_empty() {
                self.cells.put(Table::Facts(family), entries)?;
            }
        }
        Ok(())
    }

    /// Puts each record whose stored bytes are still those that were read. Returns for each whether it was put.
    fn put_records(&mut self, records: Vec<NewRecord>) -> Result<Vec<bool>, StoreError> {
        let mut is_put = vec![false; records.len()];
        let families = records.iter().map(|record| record.key.family);
        for (family, indexes) in key::by_family(families.enumerate()) {
            let put = |index: &usize| {
                let NewRecord { key, value, ttl_ms } = &records[*index];
                let expected = self.read.get(key).cloned();
                let (row, value) = (key::record(key), value.clone());
                PutWhere { row, expected, value, ttl_ms: *ttl_ms }
            };
            let puts = indexes.iter().map(put).collect();
            let outcomes = self.cells.put_where(Table::Facts(family), puts)?;
            for (index, outcome) in indexes.iter().zip(outcomes) {
                is_put[*index] = outcome;
            }
        }
        for (NewRecord { key, value, .. }, is_put) in records.into_iter().zip(&is_put) {
            // If a record was not put, its stored bytes are unknown. A touch is put only once per batch.
            self.remember(&key, Some(value).filter(|_| *is_put && key.family != Family::Touch));
        }
        Ok(is_put)
    }

    /// Deletes the entries of facts that can never be the current fact of a record again.
    fn delete_entries(&mut self, stale: &[(Family, Key)]) -> Result<(), StoreError> {
        for (family, indexes) in key::by_family(stale.iter().map(|(of, _)| *of).enumerate()) {
            let delete = |index| {
                let (_, key): (Family, Key) = stale[index];
                let (row, column) = split(&key);
                CellDelete { row, column, until: NOW }
            };
            let deletes = indexes.into_iter().map(delete).collect();
            self.cells.delete(Table::Facts(family), deletes)?;
        }
        Ok(())
    }

    /// Puts entries of a collided touch again if the existing record is kept longer: the existing fact may have the
    /// same entries, which must be kept as long as its record.
    fn extend_ttls(&mut self, key: &FactKey, record: &FactRecord) -> Result<(), StoreError> {
        let ttl_ms = record_ttl_ms(&self.expiry, key, record);
        let Some(collision) = self.collisions.get(key) else { return Ok(()) };
        let is_longer =
            collision.ttl_ms.is_some_and(|ms| ttl_ms.is_none_or(|record_ms| record_ms > ms));
        if !is_longer {
            return Ok(());
        }
        let entries = collision.entries.iter().cloned().map(|entry| Put { ttl_ms, ..entry });
        self.cells.put(Table::Facts(key.family), entries.collect())
    }
}

impl<C: Cells> Facts for SharedLedger<C> {
    type Error = StoreError;

    /// A call of the client.
    const RECORDS_PER_READ: usize = 1_000;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let mut records = vec![None; keys.len()];
        for (family, indexes) in key::by_family(keys.iter().map(|key| key.family).enumerate()) {
            let rows: Vec<Key> = indexes.iter().map(|index| key::record(&keys[*index])).collect();
            let values = self.cells.get(Table::Facts(family), &rows)?;
            for (index, value) in indexes.into_iter().zip(values) {
                let key = &keys[index];
                records[index] = match &value {
                    Some(value) => Some(fact_record::decode(family, key.pid, value)?.0),
                    None => None,
                };
                records[index].take_if(|record| self.expiry.has_expired(key.pid, record));
                if family != Family::Touch {
                    self.remember(key, value);
                }
            }
        }
        Ok(records)
    }

    fn forget(&mut self, key: &FactKey) {
        self.remember(key, None);
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        let mut pages = vec![Vec::new(); scans.len()];
        let scans_in_range = scans.iter().enumerate().filter(|(_, s)| s.oldest <= s.newest);
        let families = scans_in_range.map(|(index, scan)| (index, scan.family));
        for (family, indexes) in key::by_family(families) {
            let requests: Vec<Page> = indexes.iter().map(|index| page(&scans[*index])).collect();
            let found = self.cells.get_pages(Table::Facts(family), &requests)?;
            for ((index, request), columns) in indexes.into_iter().zip(requests).zip(found) {
                let entry = |(column, value)| index_entry(family, &request.row, column, value);
                pages[index] = columns.into_iter().map(entry).collect::<Result<_, _>>()?;
            }
        }
        Ok(pages)
    }

    /// `None`: a worker does not know the progress of the others. State expires by the TTLs of the tables.
    fn consumed_until(&self) -> Option<EventTime> {
        None
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.expiry.floor(pid)
    }
}

impl<C: Cells> Ledger for SharedLedger<C> {
    const SHARED: bool = true;

    /// Empty: positions are the committed offsets of the consumer group.
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        Ok(Vec::new())
    }

    /// Touches are assumed to be new, as nearly all are. If the record of one exists, [`Ledger::record`] returns the
    /// touch, and the next lookup reads the record.
    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        let mut all = vec![Lookup::Missing; keys.len()];
        let is_read =
            |key: &FactKey| key.family != Family::Touch || self.collisions.contains_key(key);
        let read = keys.iter().enumerate().filter(|(_, key)| is_read(key));
        let families: Vec<_> = read.map(|(index, key)| (index, key.family)).collect();
        for (family, indexes) in key::by_family(families.into_iter()) {
            let rows: Vec<Key> = indexes.iter().map(|index| key::record(&keys[*index])).collect();
            let columns = self.cells.get_rows(Table::Facts(family), &rows)?;
            for (index, columns) in indexes.into_iter().zip(columns) {
                let key = &keys[index];
                let (value, superseded) = fact_record::read(family, key.pid, &columns)?;
                if let Some(value) = value {
                    let record = fact_record::decode(family, key.pid, value)?.0;
                    self.extend_ttls(key, &record)?;
                    all[index] = match self.expiry.lookup(key.pid, Some(record)) {
                        Lookup::Found(record) => found(record, superseded),
                        expired => expired,
                    };
                }
                self.remember(key, value.map(<[u8]>::to_vec));
            }
        }
        Ok(all)
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        self.put_entries(&facts)?;
        let mut records = Vec::with_capacity(facts.len());
        for write in &facts {
            let stored = match self.read.get(&write.key) {
                Some(value) => Some(fact_record::decode(write.key.family, write.key.pid, value)?),
                None => None,
            };
            // The new record is kept at least as long as the one that it replaces.
            let versions = [Some(&write.record), stored.as_ref().map(|(record, _)| record)];
            let ttls = versions
                .into_iter()
                .flatten()
                .map(|record| record_ttl_ms(&self.expiry, &write.key, record));
            let ttl_ms = ttls.reduce(|longest, ttl_ms| Some(longest?.max(ttl_ms?))).flatten();
            let replaced = stored.map(|(_, replaced)| replaced).unwrap_or_default();
            let value = fact_record::encode(&write.record, &replaced);
            records.push(NewRecord { key: write.key, value, ttl_ms });
        }
        let is_put = self.put_records(records)?;
        let (mut stale, mut conflicts) = (Vec::new(), Vec::new());
        for (write, is_put) in facts.into_iter().zip(is_put) {
            if is_put {
                let key = |(found_by, time): &(_, _)| key::index(*found_by, &write.key, *time);
                // A fact that replaces this one is never later, so entries of a later time belong to no future fact. A
                // fact of the same time may have the same entry and may have put it already.
                let later = write.stale.iter().filter(|(_, time)| *time != write.record.time());
                stale.extend(later.map(|entry| (write.key.family, key(entry))));
            } else {
                if write.key.family == Family::Touch {
                    let ttl_ms = record_ttl_ms(&self.expiry, &write.key, &write.record);
                    let entries = fact_entries(&write, ttl_ms).collect();
                    self.collisions.insert(write.key, Collision { entries, ttl_ms });
                }
                conflicts.push(write);
            }
        }
        self.delete_entries(&stale)?;
        Ok(conflicts)
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished::default()
    }

    /// Never called: the redelivery of a batch repeats its decisions.
    fn set_unfinished(&mut self, _unfinished: Unfinished) {}

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        _progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        if decisions.is_empty() {
            // The batch is complete.
            self.read.clear();
            self.collisions.clear();
            self.cells.batch_complete();
            return Ok(Vec::new());
        }
        self.commit_decisions(decisions)
    }
}

/// The lookup result for a record and the facts that it replaced. A superseded fact that is still current is left out:
/// its replacement is in progress.
fn found(record: FactRecord, mut superseded: Vec<Fact>) -> Lookup {
    superseded.retain(|fact| !is_current(fact, &record));
    match superseded.is_empty() {
        true => Lookup::Found(record),
        false => Lookup::Superseded(record, superseded),
    }
}

/// True if the fact is the one of the record.
fn is_current(fact: &Fact, record: &FactRecord) -> bool {
    match (fact, record) {
        (Fact::Touch(fact), FactRecord::Touch(record)) => fact == record,
        (Fact::Activation(fact), FactRecord::Activation(record)) => **fact == record.fact,
        (Fact::Effect(fact), FactRecord::Effect(record)) => **fact == record.fact,
        _ => false,
    }
}
