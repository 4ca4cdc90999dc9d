//! The tables in RocksDB, and what a store says of itself.

use std::path::Path;
use std::sync::Arc;

use attribution::event::{EventTime, Family};
use attribution::ledger::{FactKey, Home, Position};
use attribution::policy::Policy;
use attribution::row::{EventType, Status};
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBRawIterator, ErrorKind, Options, ReadOptions,
    WriteBatch,
};

use super::options;
use crate::StoreError;
use crate::codec;
use crate::expiry::Expiry;
use crate::key;
use crate::retention::Retention;
use crate::scan::EVENTS;

const TOUCHES: &str = "touches";
const ACTIVATIONS: &str = "activations";
const EFFECTS: &str = "effects";
const OFFSETS: &str = "offsets";
const META: &str = "meta";
const TABLES: [&str; 6] = [EVENTS, TOUCHES, ACTIVATIONS, EFFECTS, OFFSETS, META];

/// The version of all layouts together.
const LAYOUT_VERSION: u32 = 4;
const META_LAYOUT: &[u8] = b"layout";
const META_PARTITIONS: &[u8] = b"partitions";
const META_COUNTS: &[u8] = b"counts";
const META_CONSUMED_UNTIL: &[u8] = b"consumed_until";

/// What compactions leave out.
pub struct Limits {
    pub retention: Retention,
    pub expiry: Expiry,
}

impl Limits {
    /// Nothing.
    fn none() -> Self {
        Self { retention: Retention::new(None), expiry: Expiry::new(&Policy::default(), None) }
    }
}

/// An open RocksDB with all its tables.
#[derive(Clone)]
pub struct Tables {
    pub db: Arc<DB>,
}

impl Tables {
    pub fn open(path: &Path, limits: &Limits) -> Result<Self, StoreError> {
        refuse_foreign(path)?;
        std::fs::create_dir_all(path).map_err(|error| unwritable(path, &error.to_string()))?;
        let cache = options::cache();
        let tables = descriptors(&cache, limits);
        let db = DB::open_cf_descriptors(&options::engine(), path, tables)
            .map_err(|error| opening(path, error))?;
        Ok(Self { db: Arc::new(db) })
    }

    pub fn open_for_reading(path: &Path) -> Result<Self, StoreError> {
        refuse_foreign(path)?;
        if !path.join("CURRENT").exists() {
            return Err(StoreError::Missing { path: path.into() });
        }
        let cache = options::cache();
        let limits = Limits::none();
        let tables = || descriptors(&cache, &limits);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut engine = options::engine();
            engine.create_if_missing(false);
            engine.create_missing_column_families(false);
            match DB::open_cf_descriptors_read_only(&engine, path, tables(), false) {
                Ok(db) => return Ok(Self { db: Arc::new(db) }),
                // The writing process may delete a file between its listing and its opening.
                Err(_) if attempts < 10 => std::thread::sleep(std::time::Duration::from_millis(50)),
                Err(error) => return Err(opening(path, error)),
            }
        }
    }

    pub fn events(&self) -> &ColumnFamily {
        self.table(EVENTS)
    }

    pub fn offsets(&self) -> &ColumnFamily {
        self.table(OFFSETS)
    }

    pub fn facts(&self, family: Family) -> &ColumnFamily {
        self.table(match family {
            Family::Touch => TOUCHES,
            Family::Activation => ACTIVATIONS,
            Family::Effect => EFFECTS,
        })
    }

    #[allow(clippy::expect_used, reason = "all tables are opened or created with the store")]
    fn table(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("table is open")
    }

    /// An iterator that only sees keys of the prefix which it was last sought to.
    pub fn index_iterator(&self, family: Family) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_prefix_same_as_start(true);
        self.db.raw_iterator_cf_opt(self.facts(family), options)
    }

    /// Fills the places of the homes that are stored; keys of a family come in key order.
    pub fn homes(
        &self,
        missing: &[(usize, FactKey)],
        homes: &mut [Option<Home>],
    ) -> Result<(), StoreError> {
        for family in [Family::Touch, Family::Activation, Family::Effect] {
            let wanted: Vec<_> = missing.iter().filter(|(_, fact)| fact.family == family).collect();
            if wanted.is_empty() {
                continue;
            }
            let keys: Vec<_> = wanted.iter().map(|(_, fact)| key::home(fact)).collect();
            let is_sorted = keys.is_sorted();
            let values = self.db.batched_multi_get_cf(self.facts(family), &keys, is_sorted);
            for ((place, fact), value) in wanted.into_iter().zip(values) {
                if let Some(value) = value? {
                    homes[*place] = Some(codec::home::decode(family, fact.pid, &value)?);
                }
            }
        }
        Ok(())
    }

    pub fn compact(&self) {
        for name in TABLES {
            self.db.compact_range_cf::<&[u8], &[u8]>(self.table(name), None, None);
        }
    }

    pub fn positions(&self) -> Result<Vec<Position>, StoreError> {
        let mut positions = Vec::new();
        let mut entries = self.db.raw_iterator_cf(self.offsets());
        entries.seek_to_first();
        while let (Some(key), Some(value)) = (entries.key(), entries.value()) {
            let position = key::decode_position(key, value);
            positions.push(position.ok_or_else(|| StoreError::corrupt("a position"))?);
            entries.next();
        }
        entries.status()?;
        Ok(positions)
    }
}

/// What the store says of itself: fixed when it was created, its row counts, and how far Kafka was
/// consumed.
pub struct Meta {
    pub partitions: u16,
    /// 1970 if nobody has said yet.
    pub consumed_until: EventTime,
    counts: [[u64; Status::ALL.len()]; EventType::ALL.len()],
}

