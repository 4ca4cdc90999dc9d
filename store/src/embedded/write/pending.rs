//! What was recorded and is not committed yet: sorted, so that reads can merge it and the write
//! batch is in key order.

use attribution::facts::event::Family;
use attribution::facts::keys::FactKey;
use attribution::ledger::record::FactRecord;
use rocksdb::WriteBatch;

use crate::embedded::tables::Tables;
use crate::layout::codec;
use crate::layout::key::{self, Key};

#[derive(Default)]
pub struct Pending {
    tables: [Vec<Entry>; 3],
    /// All values, end to end.
    values: Vec<u8>,
    /// Counts up, so that the last write of a key stays.
    writes: u32,
}

/// One key to put or delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub key: Key,
    write: u32,
    /// Where its value starts, and its length; `None` deletes.
    value: Option<(usize, usize)>,
}

impl Pending {
    pub fn put_home(&mut self, fact: &FactKey, record: &FactRecord) {
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

    /// Must follow writes before the next read.
    pub fn sort(&mut self) {
        for table in &mut self.tables {
            table.sort_unstable();
            // Later writes of a key come after earlier ones: keep the last.
            table.dedup_by(|later, earlier| {
                let is_same = later.key == earlier.key;
                if is_same {
                    *earlier = *later;
                }
                is_same
            });
        }
    }

    /// The value of a key that is waiting to be put.
    pub fn get(&self, family: Family, key: &Key) -> Option<&[u8]> {
        self.from(family, key)
            .first()
            .filter(|entry| entry.key == *key)
            .and_then(|entry| self.value(entry))
    }

    /// All entries from a key on.
    pub fn from(&self, family: Family, key: &Key) -> &[Entry] {
        let table = &self.tables[family as usize];
        &table[table.partition_point(|entry| entry.key < *key)..]
    }

    /// `None` if the key is to be deleted.
    pub fn value(&self, entry: &Entry) -> Option<&[u8]> {
        let (start, len) = entry.value?;
        self.values.get(start..start + len)
    }

    /// Moves everything into the batch.
    pub fn drain_into(&mut self, batch: &mut WriteBatch, tables: &Tables) {
        for family in Family::ALL {
            let table = tables.facts(family);
            for entry in &self.tables[family as usize] {
                match self.value(entry) {
                    Some(value) => batch.put_cf(table, entry.key, value),
                    None => batch.delete_cf(table, entry.key),
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
