//! Finds touches: by their identities, whatever their day, and by the keys of the index, newest first.

use attribution::facts::event::{EventTime, Family};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys;
use attribution::ledger::index::Scan;
use attribution::ledger::record::FactRecord;
use rocksdb::ReadOptions;

use super::filter::{FilterView, KeyHash};
use super::record::Day;
use super::tables::{AllTables, TouchTables};
use crate::StoreError;
use crate::embedded::db::{Db, RawIterator, Table};
use crate::layout::codec::fact_record;
use crate::layout::codec::touch::{TouchRef, split_contents};
use crate::layout::key::{self, FACT_PREFIX_BYTES, Key};

/// Where a touch is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The number of the table.
    pub table: u32,
    /// The key of the contents.
    pub number: u64,
}

/// Attempts to read the contents of a touch that another thread moves meanwhile.
const ATTEMPTS: usize = 3;

/// Asks the filters which of these touches may be stored, or be in flight. Nearly no new touch is among them.
pub fn may_be_written(tables: &TouchTables, facts: &[FactKey]) -> Vec<bool> {
    let hashes: Vec<KeyHash> = facts.iter().map(|fact| KeyHash::of(&key::record(fact))).collect();
    let mut may_be_written = vec![false; facts.len()];
    // Table by table, because processor caches have room for one filter, but not for all.
    for table in tables.all().iter() {
        let filter = table.filter.view();
        for (may_be_written, hash) in may_be_written.iter_mut().zip(&hashes) {
            *may_be_written |= filter.may_contain(*hash);
        }
    }
    may_be_written
}

/// Finds the touches of these keys. Nearly always, the filters leave no table or one to ask.
pub fn places(
    db: &Db,
    tables: &TouchTables,
    facts: &[FactKey],
) -> Result<Vec<Option<Place>>, StoreError> {
    if facts.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<Key> = facts.iter().map(key::record).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(KeyHash::of).collect();
    let mut places = vec![None; facts.len()];
    let mut open: Vec<usize> = (0..facts.len()).collect();
    for table in tables.all().iter() {
        let filter = table.filter.view();
        let asked: Vec<usize> =
            open.iter().copied().filter(|index| filter.may_contain(hashes[*index])).collect();
        // A dropped table has no touch that is needed.
        let index = if asked.is_empty() { None } else { db.cf_handle(&table.index) };
        let Some(index) = index else { continue };
        let asked_keys: Vec<Key> = asked.iter().map(|index| keys[*index]).collect();
        for (fact, value) in asked.iter().zip(get(db, &index, &asked_keys)) {
            if let Some(value) = value? {
                let TouchRef { number, .. } = TouchRef::decode(&value)?;
                places[*fact] = Some(Place { table: table.number, number });
            }
        }
        open.retain(|index| places[*index].is_none());
        if open.is_empty() {
            break;
        }
    }
    Ok(places)
}

/// The touches of these keys. One whose contents have been removed since its expiry may still have a place.
pub fn touches(
    db: &Db,
    tables: &TouchTables,
    facts: &[FactKey],
) -> Result<Vec<Option<FactRecord>>, StoreError> {
    let mut found = vec![None; facts.len()];
    let mut open: Vec<usize> = (0..facts.len()).collect();
    for _ in 0..ATTEMPTS {
        let open_facts: Vec<FactKey> = open.iter().map(|index| facts[*index]).collect();
        let places = places(db, tables, &open_facts)?;
        let placed = open.iter().zip(places);
        let mut placed: Vec<(Place, usize)> =
            placed.filter_map(|(index, place)| Some((place?, *index))).collect();
        placed.sort_unstable();
        for of_table in placed.chunk_by(|(a, _), (b, _)| a.table == b.table) {
            read_contents(db, tables, facts, of_table, &mut found)?;
        }
        // A touch that was replaced after it was placed is placed again.
        open = placed.into_iter().map(|(_, index)| index).collect();
        open.retain(|index| found[*index].is_none());
        if open.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// Reads the contents at places of one table, in the order of their numbers.
///
/// # Errors
/// [`StoreError::Corrupt`] also if they are those of another touch. No number is used again, so only damage can be the
/// cause, and a decision must not be made without the touch.
fn read_contents(
    db: &Db,
    tables: &TouchTables,
    facts: &[FactKey],
    places: &[(Place, usize)],
    found: &mut [Option<FactRecord>],
) -> Result<(), StoreError> {
    let all = tables.all();
    let number = places.first().map(|(place, _)| place.table);
    let table = all.iter().find(|table| Some(table.number) == number);
    let Some(contents) = table.and_then(|table| db.cf_handle(&table.contents)) else {
        return Ok(());
    };
    let keys: Vec<[u8; 8]> = places.iter().map(|(place, _)| place.number.to_be_bytes()).collect();
    for ((_, index), value) in places.iter().zip(get(db, &contents, &keys)) {
        if let Some(value) = value? {
            let (pid, record) = split_contents(&value)?;
            let record = fact_record::decode(Family::Touch, pid, record)?;
            if match_keys::fact_key(record.id_space(), pid, record.id()) != facts[*index] {
                return Err(StoreError::corrupt("a reference leads to another touch"));
            }
            found[*index] = Some(record);
        }
    }
    Ok(())
}

/// A single get is cheaper than a batch of one.
fn get<'d, const LEN: usize>(
    db: &'d Db,
    table: &Table<'_>,
    keys: &[[u8; LEN]],
) -> Vec<Result<Option<rocksdb::DBPinnableSlice<'d>>, rocksdb::Error>> {
    match keys {
        [key] => vec![db.get_pinned_cf(table, key)],
        _ => db.batched_multi_get_cf(table, keys, keys.is_sorted()),
    }
}

