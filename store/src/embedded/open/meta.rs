//! The store's metadata, in the table `meta`, and the Kafka positions.

use std::path::Path;

use attribution::facts::event::{EventTime, Pid};
use attribution::ledger::{Position, RecordFingerprint};
use attribution::rules::policy::Policy;
use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};

use super::layout_version::{self, LAYOUT, LAYOUT_VERSION};
use crate::StoreError;
use crate::apps::names::{self, Names};
use crate::apps::record::{App, Apps, CLOCK_OFF_MS};
use crate::clock::now;
use crate::embedded::tables::Tables;
use crate::layout::hourly_counts::{self, Cell, CellKey};
use crate::layout::key;

const PARTITIONS: &[u8] = b"partitions";
pub const CONSUMED_UNTIL: &[u8] = b"consumed_until";
const TOTALS: &[u8] = b"totals";
const SWEPT: &[u8] = b"swept";
pub const APP: &[u8] = b"app/";
/// Followed by the pid; the value is the app's key.
pub const NAMED: &[u8] = b"named/";
/// Followed by the pid; the value is an encoded `ReceivedMd5`.
pub const RECEIVED_MD5: &[u8] = b"received_md5/";
pub const REGION: &[u8] = b"region/";
/// Followed by the key of a position; the value is the fingerprint [`Position::known`]. In the store this is the record
/// `last_read`, and [`Position::last`] is `newest_read`.
pub const KNOWN_RECORDS: &[u8] = b"last_read/";
/// Like [`KNOWN_RECORDS`], for [`Position::last`].
pub const LAST_RECORDS: &[u8] = b"newest_read/";

/// Metadata that is loaded when a store is opened.
pub struct Meta {
    pub partitions: u16,
    /// `None` if it was never stored.
    pub consumed_until: Option<EventTime>,
    /// The sum of all hourly counts.
    pub totals: Cell,
}

impl Meta {
    /// Loads the metadata, or creates it in a new store.
    pub fn load_or_create(
        tables: &Tables,
        path: &Path,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        if tables.db.get_cf(&tables.meta(), LAYOUT)?.is_none() {
            create(tables, partitions)?;
            tables.db.flush_wal(true)?;
        }
        Self::load(tables, path, partitions)
    }

    pub fn load(tables: &Tables, path: &Path, partitions: u16) -> Result<Self, StoreError> {
        Self::check(tables, path, partitions)?;
        let totals = totals(tables)?.ok_or_else(|| StoreError::corrupt("the totals"))?;
        Ok(Self { partitions, consumed_until: consumed_until(tables)?, totals })
    }

    /// Checks the layout version and the number of partitions.
    pub fn check(tables: &Tables, path: &Path, partitions: u16) -> Result<(), StoreError> {
        let read = |name: &[u8]| tables.db.get_cf(&tables.meta(), name);
        let layout = read(LAYOUT)?.ok_or_else(|| StoreError::NotAStore { path: path.into() })?;
        layout_version::require(path, &layout)?;
        let stored = read(PARTITIONS)?.unwrap_or_default();
        let found = stored.as_slice().try_into().map(u16::from_be_bytes).unwrap_or(0);
        if found == partitions {
            return Ok(());
        }
        Err(StoreError::WrongPartitions { path: path.into(), found, configured: partitions })
    }
}

/// The stored low watermark; `None` if it was never stored. It is never later than the clock of the machine that wrote
/// it. State expires by it, so a time in the future is refused.
///
/// # Errors
/// [`StoreError::Corrupt`] if it is not a valid time; [`StoreError::AheadOfClock`] if it is more than a day ahead of
/// this machine's clock.
pub fn consumed_until(tables: &Tables) -> Result<Option<EventTime>, StoreError> {
    let Some(stored) = tables.db.get_cf(&tables.meta(), CONSUMED_UNTIL)? else {
        return Ok(None);
    };
    let millis = stored.as_slice().try_into().map(i64::from_be_bytes).unwrap_or(-1);
    let until =
        EventTime::from_millis(millis).ok_or_else(|| StoreError::corrupt("the low watermark"))?;
    let now = now();
    if until > now.plus(CLOCK_OFF_MS) {
        let (until_ms, now_ms) = (until.millis(), now.millis());
        return Err(StoreError::AheadOfClock { until_ms, now_ms });
    }
    Ok(Some(until).filter(|until| *until > EventTime::default()))
}

/// The stored totals; `None` if they are damaged.
pub fn totals(tables: &Tables) -> Result<Option<Cell>, StoreError> {
    let totals = tables.db.get_cf(&tables.meta(), TOTALS)?;
    Ok(totals.map_or(Some(Cell::default()), |totals| Cell::decode(&totals)))
}

/// Writes the metadata of a new store.
pub fn create(tables: &Tables, partitions: u16) -> Result<(), StoreError> {
    let mut batch = WriteBatch::default();
    batch.put_cf(&tables.meta(), LAYOUT, LAYOUT_VERSION.to_be_bytes());
    batch.put_cf(&tables.meta(), PARTITIONS, partitions.to_be_bytes());
    Ok(tables.db.write(batch)?)
}

pub fn put_consumed_until(batch: &mut WriteBatch, tables: &Tables, until: EventTime) {
    batch.put_cf(&tables.meta(), CONSUMED_UNTIL, until.millis().to_be_bytes());
}

pub fn put_totals(batch: &mut WriteBatch, tables: &Tables, totals: &Cell) {
    batch.put_cf(&tables.meta(), TOTALS, totals.encode());
}

