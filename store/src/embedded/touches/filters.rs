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
    use super::*;
    use crate::embedded::open::column_families::Limits;
    use crate::embedded::tables::Tables;
    use crate::embedded::touches::record::Day;

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
}
