//! The store of one machine: a RocksDB in the process, with a column family per table.
//!
//! Each commit is one RocksDB write batch, positions included, so it is atomic; commits that a crash removes from the
//! end of the write-ahead log are re-read from Kafka. Recorded facts that are not committed yet are in `pending`, which
//! every read merges. Start with [`Embedded`].

pub mod checkpoint;
pub(crate) mod copy;
pub(crate) mod db;
mod metrics;
pub(crate) mod open;
pub(crate) mod read;
mod stats;
pub(crate) mod tables;
pub(crate) mod write;

use std::collections::HashMap;
use std::path::Path;

use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::received_md5::ReceivedMd5;
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{
    DecisionWrite, FactWrite, Facts, Ledger, Position, Progress, Unfinished,
};
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::Policy;
use attribution::rules::row::{EventType, Status};
use rocksdb::{WriteBatch, WriteOptions};

use crate::StoreError;
use crate::Timing;
use crate::apps::names;
use crate::clock::now;
use crate::expiry::Expiry;
use crate::expiry::floor::RetainedFloor;
use crate::expiry::retention::{self, Retention};
use crate::layout::region::Regions;
use crate::layout::{codec, key};
use crate::maintenance::incomplete_marker;
use crate::reader;
pub use metrics::EngineMetrics;
use open::column_families::Limits;
use open::meta::{self, Meta};
use open::preflight::StoreCreation;
use read::index;
use read::snapshot::EmbeddedReader;
pub use stats::{Engine, EngineStats, TableStats};
use tables::Tables;
pub use write::disk_full::DiskFullGate;
use write::expiry_floor;
use write::pending::Pending;
use write::received_md5::ReceivedMd5ByApp;
use write::regions::{self, SharedRegions};
use write::rows::RowTable;
use write::unfinished;

/// The writing side of an embedded store. A directory can be open for writing once.
pub struct Embedded {
    tables: Tables,
    partitions: u16,
    rows: RowTable,
    pending: Pending,
    received_md5: ReceivedMd5ByApp,
    expiry: Expiry,
    /// What an interrupted batch has left to be decided.
    unfinished: Unfinished,
    /// It has changed since the last commit.
    has_new_unfinished: bool,
}

/// Rows by type and status.
pub type StatusCounts = HashMap<(EventType, Status), u64>;

impl Embedded {
    /// Opens the configured store, or creates it.
    ///
    /// # Errors
    /// If the store cannot be opened, or a pid belongs to another app than in `policy`.
    pub fn open(settings: &config::Store, policy: &Policy) -> Result<Self, StoreError> {
        Self::open_with_timing(settings, policy, Timing::default())
    }

    /// [`Embedded::open`] with another timing.
    ///
    /// # Errors
    /// See [`Embedded::open`].
    pub fn open_with_timing(
        settings: &config::Store,
        policy: &Policy,
        timing: Timing,
    ) -> Result<Self, StoreError> {
        let creation = StoreCreation::begin(&settings.path)?;
        let expiry = Expiry::new(policy, |pid| settings.retention_of(pid));
        let limits = Limits { retention: Retention::default(), expiry };
        let mut tables = Tables::open(&settings.path, settings.memory_bytes, &limits)?;
        let meta = Meta::load_or_create(&tables, &settings.path, settings.partitions)?;
        names::check_app_ids(&meta::names(&tables)?, policy)?;
        tables.disk_full_gate = DiskFullGate::new(timing);
        let Limits { retention, expiry } = limits;
        expiry_floor::record(&tables, &expiry, meta.consumed_until)?;
        expiry.until().advance(meta.consumed_until.unwrap_or_default());
        let rows = RowTable::open(&tables, &meta, settings, policy, retention)?;
        meta::put_names(&tables, policy)?;
        creation.map_or(Ok(()), StoreCreation::finish)?;
        Ok(Self {
            partitions: meta.partitions,
            rows,
            pending: Pending::default(),
            received_md5: ReceivedMd5ByApp::load(&tables)?,
            expiry,
            unfinished: unfinished::load(&tables)?,
            has_new_unfinished: false,
            tables,
        })
    }

    /// A reader of this store, for any thread.
    pub fn reader(&self) -> reader::Reader {
        reader::Reader::Embedded(EmbeddedReader {
            tables: self.tables.clone(),
            partitions: self.partitions,
            apps: self.rows.apps.clone(),
            retention: self.rows.retention.clone(),
            expiry: self.expiry.clone(),
            regions: self.rows.regions.clone(),
        })
    }

    /// Access to the engine's statistics, for any thread.
    pub fn engine(&self) -> Engine {
        Engine::new(self.tables.clone())
    }

    /// From now on commits block while the disk is full; before, they fail. The caller reports that state by
    /// [`DiskFullGate::is_blocked`], and ends the wait at shutdown by [`DiskFullGate::give_up`].
    pub fn block_when_disk_full(&self) -> DiskFullGate {
        self.tables.disk_full_gate.enable();
        self.tables.disk_full_gate.clone()
    }

    /// Compacts all tables, which removes expired facts and rows past retention from the disk.
    pub fn compact(&self) {
        self.tables.compact();
    }

    /// State that expired under shorter, earlier settings and stays expired.
    pub fn retained_floors(&self, policy: &Policy) -> Vec<RetainedFloor> {
        self.expiry.retained_floors(policy, self.expiry.until().get())
    }

    /// The number of rows by type and status.
    pub fn status_counts(&self) -> StatusCounts {
        let mut counts = StatusCounts::new();
        for event_type in EventType::ALL {
            for status in Status::ALL {
                let count = self.rows.totals.count(event_type, status);
                counts.insert((event_type, status), count.try_into().unwrap_or(0));
            }
        }
        counts
    }

