//! A ledger in memory, for tests and for benchmarks without a storage engine. Nothing is persisted.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::received_md5::ReceivedMd5;
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{
    DecisionWrite, FactWrite, Facts, Ledger, Position, Progress, Unfinished,
};
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{Counts, EndpointId, OutboxRecord};
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::Policy;
use attribution::rules::row::Row;
use foldhash::fast::FixedState;

use crate::StoreError;
use crate::clock::now;
use crate::expiry::Expiry;
use crate::layout::codec;

/// Facts, decisions, rows and positions in maps.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    records: HashMap<FactKey, ValueRef, FixedState>,
    values: Values,
    /// Newest first.
    index: HashMap<(Family, MatchKey, Pid), Entries, FixedState>,
    rows: BTreeMap<(Pid, u64, u32, u64), Row>,
    positions: BTreeMap<(std::sync::Arc<str>, i32), Position>,
    received_md5: HashMap<Pid, ReceivedMd5, FixedState>,
    unfinished: Unfinished,
    outbox: BTreeMap<FactKey, OutboxRecord>,
    /// Hides expired facts, which stay in the maps.
    expiry: Expiry,
    /// Buffer for encoding, reused.
    value: Vec<u8>,
}

/// Concatenated values, encoded as on disk, which takes a third of the memory of decoded ones. The space of a
/// replaced value is not reused.
#[derive(Debug, Clone, Default)]
struct Values {
    blocks: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
struct ValueRef {
    block: u32,
    start: u32,
    len: u32,
}

const BLOCK_BYTES: usize = 1 << 20;

/// The entries of one key, nearly always one.
#[derive(Debug, Clone)]
enum Entries {
    One(IndexEntry),
    Many(Vec<IndexEntry>),
}

impl Memory {
    /// A ledger in which facts of the policy's apps expire; in the default one they never do.
    pub fn with_expiry(policy: &Policy) -> Self {
        Self { expiry: Expiry::new(policy, |_| None), ..Self::default() }
    }

    /// All rows in the order of an export.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }
}

impl Facts for Memory {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let mut records = Vec::with_capacity(keys.len());
        for key in keys {
            let record = self.stored_record(key)?;
            records.push(record.filter(|record| !self.expiry.has_expired(key.pid, record)));
        }
        Ok(records)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        Ok(scans.iter().map(|scan| self.page(scan)).collect())
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.expiry.until().get()
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.expiry.floor(pid)
    }

    fn received_md5(&self, pid: Pid) -> ReceivedMd5 {
        self.received_md5.get(&pid).copied().unwrap_or_default()
    }
}

impl Ledger for Memory {
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        Ok(self.positions.values().cloned().collect())
    }

    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        keys.iter().map(|key| Ok(self.expiry.lookup(key.pid, self.stored_record(key)?))).collect()
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        for FactWrite { key, record, index, received_md5, bucket_markers, stale, .. } in facts {
            self.received_md5.entry(key.pid).or_default().add(&record, received_md5);
            for (found_by, time) in stale {
                let stale = IndexEntry { time, fact: key };
                if let Some(entries) = self.index.get_mut(&(key.family, found_by, key.pid)) {
                    entries.remove(&stale);
                }
            }
            let entry = IndexEntry { time: record.time(), fact: key };
            let entries = index.into_iter().map(|found_by| (found_by, entry)).chain(bucket_markers);
            for (found_by, entry) in entries {
                self.index
                    .entry((key.family, found_by, key.pid))
                    .and_modify(|entries| entries.insert(entry))
                    .or_insert(Entries::One(entry));
            }
            self.put_record(key, &record);
        }
        Ok(Vec::new())
    }

    fn unfinished(&self) -> Unfinished {
        self.unfinished.clone()
    }

    fn set_unfinished(&mut self, unfinished: Unfinished) {
        self.unfinished = unfinished;
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        for DecisionWrite { key, record, row, replaced, callbacks } in decisions {
            if let Some(old) = replaced {
                self.rows.remove(&(row.pid, old.event_time.millis(), old.spreadid.0, row.seq));
            }
            if !callbacks.is_empty() {
                let record = self.outbox.entry(key).or_insert_with(|| OutboxRecord::new(key));
                callbacks.iter().for_each(|planned| record.plan(planned, now()));
            }
            self.put_record(key, &record);
            self.rows.insert((row.pid, row.event_time.millis(), row.spreadid.0, row.seq), row);
        }
        for position in &progress.positions {
            let partition = (position.topic.clone(), position.partition);
            self.positions.insert(partition, position.clone());
        }
        if let Some(until) = progress.consumed_until {
            self.expiry.until().advance(until);
        }
        Ok(Vec::new())
    }
}