impl Meta {
    pub fn load_or_create(
        tables: &Tables,
        path: &Path,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        let meta = tables.table(META);
        if tables.db.get_cf(meta, META_LAYOUT)?.is_none() {
            let mut batch = WriteBatch::default();
            batch.put_cf(meta, META_LAYOUT, LAYOUT_VERSION.to_be_bytes());
            batch.put_cf(meta, META_PARTITIONS, partitions.to_be_bytes());
            tables.db.write(batch)?;
            tables.db.flush_wal(true)?;
        }
        Self::load(tables, path, partitions)
    }

    pub fn load(tables: &Tables, path: &Path, partitions: u16) -> Result<Self, StoreError> {
        let meta = tables.table(META);
        let read = |name: &[u8]| tables.db.get_cf(meta, name);
        let layout =
            read(META_LAYOUT)?.ok_or_else(|| StoreError::NotAStore { path: path.into() })?;
        let found = layout.as_slice().try_into().map(u32::from_be_bytes).unwrap_or(0);
        if found != LAYOUT_VERSION {
            return Err(StoreError::WrongVersion {
                path: path.into(),
                found,
                expected: LAYOUT_VERSION,
            });
        }
        let stored = read(META_PARTITIONS)?.unwrap_or_default();
        let found = stored.as_slice().try_into().map(u16::from_be_bytes).unwrap_or(0);
        if found != partitions {
            return Err(StoreError::WrongPartitions {
                path: path.into(),
                found,
                configured: partitions,
            });
        }
        let mut counts = [[0; Status::ALL.len()]; EventType::ALL.len()];
        if let Some(stored) = read(META_COUNTS)? {
            let numbers = stored.chunks_exact(8).map(|bytes| {
                bytes.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte))
            });
            for (count, number) in counts.iter_mut().flatten().zip(numbers) {
                *count = number;
            }
        }
        let stored = read(META_CONSUMED_UNTIL)?.unwrap_or_default();
        let millis = stored.as_slice().try_into().map(u64::from_be_bytes).unwrap_or(0);
        Ok(Self { partitions, counts, consumed_until: EventTime::default().plus(millis) })
    }

    pub fn count(&self, event_type: EventType, status: Status) -> u64 {
        self.counts[event_type as usize][status as usize]
    }

    pub fn add(&mut self, event_type: EventType, status: Status) {
        self.counts[event_type as usize][status as usize] += 1;
    }

    pub fn remove(&mut self, event_type: EventType, status: Status) {
        let count = &mut self.counts[event_type as usize][status as usize];
        *count = count.saturating_sub(1);
    }

    pub fn put_consumed_until(&self, batch: &mut WriteBatch, tables: &Tables, until: EventTime) {
        batch.put_cf(tables.table(META), META_CONSUMED_UNTIL, until.millis().to_be_bytes());
    }

    pub fn put_counts(&self, batch: &mut WriteBatch, tables: &Tables) {
        let bytes: Vec<u8> = self.counts.iter().flatten().flat_map(|n| n.to_be_bytes()).collect();
        batch.put_cf(tables.table(META), META_COUNTS, bytes);
    }
}

fn descriptors(cache: &rocksdb::Cache, limits: &Limits) -> Vec<ColumnFamilyDescriptor> {
    let facts = |family| options::facts(cache, family, &limits.expiry);
    let table = |name: &str| {
        let options = match name {
            EVENTS => options::events(cache, &limits.retention),
            TOUCHES => facts(Family::Touch),
            ACTIVATIONS => facts(Family::Activation),
            EFFECTS => facts(Family::Effect),
            _ => options::small(),
        };
        ColumnFamilyDescriptor::new(name, options)
    };
    TABLES.iter().map(|name| table(name)).collect()
}

/// A directory with files and no RocksDB in it is somebody else's, and so is a RocksDB with data
/// and none of the tables.
fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
    let Ok(mut files) = path.read_dir() else { return Ok(()) };
    let is_foreign = files.next().is_some()
        && (!path.join("CURRENT").exists() || is_foreign_database(path).unwrap_or(false));
    if is_foreign { Err(StoreError::NotAStore { path: path.into() }) } else { Ok(()) }
}

/// Not so if it is empty: then making a store here was cut off.
fn is_foreign_database(path: &Path) -> Result<bool, rocksdb::Error> {
    let found = DB::list_cf(&Options::default(), path)?;
    if found.iter().any(|name| TABLES.contains(&&**name)) {
        return Ok(false);
    }
    let db = DB::open_cf_for_read_only(&Options::default(), path, &found, false)?;
    Ok(found.iter().filter_map(|name| db.cf_handle(name)).any(|table| {
        let mut entries = db.raw_iterator_cf(table);
        entries.seek_to_first();
        entries.valid()
    }))
}

fn opening(path: &Path, error: rocksdb::Error) -> StoreError {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::IOError if is_locked(&text) => StoreError::InUse { path: path.into() },
        ErrorKind::IOError => unwritable(path, &text),
        ErrorKind::Corruption => StoreError::corrupt(text),
        // Tables that this version does not know, or lacks.
        ErrorKind::InvalidArgument => StoreError::NotAStore { path: path.into() },
        _ => error.into(),
    }
}

/// Held by another process, or by this one; a lock file that can not be opened is another matter.
fn is_locked(text: &str) -> bool {
    text.contains("While lock file") || text.contains("lock hold by current process")
}

fn unwritable(path: &Path, reason: &str) -> StoreError {
    StoreError::Unwritable { path: path.into(), reason: reason.into() }
}
