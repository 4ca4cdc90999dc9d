//! Statistics of the storage engine.

use rocksdb::properties::{self, PropName};
use rocksdb::statistics::Ticker;

use super::db::Table;
use super::open::column_families::{
    ACTIVATIONS, CAMPAIGN_INDEX, CELLS, COUNTS, EFFECTS, EVENTS, META, OFFSETS, OUTBOX, TOUCHES,
};
use super::open::manifest_check;
use super::tables::Tables;
use super::write::disk_full::free_bytes;
use crate::StoreError;

/// The names of tables in statistics. The tables of touches are one.
const TABLES: [&str; 10] =
    [EVENTS, TOUCHES, ACTIVATIONS, EFFECTS, OFFSETS, CELLS, COUNTS, CAMPAIGN_INDEX, OUTBOX, META];

/// Reads the engine's statistics; cheap to clone, for any thread.
#[derive(Debug, Clone)]
pub struct Engine {
    tables: Tables,
}

/// Counters start at 0 when the store is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Lookups of data, index and filter blocks.
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// Memory of cached blocks and write buffers.
    pub cache_bytes: u64,
    pub cache_capacity_bytes: u64,
    /// Checks of a file's bloom filter, and those that saved a read of the file.
    pub filter_checks: u64,
    pub filter_useful: u64,
    /// Keys and values of committed batches.
    pub written_bytes: u64,
    pub wal_written_bytes: u64,
    pub flush_written_bytes: u64,
    pub compaction_read_bytes: u64,
    pub compaction_written_bytes: u64,
    pub compactions_running: u64,
    pub flushes_running: u64,
    /// Size of the present log files.
    pub wal_bytes: u64,
    /// Writes are stopped until a flush or a compaction has finished.
    pub is_stopped: bool,
    /// Writes are slowed down so that flushes and compactions keep up.
    pub is_delayed: bool,
    /// A write waits for free disk space.
    pub is_disk_full: bool,
    /// Free space on the disk of the store.
    pub disk_free_bytes: u64,
    /// Time for which flushes and compactions have delayed writes.
    pub stalled_micros: u64,
    /// In the order of [`Engine::TABLES`].
    pub tables: [TableStats; TABLES.len()],
}

/// Statistics of one table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Write buffers, including those that are being flushed.
    pub memtable_bytes: u64,
    pub disk_bytes: u64,
    pub files: u64,
    /// Estimate of what compactions must rewrite to bring all levels below their target sizes.
    pub compaction_pending_bytes: u64,
}

