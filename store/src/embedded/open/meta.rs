//! What a store says of itself.

use std::path::Path;

use attribution::facts::event::{EventTime, Pid};
use attribution::ledger::{Position, RecordFingerprint};
use attribution::rules::policy::Policy;
use rocksdb::{ReadOptions, WriteBatch};

use super::layout_version::{self, LAYOUT, LAYOUT_VERSION};
use crate::StoreError;
use crate::apps::names::{self, Names};
use crate::apps::spread::{App, Apps, CLOCK_OFF_MS};
use crate::clock::now;
use crate::embedded::tables::Tables;
use crate::layout::hourly_counts::{self, Cell, CellKey};
use crate::layout::key;

const PARTITIONS: &[u8] = b"partitions";
pub const CONSUMED_UNTIL: &[u8] = b"consumed_until";
const TOTALS: &[u8] = b"totals";
const SWEPT: &[u8] = b"swept";
pub const APP: &[u8] = b"app/";
/// Then the pid: the app's key.
pub const NAMED: &[u8] = b"named/";
pub const REGION: &[u8] = b"region/";
/// Then the key of the position.
pub const MARKS: &[u8] = b"last_read/";
/// As [`MARKS`], of the very last record.
pub const LAST_MARKS: &[u8] = b"newest_read/";

/// Fixed when the store was created, or counted since.
pub struct Meta {
    pub partitions: u16,
    /// 1970 if nobody has said yet.
    pub consumed_until: EventTime,
    /// The sum of all cells.
    pub totals: Cell,
}

impl Meta {
    /// Of a store that there is, or of one that is made now.
    pub fn load_or_create(
        tables: &Tables,
        path: &Path,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        if tables.db.get_cf(tables.meta(), LAYOUT)?.is_none() {
            create(tables, partitions)?;
            tables.db.flush_wal(true)?;
        }
        Self::load(tables, path, partitions)
    }

    pub fn load(tables: &Tables, path: &Path, partitions: u16) -> Result<Self, StoreError> {
        let mut meta = Self::load_uncounted(tables, path, partitions)?;
        meta.totals = totals(tables)?.ok_or_else(|| StoreError::corrupt("the counts"))?;
        meta.consumed_until = consumed_until(tables)?;
        Ok(meta)
    }

    /// Without the totals, which can be counted again, and the time up to which all is consumed.
    pub fn load_uncounted(
        tables: &Tables,
        path: &Path,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        let read = |name: &[u8]| tables.db.get_cf(tables.meta(), name);
        let layout = read(LAYOUT)?.ok_or_else(|| StoreError::NotAStore { path: path.into() })?;
        layout_version::require(path, &layout)?;
        let stored = read(PARTITIONS)?.unwrap_or_default();
        let found = stored.as_slice().try_into().map(u16::from_be_bytes).unwrap_or(0);
        if found != partitions {
            return Err(StoreError::WrongPartitions {
                path: path.into(),
                found,
                configured: partitions,
            });
        }
        let consumed_until = EventTime::default();
        Ok(Self { partitions, consumed_until, totals: Cell::default() })
    }
}

impl Meta {
    /// `None` if nobody has said yet.
    pub fn consumed(&self) -> Option<EventTime> {
        Some(self.consumed_until).filter(|until| *until > EventTime::default())
    }
}

/// 1970 if nobody has said yet. It is never later than the clock of the machine that it was kept
/// on, and state expires by it: one that is later than that is not acted upon.
///
/// # Errors
/// [`StoreError::Corrupt`] where it is no time; [`StoreError::AheadOfClock`] where it can not be true by
/// this machine's clock.
pub fn consumed_until(tables: &Tables) -> Result<EventTime, StoreError> {
    let Some(stored) = tables.db.get_cf(tables.meta(), CONSUMED_UNTIL)? else {
        return Ok(EventTime::default());
    };
    let millis = stored.as_slice().try_into().map(i64::from_be_bytes).unwrap_or(-1);
    let until = EventTime::from_millis(millis)
        .ok_or_else(|| StoreError::corrupt("the time up to which all is consumed"))?;
    let now = now();
    if until > now.plus(CLOCK_OFF_MS) {
        let (until_ms, now_ms) = (until.millis(), now.millis());
        return Err(StoreError::AheadOfClock { until_ms, now_ms });
    }
    Ok(until)
}

/// What is kept of them; `None` if that is no count.
pub fn totals(tables: &Tables) -> Result<Option<Cell>, StoreError> {
    let totals = tables.db.get_cf(tables.meta(), TOTALS)?;
    Ok(totals.map_or(Some(Cell::default()), |totals| Cell::decode(&totals)))
}

/// Makes empty tables a store.
pub fn create(tables: &Tables, partitions: u16) -> Result<(), StoreError> {
    let mut batch = WriteBatch::default();
    batch.put_cf(tables.meta(), LAYOUT, LAYOUT_VERSION.to_be_bytes());
    batch.put_cf(tables.meta(), PARTITIONS, partitions.to_be_bytes());
    Ok(tables.db.write(batch)?)
}

pub fn put_consumed_until(batch: &mut WriteBatch, tables: &Tables, until: EventTime) {
    batch.put_cf(tables.meta(), CONSUMED_UNTIL, until.millis().to_be_bytes());
}

pub fn put_totals(batch: &mut WriteBatch, tables: &Tables, totals: &Cell) {
    batch.put_cf(tables.meta(), TOTALS, totals.encode());
}

