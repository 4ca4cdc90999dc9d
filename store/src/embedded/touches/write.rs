//! Adds touches to a write batch: contents under ascending numbers, and index entries, in the tables of their days.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use attribution::facts::event::{EventTime, Family, Pid};
use rocksdb::{IteratorMode, WriteBatch};

use super::filter::{KeyFilter, KeyHash};
use super::read::Place;
use super::record::{Day, Days, Placement, TableRecord, place};
use super::tables::{self, AllTables, TableRecords, TouchTables, record_name};
use crate::StoreError;
use crate::embedded::db::{Db, Table};
use crate::embedded::open::column_families::META;
use crate::embedded::tables::Tables;
use crate::expiry::Expiry;
use crate::layout::codec::touch::{self, TouchRef, put_contents};
use crate::layout::codec::{self, fact};
use crate::layout::key::{self, FactTableKey, Key};

/// The key in `meta` of a number that is greater than all numbers of contents so far, as u64.
pub const TOUCH_NUMBER: &[u8] = b"touch_number";
/// Numbers between two updates of that entry.
const RESERVED_NUMBERS: u64 = 1 << 20;

/// What the writer knows of the tables.
#[derive(Debug)]
pub struct TouchWriter {
    records: TableRecords,
    /// The number of the next contents; greater than all before. No number is used again, because a compaction may
    /// have removed expired contents and not yet the reference to them.
    next_number: u64,
    /// The stored [`TOUCH_NUMBER`].
    reserved: u64,
}

impl TouchWriter {
    /// # Errors
    /// [`StoreError::Corrupt`] if a record of a table or a number is damaged.
    pub fn open(db: &Db, tables: &TouchTables) -> Result<Self, StoreError> {
        let reserved = reserved_number(db)?;
        let mut next_number = reserved;
        for table in tables.all().iter() {
            let Some(contents) = db.cf_handle(&table.contents) else { continue };
            if let Some(last) = db.iterator_cf(&contents, IteratorMode::End).next() {
                let (number, _) = last?;
                next_number = next_number.max(touch::number(&number)? + 1);
            }
        }
        Ok(Self { records: tables::records(db)?, next_number, reserved })
    }

    /// The tables whose touches no decision can need any more.
    pub fn expired(&self, expiry: &Expiry) -> Vec<u32> {
        let expired = self.records.iter().filter(|(_, record)| record.has_expired(expiry));
        expired.map(|(number, _)| *number).collect()
    }

    /// Deletes the records of tables.
    pub fn delete(&mut self, numbers: &[u32], meta: &Table<'_>, batch: &mut WriteBatch) {
        for number in numbers {
            self.records.remove(number);
            batch.delete_cf(meta, record_name(*number));
        }
    }
}

/// Touches to add to a write batch.
pub struct TouchBatch<'a> {
    writer: &'a mut TouchWriter,
    tables: &'a Tables,
    batch: &'a mut WriteBatch,
    all: AllTables,
    /// The tables that the batch writes to.
    open: BTreeMap<u32, OpenTable<'a>>,
    /// The last day that was looked up, and its table.
    last: Option<(Day, u32)>,
    /// Tables whose records have changed.
    changed: BTreeSet<u32>,
    /// A value that is being encoded.
    value: Vec<u8>,
}

struct OpenTable<'a> {
    index: Table<'a>,
    contents: Table<'a>,
    filter: Arc<KeyFilter>,
}

impl<'a> TouchBatch<'a> {
    pub fn new(writer: &'a mut TouchWriter, tables: &'a Tables, batch: &'a mut WriteBatch) -> Self {
        let all = tables.touches.all();
        let (open, changed) = (BTreeMap::new(), BTreeSet::new());
        Self { writer, tables, batch, all, open, last: None, changed, value: Vec::new() }
    }

    /// Puts the value of a fact record under its key. `replaced` is where the fact is stored so far.
    pub fn put_record(
        &mut self,
        key: &Key,
        value: &[u8],
        replaced: Option<Place>,
    ) -> Result<(), StoreError> {
        let pid = decoded(key)?.pid();
        let (time, lookback_ms) = fact::times(Family::Touch, value)?;
        let table = self.table_for(pid, time, lookback_ms)?;
        // A replaced fact gets a new number too, so contents are in the order of arrival.
        let number = self.writer.next_number;
        self.writer.next_number += 1;
        let Self { batch, open, value: buffer, .. } = &mut *self;
        if let Some(OpenTable { index, contents, filter }) = open.get(&table) {
            filter.add(KeyHash::of(key));
            buffer.clear();
            put_contents(buffer, pid, value);
            batch.put_cf(contents, number.to_be_bytes(), &*buffer);
            buffer.clear();
            TouchRef::new(number, time, lookback_ms).put(buffer);
            batch.put_cf(index, key, &*buffer);
        }
        let Some(replaced) = replaced else { return Ok(()) };
        if let Some(OpenTable { index, contents, .. }) = self.open_table(replaced.table) {
            let index = (replaced.table != table).then(|| Arc::clone(index));
            let contents = Arc::clone(contents);
            self.batch.delete_cf(&contents, replaced.number.to_be_bytes());
            index.iter().for_each(|index| self.batch.delete_cf(index, key));
        }
        Ok(())
    }

