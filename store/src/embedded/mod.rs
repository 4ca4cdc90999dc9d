//! The store of one machine: a RocksDB in the process, with a column family per table.
//!
//! Each commit is one RocksDB write batch, positions included, so it is atomic; commits that a crash removes from the
//! end of the write-ahead log are re-read from Kafka. A thread writes it while the next batch is processed. Recorded
//! facts that are not committed yet are in `pending`, and those that are being written in `in_flight`; every read merges
//! both. Start with [`Embedded`].

pub mod checkpoint;
pub(crate) mod copy;
pub(crate) mod db;
mod expiry;
#[cfg(test)]
mod fixtures;
mod lookup;
mod metrics;
pub(crate) mod open;
pub mod outbox;
pub(crate) mod read;
mod stats;
pub(crate) mod tables;
pub(crate) mod touches;
pub(crate) mod write;

use std::collections::HashMap;
use std::path::Path;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::keys::{FactKey, FactKeyMap};
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::received_md5::ReceivedMd5;
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{
    self, DecisionWrite, FactWrite, Facts, Ledger, Position, Progress, Unfinished,
};
use attribution::parallelism::Parallelism;
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::Policy;
use attribution::rules::row::{EventType, Status};
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::Timing;
use crate::apps::names;
use crate::clock::now;
use crate::expiry::Expiry;
use crate::expiry::retention::{self, Retention};
use crate::layout::key;
use crate::layout::region::Regions;
use crate::maintenance::incomplete_marker;
use crate::reader;
pub use metrics::EngineMetrics;
use open::column_families::Limits;
use open::memory_budget::filter_bytes_max;
use open::meta::{self, Meta};
use open::preflight::StoreCreation;
use outbox::{CommitInFlight, EmbeddedOutbox, OutboxWriter};
use read::index;
use read::snapshot::EmbeddedReader;
pub use stats::{Engine, EngineStats, TableStats};
use tables::Tables;
use touches::filters::FilterBuilder;
use touches::read::Place;
use touches::write::TouchWriter;
use write::batch_writer::BatchWriter;
pub use write::disk_full::DiskFullGate;
use write::expiry_floor;
use write::pending::Pending;
use write::received_md5::ReceivedMd5ByApp;
use write::regions::{self, SharedRegions};
use write::rows::RowTable;
use write::unfinished;

