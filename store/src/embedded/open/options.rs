//! How RocksDB is set up.

use attribution::facts::event::Family;
use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, CompactionDecision, DBCompressionType, DBRecoveryMode, Options,
    SliceTransform, WriteBufferManager,
};

use super::memory_budget::Budget;
use crate::embedded::write::compaction_filter::is_expired;
use crate::expiry::Expiry;
use crate::expiry::retention::Retention;
use crate::layout::campaign_index::CreditedActivation;
use crate::layout::hourly_counts;
use crate::layout::key::{FACT_PREFIX_BYTES, RowKey};
use crate::layout::summary_counts::{self, SummaryKey, Totals};

/// Options of the engine that writes. Its write buffers are charged to the cache.
pub fn engine(budget: &Budget, cache: &Cache) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // A writer that waited would not be faster: the flush it waits for has begun.
    let may_wait = false;
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        budget.write_buffers_bytes,
        may_wait,
        cache.clone(),
    ));
    options.set_max_total_wal_size(budget.wal_bytes_max);
    options.set_max_background_jobs(budget.jobs);
    options.set_max_subcompactions(budget.subcompactions);
    options.set_compaction_readahead_size(budget.compaction_read_bytes);
    // The cheapest level that counts; this binding has no name for the one without histograms.
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    options.set_keep_log_file_num(4);
    options.set_max_open_files(-1);
    options
}

/// Options of an engine that reads beside the one that writes. All files are opened at once, as
/// the writer may delete them at any time after.
///
/// Its log may end within a record, as that of a process that writes or was killed; damage before
/// its end is an error here. Who writes goes on from there: its positions are from before the
/// damage too, and Kafka has what comes after.
pub fn reading_engine() -> Options {
    let mut options = Options::default();
    options.set_max_open_files(-1);
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options
}

/// Options of the tables of facts: looked up by whole key or by prefix.
pub fn facts(budget: &Budget, cache: &Cache, family: Family, expiry: &Expiry) -> Options {
    let mut options = table(budget, cache, 8 * 1024);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(FACT_PREFIX_BYTES));
    options.set_memtable_prefix_bloom_ratio(0.1);
    options.set_memtable_whole_key_filtering(false);
    let expiry = expiry.clone();
    options.set_compaction_filter("expiry", move |_, key, value| {
        if is_expired(&expiry, family, key, value) {
            CompactionDecision::Remove
        } else {
            CompactionDecision::Keep
        }
    });
    options
}

/// Options of the table of rows: scanned in key order.
pub fn events(budget: &Budget, cache: &Cache, retention: &Retention) -> Options {
    let mut options = table(budget, cache, 32 * 1024);
    let retention = retention.clone();
    options.set_compaction_filter("retention", move |_, key, _| match RowKey::decode(key) {
        Some(key) if key.event_time < retention.oldest(key.pid) => CompactionDecision::Remove,
        _ => CompactionDecision::Keep,
    });
    options
}

/// Options of the table of counts: scanned in key order. What adds up to nothing goes too.
pub fn counts(budget: &Budget, cache: &Cache, retention: &Retention) -> Options {
    let mut options = table(budget, cache, 16 * 1024);
    options.set_merge_operator_associative("add", summary_counts::merge);
    let retention = retention.clone();
    options.set_compaction_filter("retention", move |_, key, value| {
        let is_gone = |counted: SummaryKey<'_>| counted.time < retention.oldest(counted.pid);
        let is_nothing = || Totals::decode(value).is_some_and(|count| count.is_zero());
        match SummaryKey::decode(key) {
            Some(counted) if is_gone(counted) || is_nothing() => CompactionDecision::Remove,
            _ => CompactionDecision::Keep,
        }
    });
    options
}

/// Options of the table of what campaigns brought: scanned in key order.
pub fn brought(budget: &Budget, cache: &Cache, retention: &Retention) -> Options {
    let mut options = table(budget, cache, 16 * 1024);
    let retention = retention.clone();
    options.set_compaction_filter("retention", move |_, key, _| {
        match CreditedActivation::decode(key) {
            Some(one) if one.event_time < retention.oldest(one.pid) => CompactionDecision::Remove,
            _ => CompactionDecision::Keep,
        }
    });
    options
}

/// Options of the small tables: positions, meta.
pub fn small() -> Options {
    Options::default()
}

/// Options of the table of figures by hour.
pub fn cells() -> Options {
    let mut options = Options::default();
    options.set_merge_operator_associative("add", hourly_counts::merge);
    options
}

/// Shared by all tables, index and filter blocks included. This kind takes no lock to find a block.
pub fn cache(budget: &Budget) -> Cache {
    // 0: it finds out by itself how large entries are.
    Cache::new_hyper_clock_cache(budget.cache_bytes, 0)
}

fn table(budget: &Budget, cache: &Cache, block_bytes: usize) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_block_size(block_bytes);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_whole_key_filtering(false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_format_version(6);
    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(budget.write_buffer_bytes);
    options.set_max_bytes_for_level_base(budget.level_bytes);
    options.set_target_file_size_base(budget.file_bytes);
    options.set_level_compaction_dynamic_level_bytes(true);
    // zstd takes a third less of the disk and a quarter more of an export's time.
    options.set_compression_type(DBCompressionType::Lz4);
    options
}