/// Marks the store as damaged until totals are put again: it does not open meanwhile, except for a repair.
pub fn invalidate_totals(batch: &mut WriteBatch, tables: &Tables) {
    batch.put_cf(&tables.meta(), TOTALS, b"");
}

/// Bytes of rows that retention has passed and no compaction has removed yet. A damaged value is harmless: space is
/// reclaimed later, or compacted once too often.
pub fn swept(tables: &Tables) -> Result<u64, StoreError> {
    let swept = tables.db.get_cf(&tables.meta(), SWEPT)?.unwrap_or_default();
    Ok(swept.as_slice().try_into().map(u64::from_be_bytes).unwrap_or(0))
}

pub fn put_swept(batch: &mut WriteBatch, tables: &Tables, bytes: u64) {
    batch.put_cf(&tables.meta(), SWEPT, bytes.to_be_bytes());
}

pub fn put_app(batch: &mut WriteBatch, tables: &Tables, pid: Pid, app: &App) {
    batch.put_cf(&tables.meta(), key::with_pid(APP, pid), app.encode());
}

pub fn delete_app(batch: &mut WriteBatch, tables: &Tables, pid: Pid) {
    batch.delete_cf(&tables.meta(), key::with_pid(APP, pid));
}

pub fn put_fingerprints(batch: &mut WriteBatch, tables: &Tables, position: &Position) {
    for (prefix, fingerprint) in [(KNOWN_RECORDS, position.known), (LAST_RECORDS, position.last)] {
        if let Some(fingerprint) = fingerprint {
            let name = [prefix, &key::position(position)].concat();
            batch.put_cf(&tables.meta(), name, key::fingerprint(fingerprint));
        }
    }
}

fn fingerprint(
    tables: &Tables,
    prefix: &[u8],
    position: &Position,
) -> Result<Option<RecordFingerprint>, StoreError> {
    let name = [prefix, &key::position(position)].concat();
    let Some(value) = tables.db.get_cf(&tables.meta(), name)? else { return Ok(None) };
    let fingerprint = key::decode_fingerprint(&value);
    fingerprint.map(Some).ok_or_else(|| StoreError::corrupt("the fingerprint of a record"))
}

pub fn names(tables: &Tables) -> Result<Names, StoreError> {
    tables.meta_entries(NAMED)?.iter().map(|(pid, key)| names::decode(pid, key)).collect()
}

/// Stores the names of apps that the store does not know yet.
pub fn put_names(tables: &Tables, policy: &Policy) -> Result<(), StoreError> {
    let mut batch = WriteBatch::default();
    for (pid, key) in names::check_app_ids(&names(tables)?, policy)? {
        put_name(&mut batch, tables, pid, key);
    }
    if batch.is_empty() { Ok(()) } else { Ok(tables.db.write(batch)?) }
}

pub fn put_name(batch: &mut WriteBatch, tables: &Tables, pid: Pid, key: &str) {
    batch.put_cf(&tables.meta(), key::with_pid(NAMED, pid), key);
}

/// All apps that the store has ever known.
///
/// # Errors
/// [`StoreError::Corrupt`] if the record of an app is invalid, or if rows are still counted that it says have expired.
pub fn apps(tables: &Tables, partitions: u16) -> Result<Apps, StoreError> {
    let (apps, now) = (Apps::default(), now());
    for (pid, value) in tables.meta_entries(APP)? {
        let damage = || StoreError::corrupt("the record of an app");
        let pid = key::decode_pid(&pid).ok_or_else(damage)?;
        let app = App::decode(&value).filter(|app| app.is_possible(partitions, now));
        let app = app.ok_or_else(damage)?;
        if !counted_before(tables, pid, &app, partitions)?.is_empty() {
            return Err(damage());
        }
        apps.put(pid, app);
    }
    Ok(apps)
}

/// For each partition, the first hourly count before the time up to which retention has removed the app's rows. An
/// intact store has none, as they are deleted in the batch that advances that time.
pub fn counted_before(
    tables: &Tables,
    pid: Pid,
    app: &App,
    partitions: u16,
) -> Result<Vec<CellKey>, StoreError> {
    let mut found = Vec::new();
    if app.oldest == EventTime::default() {
        return Ok(found);
    }
    for partition in app.partitions(partitions) {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(hourly_counts::cell_from(partition, pid, app.oldest));
        let first = hourly_counts::cell_from(partition, pid, EventTime::default());
        let from = IteratorMode::From(&first, Direction::Forward);
        for entry in tables.db.iterator_cf_opt(&tables.cells(), options, from) {
            let (key, value) = entry?;
            let has_rows = Cell::decode(&value).is_some_and(|cell| cell.rows() > 0);
            if let Some(key) = CellKey::try_from(&*key).ok().filter(|_| has_rows) {
                found.push(key);
                break;
            }
        }
    }
    Ok(found)
}

pub fn positions(tables: &Tables) -> Result<Vec<Position>, StoreError> {
    let mut positions = Vec::new();
    for entry in tables.db.iterator_cf(&tables.offsets(), IteratorMode::Start) {
        let (key, next_offset) = entry?;
        let position = key::decode_position(&key, &next_offset);
        let mut position = position.ok_or_else(|| StoreError::corrupt("a position"))?;
        position.known = fingerprint(tables, KNOWN_RECORDS, &position)?;
        position.last = fingerprint(tables, LAST_RECORDS, &position)?;
        positions.push(position);
    }
    Ok(positions)
}
