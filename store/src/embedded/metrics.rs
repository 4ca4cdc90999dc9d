//! The metrics of the engine, brought up to date before each scrape.

use metrics::{Counter, Gauge, counter, gauge};

use super::stats::{Engine, Figures, TableFigures};

/// Names with their help, which is the doc comment.
macro_rules! describe {
    ($($(#[doc = $help:literal])+ $kind:ident $constant:ident = $name:literal;)+) => {
        $($(#[doc = $help])+ const $constant: &str = $name;)+

        fn describe() {
            $(metrics::$kind!($name, concat!($($help),+).trim_start());)+
        }
    };
}

describe! {
    /// Blocks of the store that were found in its cache.
    describe_counter CACHE_HITS = "adtrail_store_cache_hits_total";
    /// Blocks of the store that had to be read from its files.
    describe_counter CACHE_MISSES = "adtrail_store_cache_misses_total";
    /// Memory that blocks and write buffers take of the store's budget.
    describe_gauge CACHE = "adtrail_store_cache_bytes";
    /// The store's budget, store.memory.
    describe_gauge CACHE_CAPACITY = "adtrail_store_cache_capacity_bytes";
    /// Files that a bloom filter was asked about before a look-up would read them.
    describe_counter FILTER_CHECKS = "adtrail_store_filter_checks_total";
    /// Files that a look-up need not read, as their bloom filter said.
    describe_counter FILTER_USEFUL = "adtrail_store_filter_useful_total";
    /// Bytes of keys and values committed.
    describe_counter WRITTEN = "adtrail_store_written_bytes_total";
    /// Bytes written to the log.
    describe_counter WAL_WRITTEN = "adtrail_store_wal_written_bytes_total";
    /// Bytes of files written from write buffers.
    describe_counter FLUSH_WRITTEN = "adtrail_store_flush_written_bytes_total";
    /// Bytes of files read by compactions.
    describe_counter COMPACTION_READ = "adtrail_store_compaction_read_bytes_total";
    /// Bytes of files written by compactions.
    describe_counter COMPACTION_WRITTEN = "adtrail_store_compaction_written_bytes_total";
    /// Compactions that run.
    describe_gauge COMPACTIONS = "adtrail_store_compactions_running";
    /// Flushes of write buffers that run.
    describe_gauge FLUSHES = "adtrail_store_flushes_running";
    /// Bytes of the log's files.
    describe_gauge WAL = "adtrail_store_wal_bytes";
    /// 1 while commits wait for flushes or compactions to end.
    describe_gauge STOPPED = "adtrail_store_writes_stopped";
    /// 1 while commits are slowed down so that flushes and compactions keep up.
    describe_gauge DELAYED = "adtrail_store_writes_delayed";
    /// 1 while commits wait for room on the disk.
    describe_gauge OUT_OF_ROOM = "adtrail_store_disk_full";
    /// Time that commits have waited for flushes and compactions, in whole seconds.
    describe_counter STALLED = "adtrail_store_stalled_seconds_total";
    /// Bytes of a table's write buffers.
    describe_gauge MEMTABLE = "adtrail_store_memtable_bytes";
    /// Bytes of a table's files.
    describe_gauge DISK = "adtrail_store_disk_bytes";
    /// A table's files.
    describe_gauge FILES = "adtrail_store_files";
    /// Bytes of a table that compactions are about to rewrite.
    describe_gauge PENDING = "adtrail_store_compaction_pending_bytes";
}

/// What a metric shows.
type Figure = fn(&Figures) -> u64;

/// All metrics of the engine, and where they come from.
pub struct EngineMetrics {
    engine: Engine,
    counters: [(Counter, Figure); 10],
    gauges: [(Gauge, Figure); 8],
    tables: [TableMetrics; Engine::TABLES.len()],
}

struct TableMetrics {
    memtable: Gauge,
    disk: Gauge,
    files: Gauge,
    pending: Gauge,
}

impl EngineMetrics {
    /// Registers everything with the recorder that is installed, as it is now.
    pub fn new(engine: Engine) -> Self {
        describe();
        let metrics = Self {
            engine,
            counters: [
                (counter!(CACHE_HITS), |figures| figures.cache_hits),
                (counter!(CACHE_MISSES), |figures| figures.cache_misses),
                (counter!(FILTER_CHECKS), |figures| figures.filter_checks),
                (counter!(FILTER_USEFUL), |figures| figures.filter_useful),
                (counter!(WRITTEN), |figures| figures.written_bytes),
                (counter!(WAL_WRITTEN), |figures| figures.wal_written_bytes),
                (counter!(FLUSH_WRITTEN), |figures| figures.flush_written_bytes),
                (counter!(COMPACTION_READ), |figures| figures.compaction_read_bytes),
                (counter!(COMPACTION_WRITTEN), |figures| figures.compaction_written_bytes),
                (counter!(STALLED), |figures| figures.stalled_micros / 1_000_000),
            ],
            gauges: [
                (gauge!(CACHE), |figures| figures.cache_bytes),
                (gauge!(CACHE_CAPACITY), |figures| figures.cache_capacity_bytes),
                (gauge!(COMPACTIONS), |figures| figures.compactions_running),
                (gauge!(FLUSHES), |figures| figures.flushes_running),
                (gauge!(WAL), |figures| figures.wal_bytes),
                (gauge!(STOPPED), |figures| figures.is_stopped.into()),
                (gauge!(DELAYED), |figures| figures.is_delayed.into()),
                (gauge!(OUT_OF_ROOM), |figures| figures.is_out_of_room.into()),
            ],
            tables: Engine::TABLES.map(TableMetrics::new),
        };
        metrics.observe();
        metrics
    }

    /// Before each scrape. What the engine can not say stays as it was.
    pub fn observe(&self) {
        let Ok(figures) = self.engine.figures() else { return };
        for (counter, figure) in &self.counters {
            counter.absolute(figure(&figures));
        }
        for (gauge, figure) in &self.gauges {
            gauge.set(figure(&figures) as f64);
        }
        for (metrics, figures) in self.tables.iter().zip(&figures.tables) {
            metrics.set(figures);
        }
    }
}

impl TableMetrics {
    fn new(table: &'static str) -> Self {
        Self {
            memtable: gauge!(MEMTABLE, "table" => table),
            disk: gauge!(DISK, "table" => table),
            files: gauge!(FILES, "table" => table),
            pending: gauge!(PENDING, "table" => table),
        }
    }

    fn set(&self, figures: &TableFigures) {
        self.memtable.set(figures.memtable_bytes as f64);
        self.disk.set(figures.disk_bytes as f64);
        self.files.set(figures.files as f64);
        self.pending.set(figures.compaction_pending_bytes as f64);
    }
}
