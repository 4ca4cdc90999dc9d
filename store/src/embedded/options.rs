//! How RocksDB is set up.

use attribution::event::Family;
use rocksdb::{
    BlockBasedOptions, Cache, CompactionDecision, DBCompressionType, Options, SliceTransform,
};

use super::expired::is_expired;
use crate::cell;
use crate::expiry::Expiry;
use crate::key::{FACT_PREFIX_BYTES, RowKey};
use crate::retention::Retention;

const MIB: usize = 1 << 20;
/// Shared by all tables, index and filter blocks included.
const BLOCK_CACHE_BYTES: usize = 192 * MIB;
/// All memtables together; half of it in each direction of a flush.
const WRITE_BUFFERS_BYTES: usize = 256 * MIB;
const WRITE_BUFFER_BYTES: usize = 96 * MIB;
const WAL_BYTES_MAX: u64 = 512 * MIB as u64;

/// Options of the whole engine.
pub fn engine() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_db_write_buffer_size(WRITE_BUFFERS_BYTES);
    options.set_max_total_wal_size(WAL_BYTES_MAX);
    options
        .increase_parallelism(std::thread::available_parallelism().map_or(2, |n| n.get() as i32));
    options.set_keep_log_file_num(4);
    options.set_max_open_files(-1);
    options
}

/// Options of the tables of facts: looked up by whole key or by prefix.
pub fn facts(cache: &Cache, family: Family, expiry: &Expiry) -> Options {
    let mut options = table(cache, 8 * 1024);
    // Facts live for weeks and rows for a year: what zstd saves on facts costs a tenth of all CPU.
    options.set_bottommost_compression_type(DBCompressionType::Lz4);
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
pub fn events(cache: &Cache, retention: &Retention) -> Options {
    let mut options = table(cache, 32 * 1024);
    let retention = retention.clone();
    options.set_compaction_filter("retention", move |_, key, _| match RowKey::decode(key) {
        Some(key) if key.event_time < retention.oldest(key.pid) => CompactionDecision::Remove,
        _ => CompactionDecision::Keep,
    });
    options
}

/// Options of the small tables: positions, meta.
pub fn small() -> Options {
    Options::default()
}

/// Options of the table of counts.
pub fn cells() -> Options {
    let mut options = Options::default();
    options.set_merge_operator_associative("add", cell::merge);
    options
}

pub fn cache() -> Cache {
    Cache::new_lru_cache(BLOCK_CACHE_BYTES)
}

fn table(cache: &Cache, block_bytes: usize) -> Options {
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
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
    options
}
