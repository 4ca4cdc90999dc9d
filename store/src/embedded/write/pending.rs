//! Facts that were recorded and may not be stored yet, sorted, so that reads can merge them and the write batch is in key
//! order.

use attribution::facts::event::Family;
use attribution::facts::keys::{FactKey, FactKeyMap, MatchKey};
use attribution::ledger::record::FactRecord;
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::embedded::touches::read::Place;
use crate::embedded::touches::write::TouchBatch;
use crate::layout::codec;
use crate::layout::key::{self, FactTableKey, Key};

#[derive(Default)]
pub struct Pending {
    /// Indexed by family.
    tables: [Vec<Entry>; 3],
    /// All values, concatenated.
    values: Vec<u8>,
    /// Sequence number; the last write of a key wins.
    writes: u32,
}

/// One key to put or delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub key: Key,
    write: u32,
    /// Start and length in [`Pending::values`]; `None` deletes the key.
    value: Option<(usize, usize)>,
}

impl Pending {
    pub fn put_record(&mut self, fact: &FactKey, record: &FactRecord) {
        let start = self.values.len();
        codec::fact_record::encode(record, &mut self.values);
        self.push(fact.family, key::record(fact), Some((start, self.values.len() - start)));
    }

    pub fn put_index(&mut self, family: Family, key: Key, id: u64, lookback_ms: Option<u64>) {
        let start = self.values.len();
        codec::put_index_value(&mut self.values, id, lookback_ms);
        self.push(family, key, Some((start, self.values.len() - start)));
    }

    pub fn delete(&mut self, family: Family, key: Key) {
        self.push(family, key, None);
    }

    /// Sorts the entries. Must be called after writes and before the next read.
    pub fn sort(&mut self) {
        for table in &mut self.tables {
            table.sort_unstable();
            // The writes of a key are in order: keep the last.
            table.dedup_by(|later, earlier| {
                let is_same = later.key == earlier.key;
                if is_same {
                    *earlier = *later;
                }
                is_same
            });
        }
    }

    /// The pending value of a key; `None` also if the key is to be deleted.
    pub fn get(&self, family: Family, key: &Key) -> Option<&[u8]> {
        self.from(family, key)
            .first()
            .filter(|entry| entry.key == *key)
            .and_then(|entry| self.value(entry))
    }

    /// All entries at or after a key.
    pub fn from(&self, family: Family, key: &Key) -> &[Entry] {
        let table = &self.tables[family as usize];
        &table[table.partition_point(|entry| entry.key < *key)..]
    }

    /// `None` if the key is to be deleted.
    pub fn value(&self, entry: &Entry) -> Option<&[u8]> {
        let (start, len) = entry.value?;
        self.values.get(start..start + len)
    }

    /// The touches whose records are pending.
    pub fn touches(&self) -> impl Iterator<Item = FactKey> {
        self.tables[Family::Touch as usize].iter().filter_map(|entry| {
            let key = key::decode_fact(&entry.key)?;
            let FactTableKey::FactRecord { id, pid, tag } = key else { return None };
            Some(FactKey { family: Family::Touch, id: MatchKey(id), pid, tag })
        })
    }

    /// Adds all touches and their entries to a batch. `stored` is where the facts of records are stored so far.
    pub fn put_touches(
        &self,
        batch: &mut TouchBatch<'_>,
        stored: &FactKeyMap<Option<Place>>,
    ) -> Result<(), StoreError> {
        for entry in &self.tables[Family::Touch as usize] {
            match (key::decode_fact(&entry.key), self.value(entry)) {
                (Some(FactTableKey::FactRecord { id, pid, tag }), Some(value)) => {
                    let fact = FactKey { family: Family::Touch, id: MatchKey(id), pid, tag };
                    let replaced = stored.get(&fact).copied().flatten();
                    batch.put_record(&entry.key, value, replaced)?;
                }
                (_, Some(value)) => batch.put_entry(&entry.key, value)?,
                (_, None) => batch.delete_entry(&entry.key)?,
            }
        }
        Ok(())
    }

