//! Metrics of the storage engine, updated before each scrape.

use metrics::{Counter, Gauge, counter, gauge};

use super::stats::{Engine, EngineStats, TableStats};

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
    /// Free space on the disk of store.path.
    describe_gauge DISK_FREE = "adtrail_store_disk_free_bytes";
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
type Value<S> = fn(&S) -> u64;

/// All metrics of the engine.
pub struct EngineMetrics {
    engine: Engine,
    counters: [(Counter, Value<EngineStats>); 10],
    gauges: [(Gauge, Value<EngineStats>); 9],
    tables: [[(Gauge, Value<TableStats>); 4]; Engine::TABLES.len()],
}

impl EngineMetrics {
    /// Registers all metrics with the installed recorder and sets their present values.
    pub fn new(engine: Engine) -> Self {
        describe();
        let metrics = Self {
            engine,
            counters: [
                (counter!(CACHE_HITS), |stats| stats.cache_hits),
                (counter!(CACHE_MISSES), |stats| stats.cache_misses),
                (counter!(FILTER_CHECKS), |stats| stats.filter_checks),
                (counter!(FILTER_USEFUL), |stats| stats.filter_useful),
                (counter!(WRITTEN), |stats| stats.written_bytes),
                (counter!(WAL_WRITTEN), |stats| stats.wal_written_bytes),
                (counter!(FLUSH_WRITTEN), |stats| stats.flush_written_bytes),
                (counter!(COMPACTION_READ), |stats| stats.compaction_read_bytes),
                (counter!(COMPACTION_WRITTEN), |stats| stats.compaction_written_bytes),
                (counter!(STALLED), |stats| stats.stalled_micros / 1_000_000),
            ],
            gauges: [
                (gauge!(CACHE), |stats| stats.cache_bytes),
                (gauge!(CACHE_CAPACITY), |stats| stats.cache_capacity_bytes),
                (gauge!(COMPACTIONS), |stats| stats.compactions_running),
                (gauge!(FLUSHES), |stats| stats.flushes_running),
                (gauge!(WAL), |stats| stats.wal_bytes),
                (gauge!(STOPPED), |stats| stats.is_stopped.into()),
                (gauge!(DELAYED), |stats| stats.is_delayed.into()),
                (gauge!(DISK_FULL), |stats| stats.is_disk_full.into()),
                (gauge!(DISK_FREE), |stats| stats.disk_free_bytes),
            ],
            tables: Engine::TABLES.map(table_gauges),
        };
        metrics.observe();
        metrics
    }

    /// Updates all metrics; call before each scrape. They keep their values if the engine cannot be read.
    pub fn observe(&self) {
        let Ok(stats) = self.engine.stats() else { return };
        for (counter, value) in &self.counters {
            counter.absolute(value(&stats));
        }
        for (gauge, value) in &self.gauges {
            gauge.set(value(&stats) as f64);
        }
        for (gauges, stats) in self.tables.iter().zip(&stats.tables) {
            gauges.iter().for_each(|(gauge, value)| gauge.set(value(stats) as f64));
        }
    }
}

fn table_gauges(table: &'static str) -> [(Gauge, Value<TableStats>); 4] {
    [
        (gauge!(MEMTABLE, "table" => table), |stats| stats.memtable_bytes),
        (gauge!(DISK, "table" => table), |stats| stats.disk_bytes),
        (gauge!(FILES, "table" => table), |stats| stats.files),
        (gauge!(PENDING, "table" => table), |stats| stats.compaction_pending_bytes),
    ]
}
