//! Options of RocksDB and its column families.

use attribution::facts::event::Family;
use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, CompactionDecision, DBCompactionStyle, DBCompressionType,
    DBRecoveryMode, Options, SliceTransform, WriteBufferManager,
};

use super::memory_budget::Budget;
use crate::clock::now;
use crate::embedded::write::compaction_filter::{
    is_callback_expired, is_expired, is_touch_expired,
};
use crate::expiry::Expiry;
use crate::expiry::retention::Retention;
use crate::layout::campaign_index::CreditedActivation;
use crate::layout::hourly_counts;
use crate::layout::key::{FACT_PREFIX_BYTES, RowKey};
use crate::layout::outbox as callbacks;
use crate::layout::summary_counts::{self, SummaryKey, Totals};

/// Unit of the write buffers of tables of touches. Late touches fill a small part of many of them.
const TOUCH_ARENA_BYTES: usize = 64 << 10;
/// Files of an index of touches that are merged into one.
const TOUCH_INDEX_RUNS: i32 = 8;

/// Options of the writing engine. Write buffers are charged to the cache.
pub fn engine(budget: &Budget, cache: &Cache) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // Stalling writers would gain nothing: the flush that frees the memory has already begun.
    let allow_stall = false;
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        budget.write_buffers_bytes,
        allow_stall,
        cache.clone(),
    ));
    options.set_max_total_wal_size(budget.wal_bytes_max);
    options.set_max_background_jobs(budget.jobs);
    options.set_max_subcompactions(budget.subcompactions);
    options.set_compaction_readahead_size(budget.compaction_read_bytes);
    // The cheapest level with tickers that this binding offers.
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    options.set_keep_log_file_num(4);
    options.set_max_open_files(-1);
    options
}

/// Options of an engine that reads beside the writer. All files are opened at once, as the writer may delete them at
/// any later time.
///
/// The log may end within a record, as the writer is running or was killed. Earlier damage of the log is an error here.
/// The writer instead drops the rest of the log, positions included, and re-reads it from Kafka.
pub fn reading_engine() -> Options {
    let mut options = Options::default();
    options.set_max_open_files(-1);
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options
}

/// Tables of facts: lookups by whole key or by prefix.
pub fn facts(budget: &Budget, cache: &Cache, family: Family, expiry: &Expiry) -> Options {
    let mut options = table(budget, cache, 8 * 1024);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(FACT_PREFIX_BYTES));
    options.set_memtable_prefix_bloom_ratio(0.1);
    options.set_memtable_whole_key_filtering(false);
    let expiry = expiry.clone();
    remove_if(&mut options, "expiry", move |key, value| is_expired(&expiry, family, key, value));
    options
}

/// The index of a table of touches: lookups by whole key or by prefix. The filters of `embedded::touches` replace a
/// filter of the write buffer, which each of many tables would have at its full size.
///
/// Compactions merge files of similar sizes, eight at a time, because flushes are small. By levels, a few flushes of a
/// few late touches, whose keys are anywhere, would rewrite the index of their day.
pub fn touch_index(budget: &Budget, cache: &Cache, expiry: &Expiry) -> Options {
    let mut blocks = blocks(cache, 8 * 1024);
    // Files stay on level 0 until their table is dropped, so their filters would fill the cache.
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(false);
    let mut options = with_blocks(budget, &blocks);
    options.set_compaction_style(DBCompactionStyle::Universal);
    options.set_write_buffer_size(budget.touch_index_buffer_bytes);
    options.set_level_zero_file_num_compaction_trigger(TOUCH_INDEX_RUNS);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(FACT_PREFIX_BYTES));
    options.set_arena_block_size(TOUCH_ARENA_BYTES);
    let expiry = expiry.clone();
    remove_if(&mut options, "expiry", move |key, value| {
        is_expired(&expiry, Family::Touch, key, value)
    });
    options
}

