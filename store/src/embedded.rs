//! The store of one machine: one RocksDB in the process, a column family per table.
//!
//! Everything that a batch writes goes into one write batch, so after a crash either all of it
//! is there or nothing, positions included; what the log lost is read again from Kafka. Facts
//! that were recorded and are not committed yet wait in `pending` and are part of every read.

mod expired;
pub(crate) mod index;
mod options;
pub(crate) mod pending;
pub(crate) mod tables;

use std::collections::HashMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use attribution::event::{EventTime, Pid};
use attribution::ledger::{
    DecisionWrite, FactKey, FactWrite, Facts, Home, IndexEntry, Known, Ledger, Position, Progress,
    Scan,
};
use attribution::policy::Policy;
use attribution::row::{EventType, Status};
use foldhash::fast::FixedState;
use rocksdb::{WriteBatch, WriteOptions};

use crate::StoreError;
use crate::codec;
use crate::expiry::{ConsumedUntil, Expiry};
use crate::key::{self, RowKey};
use crate::retention::Retention;
use crate::scan::Reader;
use pending::Pending;
use tables::{Limits, Meta, Tables};

/// The writing side of an embedded store; there is one per directory.
pub struct Embedded {
    tables: Tables,
    meta: Meta,
    partitions: HashMap<Pid, u16, FixedState>,
    pending: Pending,
    limits: Limits,
}

/// Rows by type and status.
pub type StatusCounts = HashMap<(EventType, Status), u64>;

impl Embedded {
    /// Opens the store of the settings, creating it where there is none.
    pub fn open(settings: &config::Store, policy: &Policy) -> Result<Self, StoreError> {
        let retention = Retention::new(settings.retention_ms);
        retention.update(now());
        let limits = Limits { retention, expiry: Expiry::new(policy, settings.retention_ms) };
        let tables = Tables::open(&settings.path, &limits)?;
        let meta = Meta::load_or_create(&tables, &settings.path, settings.partitions)?;
        limits.expiry.until().advance(meta.consumed_until);
        let partitions = policy
            .apps()
            .map(|app| (app.pid, key::partition(&app.key, settings.partitions)))
            .collect();
        Ok(Self { tables, meta, partitions, pending: Pending::default(), limits })
    }

    /// A reading side, for any number of threads.
    pub fn reader(&self) -> Reader {
        let Limits { retention, expiry } = &self.limits;
        let until = expiry.until().clone();
        Reader::new(self.tables.clone(), self.meta.partitions, retention.clone(), until)
    }

    /// Leaves out at once what has expired and what retention has passed, instead of whenever a
    /// compaction comes by.
    pub fn compact(&self) {
        self.tables.compact();
    }

    /// The rows that there are, by type and status, since the store was created.
    pub fn status_counts(&self) -> StatusCounts {
        let mut counts = StatusCounts::new();
        for event_type in EventType::ALL {
            for status in Status::ALL {
                counts.insert((event_type, status), self.meta.count(event_type, status));
            }
        }
        counts
    }

    /// Whether or not they have expired.
    fn kept_homes(&self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, StoreError> {
        let mut homes: Vec<Option<Home>> = Vec::with_capacity(keys.len());
        let mut missing: Vec<(usize, FactKey)> = Vec::new();
        for (place, fact) in keys.iter().enumerate() {
            let known = self.pending.get(fact.family, &key::home(fact));
            if known.is_none() {
                missing.push((place, *fact));
            }
            homes.push(
                known.map(|value| codec::home::decode(fact.family, fact.pid, value)).transpose()?,
            );
        }
        self.tables.homes(&missing, &mut homes)?;
        Ok(homes)
    }

    fn row_key(&self, pid: Pid, event_time: EventTime, spreadid: u32, seq: u64) -> key::Key {
        let partition = self.partitions.get(&pid).copied().unwrap_or_default();
        let spreadid = attribution::event::SpreadId(spreadid);
        RowKey { partition, pid, event_time, spreadid, seq }.encode()
    }

    fn put_decision(&mut self, batch: &mut WriteBatch, write: &DecisionWrite) {
        self.pending.put_home(&write.key, &write.home);
        let row = &write.row;
        let new_key = self.row_key(row.pid, row.event_time, row.spreadid.0, row.seq);
        if let Some(old) = &write.replaced {
            let old_key = self.row_key(row.pid, old.event_time, old.spreadid.0, row.seq);
            if old_key != new_key {
                batch.delete_cf(self.tables.events(), old_key);
            }
            self.meta.remove(row.event_type, old.status);
        }
        self.meta.add(row.event_type, row.status);
        let mut value = Vec::with_capacity(384);
        codec::row::encode(row, &mut value);
        batch.put_cf(self.tables.events(), new_key, value);
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Embedded").field("path", &self.tables.db.path()).finish_non_exhaustive()
    }
}

impl Facts for Embedded {
    type Error = StoreError;

