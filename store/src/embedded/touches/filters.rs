//! Builds the filters of all tables when a store is opened, in a thread of its own. Until the filter of a table is
//! complete, every search of its days asks the table. Activations have a filter too: each touch searches for
//! activations that it could change, and nearly always there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rocksdb::ReadOptions;

use super::filter::{KeyFilter, KeyHash};
use super::tables::{AllTables, TouchTable, TouchTables, estimated_keys};
use crate::embedded::db::Db;
use crate::embedded::open::column_families::ACTIVATIONS;
use crate::layout::key::Key;

/// Keys between two checks whether to stop.
const KEYS_PER_CHECK: usize = 4_096;
const READ_AHEAD_BYTES: usize = 1 << 20;

/// The thread that builds the filters. It ends when this is dropped, which must be before the options of the tables
/// are: RocksDB refers to them as long as the thread has it open.
pub struct FilterBuilder {
    /// The filter of all activations, which are in one table.
    pub activations: Arc<KeyFilter>,
    is_cancelled: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FilterBuilder {
    /// Starts building. Must be called before the first fact is written: keys that are written later are added by the
    /// writer. If no thread can be started, the tables remain without filters.
    pub fn start(db: &Arc<Db>, tables: &TouchTables, bytes_max: usize) -> Self {
        let keys = |table: &str| usize::try_from(estimated_keys(db, table)).unwrap_or(0);
        tables.filter_memory.set_max(bytes_max);
        // Each touch searches for activations, so their filter gets its memory first.
        let activations = KeyFilter::incomplete(&tables.filter_memory, keys(ACTIVATIONS));
        let activations = Arc::new(activations);
        let all = tables.start_filters(|table: &TouchTable| keys(&table.index));
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let db = Arc::clone(db);
        let (cancelled, filter) = (Arc::clone(&is_cancelled), Arc::clone(&activations));
        let thread = std::thread::Builder::new().name("adtrail-filters".into());
        let thread = thread.spawn(move || build_all(&db, &filter, &all, &cancelled)).ok();
        Self { activations, is_cancelled, thread }
    }

    /// Waits until the filters are built.
    pub fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread has no result, and a panic has already been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for FilterBuilder {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.wait();
    }
}

fn build_all(db: &Db, activations: &KeyFilter, all: &AllTables, is_cancelled: &AtomicBool) {
    build(db, ACTIVATIONS, activations, is_cancelled);
    for table in all.iter() {
        if is_cancelled.load(Ordering::Relaxed) {
            return;
        }
        build(db, &table.index, &table.filter, is_cancelled);
    }
}

/// Adds all stored keys of a table. After an error of the engine the filter stays incomplete; searches report it.
fn build(db: &Db, table: &str, filter: &KeyFilter, is_cancelled: &AtomicBool) {
    let Some(index) = db.cf_handle(table) else { return };
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options.fill_cache(false);
    options.set_readahead_size(READ_AHEAD_BYTES);
    let mut entries = db.raw_iterator_cf_opt(&index, options);
    entries.seek_to_first();
    let mut count = 0_usize;
    while let Some(key) = entries.key() {
        if let Ok(key) = Key::try_from(key) {
            filter.add(KeyHash::of(&key));
        }
        count += 1;
        if count.is_multiple_of(KEYS_PER_CHECK) && is_cancelled.load(Ordering::Relaxed) {
            return;
        }
        entries.next();
    }
    if entries.status().is_ok() {
        filter.complete();
    }
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::{EventTime, Family};
    use attribution::facts::keys::MatchKey;
    use attribution::ledger::index::{IndexEntry, Scan};
    use attribution::ledger::record::Lookup;
    use attribution::ledger::{FactWrite, Facts, Ledger, Progress};

    use super::*;
    use crate::embedded::Embedded;
    use crate::embedded::fixtures::{deferring, touch};
    use crate::embedded::open::column_families::Limits;
    use crate::embedded::tables::Tables;
    use crate::embedded::touches::record::Day;
    use crate::layout::key;

    #[test]
    fn activations_get_memory_before_touches() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(&dir.path().join("store"), 64 << 20, &Limits::none()).unwrap();
        tables.touches.create(&tables.db, Day(1)).unwrap();
        // Enough for one of the smallest filters.
        let mut filters = FilterBuilder::start(&tables.db, &tables.touches, 100_000);
        filters.wait();
        let hash = KeyHash::of(&Key::default());
        assert!(!filters.activations.view().may_contain(hash), "no memory");
        let all = tables.touches.all();
        assert!(all.iter().all(|table| table.filter.view().may_contain(hash)));
    }

    fn commit(store: &mut Embedded, facts: Vec<FactWrite>) {
        store.record(facts).unwrap();
        store.commit(Vec::new(), &Progress::default()).unwrap();
        store.wait_for_commit().unwrap();
    }

    /// Checks that a touch is found in each way.
    fn check_found(store: &mut Embedded, touch: &FactWrite, found_by: MatchKey) {
        let FactWrite { key, record, .. } = touch;
        assert_eq!(store.lookup(&[*key]).unwrap(), [Lookup::Found(record.clone())]);
        assert_eq!(store.records(&[*key]).unwrap(), [Some(record.clone())]);
        let scan = Scan {
            family: Family::Touch,
            key: found_by,
            pid: key.pid,
            oldest: EventTime::default(),
            newest: EventTime::MAX,
            after: None,
            limit: 2,
        };
        let entry = IndexEntry { time: record.time(), fact: *key };
        assert_eq!(store.scan(&[scan]).unwrap(), [[entry]]);
    }

    /// The thread is replaced by calls of its function, so it is known when filters are incomplete.
    #[test]
    fn touches_are_found_while_filters_are_incomplete_and_afterwards() {
        let (mut store, _dir) = deferring();
        store.wait_for_filters();
        let keys = [MatchKey(1), MatchKey(2)];
        let touches = [touch("stored", keys[0]), touch("meanwhile", keys[1])];
        let [stored, meanwhile] = touches.clone();
        commit(&mut store, vec![stored]);
        let all = store.tables.touches.start_filters(|_| 0);
        commit(&mut store, vec![meanwhile]);
        let unknown = KeyHash::of(&key::record(&touch("unknown", keys[0]).key));
        for is_complete in [false, true] {
            let is_unknown = |table: &TouchTable| !table.filter.view().may_contain(unknown);
            assert!(all.iter().all(|table| is_unknown(table) == is_complete));
            for (touch, found_by) in touches.iter().zip(keys) {
                check_found(&mut store, touch, found_by);
            }
            // Lets look-ups forget where the touches are stored.
            commit(&mut store, Vec::new());
            for table in all.iter() {
                build(&store.tables.db, &table.index, &table.filter, &AtomicBool::new(false));
            }
        }
    }
}
