//! RocksDB alone, with the options of a store.

use std::path::Path;
use std::time::Duration;

use rocksdb::statistics::StatsLevel;
use rocksdb::{Cache, DB, Env, Options, WriteBatch, WriteBufferManager, properties};

use crate::timed::{Commit, TimeSpent};

const ROWS: &str = "events";
/// The tables of activations and effects.
const FACTS: [&str; 2] = ["activations", "effects"];

pub struct BareDb {
    db: DB,
    kind: Kind,
    pub writing: TimeSpent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Writes rows only.
    Rows,
    /// Writes rows only, with statistics enabled.
    Counting,
    /// Writes everything that the store commits.
    Whole,
}

impl BareDb {
    /// Opens a database with the options of the store at `store`, except for those that its options file does not
    /// contain: the cache, the write buffer manager, compaction filters and statistics.
    pub fn open(path: &Path, store: &Path, memory_bytes: u64, kind: Kind) -> Self {
        let cache = Cache::new_lru_cache(memory_bytes as usize);
        let env = Env::new().expect("the environment is created");
        let (mut engine, tables) = Options::load_latest(store, env, true, cache.clone())
            .expect("the options file is readable");
        engine.create_if_missing(true);
        engine.create_missing_column_families(true);
        engine.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
            memory_bytes as usize / 2,
            false,
            cache,
        ));
        if kind != Kind::Rows {
            engine.enable_statistics();
            engine.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        }
        let db = DB::open_cf_descriptors(&engine, path, tables).expect("RocksDB opens");
        Self { db, kind, writing: TimeSpent::default() }
    }

    /// Writes each commit as one batch.
    pub fn write(&mut self, commits: &[Commit]) {
        let table = |name| self.db.cf_handle(name).expect("the table exists");
        let (rows, facts) = (table(ROWS), FACTS.map(table));
        for commit in commits {
            self.writing.time(|| {
                let mut batch = WriteBatch::default();
                for (key, value) in &commit.rows {
                    batch.put_cf(rows, key, value);
                }
                // Touches come first, and there are none.
                let families = facts.iter().zip(&commit.facts[1..]);
                for (table, entries) in families.filter(|_| self.kind == Kind::Whole) {
                    for (key, value) in entries {
                        batch.put_cf(table, key, value);
                    }
                }
                self.db.write(batch).expect("the write succeeds");
            });
        }
    }

    /// Waits until flushes and compactions have finished.
    pub fn settle(&self) {
        let busy = [
            properties::NUM_RUNNING_COMPACTIONS,
            properties::NUM_RUNNING_FLUSHES,
            properties::ESTIMATE_PENDING_COMPACTION_BYTES,
        ];
        let is_busy = |table: &str| {
            let table = self.db.cf_handle(table).expect("the table exists");
            let mut figures = busy.iter().map(|name| self.db.property_int_value_cf(table, *name));
            figures.any(|figure| figure.expect("RocksDB knows the property") != Some(0))
        };
        std::thread::sleep(Duration::from_millis(300));
        while is_busy(ROWS) || FACTS.into_iter().any(is_busy) {
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}