    /// Puts an index entry or a marker.
    pub fn put_entry(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        let FactTableKey::Index { pid, time, .. } = decoded(key)? else { return Err(damage()) };
        let (_, lookback_ms) = codec::index_value(value)?;
        let table = self.table_for(pid, time, lookback_ms)?;
        let Self { batch, open, .. } = self;
        if let Some(OpenTable { index, filter, .. }) = open.get(&table) {
            filter.add(KeyHash::of(key));
            batch.put_cf(index, key, value);
        }
        Ok(())
    }

    /// Deletes an index entry, if its day has a table.
    pub fn delete_entry(&mut self, key: &Key) -> Result<(), StoreError> {
        let FactTableKey::Index { time, .. } = decoded(key)? else { return Err(damage()) };
        let Some(number) = self.existing_table(Day::of(time)) else { return Ok(()) };
        let index = self.open_table(number).map(|table| Arc::clone(&table.index));
        index.iter().for_each(|index| self.batch.delete_cf(index, key));
        Ok(())
    }

    /// Adds the changed records of tables. Must be called after all touches were added.
    pub fn finish(self) {
        let Self { writer, tables, batch, changed, .. } = self;
        for number in changed {
            if let Some(record) = writer.records.get(&number) {
                batch.put_cf(&tables.meta(), record_name(number), record.encode());
            }
        }
        if writer.next_number > writer.reserved {
            writer.reserved = writer.next_number.saturating_add(RESERVED_NUMBERS);
            batch.put_cf(&tables.meta(), TOUCH_NUMBER, writer.reserved.to_be_bytes());
        }
    }

    /// The open table for a touch, whose record then includes the touch.
    fn table_for(
        &mut self,
        pid: Pid,
        time: EventTime,
        lookback_ms: Option<u64>,
    ) -> Result<u32, StoreError> {
        let day = Day::of(time);
        let number = match self.existing_table(day) {
            Some(number) => number,
            None => self.new_table(day)?,
        };
        if let Some(record) = self.writer.records.get_mut(&number)
            && record.add(pid, day, lookback_ms)
        {
            self.changed.insert(number);
        }
        match self.open_table(number) {
            Some(_) => Ok(number),
            None => Err(StoreError::corrupt("a table of touches is missing")),
        }
    }

    fn existing_table(&mut self, day: Day) -> Option<u32> {
        if let Some((last, number)) = self.last
            && last == day
        {
            return Some(number);
        }
        let number = self.all.iter().find(|table| table.days.contain(day))?.number;
        self.last = Some((day, number));
        Some(number)
    }

    /// Creates a table for a day that no table has, or extends one.
    fn new_table(&mut self, day: Day) -> Result<u32, StoreError> {
        let Tables { db, touches, disk_full_gate, .. } = self.tables;
        let days: Vec<Days> = self.all.iter().map(|table| table.days).collect();
        let extended = match place(&days, day, touches.is_busy(db)) {
            Placement::Extended(index) => self.all.get(index),
            Placement::New => None,
        };
        let number = if let Some(table) = extended {
            touches.set_days(table.number, table.days.with(day));
            table.number
        } else {
            let table = disk_full_gate.retry_with_space(db, || touches.create(db, day))?;
            self.writer.records.insert(table.number, TableRecord::new(day));
            self.changed.insert(table.number);
            table.number
        };
        self.all = touches.all();
        Ok(number)
    }

    fn open_table(&mut self, number: u32) -> Option<&OpenTable<'a>> {
        let entry = match self.open.entry(number) {
            Entry::Occupied(open) => return Some(&*open.into_mut()),
            Entry::Vacant(entry) => entry,
        };
        let table = self.all.iter().find(|table| table.number == number)?;
        let db: &'a Db = &self.tables.db;
        let (index, contents) = (db.cf_handle(&table.index)?, db.cf_handle(&table.contents)?);
        let filter = Arc::clone(&table.filter);
        Some(&*entry.insert(OpenTable { index, contents, filter }))
    }
}

/// The stored [`TOUCH_NUMBER`]; 0 in a store without touches.
///
/// # Errors
/// [`StoreError::Corrupt`] if it is damaged.
pub fn reserved_number(db: &Db) -> Result<u64, StoreError> {
    let Some(meta) = db.cf_handle(META) else { return Ok(0) };
    db.get_cf(&meta, TOUCH_NUMBER)?.map_or(Ok(0), |number| touch::number(&number))
}

fn decoded(key: &Key) -> Result<FactTableKey, StoreError> {
    key::decode_fact(key).ok_or_else(damage)
}

fn damage() -> StoreError {
    StoreError::corrupt("a fact's key")
}