impl Engine {
    /// The names of the tables, in the order of [`EngineStats::tables`].
    pub const TABLES: [&'static str; TABLES.len()] = TABLES;

    pub(super) fn new(tables: Tables) -> Self {
        Self { tables }
    }

    pub fn stats(&self) -> Result<EngineStats, StoreError> {
        let ticker = |ticker| self.tables.options.get_ticker_count(ticker);
        let mut tables = [TableStats::default(); TABLES.len()];
        for (name, stats) in TABLES.iter().zip(&mut tables) {
            *stats = self.table(name)?;
        }
        // RocksDB counts filter checks of gets and of seeks separately.
        let gets = ticker(Ticker::BloomFilterPrefixChecked);
        let gets_useful = ticker(Ticker::BloomFilterPrefixUseful);
        let seeks_useful =
            ticker(Ticker::LastLevelSeekFiltered) + ticker(Ticker::NonLastLevelSeekFiltered);
        let seeks = seeks_useful
            + ticker(Ticker::LastLevelSeekFilterMatch)
            + ticker(Ticker::NonLastLevelSeekFilterMatch);
        Ok(EngineStats {
            cache_hits: ticker(Ticker::BlockCacheHit),
            cache_misses: ticker(Ticker::BlockCacheMiss),
            cache_bytes: self.database_property(properties::BLOCK_CACHE_USAGE)?,
            cache_capacity_bytes: self.database_property(properties::BLOCK_CACHE_CAPACITY)?,
            filter_checks: gets + seeks,
            filter_useful: gets_useful + seeks_useful,
            written_bytes: ticker(Ticker::BytesWritten),
            wal_written_bytes: ticker(Ticker::WalFileBytes),
            flush_written_bytes: ticker(Ticker::FlushWriteBytes),
            compaction_read_bytes: ticker(Ticker::CompactReadBytes),
            compaction_written_bytes: ticker(Ticker::CompactWriteBytes),
            compactions_running: self.database_property(properties::NUM_RUNNING_COMPACTIONS)?,
            flushes_running: self.database_property(properties::NUM_RUNNING_FLUSHES)?,
            wal_bytes: self.wal_bytes(),
            is_stopped: self.database_property(properties::IS_WRITE_STOPPED)? != 0,
            is_delayed: self.database_property(properties::ACTUAL_DELAYED_WRITE_RATE)? != 0,
            is_disk_full: self.tables.disk_full_gate.is_blocked(),
            disk_free_bytes: free_bytes(self.tables.db.path()),
            stalled_micros: ticker(Ticker::StallMicros),
            tables,
        })
    }

    fn table(&self, name: &str) -> Result<TableStats, StoreError> {
        if name != TOUCHES {
            return self.stats_of(&self.tables.table(name));
        }
        let mut sum = TableStats::default();
        for name in self.tables.touches.all_names() {
            // A table may be dropped meanwhile.
            let Some(table) = self.tables.db.cf_handle(&name) else { continue };
            let stats = self.stats_of(&table)?;
            sum.memtable_bytes += stats.memtable_bytes;
            sum.disk_bytes += stats.disk_bytes;
            sum.files += stats.files;
            sum.compaction_pending_bytes += stats.compaction_pending_bytes;
        }
        Ok(sum)
    }

    fn stats_of(&self, table: &Table<'_>) -> Result<TableStats, StoreError> {
        let property = |property: &PropName| -> Result<u64, StoreError> {
            Ok(self.tables.db.property_int_value_cf(table, property)?.unwrap_or(0))
        };
        let files = self.tables.db.get_column_family_metadata_cf(table);
        Ok(TableStats {
            memtable_bytes: property(properties::CUR_SIZE_ALL_MEM_TABLES)?,
            disk_bytes: files.size,
            files: files.file_count as u64,
            compaction_pending_bytes: property(properties::ESTIMATE_PENDING_COMPACTION_BYTES)?,
        })
    }

    /// A property of the whole database, which every column family reports.
    fn database_property(&self, property: &PropName) -> Result<u64, StoreError> {
        let events = self.tables.events();
        Ok(self.tables.db.property_int_value_cf(&events, property)?.unwrap_or(0))
    }

    /// Summed over the files, as the engine has no property for it. A log that is deleted meanwhile counts as 0.
    fn wal_bytes(&self) -> u64 {
        let logs = manifest_check::logs(self.tables.db.path());
        logs.filter_map(|log| log.metadata().ok()).map(|log| log.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::open::column_families::Limits;

    const MIB: u64 = 1 << 20;

    #[test]
    fn delayed_and_stopped_writes_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(&dir.path().join("store"), 64 * MIB, &Limits::none()).unwrap();
        let engine = Engine::new(tables.clone());
        let state = || engine.stats().map(|stats| (stats.is_delayed, stats.is_stopped));
        let set = |name, value| {
            tables.db.set_options_cf(&tables.events(), &[(name, value)]).unwrap();
        };
        set("level0_file_num_compaction_trigger", "100");
        assert_eq!(state().unwrap(), (false, false));
        set("level0_slowdown_writes_trigger", "1");
        // A file at level 0.
        tables.db.put_cf(&tables.events(), "a", "row").unwrap();
        tables.db.flush_cf(&tables.events()).unwrap();
        assert_eq!(state().unwrap(), (true, false));
        assert_eq!(engine.stats().unwrap().tables[0].files, 1);
        // How long a write is delayed depends on the machine; it is delayed at some point.
        let large = vec![0; MIB as usize];
        while engine.stats().unwrap().stalled_micros == 0 {
            tables.db.put_cf(&tables.events(), "large", &large).unwrap();
        }
        set("level0_stop_writes_trigger", "1");
        assert!(state().unwrap().1);
        set("level0_stop_writes_trigger", "36");
        set("level0_slowdown_writes_trigger", "20");
        assert_eq!(state().unwrap(), (false, false));
    }
}
