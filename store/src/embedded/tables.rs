//! The tables in RocksDB.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use attribution::facts::event::Family;
use attribution::facts::keys::FactKey;
use attribution::ledger::record::FactRecord;
use rocksdb::{
    ColumnFamily, DB, DBRawIterator, DBRecoveryMode, Options, ReadOptions, WriteBatch, WriteOptions,
};

use super::open::column_families::{
    ACTIVATIONS, BROUGHT, CELLS, COUNTS, EFFECTS, EVENTS, Limits, META, OFFSETS, TABLES, TOUCHES,
    descriptors,
};
use super::open::memory_budget::Budget;
use super::open::preflight::{failure, logs, refuse_foreign};
use super::open::{layout_version, manifest_check, options};
use super::write::disk_full::DiskFullGate;
use crate::StoreError;
use crate::layout::{codec, key};
use crate::maintenance::incomplete_marker;

/// What damage does not keep a store from opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    None,
    /// That of the log.
    Log,
    /// That of files, which is told of when they are read; and of the log.
    Files,
}

/// So often somebody who only reads tries to open a store that is written meanwhile.
const OPENED_MAX: u32 = 20;
const OPENED_AGAIN: Duration = Duration::from_millis(50);

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// An open RocksDB with all its tables.
#[derive(Clone)]
pub struct Tables {
    pub db: Arc<DB>,
    /// Those that it was opened with, which hold its counters.
    pub options: Arc<Options>,
    pub room: DiskFullGate,
}

impl Tables {
    pub fn open(path: &Path, memory_bytes: u64, limits: &Limits) -> Result<Self, StoreError> {
        incomplete_marker::refuse_half_restored(path)?;
        refuse_foreign(path)?;
        manifest_check::cut(path)?;
        layout_version::refuse_other(path)?;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let budget = Budget::writing(memory_bytes, cores);
        let cache = options::cache(&budget);
        let tables = descriptors(&budget, &cache, limits);
        let engine = options::engine(&budget, &cache);
        let db =
            DB::open_cf_descriptors(&engine, path, tables).map_err(|error| failure(path, error))?;
        Ok(Self { db: Arc::new(db), options: Arc::new(engine), room: DiskFullGate::default() })
    }

