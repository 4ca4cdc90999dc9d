//! The column families of an open RocksDB.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attribution::facts::event::Family;
use attribution::facts::keys::FactKey;
use attribution::ledger::record::FactRecord;
use config::private_files;
use rocksdb::{
    DBRecoveryMode, Direction, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions,
};

use super::db::{Db, EntryIterator, RawIterator, Table};
use super::open::column_families::{
    ACTIVATIONS, CAMPAIGN_INDEX, CELLS, COUNTS, EFFECTS, EVENTS, FIXED_TABLES, Limits, META,
    OFFSETS, OUTBOX, TOUCHES, descriptors,
};
use super::open::memory_budget::Budget;
use super::open::preflight::{failure, refuse_foreign, unwritable};
use super::open::{layout_version, manifest_check, options};
use super::touches::read;
use super::touches::tables::{self as touch_tables, TouchTables};
use super::write::disk_full::DiskFullGate;
use crate::StoreError;
use crate::layout::{codec, key};
use crate::maintenance::incomplete_marker;

/// Damage that is tolerated when a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    None,
    /// Damage of the write-ahead log.
    Log,
    /// Damage of the log and of table files. A damaged file then fails when it is read.
    Files,
}

/// Attempts to open a store for reading while another process writes it.
const OPEN_ATTEMPTS_MAX: u32 = 20;
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A key and its value in `meta`.
type MetaEntry = (Vec<u8>, Vec<u8>);

/// An open RocksDB with all its tables.
#[derive(Clone)]
pub struct Tables {
    /// Dropped before `touches`, as RocksDB refers to the options there.
    pub db: Arc<Db>,
    pub touches: Arc<TouchTables>,
    /// The options of `db`, which hold its statistics.
    pub options: Arc<Options>,
    pub disk_full_gate: DiskFullGate,
}

impl fmt::Debug for Tables {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tables").field("path", &self.db.path()).finish_non_exhaustive()
    }
}

impl Tables {
    pub fn open(path: &Path, memory_bytes: u64, limits: &Limits) -> Result<Self, StoreError> {
        incomplete_marker::refuse_incomplete_restore(path)?;
        refuse_foreign(path)?;
        // Before anything is written: RocksDB follows links, and opens its files by predictable names.
        private_files::private_store(path).map_err(|error| unwritable(path, &error.to_string()))?;
        manifest_check::truncate_logs(path)?;
        // Opening for writing rewrites files and lets compactions remove what this version considers expired.
        if let Some(other_layout) = layout_version::other_layout(path) {
            return Err(other_layout);
        }
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let budget = Budget::writing(memory_bytes, cores);
        let cache = options::cache(&budget);
        let names = touch_tables::names(path);
        let (tables, touch_options) = descriptors(&budget, &cache, limits, &names);
        let engine = options::engine(&budget, &cache);
        let db =
            Db::open_cf_descriptors(&engine, path, tables).map_err(|error| failure(path, error))?;
        let touches = TouchTables::new(touch_tables::stored_days(&db)?, touch_options);
        touches.drop_unrecorded(&db, &names)?;
        Ok(Self::new(db, touches, engine))
    }

    fn new(db: Db, touches: TouchTables, options: Options) -> Self {
        let (db, touches, options) = (Arc::new(db), Arc::new(touches), Arc::new(options));
        Self { db, touches, options, disk_full_gate: DiskFullGate::default() }
    }

