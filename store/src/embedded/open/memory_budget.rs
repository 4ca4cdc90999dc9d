//! Divides memory and cores among the parts of RocksDB.

const MIB: u64 = 1 << 20;

/// Cache of a command that reads beside the service: it reads most blocks once.
const READING_CACHE_BYTES: u64 = 32 * MIB;
/// Replaying the log after a crash takes time in proportion to the write buffers.
const WRITE_BUFFERS_BYTES_MAX: u64 = 256 * MIB;
/// In larger ones most of a search for a key's place is waiting for memory.
const TOUCH_INDEX_BUFFER_BYTES_MAX: u64 = 8 * MIB;
/// The log outgrows the write buffers when a table that is seldom written keeps old log files alive.
const WAL_BYTES_MAX: u64 = 512 * MIB;
const FILE_BYTES_MAX: u64 = 64 * MIB;
const FILE_BYTES_MIN: u64 = 4 * MIB;
/// Read-ahead for each input file of a compaction.
const COMPACTION_READ_BYTES_MAX: u64 = 2 * MIB;
/// There is a single writer; it does not produce work for more jobs.
const JOBS_MAX: u64 = 8;
/// Approximate memory of a compaction, outside of the cache.
const JOB_BYTES: u64 = 16 * MIB;

/// The share of each part. Write buffers are charged to the cache, so `cache_bytes` bounds both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub cache_bytes: usize,
    /// Limit for all tables together; the oldest buffer is flushed when it is reached.
    pub write_buffers_bytes: usize,
    /// Size of one buffer. A table has at most two, one of them being flushed.
    pub write_buffer_bytes: usize,
    /// Size of one buffer of an index of touches, whose keys are anywhere: what processor caches have room for.
    pub touch_index_buffer_bytes: usize,
    pub wal_bytes_max: u64,
    /// Target size of level 1: that of the four flushes that a compaction merges into it, for low write amplification.
    pub level_bytes: u64,
    pub file_bytes: u64,
    pub compaction_read_bytes: usize,
    /// Concurrent flushes and compactions.
    pub jobs: i32,
    /// Threads of one compaction.
    pub subcompactions: u32,
}

impl Budget {
    /// The budget of the writing process. `memory_bytes` covers the cache and the write buffers.
    pub fn writing(memory_bytes: u64, cores: usize) -> Self {
        let write_buffers = (memory_bytes / 2).min(WRITE_BUFFERS_BYTES_MAX);
        let write_buffer = write_buffers * 3 / 8;
        let cores = u64::try_from(cores).unwrap_or(JOBS_MAX);
        let jobs = cores.min(memory_bytes / JOB_BYTES).clamp(2, JOBS_MAX);
        Self {
            cache_bytes: size(memory_bytes),
            write_buffers_bytes: size(write_buffers),
            write_buffer_bytes: size(write_buffer),
            touch_index_buffer_bytes: size(write_buffer.min(TOUCH_INDEX_BUFFER_BYTES_MAX)),
            wal_bytes_max: (write_buffers * 2).min(WAL_BYTES_MAX),
            level_bytes: write_buffer * 4,
            file_bytes: write_buffer.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX),
            compaction_read_bytes: size((memory_bytes / 128).min(COMPACTION_READ_BYTES_MAX)),
            jobs: i32::try_from(jobs).unwrap_or(2),
            subcompactions: u32::try_from(jobs / 2).unwrap_or(1),
        }
    }

    /// The budget of a process that reads beside the writer. Data that the writer has not flushed is read from its log
    /// into memory outside of this budget.
    pub fn reading(memory_bytes: u64) -> Self {
        let cache_bytes = size(memory_bytes.min(READING_CACHE_BYTES));
        Self { cache_bytes, ..Self::writing(memory_bytes, 1) }
    }
}

/// The maximum of the filters of touches, outside of the cache.
pub fn filter_bytes_max(memory_bytes: u64) -> usize {
    size(memory_bytes / 2)
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_split() {
        // In MiB: all memory; all write buffers, one of them, one of an index of touches, the log, level 1, a file.
        for (memory, expected) in [
            (32, [16, 6, 6, 32, 24, 6]),
            (64, [32, 12, 8, 64, 48, 12]),
            (448, [224, 84, 8, 448, 336, 64]),
            (1_024, [256, 96, 8, 512, 384, 64]),
            (65_536, [256, 96, 8, 512, 384, 64]),
        ] {
            let budget = Budget::writing(memory * MIB, 2);
            let buffers = [
                budget.write_buffers_bytes,
                budget.write_buffer_bytes,
                budget.touch_index_buffer_bytes,
            ]
            .map(|of| of as u64);
            let files = [budget.wal_bytes_max, budget.level_bytes, budget.file_bytes];
            assert_eq!([&buffers[..], &files].concat(), expected.map(|of| of * MIB), "{memory}");
            assert_eq!(budget.cache_bytes as u64, memory * MIB);
        }
        assert_eq!(Budget::reading(64 * MIB).cache_bytes as u64, 32 * MIB);
        assert_eq!(filter_bytes_max(64 * MIB) as u64, 32 * MIB);
    }

    #[test]
    fn jobs_are_limited_by_cores_and_memory() {
        // Memory in MiB and cores; jobs and threads of one compaction.
        for ((memory, cores), expected) in [
            ((448, 1), (2, 1)),
            ((448, 2), (2, 1)),
            ((448, 4), (4, 2)),
            ((448, 64), (8, 4)),
            ((64, 64), (4, 2)),
            ((32, 64), (2, 1)),
        ] {
            let budget = Budget::writing(memory * MIB, cores);
            assert_eq!((budget.jobs, budget.subcompactions), expected, "{memory} {cores}");
        }
    }
}