    /// Writes a batch, and may wait for room where the disk is full.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<(), StoreError> {
        self.room.write(&self.db, batch, options)
    }

    pub fn open_for_reading(path: &Path, memory_bytes: u64) -> Result<Self, StoreError> {
        refuse_foreign(path)?;
        if !path.join("CURRENT").exists() {
            return Err(StoreError::Missing { path: path.into() });
        }
        let budget = Budget::reading(memory_bytes);
        let cache = options::cache(&budget);
        let limits = Limits::none();
        manifest_check::refuse_logs(path)?;
        let tables = || descriptors(&budget, &cache, &limits);
        let engine = options::reading_engine();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let logs = logs(path);
            match DB::open_cf_descriptors_read_only(&engine, path, tables(), false) {
                Ok(db) if logs.iter().all(|log| log.exists()) => {
                    return Ok(Self {
                        db: Arc::new(db),
                        options: Arc::new(engine),
                        room: DiskFullGate::default(),
                    });
                }
                // The writing process may delete a file between its listing and its opening. A log that
                // goes meanwhile may be one that this engine never read.
                Ok(_) | Err(_) if attempts < OPENED_MAX => std::thread::sleep(OPENED_AGAIN),
                Ok(_) => {
                    let reason = "its logs are written to files faster than they can be read";
                    return Err(StoreError::Unopened { path: path.into(), reason: reason.into() });
                }
                Err(error) => return Err(failure(path, error)),
            }
        }
    }

    /// For whoever looks for damage, and to find out where it is.
    pub fn open_for_checking(
        path: &Path,
        memory_bytes: u64,
        lenience: OpenMode,
    ) -> Result<Self, StoreError> {
        incomplete_marker::refuse(path)?;
        refuse_foreign(path)?;
        if !path.join("CURRENT").exists() {
            return Err(StoreError::Missing { path: path.into() });
        }
        manifest_check::refuse_logs(path)?;
        let mut engine = options::reading_engine();
        engine.set_paranoid_checks(lenience != OpenMode::Files);
        engine.set_wal_recovery_mode(match lenience {
            // The end of the log may be half written, by a process that was killed or that runs.
            OpenMode::None => DBRecoveryMode::TolerateCorruptedTailRecords,
            OpenMode::Log => DBRecoveryMode::SkipAnyCorruptedRecord,
            OpenMode::Files => DBRecoveryMode::PointInTime,
        });
        let budget = Budget::reading(memory_bytes);
        let tables = descriptors(&budget, &options::cache(&budget), &Limits::none());
        let db = DB::open_cf_descriptors_read_only(&engine, path, tables, false)
            .map_err(|error| failure(path, error))?;
        Ok(Self { db: Arc::new(db), options: Arc::new(engine), room: DiskFullGate::default() })
    }

    /// For whoever repairs what is derived: nothing expires meanwhile.
    pub fn open_for_repair(path: &Path, memory_bytes: u64) -> Result<Self, StoreError> {
        incomplete_marker::refuse(path)?;
        if !path.join("CURRENT").exists() {
            return Err(StoreError::Missing { path: path.into() });
        }
        Self::open(path, memory_bytes, &Limits::none())
    }

    pub fn events(&self) -> &ColumnFamily {
        self.table(EVENTS)
    }

    pub fn offsets(&self) -> &ColumnFamily {
        self.table(OFFSETS)
    }

    pub fn cells(&self) -> &ColumnFamily {
        self.table(CELLS)
    }

    pub fn counts(&self) -> &ColumnFamily {
        self.table(COUNTS)
    }

    pub fn brought(&self) -> &ColumnFamily {
        self.table(BROUGHT)
    }

    pub fn meta(&self) -> &ColumnFamily {
        self.table(META)
    }

    pub fn facts(&self, family: Family) -> &ColumnFamily {
        self.table(Self::name_of(family))
    }

    pub fn name_of(family: Family) -> &'static str {
        match family {
            Family::Touch => TOUCHES,
            Family::Activation => ACTIVATIONS,
            Family::Effect => EFFECTS,
        }
    }

    #[allow(clippy::expect_used, reason = "all tables are opened or created with the store")]
    pub fn table(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("table is open")
    }

    /// An iterator that only sees keys of the prefix which it was last sought to.
    pub fn index_iterator(&self, family: Family) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_prefix_same_as_start(true);
        self.db.raw_iterator_cf_opt(self.facts(family), options)
    }

    /// Fills the places of the homes that are stored; keys of a family come in key order.
    pub fn records(
        &self,
        missing: &[(usize, FactKey)],
        records: &mut [Option<FactRecord>],
    ) -> Result<(), StoreError> {
        for family in Family::ALL {
            let wanted: Vec<_> = missing.iter().filter(|(_, fact)| fact.family == family).collect();
            if wanted.is_empty() {
                continue;
            }
            let keys: Vec<_> = wanted.iter().map(|(_, fact)| key::record(fact)).collect();
            let table = self.facts(family);
            // One alone costs less by itself.
            let values = match &keys[..] {
                [key] => vec![self.db.get_pinned_cf(table, key)],
                _ => self.db.batched_multi_get_cf(table, &keys, keys.is_sorted()),
            };
            for ((place, fact), value) in wanted.into_iter().zip(values) {
                if let Some(value) = value? {
                    records[*place] = Some(codec::fact_record::decode(family, fact.pid, &value)?);
                }
            }
        }
        Ok(())
    }

    /// All entries of a table, as they are now.
    pub fn each_entry(
        &self,
        table: &ColumnFamily,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut options = ReadOptions::default();
        options.set_total_order_seek(true);
        options.fill_cache(false);
        let mut entries = self.db.raw_iterator_cf_opt(table, options);
        entries.seek_to_first();
        while let (Some(key), Some(value)) = (entries.key(), entries.value()) {
            visit(key, value)?;
            entries.next();
        }
        Ok(entries.status()?)
    }

    pub fn compact(&self) {
        for name in TABLES {
            self.db.compact_range_cf::<&[u8], &[u8]>(self.table(name), None, None);
        }
    }

    /// What stands in `meta` under names that begin so, with the rest of each name.
    pub fn named(&self, prefix: &[u8]) -> Result<Vec<Entry>, StoreError> {
        let mut found = Vec::new();
        let mut entries = self.db.raw_iterator_cf(self.meta());
        entries.seek(prefix);
        while let (Some(name), Some(value)) = (entries.key(), entries.value()) {
            let Some(rest) = name.strip_prefix(prefix) else { break };
            found.push((rest.to_vec(), value.to_vec()));
            entries.next();
        }
        entries.status()?;
        Ok(found)
    }
}
