//! A cache of the records that a batch has loaded from the ledger.

use super::limits::ReadLimits;
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
    pub limits: ReadLimits,
    /// Records as loaded or, if decided in this batch, with the new decision.
    records: FactKeyMap<Option<FactRecord>>,
    touch_bytes: usize,
    touch_bytes_max: usize,
}

impl<'a, L: Facts> FactCache<'a, L> {
    pub fn new(ledger: &'a mut L) -> Self {
        Self::with_limits(ledger, ReadLimits::default())
    }

    pub fn with_limits(ledger: &'a mut L, limits: ReadLimits) -> Self {
        let records = FactKeyMap::default();
        Self { ledger, limits, records, touch_bytes: 0, touch_bytes_max: 0 }
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
        self.add(missing, records);
        Ok(())
    }

    /// Like [`FactCache::load`], but ends when the loaded records have reached the limit of bytes. Returns whether all
    /// are loaded.
    pub fn load_up_to(
        &mut self,
        keys: impl IntoIterator<Item = FactKey>,
    ) -> Result<bool, L::Error> {
        let mut missing: Vec<FactKey> =
            keys.into_iter().filter(|key| !self.records.contains_key(key)).collect();
        missing.sort_unstable();
        missing.dedup();
        self.load_first(missing)
    }

    /// Loads the facts of pages of index entries up to the limit of bytes, and removes the entries from the first one
    /// on whose fact is not loaded. At least one fact is loaded, and at least one entry stays. Returns for each page
    /// whether entries were removed.
    pub fn load_pages(&mut self, pages: &mut [Vec<IndexEntry>]) -> Result<Vec<bool>, L::Error> {
        // Sorted keys are read faster, and nearly always all are loaded.
        if self.load_up_to(pages.iter().flatten().map(|entry| entry.fact))? {
            return Ok(vec![false; pages.len()]);
        }
        // Sorted by key, those that were loaded are anywhere in the pages: load more from the beginning of the first.
        let mut missing: Vec<FactKey> = pages.iter().flatten().map(|entry| entry.fact).collect();
        missing.retain(|key| !self.records.contains_key(key));
        self.load_first(missing)?;
        let cut = |page: &mut Vec<IndexEntry>| {
            let loaded = page.iter().take_while(|entry| self.records.contains_key(&entry.fact));
            let loaded = loaded.count();
            let is_cut = loaded < page.len();
            page.truncate(loaded);
            is_cut
        };
        Ok(pages.iter_mut().map(cut).collect())
    }

    /// Loads the first of these records, up to the limit of bytes. Returns whether all are loaded.
    fn load_first(&mut self, missing: Vec<FactKey>) -> Result<bool, L::Error> {
        if missing.is_empty() {
            return Ok(true);
        }
        let records = self.ledger.records_up_to(&missing, self.limits.bytes)?;
        let is_complete = records.len() == missing.len();
        self.add(missing, records);
        Ok(is_complete)
    }

    fn add(&mut self, keys: Vec<FactKey>, records: Vec<Option<FactRecord>>) {
        for (key, record) in keys.into_iter().zip(records) {
            let bytes = touch_bytes(record.as_ref());
            if self.records.insert(key, record).is_none() {
                self.touch_bytes += bytes;
            }
        }
        self.touch_bytes_max = self.touch_bytes_max.max(self.touch_bytes);
    }

    /// Returns the size of the loaded touches.
    pub fn touch_bytes(&self) -> usize {
        self.touch_bytes
    }

    /// Returns the maximum of [`FactCache::touch_bytes`] so far.
    pub fn touch_bytes_max(&self) -> usize {
        self.touch_bytes_max
    }

    pub fn is_loaded(&self, key: &FactKey) -> bool {
        self.records.contains_key(key)
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
        self.touch_bytes = 0;
    }

    pub fn retain(&mut self, mut is_needed: impl FnMut(&FactKey) -> bool) {
        let touch_bytes_now = &mut self.touch_bytes;
        self.records.retain(|key, record| {
            let is_needed = is_needed(key);
            if !is_needed {
                *touch_bytes_now = touch_bytes_now.saturating_sub(touch_bytes(record.as_ref()));
            }
            is_needed
        });
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

fn touch_bytes(record: Option<&FactRecord>) -> usize {
    record.filter(|record| record.family() == Family::Touch).map_or(0, FactRecord::bytes)
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
