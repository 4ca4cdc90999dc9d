//! A cache of the records that a batch has loaded from the ledger.

use super::limits::ReadLimits;
use crate::facts::event::{Effect, EventTime, Family, Pid, Touch};
use crate::facts::keys::{FactKey, FactKeyMap, MatchKey};
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::received_md5::ReceivedMd5;
use crate::ledger::record::{ActivationRecord, FactRecord, Lookup};
use crate::ledger::{Facts, Ledger};
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
    /// The size of the records of each family, and the maximum of each so far, with records that were only visited.
    bytes: ByFamily,
    bytes_max: ByFamily,
}

type ByFamily = [usize; Family::ALL.len()];

impl<'a, L: Facts> FactCache<'a, L> {
    pub fn new(ledger: &'a mut L) -> Self {
        Self::with_limits(ledger, ReadLimits::default())
    }

    pub fn with_limits(ledger: &'a mut L, limits: ReadLimits) -> Self {
        let records = FactKeyMap::default();
        Self { ledger, limits, records, bytes: ByFamily::default(), bytes_max: ByFamily::default() }
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

    /// Looks up the first of the keys, up to the limit of bytes.
    pub fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, L::Error>
    where
        L: Ledger,
    {
        let lookups = self.ledger.lookup_up_to(keys, self.limits.bytes)?;
        self.note_visited(keys.iter().zip(lookups.iter().map(Lookup::bytes)));
        Ok(lookups)
    }

    /// Calls `visit` with the ledger and the record of each key that has one. Reads those that are not loaded in parts,
    /// up to the limit of bytes, and keeps them only until the loaded facts have reached it.
    pub fn visit(
        &mut self,
        keys: impl IntoIterator<Item = FactKey>,
        mut visit: impl FnMut(&L, &FactKey, &FactRecord),
    ) -> Result<(), L::Error> {
        let mut keys: Vec<FactKey> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| match self.records.get(key) {
            Some(record) => {
                record.iter().for_each(|record| visit(self.ledger, key, record));
                false
            }
            None => true,
        });
        let mut rest = keys.as_slice();
        while !rest.is_empty() {
            let records = self.ledger.records_up_to(rest, self.limits.bytes)?;
            let (now, later) = rest.split_at(records.len());
            let sizes = records.iter().map(|record| bytes(record.as_ref()));
            self.note_visited(now.iter().zip(sizes));
            for (key, record) in now.iter().zip(records) {
                record.iter().for_each(|record| visit(self.ledger, key, record));
                if self.bytes.iter().sum::<usize>() + bytes(record.as_ref()) > self.limits.bytes {
                    self.ledger.forget(key);
                } else {
                    self.put(*key, record);
                }
            }
            rest = later;
        }
        Ok(())
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
            self.put(key, record);
        }
    }

    fn put(&mut self, key: FactKey, record: Option<FactRecord>) {
        let family = key.family as usize;
        self.bytes[family] += bytes(record.as_ref());
        let replaced = self.records.insert(key, record).flatten();
        self.bytes[family] = self.bytes[family].saturating_sub(bytes(replaced.as_ref()));
        self.bytes_max[family] = self.bytes_max[family].max(self.bytes[family]);
    }

    /// Counts a loaded record whose size was `before` until it changed.
    pub fn recount(&mut self, key: &FactKey, before: usize) {
        let now = bytes(self.record(key));
        let loaded = &mut self.bytes[key.family as usize];
        *loaded = (*loaded + now).saturating_sub(before);
        let max = &mut self.bytes_max[key.family as usize];
        *max = (*max).max(*loaded);
    }

    /// Counts records that are held beside the loaded ones for a moment.
    fn note_visited<'k>(&mut self, visited: impl Iterator<Item = (&'k FactKey, usize)>) {
        let mut held = self.bytes;
        visited.for_each(|(key, bytes)| held[key.family as usize] += bytes);
        for (max, held) in self.bytes_max.iter_mut().zip(held) {
            *max = (*max).max(held);
        }
    }

    /// Returns the size of the loaded facts of a family.
    pub fn bytes(&self, family: Family) -> usize {
        self.bytes[family as usize]
    }

    /// Returns the maximum size of the facts of a family that were held at the same time so far.
    pub fn bytes_max(&self, family: Family) -> usize {
        self.bytes_max[family as usize]
    }

    pub fn is_loaded(&self, key: &FactKey) -> bool {
        self.records.contains_key(key)
    }

    /// Checks whether the loaded facts have reached the limit of bytes.
    pub fn is_full(&self) -> bool {
        self.bytes.iter().sum::<usize>() >= self.limits.bytes
    }

    /// Inserts a record without loading it.
    pub fn insert(&mut self, key: FactKey, record: FactRecord) {
        self.put(key, Some(record));
    }

    /// Takes a record that will be written.
    pub fn remove(&mut self, key: &FactKey) -> Option<FactRecord> {
        let record = self.records.remove(key)??;
        let bytes = &mut self.bytes[key.family as usize];
        *bytes = bytes.saturating_sub(record.bytes());
        Some(record)
    }

    /// Drops a record that will not be written, unless it is loaded again.
    pub fn forget(&mut self, key: &FactKey) {
        self.remove(key);
        self.ledger.forget(key);
    }

    /// Drops all loaded records, like [`FactCache::forget`].
    pub fn clear(&mut self) {
        self.records.drain().for_each(|(key, _)| self.ledger.forget(&key));
        self.bytes = ByFamily::default();
    }

    /// Drops all other records, like [`FactCache::forget`].
    pub fn retain(&mut self, mut is_needed: impl FnMut(&FactKey) -> bool) {
        let Self { ledger, records, bytes: loaded, .. } = self;
        records.retain(|key, record| {
            let is_needed = is_needed(key);
            if !is_needed {
                let loaded = &mut loaded[key.family as usize];
                *loaded = loaded.saturating_sub(bytes(record.as_ref()));
                ledger.forget(key);
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

fn bytes(record: Option<&FactRecord>) -> usize {
    record.map_or(0, FactRecord::bytes)
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
