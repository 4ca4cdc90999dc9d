//! The store of one machine: a RocksDB in the process, with a column family per table.
//!
//! Each commit is one RocksDB write batch, positions included, so it is atomic; commits that a crash removes from the
//! end of the write-ahead log are re-read from Kafka. A thread writes it while the next batch is processed. Recorded
//! facts that are not committed yet are in `pending`, and those that are being written in `in_flight`; every read merges
//! both. Start with [`Embedded`].

pub mod checkpoint;
pub(crate) mod copy;
pub(crate) mod db;
mod metrics;
pub(crate) mod open;
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
use attribution::rules::policy::{HOUR_MS, Policy};
use attribution::rules::row::{EventType, Status};
use rocksdb::WriteBatch;

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
use open::memory_budget::filter_bytes_max;
use open::meta::{self, Meta};
use open::preflight::StoreCreation;
use read::index;
use read::snapshot::EmbeddedReader;
pub use stats::{Engine, EngineStats, TableStats};
use tables::Tables;
use touches::filter::KeyHash;
use touches::filters::FilterBuilder;
use touches::read::Place;
use touches::write::{TouchBatch, TouchWriter};
use write::batch_writer::{BatchWriter, write_options};
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
        let limits = Limits { retention: Retention::default(), expiry };
        let mut tables = Tables::open(&settings.path, settings.memory_bytes, &limits)?;
        let meta = Meta::load_or_create(&tables, &settings.path, settings.partitions)?;
        names::check_app_ids(&meta::names(&tables)?, policy)?;
        tables.disk_full_gate = DiskFullGate::new(timing);
        let Limits { retention, expiry: synced_expiry } = limits;
        expiry_floor::record(&tables, &synced_expiry, meta.consumed_until)?;
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

    /// Waits until the filters of touches that were stored when the store was opened are complete. Until then,
    /// searches ask more tables.
    pub fn wait_for_filters(&mut self) {
        self.filters.wait();
    }

    /// From now on a commit is not written before it is waited for, so that tests read while it is in flight.
    pub fn defer_writes(&mut self) {
        self.writer.defer();
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
    ///
    /// # Errors
    /// If the log cannot be synced.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.tables.db.flush_wal(true)?;
        self.synced_expiry.until().advance(self.stored_expiry.until().get().unwrap_or_default());
        self.tables.compact();
        Ok(())
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

    /// Checks whether a low watermark is in a later hour than the one by which facts expire.
    fn begins_hour(&self, until: Option<EventTime>) -> bool {
        let hour = |until: Option<EventTime>| until.map_or(0, |until| until.millis() / HOUR_MS);
        hour(until) > hour(self.synced_expiry.until().get())
    }

    /// Drops the tables of touches that have expired.
    fn drop_expired_touches(&mut self) -> Result<(), StoreError> {
        let expired = self.touches.expired(&self.synced_expiry);
        if expired.is_empty() {
            return Ok(());
        }
        let mut batch = WriteBatch::default();
        self.touches.delete(&expired, &self.tables.meta(), &mut batch);
        // A power failure must not bring back the record of a table that is gone.
        let mut options = write_options();
        options.set_sync(true);
        self.tables.write(batch, &options)?;
        self.tables.touches.drop_tables(&self.tables.db, &expired);
        Ok(())
    }

    /// Adds the pending touches to the batch.
    fn put_touches(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let is_new = |fact: &FactKey| !self.stored_touches.contains_key(fact);
        let unknown: Vec<FactKey> = self.pending.touches().filter(is_new).collect();
        let (db, tables) = (&*self.tables.db, &*self.tables.touches);
        let places = touches::read::places(db, tables, &unknown)?;
        self.stored_touches.extend(unknown.into_iter().zip(places));
        let mut touches = TouchBatch::new(&mut self.touches, &self.tables, batch);
        self.pending.put_touches(&mut touches, &self.stored_touches)?;
        touches.finish();
        self.stored_touches.clear();
        Ok(())
    }

    /// Looks up where those touches among the facts are stored that are not in flight, and remembers it until they are
    /// written. The filters know the touches in flight, so nearly all that they do not know are new.
    fn find_touches(&mut self, facts: &[FactKey]) -> Result<(), StoreError> {
        let Self { in_flight, stored_touches, tables, .. } = &*self;
        let (db, touch_tables) = (&*tables.db, &*tables.touches);
        let is_unknown =
            |fact: &&FactKey| fact.family == Family::Touch && !stored_touches.contains_key(*fact);
        let is_in_flight =
            |fact: &FactKey| in_flight.get(fact.family, &key::record(fact)).is_some();
        let find = |facts: &[FactKey]| -> Result<Vec<(FactKey, Option<Place>)>, StoreError> {
            let unknown: Vec<FactKey> = facts.iter().filter(is_unknown).copied().collect();
            let may_be_written = touches::read::may_be_written(touch_tables, &unknown);
            let (mut written, mut new) = (Vec::new(), Vec::new());
            for (fact, may_be_written) in unknown.into_iter().zip(may_be_written) {
                if !may_be_written {
                    new.push((fact, None));
                } else if !is_in_flight(&fact) {
                    written.push(fact);
                }
            }
            let places = touches::read::places(db, touch_tables, &written)?;
            new.extend(written.into_iter().zip(places));
            Ok(new)
        };
        for found in self.parallelism.map(facts, find) {
            self.stored_touches.extend(found?);
        }
        Ok(())
    }

    /// [`Ledger::lookup`] after [`Embedded::find_touches`].
    fn lookup_found(&self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        // Nearly all touches are new: nothing is stored under their identity, so there is nothing to read.
        let is_new = |fact: &FactKey| {
            let is_pending = || self.pending.get(fact.family, &key::record(fact)).is_some();
            matches!(self.stored_touches.get(fact), Some(None)) && !is_pending()
        };
        let known: Vec<FactKey> = keys.iter().filter(|fact| !is_new(fact)).copied().collect();
        let mut stored = known.iter().zip(self.stored_records(&known)?).peekable();
        let lookup = |key: &FactKey| match stored.next_if(|(known, _)| *known == key) {
            Some((_, record)) => self.expiry.lookup(key.pid, record),
            None => Lookup::Missing,
        };
        Ok(keys.iter().map(lookup).collect())
    }

    /// Adds the keys under which an activation is found.
    fn add_to_filter(&self, FactWrite { key, index, bucket_markers, .. }: &FactWrite) {
        let markers = bucket_markers.iter().map(|(found_by, _)| found_by);
        for found_by in index.iter().chain(markers) {
            let entry = key::index_from(*found_by, key.pid, EventTime::default());
            self.filters.activations.add(KeyHash::of(&entry));
        }
    }

    /// Returns records even if they have expired.
    fn stored_records(&self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let unstored: Vec<Option<&[u8]>> = keys.iter().map(|fact| self.unstored(fact)).collect();
        let is_missing = |(_, value): &(&FactKey, &Option<&[u8]>)| value.is_none();
        let missing = keys.iter().zip(&unstored).filter(is_missing).map(|(fact, _)| *fact);
        let mut stored = self.tables.records(&missing.collect::<Vec<_>>())?.into_iter();
        let record = |(fact, value): (&FactKey, Option<&[u8]>)| match value {
            Some(value) => codec::fact_record::decode(fact.family, fact.pid, value).map(Some),
            None => Ok(stored.next().flatten()),
        };
        keys.iter().zip(unstored).map(record).collect()
    }

    /// The value of a record that is pending or in flight.
    fn unstored(&self, fact: &FactKey) -> Option<&[u8]> {
        let key = key::record(fact);
        let pending = self.pending.get(fact.family, &key);
        pending.or_else(|| self.in_flight.get(fact.family, &key))
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
        for mut write in decisions {
            self.rows.put(&mut batch, &self.tables, &mut write)?;
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
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use attribution::facts::device_ids::IdKindSet;
    use attribution::facts::event::{Device, Purpose, SpreadId, TouchFields, TouchKind};
    use attribution::facts::keys::MatchKeys;
    use attribution::facts::match_keys::fact_key;
    use rocksdb::Options;
    use rocksdb::statistics::Ticker;
    use tempfile::TempDir;

    use super::open::column_families::OFFSETS;
    use super::*;

    /// A store that writes a commit when it is waited for.
    fn deferring() -> (Embedded, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let policy = Policy::new(Vec::new(), Vec::new());
        let settings = config::Store {
            hbase: None,
            path: dir.path().join("store"),
            partitions: 8,
            retention_ms: None,
            memory_bytes: 64 << 20,
            region_bytes_max: 1 << 30,
            fanout_above: None,
            apps: BTreeMap::new(),
        };
        let mut store = Embedded::open(&settings, &policy).unwrap();
        store.defer_writes();
        (store, dir)
    }

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
    fn facts_expire_only_by_a_low_watermark_that_is_synced() {
        let (mut store, _dir) = deferring();
        let syncs = |store: &Embedded| store.tables.options.get_ticker_count(Ticker::WalFileSynced);
        let opened = syncs(&store);
        let mut check = |minutes: u64, synced: Option<u64>, count: u64| {
            let until = EventTime::default().plus(minutes * HOUR_MS / 60);
            let progress = Progress { positions: Vec::new(), consumed_until: Some(until) };
            store.commit(Vec::new(), &progress).unwrap();
            store.wait_for_commit().unwrap();
            assert_eq!(
                store.stored_expiry.until().get(),
                Some(until),
                "readers see what is stored"
            );
            let until = store.synced_expiry.until().get();
            assert_eq!(until.map(|until| until.millis() * 60 / HOUR_MS), synced);
            assert_eq!(syncs(&store) - opened, count, "at {minutes} minutes");
        };
        check(30, None, 0);
        check(61, Some(61), 1);
        check(119, Some(61), 1);
        check(500, Some(500), 2);
        check(510, Some(500), 2);
        store.compact().unwrap();
        assert_eq!(store.synced_expiry.until().get(), store.stored_expiry.until().get());
    }

    /// The write of a touch without an index entry.
    fn touch() -> FactWrite {
        let fields = TouchFields {
            pid: Pid(1),
            id: "c1".into(),
            click_id: "c1".into(),
            kind: TouchKind::Click,
            purpose: Purpose::Ua,
            spreadid: SpreadId(7),
            time: EventTime::default(),
            lookback_ms: None,
            ids: Vec::new(),
            device: Device::default(),
            site: "".into(),
            params: Vec::new(),
        };
        FactWrite {
            key: fact_key(TouchKind::Click, Pid(1), "c1"),
            record: FactRecord::Touch(fields.into()),
            index: MatchKeys::default(),
            received_md5: IdKindSet::default(),
            bucket_markers: Vec::new(),
            stale: Vec::new(),
            superseded: None,
        }
    }

    #[test]
    fn nothing_is_committed_after_a_commit_that_could_not_be_built() {
        let (mut store, _dir) = deferring();
        store.commit(Vec::new(), &progress(7)).unwrap();
        // RocksDB refuses to create the first table of touches. It would create the next one.
        store.tables.db.create_cf("touches-1", &Options::default()).unwrap();
        store.record(vec![touch()]).unwrap();
        let error = store.commit(Vec::new(), &progress(8)).unwrap_err();
        assert!(matches!(error, StoreError::Engine(_)), "{error}");
        assert!(store.commit(Vec::new(), &progress(8)).is_err());
        // The commit before is durable.
        store.wait_for_commit().unwrap();
        assert_eq!(store.positions().unwrap(), progress(7).positions);
    }
}