/// The entries of one key, newest first, from one table after another, or merged if nothing says which table has which
/// days.
pub struct TouchEntries<'d> {
    db: &'d Db,
    tables: AllTables,
    is_merged: bool,
    /// The filter of each table.
    filters: Vec<FilterView>,
    /// One for each table that has been asked.
    iterators: Vec<Option<RawIterator<'d>>>,
    /// The index of the table with the present entry; the number of tables at the end.
    current: usize,
    /// The first key of the scan.
    first: Key,
    oldest: EventTime,
}

impl<'d> TouchEntries<'d> {
    pub fn new(db: &'d Db, tables: &TouchTables) -> Self {
        let (tables, is_merged) = (tables.all(), !tables.are_days_known());
        let filters = tables.iter().map(|table| table.filter.view()).collect();
        let iterators = tables.iter().map(|_| None).collect();
        let current = tables.len();
        let (first, oldest) = (Key::default(), EventTime::default());
        Self { db, tables, is_merged, filters, iterators, current, first, oldest }
    }

    /// Moves to the first entry of a scan, at or after the key `first`.
    pub fn seek(&mut self, first: &Key, scan: &Scan) -> Result<(), StoreError> {
        let newest = scan.after.map_or(scan.newest, |after| after.time);
        (self.first, self.oldest) = (*first, scan.oldest);
        if self.is_merged {
            return self.seek_in_all();
        }
        self.current = self.tables.partition_point(|table| table.days.first > Day::of(newest));
        self.seek_in_tables()
    }

    /// The present entry; `None` after the last.
    pub fn item(&self) -> Option<(&[u8], &[u8])> {
        let entries = self.iterators.get(self.current)?.as_ref()?;
        entries.item().filter(|(key, _)| self.is_found(key))
    }

    pub fn advance(&mut self) -> Result<(), StoreError> {
        if let Some(Some(entries)) = self.iterators.get_mut(self.current) {
            entries.next();
        }
        if self.is_merged {
            return self.move_to_least();
        }
        if self.item().is_some() {
            return Ok(());
        }
        self.check()?;
        self.current += 1;
        self.seek_in_tables()
    }

    /// Seeks in the present table and in older ones, until one has an entry.
    fn seek_in_tables(&mut self) -> Result<(), StoreError> {
        let hash = KeyHash::of(&self.first);
        while let Some(table) = self.tables.get(self.current) {
            if table.days.last < Day::of(self.oldest) {
                self.current = self.tables.len();
                break;
            }
            let may_contain = |filter: &FilterView| filter.may_contain(hash);
            if self.filters.get(self.current).is_none_or(may_contain)
                && let Some(entries) = self.iterators.get_mut(self.current)
            {
                if entries.is_none() {
                    *entries = iterator(self.db, &table.index);
                }
                entries.iter_mut().for_each(|entries| entries.seek(self.first));
                if self.item().is_some() {
                    break;
                }
                self.check()?;
            }
            self.current += 1;
        }
        Ok(())
    }

    fn seek_in_all(&mut self) -> Result<(), StoreError> {
        for (table, entries) in self.tables.iter().zip(&mut self.iterators) {
            if entries.is_none() {
                *entries = iterator(self.db, &table.index);
            }
            entries.iter_mut().for_each(|entries| entries.seek(self.first));
        }
        self.move_to_least()
    }

    /// Moves to the table with the least of all present keys.
    fn move_to_least(&mut self) -> Result<(), StoreError> {
        let mut least: Option<(&[u8], usize)> = None;
        for (index, entries) in self.iterators.iter().enumerate() {
            let Some(entries) = entries else { continue };
            match entries.key().filter(|key| self.is_found(key)) {
                Some(key) if least.is_none_or(|(least, _)| key < least) => {
                    least = Some((key, index));
                }
                Some(_) => {}
                None => entries.status()?,
            }
        }
        self.current = least.map_or(self.tables.len(), |(_, index)| index);
        Ok(())
    }

    fn is_found(&self, key: &[u8]) -> bool {
        key.starts_with(&self.first[..FACT_PREFIX_BYTES])
    }

    /// Checks that the present table ended without an error.
    fn check(&self) -> Result<(), StoreError> {
        match self.iterators.get(self.current) {
            Some(Some(entries)) => Ok(entries.status()?),
            _ => Ok(()),
        }
    }
}

/// An iterator over the keys with the prefix of the last seek; `None` if the table was dropped.
fn iterator<'d>(db: &'d Db, index: &str) -> Option<RawIterator<'d>> {
    let mut options = ReadOptions::default();
    options.set_prefix_same_as_start(true);
    Some(db.raw_iterator_cf_opt(&db.cf_handle(index)?, options))
}