/// Until totals are put again the store is damaged: it does not open, and only a repair goes on.
pub fn invalidate_totals(batch: &mut WriteBatch, tables: &Tables) {
    batch.put_cf(tables.meta(), TOTALS, b"");
}

/// Bytes of rows that retention has taken away and no compaction has left out yet. Where it is
/// damaged space comes back later, or is looked for once too often.
pub fn swept(tables: &Tables) -> Result<u64, StoreError> {
    let swept = tables.db.get_cf(tables.meta(), SWEPT)?.unwrap_or_default();
    Ok(swept.as_slice().try_into().map(u64::from_be_bytes).unwrap_or(0))
}

pub fn put_swept(batch: &mut WriteBatch, tables: &Tables, bytes: u64) {
    batch.put_cf(tables.meta(), SWEPT, bytes.to_be_bytes());
}

pub fn put_app(batch: &mut WriteBatch, tables: &Tables, pid: Pid, app: &App) {
    batch.put_cf(tables.meta(), [APP, &pid.0.to_be_bytes()].concat(), app.encode());
}

pub fn delete_app(batch: &mut WriteBatch, tables: &Tables, pid: Pid) {
    batch.delete_cf(tables.meta(), [APP, &pid.0.to_be_bytes()].concat());
}

pub fn put_marks(batch: &mut WriteBatch, tables: &Tables, position: &Position) {
    for (prefix, mark) in [(MARKS, position.mark), (LAST_MARKS, position.last)] {
        if let Some(mark) = mark {
            let name = [prefix, &key::position(position)].concat();
            batch.put_cf(tables.meta(), name, key::mark(mark));
        }
    }
}

/// Notes at a position what is kept of its partition.
pub fn take_marks(tables: &Tables, position: &mut Position) -> Result<(), StoreError> {
    position.mark = mark(tables, MARKS, position)?;
    position.last = mark(tables, LAST_MARKS, position)?;
    Ok(())
}

fn mark(
    tables: &Tables,
    prefix: &[u8],
    position: &Position,
) -> Result<Option<RecordFingerprint>, StoreError> {
    let name = [prefix, &key::position(position)].concat();
    let Some(value) = tables.db.get_cf(tables.meta(), name)? else { return Ok(None) };
    let mark = key::decode_mark(&value);
    mark.map(Some).ok_or_else(|| StoreError::corrupt("a record that was read"))
}

pub fn names(tables: &Tables) -> Result<Names, StoreError> {
    tables.named(NAMED)?.iter().map(|(pid, key)| names::decode(pid, key)).collect()
}

/// Notes the apps that the store has not had.
pub fn put_names(tables: &Tables, policy: &Policy) -> Result<(), StoreError> {
    let mut batch = WriteBatch::default();
    for (pid, key) in names::require(&names(tables)?, policy)? {
        put_name(&mut batch, tables, pid, key);
    }
    if batch.is_empty() { Ok(()) } else { Ok(tables.db.write(batch)?) }
}

pub fn put_name(batch: &mut WriteBatch, tables: &Tables, pid: Pid, key: &str) {
    batch.put_cf(tables.meta(), [NAMED, &pid.0.to_be_bytes()].concat(), key);
}

/// All apps that the store has ever known.
///
/// # Errors
/// [`StoreError::Corrupt`] where what is kept of one can not be true.
pub fn apps(tables: &Tables, partitions: u16) -> Result<Apps, StoreError> {
    let (apps, now) = (Apps::default(), now());
    for (pid, value) in tables.named(APP)? {
        let damage = || StoreError::corrupt("what is kept of an app");
        let pid = pid.as_slice().try_into().map(u32::from_be_bytes).map_err(|_| damage())?;
        let app = App::decode(&value).filter(|app| app.is_possible(partitions, now));
        let app = app.ok_or_else(damage)?;
        if !counted_before(tables, (Pid(pid), &app), partitions)?.is_empty() {
            return Err(damage());
        }
        apps.put(Pid(pid), app);
    }
    Ok(apps)
}

/// Cells of rows that an app says have gone, the first of each partition: none, as they are
/// deleted with what says so.
pub fn counted_before(
    tables: &Tables,
    (pid, app): (Pid, &App),
    partitions: u16,
) -> Result<Vec<CellKey>, StoreError> {
    let mut found = Vec::new();
    if app.oldest == EventTime::default() {
        return Ok(found);
    }
    for partition in app.partitions(partitions) {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(hourly_counts::cell_from(partition, pid, app.oldest));
        let mut cells = tables.db.raw_iterator_cf_opt(tables.cells(), options);
        cells.seek(hourly_counts::cell_from(partition, pid, EventTime::default()));
        while let (Some(key), Some(value)) = (cells.key(), cells.value()) {
            let has_rows = Cell::decode(value).is_some_and(|cell| cell.rows() > 0);
            if let Some(key) = CellKey::try_from(key).ok().filter(|_| has_rows) {
                found.push(key);
                break;
            }
            cells.next();
        }
        cells.status()?;
    }
    Ok(found)
}

pub fn positions(tables: &Tables) -> Result<Vec<Position>, StoreError> {
    let mut positions = Vec::new();
    let mut entries = tables.db.raw_iterator_cf(tables.offsets());
    entries.seek_to_first();
    while let (Some(key), Some(value)) = (entries.key(), entries.value()) {
        let position = key::decode_position(key, value);
        let mut position = position.ok_or_else(|| StoreError::corrupt("a position"))?;
        take_marks(tables, &mut position)?;
        positions.push(position);
        entries.next();
    }
    entries.status()?;
    Ok(positions)
}
