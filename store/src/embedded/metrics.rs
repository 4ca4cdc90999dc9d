//! Metrics of the storage engine, updated before each scrape.

use metrics::{Counter, Gauge, counter, gauge};

use super::stats::{Engine, Figures, TableFigures};

config::describe_metrics! {
    /// Store blocks found in the block cache.
    describe_counter CACHE_HITS = "adtrail_store_cache_hits_total";
    /// Store blocks read from files because they were not in the block cache.
    describe_counter CACHE_MISSES = "adtrail_store_cache_misses_total";
    /// Memory used by cached blocks and write buffers.
    describe_gauge CACHE = "adtrail_store_cache_bytes";
    /// Memory budget of the store (store.memory).
    describe_gauge CACHE_CAPACITY = "adtrail_store_cache_capacity_bytes";
    /// Bloom filter checks of files by lookups.
    describe_counter FILTER_CHECKS = "adtrail_store_filter_checks_total";
    /// Bloom filter checks that saved a read of the file.
    describe_counter FILTER_USEFUL = "adtrail_store_filter_useful_total";
    /// Bytes of committed keys and values.
    describe_counter WRITTEN = "adtrail_store_written_bytes_total";
    /// Bytes written to the write-ahead log.
    describe_counter WAL_WRITTEN = "adtrail_store_wal_written_bytes_total";
    /// Bytes written by flushes of write buffers.
    describe_counter FLUSH_WRITTEN = "adtrail_store_flush_written_bytes_total";
    /// Bytes read by compactions.
    describe_counter COMPACTION_READ = "adtrail_store_compaction_read_bytes_total";
    /// Bytes written by compactions.
    describe_counter COMPACTION_WRITTEN = "adtrail_store_compaction_written_bytes_total";
    /// Running compactions.
    describe_gauge COMPACTIONS = "adtrail_store_compactions_running";
    /// Running flushes of write buffers.
    describe_gauge FLUSHES = "adtrail_store_flushes_running";
    /// Size of the write-ahead log files.
    describe_gauge WAL = "adtrail_store_wal_bytes";
    /// 1 while commits are stopped until flushes or compactions have finished.
    describe_gauge STOPPED = "adtrail_store_writes_stopped";
    /// 1 while commits are slowed down so that flushes and compactions keep up.
    describe_gauge DELAYED = "adtrail_store_writes_delayed";
    /// 1 while commits wait for free disk space.
    describe_gauge DISK_FULL = "adtrail_store_disk_full";
    /// Time for which flushes and compactions have delayed commits, in whole seconds.
    describe_counter STALLED = "adtrail_store_stalled_seconds_total";
    /// Size of a table's write buffers.
    describe_gauge MEMTABLE = "adtrail_store_memtable_bytes";
    /// Size of a table's files.
    describe_gauge DISK = "adtrail_store_disk_bytes";
    /// Number of a table's files.
    describe_gauge FILES = "adtrail_store_files";
    /// Estimated bytes of a table that compactions must rewrite.
    describe_gauge PENDING = "adtrail_store_compaction_pending_bytes";
}

/// Selects the value of a metric.
type Figure = fn(&Figures) -> u64;

/// All metrics of the engine.
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
    /// Registers all metrics with the installed recorder and sets their present values.
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
                (gauge!(DISK_FULL), |figures| figures.is_disk_full.into()),
            ],
            tables: Engine::TABLES.map(TableMetrics::new),
        };
        metrics.observe();
        metrics
    }

    /// Updates all metrics; call before each scrape. They keep their values if the engine cannot be read.
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