    /// Adds everything but the touches to a batch.
    pub fn put_events(&self, batch: &mut WriteBatch, tables: &Tables) {
        for family in [Family::Activation, Family::Effect] {
            let table = tables.facts(family);
            for entry in &self.tables[family as usize] {
                match self.value(entry) {
                    Some(value) => batch.put_cf(&table, entry.key, value),
                    None => batch.delete_cf(&table, entry.key),
                }
            }
        }
    }

    pub fn clear(&mut self) {
        for table in &mut self.tables {
            table.clear();
        }
        self.values.clear();
        self.writes = 0;
    }

    fn push(&mut self, family: Family, key: Key, value: Option<(usize, usize)>) {
        self.writes += 1;
        self.tables[family as usize].push(Entry { key, write: self.writes, value });
    }
}

/// The entries of several batches at or after a key, in key order. The batches are in order from the newest to the
/// oldest, and of entries with one key only the newest counts.
pub struct Merged<'p, const N: usize>([(&'p Pending, &'p [Entry]); N]);

impl<'p, const N: usize> Merged<'p, N> {
    pub fn new(newest_first: [&'p Pending; N], family: Family, key: &Key) -> Self {
        Self(newest_first.map(|pending| (pending, pending.from(family, key))))
    }

    /// The next key and its value; `None` instead of a value deletes the key.
    pub fn peek(&self) -> Option<(&'p Key, Option<&'p [u8]>)> {
        let next = self.0.iter().filter_map(|(pending, rest)| Some((*pending, rest.first()?)));
        // The first one, if keys are equal.
        let (pending, entry) = next.min_by_key(|(_, entry)| entry.key)?;
        Some((&entry.key, pending.value(entry)))
    }

    /// Moves behind the next key.
    pub fn advance(&mut self) {
        let Some((key, _)) = self.peek() else { return };
        for (_, entries) in &mut self.0 {
            if let Some((next, rest)) = entries.split_first()
                && next.key == *key
            {
                *entries = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILY: Family = Family::Effect;

    fn key(number: u8) -> Key {
        let mut key = Key::default();
        key[0] = number;
        key
    }

    /// Puts the keys with this number as their id, and deletes others.
    fn pending(id: u64, put: &[u8], deleted: &[u8]) -> Pending {
        let mut pending = Pending::default();
        put.iter().for_each(|number| pending.put_index(FAMILY, key(*number), id, None));
        deleted.iter().for_each(|number| pending.delete(FAMILY, key(*number)));
        pending.sort();
        pending
    }

    /// Returns the first byte of each key, and its id; 0 if it is deleted.
    fn all<const N: usize>(batches: [&Pending; N], from: u8) -> Vec<(u8, u64)> {
        let mut merged = Merged::new(batches, FAMILY, &key(from));
        let mut found = Vec::new();
        while let Some((key, value)) = merged.peek() {
            found.push((key[0], value.map_or(0, |value| codec::index_id(value).unwrap())));
            merged.advance();
        }
        found
    }

    #[test]
    fn newer_entries_hide_older_ones() {
        let newer = pending(1, &[2, 3], &[5, 6]);
        let older = pending(2, &[1, 3, 5, 7], &[2, 8]);
        let expected = [(1, 2), (2, 1), (3, 1), (5, 0), (6, 0), (7, 2), (8, 0)];
        assert_eq!(all([&newer, &older], 0), expected);
        assert_eq!(all([&newer, &older], 3), expected[2..]);
        assert_eq!(all([&newer, &Pending::default()], 0), [(2, 1), (3, 1), (5, 0), (6, 0)]);
        assert_eq!(all([&Pending::default(), &older], 8), [(8, 0)]);
        assert!(all([], 0).is_empty());
    }
}