/// The writing side of an embedded store. A directory can be open for writing once.
pub struct Embedded {
    /// Dropped before `tables`, like `filters`.
    writer: BatchWriter,
    filters: FilterBuilder,
    tables: Tables,
    partitions: u16,
    rows: RowTable,
    /// Among how many threads the facts of a batch are divided.
    parallelism: Parallelism,
    pending: Pending,
    /// The facts of the commit in flight; empty if there is none.
    in_flight: Pending,
    touches: TouchWriter,
    /// Where touches of the batch are stored, as far as they were looked up.
    stored_touches: FactKeyMap<Option<Place>>,
    received_md5: ReceivedMd5ByApp,
    outbox: OutboxWriter,
    /// The expiry of decisions: the low watermark includes the commit in flight.
    expiry: Expiry,
    /// The expiry of readers: the low watermark is stored.
    stored_expiry: Expiry,
    /// The expiry of compactions and of tables of touches: a power failure cannot take back the low watermark.
    synced_expiry: Expiry,
    /// What an interrupted batch has left to be decided.
    unfinished: Unfinished,
    /// It has changed since the last commit.
    has_new_unfinished: bool,
    /// A commit is being built or concluded, or an error has ended that: some of the state in memory includes it.
    is_half_changed: bool,
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
        let retention = Retention::default();
        let limits = Limits { retention, expiry };
        let mut tables = Tables::open(&settings.path, settings.memory_bytes, &limits)?;
        let meta = Meta::load_or_create(&tables, &settings.path, settings.partitions)?;
        names::check_app_ids(&meta::names(&tables)?, policy)?;
        tables.disk_full_gate = DiskFullGate::new(timing);
        let Limits { retention, expiry: synced_expiry } = limits;
        let records = expiry_floor::record(&tables, &synced_expiry, meta.consumed_until)?;
        synced_expiry.set_floors(&records);
        synced_expiry.until().advance(meta.consumed_until.unwrap_or_default());
        let rows = RowTable::open(&tables, &meta, settings, policy, retention)?;
        meta::put_names(&tables, policy)?;
        creation.map_or(Ok(()), StoreCreation::finish)?;
        let mut embedded = Self {
            writer: BatchWriter::start(&tables)?,
            partitions: meta.partitions,
            rows,
            parallelism: Parallelism::default(),
            pending: Pending::default(),
            in_flight: Pending::default(),
            touches: TouchWriter::open(&tables.db, &tables.touches)?,
            stored_touches: FactKeyMap::default(),
            received_md5: ReceivedMd5ByApp::load(&tables)?,
            outbox: OutboxWriter::default(),
            expiry: synced_expiry.with_own_until(),
            stored_expiry: synced_expiry.with_own_until(),
            synced_expiry,
            unfinished: unfinished::load(&tables)?,
            has_new_unfinished: false,
            is_half_changed: false,
            filters: FilterBuilder::start(
                &tables.db,
                &tables.touches,
                filter_bytes_max(settings.memory_bytes),
            ),
            tables,
        };
        embedded.drop_expired_touches()?;
        Ok(embedded)
    }

    /// From now on several threads look up and encode the facts of a batch.
    pub fn set_parallelism(&mut self, parallelism: Parallelism) {
        self.parallelism = parallelism;
    }

    /// From now on a commit is not written before it is waited for, so that tests read while it is in flight.
    pub fn defer_writes(&mut self) {
        self.writer.defer();
    }

    /// Takes the settings of apps for the next batches. Those of `[store]` must be the same as before, and the apps'
    /// keys stored: [`reader::Reader::store_app_keys`]. An app that the settings no longer have keeps its rows.
    ///
    /// # Errors
    /// If the store cannot be written; it must not be used any more.
    pub fn set_apps(
        &mut self,
        settings: &config::Store,
        policy: &Policy,
    ) -> Result<(), StoreError> {
        // What expires by the earlier settings in the meantime would not be in the floor.
        self.wait_for_commit()?;
        let expiry = Expiry::new(policy, |pid| settings.retention_of(pid));
        let records = expiry_floor::record(&self.tables, &expiry, self.consumed_until())?;
        self.synced_expiry.replace(&expiry, &records);
        self.rows.add_apps(&self.tables, settings, policy)
    }

    /// A reader of this store, for any thread.
    pub fn reader(&self) -> reader::Reader {
        reader::Reader::Embedded(EmbeddedReader {
            tables: self.tables.clone(),
            partitions: self.partitions,
            apps: self.rows.apps.clone(),
            retention: self.rows.retention.clone(),
            expiry: self.stored_expiry.clone(),
            regions: self.rows.regions.clone(),
            outbox: self.outbox.in_flight.clone(),
        })
    }

    /// The outbox, for any thread.
    pub fn outbox(&self) -> EmbeddedOutbox {
        EmbeddedOutbox::new(self.tables.clone(), self.outbox.in_flight.clone())
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

    /// Returns the write batch of a commit. `until` is its low watermark, if that advances.
    fn write_batch(
        &mut self,
        decisions: Vec<DecisionWrite>,
        positions: &[Position],
        until: Option<EventTime>,
    ) -> Result<WriteBatch, StoreError> {
        let mut batch = WriteBatch::with_capacity_bytes(self.pending.batch_bytes());
        self.rows.sweep(&mut batch, &self.tables, until.or(self.consumed_until()))?;
        let now = now();
        for mut write in decisions {
            self.rows.put(&mut batch, &self.tables, &mut write)?;
            self.outbox.put(&mut batch, &self.tables, &write, now)?;
            self.pending.put_record(&write.key, &write.record);
        }
        self.pending.sort();
        self.put_touches(&mut batch)?;
        self.pending.put_events(&mut batch, &self.tables);
        self.received_md5.put_changes(&mut batch, &self.tables);
        self.received_md5.clear_changes();
        for position in positions {
            let next_offset = position.next_offset.to_be_bytes();
            batch.put_cf(&self.tables.offsets(), key::position(position), next_offset);
            meta::put_fingerprints(&mut batch, &self.tables, position);
        }
        self.rows.finish(&mut batch, &self.tables)?;
        self.outbox.finish(&mut batch, &self.tables);
        if let Some(until) = until {
            meta::put_consumed_until(&mut batch, &self.tables, until);
        }
        if std::mem::take(&mut self.has_new_unfinished) {
            unfinished::put(&mut batch, &self.tables, &self.unfinished);
        }
        Ok(batch)
    }
}

