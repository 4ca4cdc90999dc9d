//! The tables of touches of an open store, which the writer and readers share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use rocksdb::{Direction, IteratorMode, Options, properties};

use super::filter::{FilterMemory, KeyFilter};
use super::record::{Day, Days, TOUCH_TABLE, TableRecord};
use crate::StoreError;
use crate::embedded::db::Db;
use crate::embedded::open::column_families::{CONTENTS, META, TOUCHES};

/// Touches for each day of a table with which days are worth tables of their own. A week of fewer has some 30 MiB of
/// index entries, so compactions have little to rewrite.
const BUSY_DAY_TOUCHES: u64 = 64 << 10;

/// A table of touches.
#[derive(Clone)]
pub struct TouchTable {
    pub number: u32,
    pub days: Days,
    /// The names of its column families.
    pub index: Arc<str>,
    pub contents: Arc<str>,
    pub filter: Arc<KeyFilter>,
}

/// All tables, newest first. Their days do not overlap.
pub type AllTables = Arc<[TouchTable]>;

/// The records of tables by their numbers.
pub type TableRecords = BTreeMap<u32, TableRecord>;

/// The tables of touches of a store.
pub struct TouchTables {
    all: RwLock<AllTables>,
    /// False for a store whose records cannot be read: each table may then have any day.
    are_days_known: bool,
    /// Locked while tables are created or dropped, and while a checkpoint is taken: the log in a checkpoint must not
    /// refer to a table that the checkpoint does not have.
    changes: Mutex<()>,
    /// The greatest number so far. Numbers are not reused while the store is open.
    last_number: AtomicU32,
    /// The options of a new index and of new contents. RocksDB refers to their compaction filters as long as it is
    /// open.
    options: [Options; 2],
    pub filter_memory: Arc<FilterMemory>,
}

/// The column families of all tables in a directory; none if it has no RocksDB.
pub fn names(path: &Path) -> Vec<String> {
    let mut names = Db::list_cf(&Options::default(), path).unwrap_or_default();
    names.retain(|name| number(name).is_some());
    names
}

/// The number of a table from the name of one of its column families.
fn number(name: &str) -> Option<u32> {
    let number = name.strip_prefix(TOUCHES)?.strip_prefix('-')?;
    number.strip_suffix(CONTENTS).unwrap_or(number).parse().ok()
}

/// The key of a table's record in `meta`.
pub fn record_name(number: u32) -> Vec<u8> {
    [TOUCH_TABLE, &number.to_be_bytes()].concat()
}

/// The stored records.
///
/// # Errors
/// [`StoreError::Corrupt`] if one is damaged.
pub fn records(db: &Db) -> Result<TableRecords, StoreError> {
    let mut records = TableRecords::new();
    let Some(meta) = db.cf_handle(META) else { return Ok(records) };
    for entry in db.iterator_cf(&meta, IteratorMode::From(TOUCH_TABLE, Direction::Forward)) {
        let (name, value) = entry?;
        let Some(number) = name.strip_prefix(TOUCH_TABLE) else { break };
        let damage = || StoreError::corrupt("the record of a table of touches");
        let number = number.try_into().map(u32::from_be_bytes).map_err(|_| damage())?;
        records.insert(number, TableRecord::decode(&value).ok_or_else(damage)?);
    }
    Ok(records)
}

/// The days of all tables.
///
/// # Errors
/// [`StoreError::Corrupt`] if a record is damaged, its table was not opened, or two tables have the same day.
pub fn stored_days(db: &Db) -> Result<BTreeMap<u32, Days>, StoreError> {
    let days: BTreeMap<u32, Days> =
        records(db)?.into_iter().map(|(number, record)| (number, record.days)).collect();
    if !days.keys().all(|number| is_open(db, *number)) {
        return Err(StoreError::corrupt("a table of touches is missing"));
    }
    let mut in_order: Vec<Days> = days.values().copied().collect();
    in_order.sort_unstable_by_key(|days| days.first);
    if in_order.windows(2).any(|pair| matches!(pair, [a, b] if a.overlap(*b))) {
        return Err(StoreError::corrupt("the days of the tables of touches"));
    }
    Ok(days)
}

/// About how many entries a column family has.
pub fn estimated_keys(db: &Db, name: &str) -> u64 {
    let estimate = db.cf_handle(name).and_then(|table| {
        db.property_int_value_cf(&table, properties::ESTIMATE_NUM_KEYS).ok().flatten()
    });
    estimate.unwrap_or(0)
}

/// True if both column families of a table are open.
fn is_open(db: &Db, number: u32) -> bool {
    let [index, contents] = names_of(number);
    db.cf_handle(&index).is_some() && db.cf_handle(&contents).is_some()
}