    /// Writes a batch; may block while the disk is full.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<(), StoreError> {
        self.disk_full_gate.write(&self.db, batch, options)
    }

    pub fn open_for_reading(path: &Path, memory_bytes: u64) -> Result<Self, StoreError> {
        refuse_unreadable(path)?;
        let engine = options::reading_engine();
        let (db, touches) = beside_writer(path, || {
            open_read_only(&engine, path, memory_bytes, false, || touch_tables::names(path))
        })?;
        Ok(Self::new(db, touches, engine))
    }

    /// Opens for reading, to find damage. Unlike [`Tables::open_for_reading`] it does not retry.
    pub fn open_for_checking(
        path: &Path,
        memory_bytes: u64,
        mode: OpenMode,
    ) -> Result<Self, StoreError> {
        incomplete_marker::refuse(path)?;
        refuse_unreadable(path)?;
        let mut engine = options::reading_engine();
        engine.set_paranoid_checks(mode != OpenMode::Files);
        engine.set_wal_recovery_mode(match mode {
            // The last record may be incomplete: the writer was killed or is running.
            OpenMode::None => DBRecoveryMode::TolerateCorruptedTailRecords,
            OpenMode::Log => DBRecoveryMode::SkipAnyCorruptedRecord,
            OpenMode::Files => DBRecoveryMode::PointInTime,
        });
        let is_damaged = mode == OpenMode::Files;
        let list = || touch_tables::names(path);
        let (db, touches) = open_read_only(&engine, path, memory_bytes, is_damaged, list)?;
        Ok(Self::new(db, touches, engine))
    }

    /// Opens for writing, with nothing expiring meanwhile.
    pub fn open_for_repair(path: &Path, memory_bytes: u64) -> Result<Self, StoreError> {
        incomplete_marker::refuse(path)?;
        refuse_missing(path)?;
        Self::open(path, memory_bytes, &Limits::none())
    }

    pub fn events(&self) -> Table<'_> {
        self.table(EVENTS)
    }

    pub fn offsets(&self) -> Table<'_> {
        self.table(OFFSETS)
    }

    pub fn cells(&self) -> Table<'_> {
        self.table(CELLS)
    }

    pub fn counts(&self) -> Table<'_> {
        self.table(COUNTS)
    }

    pub fn campaign_index(&self) -> Table<'_> {
        self.table(CAMPAIGN_INDEX)
    }

    pub fn outbox(&self) -> Table<'_> {
        self.table(OUTBOX)
    }

    pub fn meta(&self) -> Table<'_> {
        self.table(META)
    }

    /// The activations or effects. Touches are in [`Tables::touches`].
    pub fn facts(&self, family: Family) -> Table<'_> {
        self.table(Self::name_of(family))
    }

    /// The name of the table of a family in statistics and messages. That of touches is the start of the names of
    /// several.
    pub fn name_of(family: Family) -> &'static str {
        match family {
            Family::Touch => TOUCHES,
            Family::Activation => ACTIVATIONS,
            Family::Effect => EFFECTS,
        }
    }

    /// The names of all tables, also of those that touches have at present.
    pub fn names(&self) -> Vec<String> {
        let touches = self.touches.all_names();
        let fixed = FIXED_TABLES.iter().map(|name| (*name).to_owned());
        fixed.chain(touches.iter().map(|name| name.to_string())).collect()
    }

    /// A table of a name that [`Tables::names`] has returned.
    #[allow(
        clippy::expect_used,
        reason = "all tables are opened or created with the store, and only a process that decides drops some"
    )]
    pub fn table(&self, name: &str) -> Table<'_> {
        self.db.cf_handle(name).expect("all tables are opened with the store")
    }

    /// An iterator over the keys with the prefix of the last seek.
    pub fn index_iterator(&self, family: Family) -> RawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_prefix_same_as_start(true);
        self.db.raw_iterator_cf_opt(&self.facts(family), options)
    }

    /// The stored records of facts. Faster if the keys of a family are sorted.
    pub fn records(&self, facts: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let mut all = vec![None; facts.len()];
        for (family, indexes) in key::by_family(facts.iter().map(|fact| fact.family).enumerate()) {
            if family == Family::Touch {
                let touches: Vec<_> = indexes.iter().map(|index| facts[*index]).collect();
                let found = read::touches(&self.db, &self.touches, &touches)?;
                for (index, record) in indexes.into_iter().zip(found) {
                    all[index] = record;
                }
                continue;
            }
            let keys: Vec<_> = indexes.iter().map(|index| key::record(&facts[*index])).collect();
            let table = self.facts(family);
            // A single get is cheaper than a batch of one.
            let values = match &keys[..] {
                [key] => vec![self.db.get_pinned_cf(&table, key)],
                _ => self.db.batched_multi_get_cf(&table, &keys, keys.is_sorted()),
            };
            for (index, value) in indexes.into_iter().zip(values) {
                if let Some(value) = value? {
                    let pid = facts[index].pid;
                    all[index] = Some(codec::fact_record::decode(family, pid, &value)?);
                }
            }
        }
        Ok(all)
    }

    /// All entries of a table, in key order.
    pub fn entries(&self, table: &Table<'_>) -> EntryIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_total_order_seek(true);
        options.fill_cache(false);
        self.db.iterator_cf_opt(table, options, IteratorMode::Start)
    }

    pub fn compact(&self) {
        for name in self.names() {
            // A table that was dropped since needs no compaction.
            if let Some(table) = self.db.cf_handle(&name) {
                self.db.compact_range_cf::<&[u8], &[u8]>(&table, None, None);
            }
        }
    }

    /// The entries of `meta` whose keys have a prefix, without that prefix.
    pub fn meta_entries(&self, prefix: &[u8]) -> Result<Vec<MetaEntry>, StoreError> {
        let mut found = Vec::new();
        let from = IteratorMode::From(prefix, Direction::Forward);
        for entry in self.db.iterator_cf(&self.meta(), from) {
            let (name, value) = entry?;
            let Some(rest) = name.strip_prefix(prefix) else { break };
            found.push((rest.to_vec(), value.into_vec()));
        }
        Ok(found)
    }
}

