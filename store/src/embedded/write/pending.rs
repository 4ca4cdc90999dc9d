//! Facts that were recorded and may not be stored yet, sorted, so that reads can merge them and the write batch is in key
//! order.

use std::cmp::Ordering;

use attribution::facts::event::Family;
use attribution::facts::keys::{FactKey, FactKeyMap, MatchKey};
use attribution::ledger::FactWrite;
use attribution::ledger::index::IndexEntry;
use attribution::ledger::record::FactRecord;
use attribution::parallelism::Parallelism;
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::embedded::touches::read::Place;
use crate::embedded::touches::write::TouchBatch;
use crate::layout::codec;
use crate::layout::key::{self, FactTableKey, Key};

/// What an entry takes in a write batch besides its value: mainly its key, twice for a touch.
const BATCH_ENTRY_BYTES: usize = 48;

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
    /// Adds facts with their entries, and sorts. Threads encode and sort consecutive parts, which are then merged.
    pub fn put_facts(&mut self, facts: &[FactWrite], parallelism: Parallelism) {
        let later = parallelism.fold(facts, self, |pending, facts| {
            facts.iter().for_each(|write| pending.put_fact(write));
            pending.sort();
        });
        if later.is_empty() {
            return;
        }
        later.into_iter().for_each(|later| self.append(later));
        for table in &mut self.tables {
            // Unlike an unstable sort, this one recognises the sorted parts and merges them.
            table.sort_by(order);
            keep_last_writes(table);
        }
    }

    fn put_fact(&mut self, write: &FactWrite) {
        let (fact, record) = (&write.key, &write.record);
        self.put_record(fact, record);
        for (found_by, time) in &write.stale {
            self.delete(fact.family, key::index(*found_by, fact, *time));
        }
        for found_by in &write.index {
            let key = key::index(*found_by, fact, record.time());
            self.put_index(fact.family, key, fact.id.0, record.lookback_ms());
        }
        for (found_by, IndexEntry { time, fact: marker }) in &write.bucket_markers {
            let key = key::index(*found_by, marker, *time);
            self.put_index(fact.family, key, marker.id.0, None);
        }
    }

    pub fn put_record(&mut self, fact: &FactKey, record: &FactRecord) {
        let start = self.values.len();
        codec::fact_record::encode(record, &mut self.values);
        self.push(fact.family, key::record(fact), Some((start, self.values.len() - start)));
    }

    fn put_index(&mut self, family: Family, key: Key, id: u64, lookback_ms: Option<u64>) {
        let start = self.values.len();
        codec::put_index_value(&mut self.values, id, lookback_ms);
        self.push(family, key, Some((start, self.values.len() - start)));
    }

    fn delete(&mut self, family: Family, key: Key) {
        self.push(family, key, None);
    }

    /// Sorts the entries. Must be called after writes and before the next read.
    pub fn sort(&mut self) {
        for table in &mut self.tables {
            table.sort_unstable_by(order);
            keep_last_writes(table);
        }
    }

    /// Adds what was written later, at the end.
    fn append(&mut self, later: Self) {
        let (written, start) = (self.writes, self.values.len());
        self.values.extend_from_slice(&later.values);
        self.writes += later.writes;
        for (table, entries) in self.tables.iter_mut().zip(later.tables) {
            table.extend(entries.into_iter().map(|Entry { key, write, value }| {
                let value = value.map(|(at, len)| (start + at, len));
                Entry { key, write: written + write, value }
            }));
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

    /// About the size of a write batch with everything.
    pub fn batch_bytes(&self) -> usize {
        let entries: usize = self.tables.iter().map(Vec::len).sum();
        self.values.len() + entries * BATCH_ENTRY_BYTES
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

/// The order of entries. The first words of two keys nearly always differ, and numbers are compared faster than bytes.
fn order(a: &Entry, b: &Entry) -> Ordering {
    let first_word = |key: &Key| key.first_chunk::<8>().map(|word| u64::from_be_bytes(*word));
    first_word(&a.key).cmp(&first_word(&b.key)).then_with(|| a.cmp(b))
}

/// Keeps the last write of each key; writes are sorted.
fn keep_last_writes(table: &mut Vec<Entry>) {
    table.dedup_by(|later, earlier| {
        let is_same = later.key == earlier.key;
        if is_same {
            *earlier = *later;
        }
        is_same
    });
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
    use attribution::facts::device_ids::IdKindSet;
    use attribution::facts::event::{
        Device, EventTime, Pid, Purpose, SpreadId, Touch, TouchFields, TouchKind,
    };
    use fastrand::Rng;

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

    #[test]
    fn entries_are_in_the_order_of_their_bytes() {
        let mut rng = Rng::with_seed(7);
        let mut entries: Vec<Entry> = Vec::new();
        for write in 0..1_000 {
            let mut key = Key::default();
            key[rng.usize(..key.len())] = rng.u8(..);
            entries.push(Entry { key, write, value: None });
        }
        let mut expected = entries.clone();
        expected.sort();
        entries.sort_unstable_by(order);
        assert_eq!(entries, expected);
    }

    /// Returns touches with few ids, keys and times, so that later ones replace and delete what earlier ones wrote.
    fn facts() -> Vec<FactWrite> {
        let mut rng = Rng::with_seed(7);
        let mut key = |count| MatchKey(rng.u64(0..count));
        let fact = |id| FactKey { family: Family::Touch, id, pid: Pid(1), tag: 3 };
        let time = |MatchKey(millis)| EventTime::from_millis(millis as i64).unwrap();
        let facts = (0..300).map(|number| FactWrite {
            key: fact(key(40)),
            record: FactRecord::Touch(touch(number, time(key(3)))),
            index: [key(9), key(9)].into_iter().collect(),
            received_md5: IdKindSet::default(),
            bucket_markers: vec![(key(9), IndexEntry { time: time(key(3)), fact: fact(key(2)) })],
            stale: vec![(key(9), time(key(3)))],
            superseded: None,
        });
        facts.collect()
    }

    fn touch(number: u32, time: EventTime) -> Touch {
        let fields = TouchFields {
            pid: Pid(1),
            id: format!("c{number}").into(),
            click_id: "".into(),
            kind: TouchKind::Click,
            purpose: Purpose::Retargeting,
            spreadid: SpreadId(7),
            time,
            lookback_ms: number.is_multiple_of(2).then_some(u64::from(number)),
            ids: Vec::new(),
            device: Device::default(),
            site: "".into(),
            params: Vec::new(),
        };
        fields.into()
    }

    /// Returns all entries after two batches of facts, with their sequence numbers.
    fn entries(threads: usize) -> Vec<(Key, u32, Option<Vec<u8>>)> {
        let (mut pending, facts) = (Pending::default(), facts());
        for facts in facts.chunks(200) {
            pending.put_facts(facts, Parallelism::with_chunk_min(threads, 1));
        }
        let entry = |entry: &Entry| (entry.key, entry.write, pending.value(entry).map(Vec::from));
        pending.from(Family::Touch, &Key::default()).iter().map(entry).collect()
    }

    #[test]
    fn any_number_of_threads_makes_the_same_entries() {
        let expected = entries(1);
        assert!(expected.iter().any(|(.., value)| value.is_none()), "entries that are deleted");
        assert!(expected.len() < facts().len(), "most entries are replaced");
        for threads in [2, 3, 8, 200] {
            assert_eq!(entries(threads), expected, "{threads} threads");
        }
    }
}