/// The names of the column families of a table: of its index and its contents.
fn names_of(number: u32) -> [String; 2] {
    let index = format!("{TOUCHES}-{number}");
    let contents = format!("{index}{CONTENTS}");
    [index, contents]
}

impl TouchTable {
    fn new(number: u32, days: Days, filter: KeyFilter) -> Self {
        let [index, contents] = names_of(number).map(Arc::from);
        Self { number, days, index, contents, filter: Arc::new(filter) }
    }
}

impl TouchTables {
    /// Tables with these days. Without filters until they are built, so every key may be in each of them.
    pub fn new(days: impl IntoIterator<Item = (u32, Days)>, options: [Options; 2]) -> Self {
        let tables = Self {
            all: RwLock::default(),
            are_days_known: true,
            changes: Mutex::new(()),
            last_number: AtomicU32::new(0),
            options,
            filter_memory: Arc::default(),
        };
        let all = days.into_iter().map(|(number, days)| tables.unfiltered(number, days)).collect();
        tables.replace_all(all);
        tables
    }

    /// All tables that were opened, for a store whose records cannot be read. Their days are unknown.
    pub fn of_names(db: &Db, names: &[String], options: [Options; 2]) -> Self {
        let mut numbers: BTreeSet<u32> = names.iter().filter_map(|name| number(name)).collect();
        numbers.retain(|number| is_open(db, *number));
        let days = Days { first: Day(0), last: Day(u32::MAX) };
        let tables = Self::new(numbers.into_iter().map(|number| (number, days)), options);
        Self { are_days_known: false, ..tables }
    }

    /// True if a scan can go from one table to the next; otherwise it has to search all at once.
    pub fn are_days_known(&self) -> bool {
        self.are_days_known
    }

    fn unfiltered(&self, number: u32, days: Days) -> TouchTable {
        TouchTable::new(number, days, KeyFilter::incomplete(&self.filter_memory, 0))
    }

    /// Drops column families without a record: their table was being created or dropped when the process ended.
    pub fn drop_unrecorded(&self, db: &Db, names: &[String]) -> Result<(), StoreError> {
        let all = self.all();
        let is_known = |name: &String| {
            all.iter().any(|table| *table.index == **name || *table.contents == **name)
        };
        for name in names.iter().filter(|name| !is_known(name)) {
            self.last_number.fetch_max(number(name).unwrap_or(0), Ordering::Relaxed);
            db.drop_cf(name)?;
        }
        Ok(())
    }

    pub fn all(&self) -> AllTables {
        Arc::clone(&self.all.read())
    }

    /// The names of all column families.
    pub fn all_names(&self) -> Vec<Arc<str>> {
        self.all().iter().flat_map(|table| [table.index.clone(), table.contents.clone()]).collect()
    }

    /// Prevents that tables are created or dropped.
    pub fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    /// True if a table has so many touches for each of its days that days are worth tables of their own.
    pub fn is_busy(&self, db: &Db) -> bool {
        self.all().iter().any(|table| {
            let needed = BUSY_DAY_TOUCHES * u64::from(table.days.count());
            estimated_keys(db, &table.contents) >= needed
        })
    }

    /// Creates a table for a day. It is part of the store once its record is written. The number of an attempt that
    /// fails is not used again, because one of its column families may exist.
    pub fn create(&self, db: &Db, day: Day) -> Result<TouchTable, rocksdb::Error> {
        let _changes = self.changes.lock();
        let number = self.last_number.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let filter = KeyFilter::of_new_table(&self.filter_memory, self.expected_keys());
        let table = TouchTable::new(number, Days::one(day), filter);
        let [index, contents] = &self.options;
        db.create_cf(&table.index, index)?;
        db.create_cf(&table.contents, contents)?;
        let others = self.all();
        self.replace_all(others.iter().cloned().chain([table.clone()]).collect());
        Ok(table)
    }

    /// About how many keys the table of a new day will have: a quarter more than the days of any table have. The newest
    /// table may have only the touches of clocks that are ahead.
    fn expected_keys(&self) -> usize {
        let per_day =
            |table: &TouchTable| table.filter.keys() / table.days.count() as usize / 4 * 5;
        self.all().iter().map(per_day).max().unwrap_or(0)
    }

    /// Drops tables. Their records must have been deleted, and the deletion synced. A table that cannot be dropped,
    /// for example because the disk is full, remains until the store is opened again, as after a crash.
    pub fn drop_tables(&self, db: &Db, numbers: &[u32]) {
        let _changes = self.changes.lock();
        let (dropped, kept): (Vec<_>, Vec<_>) =
            self.all().iter().cloned().partition(|table| numbers.contains(&table.number));
        self.replace_all(kept);
        for name in dropped.iter().flat_map(|table| [&table.index, &table.contents]) {
            if let Err(error) = db.drop_cf(name) {
                tracing::warn!(%error, table = &**name, "expired touches remain on disk until the next start");
            }
        }
    }