/// The contents of a table of touches: written in key order, looked up by whole key.
pub fn touch_contents(budget: &Budget, cache: &Cache, expiry: &Expiry) -> Options {
    let mut options = table(budget, cache, 16 * 1024);
    options.set_arena_block_size(TOUCH_ARENA_BYTES);
    let expiry = expiry.clone();
    remove_if(&mut options, "expiry", move |_, value| is_touch_expired(&expiry, value));
    options
}

/// The table of rows: scans in key order.
pub fn events(budget: &Budget, cache: &Cache, retention: &Retention) -> Options {
    let mut options = table(budget, cache, 32 * 1024);
    let retention = retention.clone();
    remove_if(&mut options, "retention", move |key, _| {
        RowKey::decode(key).is_some_and(|key| key.event_time < retention.oldest(key.pid))
    });
    options
}

/// The table of summary counts: scans in key order. Compactions also remove counts that are 0.
pub fn counts(budget: &Budget, cache: &Cache, retention: &Retention) -> Options {
    let mut options = table(budget, cache, 16 * 1024);
    options.set_merge_operator_associative("add", summary_counts::merge);
    let retention = retention.clone();
    remove_if(&mut options, "retention", move |key, value| {
        let is_zero = || Totals::decode(value).is_some_and(|count| count.is_zero());
        SummaryKey::decode(key).is_some_and(|key| key.time < retention.oldest(key.pid) || is_zero())
    });
    options
}

/// The table of credited activations: scans in key order.
pub fn campaign_index(budget: &Budget, cache: &Cache, retention: &Retention) -> Options {
    let mut options = table(budget, cache, 16 * 1024);
    let retention = retention.clone();
    remove_if(&mut options, "retention", move |key, _| {
        CreditedActivation::decode(key)
            .is_some_and(|key| key.event_time < retention.oldest(key.pid))
    });
    options
}

/// The outbox: lookups by whole key, and scans in key order.
pub fn outbox(budget: &Budget, cache: &Cache, expiry: &Expiry) -> Options {
    let mut blocks = blocks(cache, 8 * 1024);
    blocks.set_whole_key_filtering(true);
    let mut options = with_blocks(budget, &blocks);
    options.set_merge_operator_associative("add", callbacks::merge);
    let until = expiry.until().clone();
    // A clock that is ahead must not forget what was sent, so that the low watermark must be as late, too.
    remove_if(&mut options, "expiry", move |key, value| {
        until.get().is_some_and(|until| is_callback_expired(key, value, until.min(now())))
    });
    options
}

/// The table of hourly counts.
pub fn cells() -> Options {
    let mut options = Options::default();
    options.set_merge_operator_associative("add", hourly_counts::merge);
    options
}

/// The block cache of all tables, for index and filter blocks too. Lookups in this kind of cache take no lock.
pub fn cache(budget: &Budget) -> Cache {
    // 0: the cache estimates the entry size itself.
    Cache::new_hyper_clock_cache(budget.cache_bytes, 0)
}

/// Lets compactions remove entries, by their key and value.
fn remove_if(
    options: &mut Options,
    name: &str,
    is_removed: impl Fn(&[u8], &[u8]) -> bool + Send + 'static,
) {
    options.set_compaction_filter(name, move |_, key, value| match is_removed(key, value) {
        true => CompactionDecision::Remove,
        false => CompactionDecision::Keep,
    });
}

fn table(budget: &Budget, cache: &Cache, block_bytes: usize) -> Options {
    with_blocks(budget, &blocks(cache, block_bytes))
}

fn blocks(cache: &Cache, block_bytes: usize) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_block_size(block_bytes);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_whole_key_filtering(false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_format_version(6);
    blocks
}

fn with_blocks(budget: &Budget, blocks: &BlockBasedOptions) -> Options {
    let mut options = Options::default();
    options.set_block_based_table_factory(blocks);
    options.set_write_buffer_size(budget.write_buffer_bytes);
    options.set_max_bytes_for_level_base(budget.level_bytes);
    options.set_target_file_size_base(budget.file_bytes);
    options.set_level_compaction_dynamic_level_bytes(true);
    // zstd would take a third less disk space, but a quarter more time for an export.
    options.set_compression_type(DBCompressionType::Lz4);
    options
}