impl Outbox for Memory {
    type Error = StoreError;

    fn due(
        &mut self,
        endpoint: &EndpointId,
        now: EventTime,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let is_due = |record: &&OutboxRecord| record.due_of(endpoint).is_some_and(|due| due <= now);
        let mut records: Vec<&OutboxRecord> = self.outbox.values().filter(is_due).collect();
        records.sort_by_key(|record| record.due_of(endpoint));
        Ok(records.into_iter().take(limit).cloned().collect())
    }

    fn records_of(&mut self, events: &[FactKey]) -> Result<Vec<Option<OutboxRecord>>, StoreError> {
        Ok(events.iter().map(|event| self.outbox.get(event).cloned()).collect())
    }

    fn next_records(
        &mut self,
        after: Option<&FactKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(*after));
        let records = self.outbox.range((from, Bound::Unbounded));
        Ok(records.map(|(_, record)| record.clone()).take(limit).collect())
    }

    fn change(
        &mut self,
        events: &[FactKey],
        change: &mut dyn FnMut(&mut OutboxRecord),
    ) -> Result<(), StoreError> {
        for event in events {
            if let Some(record) = self.outbox.get_mut(event) {
                change(record);
            }
        }
        Ok(())
    }

    fn counts(&mut self) -> Result<Counts, StoreError> {
        let mut counts = Counts::new();
        for (endpoint, tally) in self.outbox.values().flat_map(OutboxRecord::counts) {
            counts.entry(endpoint).or_default().add(&tally);
        }
        Ok(counts)
    }
}

impl Memory {
    /// Returns the record even if it has expired.
    fn stored_record(&self, key: &FactKey) -> Result<Option<FactRecord>, StoreError> {
        let value = self.records.get(key).and_then(|value| self.values.get(*value));
        value.map(|value| codec::fact_record::decode(key.family, key.pid, value)).transpose()
    }

    fn put_record(&mut self, key: FactKey, record: &FactRecord) {
        self.value.clear();
        codec::fact_record::encode(record, &mut self.value);
        self.records.insert(key, self.values.push(&self.value));
    }

    fn page(&self, scan: &Scan) -> Vec<IndexEntry> {
        let Some(entries) = self.index.get(&(scan.family, scan.key, scan.pid)) else {
            return Vec::new();
        };
        let entries = entries.as_slice();
        let start = match &scan.after {
            Some(after) => {
                entries.partition_point(|entry| order(entry, after) != std::cmp::Ordering::Greater)
            }
            None => entries.partition_point(|entry| entry.time > scan.newest),
        };
        let rest = entries.get(start..).unwrap_or_default();
        let in_range = rest.iter().take_while(|entry| entry.time >= scan.oldest);
        in_range.take(scan.limit).copied().collect()
    }
}

impl Values {
    fn push(&mut self, value: &[u8]) -> ValueRef {
        let has_space = |block: &Vec<u8>| block.capacity() - block.len() >= value.len();
        if !self.blocks.last().is_some_and(has_space) {
            self.blocks.push(Vec::with_capacity(BLOCK_BYTES.max(value.len())));
        }
        let block = self.blocks.len().saturating_sub(1);
        let mut start = 0;
        if let Some(block) = self.blocks.last_mut() {
            start = block.len();
            block.extend_from_slice(value);
        }
        ValueRef { block: block as u32, start: start as u32, len: value.len() as u32 }
    }

    fn get(&self, value: ValueRef) -> Option<&[u8]> {
        let start = value.start as usize;
        self.blocks.get(value.block as usize)?.get(start..start + value.len as usize)
    }
}

impl Entries {
    fn as_slice(&self) -> &[IndexEntry] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Many(entries) => entries,
        }
    }

    fn insert(&mut self, entry: IndexEntry) {
        if let Err(index) = self.as_slice().binary_search_by(|stored| order(stored, &entry)) {
            let mut entries = match self {
                Self::One(only) => vec![*only],
                Self::Many(many) => std::mem::take(many),
            };
            entries.insert(index, entry);
            *self = Self::Many(entries);
        }
    }

    fn remove(&mut self, entry: &IndexEntry) {
        let mut entries = self.as_slice().to_vec();
        entries.retain(|stored| stored != entry);
        *self = Self::Many(entries);
    }
}

/// Newest first, then by tag: the key order of the other stores.
fn order(a: &IndexEntry, b: &IndexEntry) -> std::cmp::Ordering {
    b.time.cmp(&a.time).then_with(|| a.fact.tag.cmp(&b.fact.tag))
}
