//! Facts that were recorded and are not committed yet, sorted, so that reads can merge them and the write batch is in
//! key order.

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

    /// Moves everything but the touches into the batch, and forgets the touches.
    pub fn drain_into(&mut self, batch: &mut WriteBatch, tables: &Tables) {
        for family in [Family::Activation, Family::Effect] {
            let table = tables.facts(family);
            for entry in &self.tables[family as usize] {
                match self.value(entry) {
                    Some(value) => batch.put_cf(&table, entry.key, value),
                    None => batch.delete_cf(&table, entry.key),
                }
            }
        }
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