    /// Returns records even if they have expired.
    fn stored_records(&self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let pending = keys.iter().map(|fact| self.pending.get(fact.family, &key::record(fact)));
        let pending: Vec<Option<&[u8]>> = pending.collect();
        let is_missing = |(_, value): &(&FactKey, &Option<&[u8]>)| value.is_none();
        let missing = keys.iter().zip(&pending).filter(is_missing).map(|(fact, _)| *fact);
        let mut stored = self.tables.records(&missing.collect::<Vec<_>>())?.into_iter();
        let record = |(fact, value): (&FactKey, Option<&[u8]>)| match value {
            Some(value) => codec::fact_record::decode(fact.family, fact.pid, value).map(Some),
            None => Ok(stored.next().flatten()),
        };
        keys.iter().zip(pending).map(record).collect()
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Embedded").field("path", &self.tables.db.path()).finish_non_exhaustive()
    }
}

impl Facts for Embedded {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let mut records = self.stored_records(keys)?;
        for (fact, record) in keys.iter().zip(&mut records) {
            record.take_if(|record| self.expiry.has_expired(fact.pid, record));
        }
        Ok(records)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        index::scan(&self.tables, &self.pending, scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.expiry.until().get()
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.expiry.floor(pid)
    }

    fn received_md5(&self, pid: Pid) -> ReceivedMd5 {
        self.received_md5.of(pid)
    }
}

impl Ledger for Embedded {
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        meta::positions(&self.tables)
    }

    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        let records = self.stored_records(keys)?.into_iter();
        Ok(keys
            .iter()
            .zip(records)
            .map(|(key, record)| self.expiry.lookup(key.pid, record))
            .collect())
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        for write in &facts {
            let family = write.key.family;
            self.pending.put_record(&write.key, &write.record);
            self.received_md5.add(write.key.pid, &write.record, write.received_md5);
            for (found_by, time) in &write.stale {
                self.pending.delete(family, key::index(*found_by, &write.key, *time));
            }
            let lookback_ms = write.record.lookback_ms();
            for found_by in &write.index {
                let key = key::index(*found_by, &write.key, write.record.time());
                self.pending.put_index(family, key, write.key.id.0, lookback_ms);
            }
            for (found_by, IndexEntry { time, fact }) in &write.bucket_markers {
                self.pending.put_index(family, key::index(*found_by, fact, *time), fact.id.0, None);
            }
        }
        self.pending.sort();
        Ok(Vec::new())
    }

    fn unfinished(&self) -> Unfinished {
        self.unfinished.clone()
    }

    fn set_unfinished(&mut self, unfinished: Unfinished) {
        self.unfinished = unfinished;
        self.has_new_unfinished = true;
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        let mut batch = WriteBatch::default();
        let until = progress.consumed_until.filter(|until| Some(*until) > self.consumed_until());
        self.rows.sweep(&mut batch, &self.tables, until.or(self.consumed_until()))?;
        for mut write in decisions {
            self.rows.put(&mut batch, &self.tables, &mut write)?;
            self.pending.put_record(&write.key, &write.record);
        }
        self.pending.sort();
        self.pending.drain_into(&mut batch, &self.tables);
        self.received_md5.put_changes(&mut batch, &self.tables);
        for position in &progress.positions {
            let next_offset = position.next_offset.to_be_bytes();
            batch.put_cf(&self.tables.offsets(), key::position(position), next_offset);
            meta::put_fingerprints(&mut batch, &self.tables, position);
        }
        self.rows.finish(&mut batch, &self.tables)?;
        if let Some(until) = until {
            meta::put_consumed_until(&mut batch, &self.tables, until);
        }
        if std::mem::take(&mut self.has_new_unfinished) {
            unfinished::put(&mut batch, &self.tables, &self.unfinished);
        }
        config::crash_point!("commit-decided");
        self.tables.write(batch, &write_options())?;
        self.received_md5.after_write();
        config::crash_point!("commit-written");
        if let Some(until) = until {
            self.expiry.until().advance(until);
        }
        self.rows.after_commit(&self.tables)?;
        config::crash_point!("commit-ended");
        Ok(Vec::new())
    }
}

/// The write-ahead log is not synced: a power failure that removes commits from its end removes their positions too.
fn write_options() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_memtable_insert_hint_per_batch(true);
    options
}

/// Opens a store for reading, beside the process that writes it.
pub fn open_for_reading(settings: &config::Store) -> Result<reader::Reader, StoreError> {
    let path: &Path = &settings.path;
    incomplete_marker::refuse(path)?;
    let tables = Tables::open_for_reading(path, settings.memory_bytes)?;
    let meta = Meta::load(&tables, path, settings.partitions)?;
    let expiry = Expiry::default();
    expiry.set_floors(&expiry_floor::floors(&tables, meta.consumed_until)?);
    expiry.until().advance(meta.consumed_until.unwrap_or_default());
    let (apps, retention) = (meta::apps(&tables, meta.partitions)?, Retention::default());
    let clock = retention::clock(now(), meta.consumed_until);
    retention.start(apps.all().iter().map(|(pid, app)| {
        let gone = retention::cutoff(settings.retention_of(*pid), clock);
        (*pid, app.oldest.max(gone))
    }));
    let stored = regions::load(&tables)?;
    let regions = Regions::of(meta.partitions, settings.region_bytes_max, stored)
        .ok_or_else(|| StoreError::corrupt("the regions"))?;
    let regions = SharedRegions::new(regions);
    let partitions = meta.partitions;
    Ok(reader::Reader::Embedded(EmbeddedReader {
        tables,
        partitions,
        apps,
        retention,
        expiry,
        regions,
    }))
}
