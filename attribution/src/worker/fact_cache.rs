//! A cache of the records that a batch has loaded from the ledger.

use crate::facts::event::{Effect, EventTime, Family, Pid, Touch};
use crate::facts::keys::{FactKey, FactKeyMap, MatchKey};
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::received_md5::ReceivedMd5;
use crate::ledger::record::{ActivationRecord, FactRecord};
use crate::rules::expiry;
use crate::rules::policy::AppPolicy;

/// Number of entries of the first page of an index scan; most keys have fewer.
pub const PAGE: usize = 16;
/// Number of entries of each further page.
pub const NEXT_PAGE: usize = 256;

pub struct FactCache<'a, L> {
    ledger: &'a mut L,
    /// Records as loaded or, if decided in this batch, with the new decision.
    records: FactKeyMap<Option<FactRecord>>,
}

impl<'a, L: Facts> FactCache<'a, L> {
    pub fn new(ledger: &'a mut L) -> Self {
        Self { ledger, records: FactKeyMap::default() }
    }

    pub fn ledger(&mut self) -> &mut L {
        self.ledger
    }

    /// Returns which ids the facts of an app were received with as MD5.
    pub fn received_md5(&self, pid: Pid) -> ReceivedMd5 {
        self.ledger.received_md5(pid)
    }

    /// Checks whether a fact of this time, or the decision on it, can still change.
    pub fn is_changeable(&self, app: &AppPolicy, time: EventTime) -> bool {
        let (until, floor) = (self.ledger.consumed_until(), self.ledger.expiry_floor(app.pid));
        time >= expiry::changeable_from(app, until, &floor)
    }

    /// Loads the records of the keys that are not loaded yet.
    pub fn load(&mut self, keys: impl IntoIterator<Item = FactKey>) -> Result<(), L::Error> {
        let mut missing: Vec<FactKey> =
            keys.into_iter().filter(|key| !self.records.contains_key(key)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let records = self.ledger.records(&missing)?;
        self.records.extend(missing.into_iter().zip(records));
        Ok(())
    }

    /// Inserts a record without loading it.
    pub fn insert(&mut self, key: FactKey, record: FactRecord) {
        self.records.insert(key, Some(record));
    }

    pub fn remove(&mut self, key: &FactKey) -> Option<FactRecord> {
        self.records.remove(key)?
    }

    /// Drops all loaded records; the ledger keeps its own.
    pub fn clear(&mut self) {
        self.records.clear();
    }

    pub fn retain(&mut self, mut is_needed: impl FnMut(&FactKey) -> bool) {
        self.records.retain(|key, _| is_needed(key));
    }

    /// Drops the loaded touches to free memory, because they are needed only for a few decisions at a time.
    pub fn forget_touches(&mut self) {
        self.retain(|key| key.family != Family::Touch);
    }

    /// Returns a loaded record.
    pub fn record(&self, key: &FactKey) -> Option<&FactRecord> {
        self.records.get(key)?.as_ref()
    }

    pub fn record_mut(&mut self, key: &FactKey) -> Option<&mut FactRecord> {
        self.records.get_mut(key)?.as_mut()
    }

    /// Returns the record that an index entry leads to, unless the entry is stale.
    pub fn at(&self, entry: &IndexEntry) -> Option<&FactRecord> {
        self.record(&entry.fact).filter(|record| record.time() == entry.time)
    }

    pub fn touch(&self, key: &FactKey) -> Option<&Touch> {
        match self.record(key)? {
            FactRecord::Touch(touch) => Some(touch),
            _ => None,
        }
    }

    pub fn activation(&self, key: &FactKey) -> Option<&ActivationRecord> {
        self.record(key)?.activation()
    }

    pub fn effect(&self, key: &FactKey) -> Option<&Effect> {
        match self.record(key)? {
            FactRecord::Effect(record) => Some(&record.fact),
            _ => None,
        }
    }

    /// Reads all pages of the scans; calls `visit` with each entry and the index of its scan.
    pub fn scan_all(
        &mut self,
        scans: &[Scan],
        mut visit: impl FnMut(usize, IndexEntry),
    ) -> Result<(), L::Error> {
        let mut open: Vec<Scan> = Vec::new();
        let mut indexes: Vec<usize> = (0..scans.len()).collect();
        loop {
            let current = if open.is_empty() { scans } else { &open };
            let pages = self.ledger.scan(current)?;
            let mut remaining = Vec::new();
            let mut remaining_indexes = Vec::new();
            for ((scan, index), page) in current.iter().zip(indexes).zip(pages) {
                if page.len() >= scan.limit {
                    remaining.push(Scan { after: page.last().copied(), limit: NEXT_PAGE, ..*scan });
                    remaining_indexes.push(index);
                }
                page.into_iter().for_each(|entry| visit(index, entry));
            }
            if remaining.is_empty() {
                return Ok(());
            }
            (open, indexes) = (remaining, remaining_indexes);
        }
    }
}

/// Returns the scan of one key between two times, both inclusive.
pub fn scan(
    pid: Pid,
    family: Family,
    key: MatchKey,
    (oldest, newest): (EventTime, EventTime),
) -> Scan {
    Scan { family, key, pid, oldest, newest, after: None, limit: PAGE }
}

/// Merges overlapping scans of the same key.
pub fn merged(mut scans: Vec<Scan>) -> Vec<Scan> {
    scans.sort_unstable_by_key(|scan| (scan.family, scan.pid, scan.key, scan.oldest));
    scans.dedup_by(|later, earlier| {
        let is_overlap = (later.family, later.pid, later.key)
            == (earlier.family, earlier.pid, earlier.key)
            && later.oldest <= earlier.newest;
        if is_overlap {
            earlier.newest = earlier.newest.max(later.newest);
        }
        is_overlap
    });
    scans
}