    fn homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, StoreError> {
        let mut homes = self.kept_homes(keys)?;
        for (fact, home) in keys.iter().zip(&mut homes) {
            home.take_if(|home| self.limits.expiry.has_expired(fact.pid, home));
        }
        Ok(homes)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        index::scan(&self.tables, &self.pending, scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.limits.expiry.until().get()
    }
}

impl Ledger for Embedded {
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        self.tables.positions()
    }

    fn known(&mut self, keys: &[FactKey]) -> Result<Vec<Known>, StoreError> {
        let homes = self.kept_homes(keys)?.into_iter();
        Ok(keys
            .iter()
            .zip(homes)
            .map(|(key, home)| self.limits.expiry.known(key.pid, home))
            .collect())
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        for write in &facts {
            let family = write.key.family;
            self.pending.put_home(&write.key, &write.home);
            for (found_by, time) in &write.stale {
                self.pending.delete(family, key::index(*found_by, &write.key, *time));
            }
            let lookback_ms = match &write.home {
                Home::Touch(touch) => touch.lookback_ms,
                _ => None,
            };
            for found_by in &write.index {
                let key = key::index(*found_by, &write.key, write.home.time());
                self.pending.put_index(family, key, write.key.id.0, lookback_ms);
            }
            for (found_by, IndexEntry { time, fact }) in &write.marks {
                self.pending.put_index(family, key::index(*found_by, fact, *time), fact.id.0, None);
            }
        }
        self.pending.sort();
        Ok(Vec::new())
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        let mut batch = WriteBatch::default();
        for write in &decisions {
            self.put_decision(&mut batch, write);
        }
        self.pending.sort();
        self.pending.drain_into(&mut batch, &self.tables);
        for position in &progress.positions {
            let next_offset = position.next_offset.to_be_bytes();
            batch.put_cf(self.tables.offsets(), key::position(position), next_offset);
        }
        if !decisions.is_empty() {
            self.meta.put_counts(&mut batch, &self.tables);
        }
        let until = progress.consumed_until.filter(|until| Some(*until) > self.consumed_until());
        if let Some(until) = until {
            self.meta.put_consumed_until(&mut batch, &self.tables, until);
        }
        self.tables.db.write_opt(batch, &write_options())?;
        self.limits.retention.update(now());
        if let Some(until) = until {
            self.limits.expiry.until().advance(until);
        }
        Ok(Vec::new())
    }
}

/// The log is written and not synced: what a power cut takes from its end takes its positions
/// with it.
fn write_options() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_memtable_insert_hint_per_batch(true);
    options
}

/// The machine's time, for retention alone; no decision depends on it.
fn now() -> EventTime {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    i64::try_from(millis).ok().and_then(EventTime::from_millis).unwrap_or_default()
}

/// Opens the store of a directory for reading beside the process that writes it.
pub fn open_for_reading(settings: &config::Store) -> Result<Reader, StoreError> {
    let path: &Path = &settings.path;
    let retention = Retention::new(settings.retention_ms);
    retention.update(now());
    let tables = Tables::open_for_reading(path)?;
    let meta = Meta::load(&tables, path, settings.partitions)?;
    let until = ConsumedUntil::default();
    until.advance(meta.consumed_until);
    Ok(Reader::new(tables, meta.partitions, retention, until))
}