impl Drop for Embedded {
    /// Ends the commit in flight.
    fn drop(&mut self) {
        // Who needs the commit has waited for it; otherwise, its events are read again.
        let _ = self.wait_for_commit();
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
        let unstored = [&self.pending, &self.in_flight];
        index::scan(&self.tables, unstored, &self.filters.activations.view(), scans)
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
        self.wait_for_commit()?;
        meta::positions(&self.tables)
    }

    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        self.find_touches(keys)?;
        self.lookup_found(keys)
    }

    fn lookup_up_to(
        &mut self,
        keys: &[FactKey],
        bytes_max: usize,
    ) -> Result<Vec<Lookup>, StoreError> {
        // All at once: enough for several threads.
        self.find_touches(keys)?;
        ledger::lookup_in_parts(self, keys, bytes_max, |store, keys| store.lookup_found(keys))
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        for write in &facts {
            self.received_md5.add(write.key.pid, &write.record, write.received_md5);
            if write.key.family == Family::Activation {
                self.add_to_filter(write);
            }
        }
        self.pending.put_facts(&facts, self.parallelism);
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
        self.wait_for_commit()?;
        if std::mem::replace(&mut self.is_half_changed, true) {
            let reason = "was stopped by an earlier error".into();
            return Err(StoreError::Writer { reason });
        }
        let until = progress.consumed_until.filter(|until| Some(*until) > self.consumed_until());
        let batch = self.write_batch(decisions, &progress.positions, until)?;
        config::crash_point!("commit-decided");
        self.writer.begin(batch, self.begins_hour(until))?;
        if let Some(until) = until {
            self.expiry.until().advance(until);
        }
        std::mem::swap(&mut self.pending, &mut self.in_flight);
        self.is_half_changed = false;
        Ok(Vec::new())
    }

    fn wait_for_commit(&mut self) -> Result<(), StoreError> {
        if !self.writer.wait()? {
            return Ok(());
        }
        config::crash_point!("commit-written");
        self.is_half_changed = true;
        self.outbox.in_flight.end();
        self.in_flight.clear();
        let until = self.consumed_until();
        self.stored_expiry.until().advance(until.unwrap_or_default());
        self.rows.after_commit(&self.tables)?;
        if self.begins_hour(until) {
            self.synced_expiry.until().advance(until.unwrap_or_default());
            self.drop_expired_touches()?;
        }
        self.is_half_changed = false;
        config::crash_point!("commit-ended");
        Ok(())
    }
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
        outbox: CommitInFlight::default(),
    }))
}

#[cfg(test)]
mod tests {
    use attribution::facts::keys::MatchKey;
    use rocksdb::Options;

    use super::fixtures::{deferring, touch};
    use super::open::column_families::OFFSETS;
    use super::*;

    fn progress(next_offset: i64) -> Progress {
        let topic = "clicks".into();
        let position = Position { topic, partition: 0, next_offset, known: None, last: None };
        Progress { positions: vec![position], consumed_until: None }
    }

    #[test]
    fn nothing_is_committed_after_a_failed_write() {
        let (mut store, _dir) = deferring();
        store.commit(Vec::new(), &progress(7)).unwrap();
        // RocksDB refuses a batch with a table that does not exist.
        store.tables.db.drop_cf(OFFSETS).unwrap();
        let error = store.commit(Vec::new(), &Progress::default()).unwrap_err();
        assert!(matches!(error, StoreError::Engine(_)), "{error}");
        assert!(store.wait_for_commit().is_err());
        assert!(store.commit(Vec::new(), &Progress::default()).is_err());
        assert!(store.positions().is_err());
    }

    #[test]
    fn nothing_is_committed_after_a_commit_that_could_not_be_built() {
        let (mut store, _dir) = deferring();
        store.commit(Vec::new(), &progress(7)).unwrap();
        // RocksDB refuses to create the first table of touches. It would create the next one.
        store.tables.db.create_cf("touches-1", &Options::default()).unwrap();
        store.record(vec![touch("c1", MatchKey(1))]).unwrap();
        let error = store.commit(Vec::new(), &progress(8)).unwrap_err();
        assert!(matches!(error, StoreError::Engine(_)), "{error}");
        assert!(store.commit(Vec::new(), &progress(8)).is_err());
        // The commit before is durable.
        store.wait_for_commit().unwrap();
        assert_eq!(store.positions().unwrap(), progress(7).positions);
    }
}