/// Calls `open` until it has opened a store that another process may be writing meanwhile.
fn beside_writer<T>(
    path: &Path,
    mut open: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let logs: Vec<PathBuf> = manifest_check::logs(path).collect();
        match open() {
            Ok(opened) if logs.iter().all(|log| log.exists()) => return Ok(opened),
            // The writing process may delete a file after it was listed and before it is opened. A log that
            // disappears meanwhile may not have been read. It may also create or drop a table.
            Ok(_) | Err(_) if attempts < OPEN_ATTEMPTS_MAX => std::thread::sleep(OPEN_RETRY_DELAY),
            Ok(_) => {
                let reason = "its logs are flushed and deleted faster than they can be read";
                return Err(StoreError::Unopened { path: path.into(), reason: reason.into() });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Opens for reading. If `is_damaged`, tables of touches whose records cannot be read are opened nevertheless. `list`
/// returns the present column families of touches.
fn open_read_only(
    engine: &Options,
    path: &Path,
    memory_bytes: u64,
    is_damaged: bool,
    list: impl Fn() -> Vec<String>,
) -> Result<(Db, TouchTables), StoreError> {
    let budget = Budget::reading(memory_bytes);
    let (cache, none) = (options::cache(&budget), Limits::none());
    let mut attempts = 0;
    loop {
        attempts += 1;
        let names = list();
        // The writing process may have created or dropped a table since they were listed.
        let may_retry = || attempts < OPEN_ATTEMPTS_MAX && list() != names;
        let (tables, touch_options) = descriptors(&budget, &cache, &none, &names);
        let db = match Db::open_cf_descriptors_read_only(engine, path, tables, false) {
            Err(_) if may_retry() => continue,
            db => db.map_err(|error| failure(path, error))?,
        };
        let touches = match touch_tables::stored_days(&db) {
            Err(_) if may_retry() => continue,
            Err(_) if is_damaged => TouchTables::of_names(&db, &names, touch_options),
            // Another layout may have other records.
            Err(error) => return Err(layout_version::other_layout(path).unwrap_or(error)),
            Ok(days) => TouchTables::new(days, touch_options),
        };
        return Ok((db, touches));
    }
}

/// Refuses a directory that does not hold a store, or whose logs RocksDB would never finish reading.
fn refuse_unreadable(path: &Path) -> Result<(), StoreError> {
    refuse_foreign(path)?;
    refuse_missing(path)?;
    manifest_check::refuse_damaged(manifest_check::logs(path))
}

fn refuse_missing(path: &Path) -> Result<(), StoreError> {
    match path.join("CURRENT").exists() {
        true => Ok(()),
        false => Err(StoreError::Missing { path: path.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;
    use crate::embedded::touches::record::{Day, TableRecord};

    #[test]
    fn opening_is_repeated_if_it_fails_or_a_log_disappears_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("000004.log");
        fs::write(&log, "").unwrap();
        let mut attempts = 0;
        let opened = beside_writer(dir.path(), || {
            attempts += 1;
            match attempts {
                1 => return Err(StoreError::corrupt("a file that is gone")),
                2 => fs::remove_file(&log).unwrap(),
                _ => {}
            }
            Ok(attempts)
        });
        assert_eq!(opened.unwrap(), 3);
    }

    #[test]
    fn tables_are_listed_again_if_one_was_created_or_dropped_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let writer = Tables::open(&path, 64 << 20, &Limits::none()).unwrap();
        let number = writer.touches.create(&writer.db, Day(1)).unwrap().number;
        let record = TableRecord::new(Day(1)).encode();
        writer.db.put_cf(&writer.meta(), touch_tables::record_name(number), record).unwrap();
        let present = touch_tables::names(&path);
        assert_eq!(present.len(), 2);
        let dropped = ["touches-7".to_owned()];
        for outdated in [Vec::new(), [&present[..], &dropped].concat()] {
            let is_first = Cell::new(true);
            let list =
                || if is_first.take() { outdated.clone() } else { touch_tables::names(&path) };
            let engine = options::reading_engine();
            let (db, touches) = open_read_only(&engine, &path, 64 << 20, false, list).unwrap();
            let reader = Tables::new(db, touches, engine);
            let numbers: Vec<u32> = reader.touches.all().iter().map(|it| it.number).collect();
            assert_eq!(numbers, [number], "{outdated:?}");
        }
    }
}