    /// Extends the days of a table.
    pub fn set_days(&self, number: u32, days: Days) {
        self.update(|table| {
            if table.number == number {
                table.days = days;
            }
        });
    }

    /// Gives all tables filters whose keys are added later. Returns them, newest first.
    pub fn start_filters(&self, keys: impl Fn(&TouchTable) -> usize) -> AllTables {
        self.update(|table| {
            table.filter = Arc::new(KeyFilter::incomplete(&self.filter_memory, keys(table)));
        });
        self.all()
    }

    fn update(&self, change: impl Fn(&mut TouchTable)) {
        let mut tables = self.all().to_vec();
        tables.iter_mut().for_each(change);
        self.replace_all(tables);
    }

    fn replace_all(&self, mut tables: Vec<TouchTable>) {
        tables.sort_unstable_by_key(|table| Reverse(table.days.first));
        let last = tables.iter().map(|table| table.number).max().unwrap_or(0);
        self.last_number.fetch_max(last, Ordering::Relaxed);
        *self.all.write() = tables.into();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::embedded::open::column_families::Limits;
    use crate::embedded::tables::Tables;
    use crate::embedded::touches::filter::KeyHash;
    use crate::layout::key::Key;

    fn on_disk() -> (Tables, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(&dir.path().join("store"), 64 << 20, &Limits::none()).unwrap();
        (tables, dir)
    }

    #[test]
    fn names_contain_the_number_of_the_table() {
        let table = TouchTable::new(
            70,
            Days::one(Day(1)),
            KeyFilter::incomplete(&Arc::<FilterMemory>::default(), 0),
        );
        assert_eq!((&*table.index, &*table.contents), ("touches-70", "touches-70-contents"));
        assert_eq!([number(&table.index), number(&table.contents)], [Some(70), Some(70)]);
        for other in ["touches", "touches-", "touches-x", "touches-1-other", "effects", "default"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn the_number_of_a_failed_attempt_is_not_used_again() {
        let (tables, _dir) = on_disk();
        tables.db.create_cf("touches-1", &Options::default()).unwrap();
        let create = || tables.touches.create(&tables.db, Day(1)).map(|table| table.number);
        assert!(create().is_err());
        assert_eq!(create(), Ok(2));
        let numbers: Vec<u32> = tables.touches.all().iter().map(|table| table.number).collect();
        assert_eq!(numbers, [2]);
    }

    #[test]
    fn a_new_table_has_room_for_the_keys_of_the_largest_day() {
        let (tables, _dir) = on_disk();
        let touches = &tables.touches;
        touches.filter_memory.set_max(1 << 20);
        assert_eq!(touches.expected_keys(), 0);
        let largest = touches.create(&tables.db, Day(20)).unwrap();
        for number in 0..100_000_u64 {
            let mut key = Key::default();
            key[..8].copy_from_slice(&number.to_be_bytes());
            largest.filter.add(KeyHash::of(&key));
        }
        // A day of clocks that are ahead, and one of long ago.
        for day in [21, 10] {
            touches.create(&tables.db, Day(day)).unwrap();
        }
        let expected = touches.expected_keys();
        assert!((120_000..=125_000).contains(&expected), "{expected}");
    }

    #[test]
    fn a_table_is_created_or_dropped_as_a_whole_while_changes_are_possible() {
        let (tables, _dir) = on_disk();
        let (touches, is_changing) = (&tables.touches, AtomicBool::new(true));
        // The numbers of tables of which only a part exists, or is listed.
        let partial = || {
            let _unchanged = touches.lock_changes();
            let listed: Vec<u32> = touches.all().iter().map(|table| table.number).collect();
            let exists = |number: &u32| {
                names_of(*number).iter().any(|name| tables.db.cf_handle(name).is_some())
            };
            (1..=10).filter(|number| exists(number) != listed.contains(number)).collect::<Vec<_>>()
        };
        let (changed, found) = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut found = Vec::new();
                while is_changing.load(Ordering::Relaxed) {
                    found.extend(partial());
                }
                found
            });
            let changed: Result<Vec<_>, _> =
                (1..=10).map(|day| touches.create(&tables.db, Day(day))).collect();
            touches.drop_tables(&tables.db, &[1, 2, 3, 4, 5]);
            is_changing.store(false, Ordering::Relaxed);
            (changed.map(|created| created.len()), watcher.join().unwrap())
        });
        assert_eq!(changed, Ok(10));
        assert_eq!(found, [0; 0]);
    }
}
