//! How the memory and the cores that there are are shared out in RocksDB.

const MIB: u64 = 1 << 20;

/// What a command that only reads beside the service has of its own: it reads most blocks once.
const READING_CACHE_BYTES: u64 = 32 * MIB;
/// Twice as much takes twice as long to be read again after a crash.
const WRITE_BUFFERS_BYTES_MAX: u64 = 256 * MIB;
/// What the log may have beyond what the write buffers hold, as a table that is seldom written
/// holds old parts of it.
const WAL_BYTES_MAX: u64 = 512 * MIB;
const FILE_BYTES_MAX: u64 = 64 * MIB;
const FILE_BYTES_MIN: u64 = 4 * MIB;
/// Of each file that a compaction reads.
const COMPACTION_READ_BYTES_MAX: u64 = 2 * MIB;
/// There is one worker, and more can not keep pace with what it writes any better.
const JOBS_MAX: u64 = 8;
/// What a compaction takes beside the cache, about.
const JOB_BYTES: u64 = 16 * MIB;

/// The share of each part. Write buffers are charged to the cache, so that its bytes bound both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub cache_bytes: usize,
    /// Of all tables together. When it is reached the oldest one is flushed.
    pub write_buffers_bytes: usize,
    /// Of one table; it has two at most, one of them being flushed.
    pub write_buffer_bytes: usize,
    pub wal_bytes_max: u64,
    /// Of the first level that is sorted as a whole: as much as the four flushes that are merged
    /// into it, so that little is written again.
    pub level_bytes: u64,
    pub file_bytes: u64,
    pub compaction_read_bytes: usize,
    /// Flushes and compactions at once.
    pub jobs: i32,
    /// Threads of one compaction.
    pub subcompactions: u32,
}

impl Budget {
    /// For the process that writes. `memory_bytes` is the cache and the write buffers together.
    pub fn writing(memory_bytes: u64, cores: usize) -> Self {
        let write_buffers = (memory_bytes / 2).min(WRITE_BUFFERS_BYTES_MAX);
        let write_buffer = write_buffers * 3 / 8;
        let cores = u64::try_from(cores).unwrap_or(JOBS_MAX);
        let jobs = cores.min(memory_bytes / JOB_BYTES).clamp(2, JOBS_MAX);
        Self {
            cache_bytes: size(memory_bytes),
            write_buffers_bytes: size(write_buffers),
            write_buffer_bytes: size(write_buffer),
            wal_bytes_max: (write_buffers * 2).min(WAL_BYTES_MAX),
            level_bytes: write_buffer * 4,
            file_bytes: write_buffer.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX),
            compaction_read_bytes: size((memory_bytes / 128).min(COMPACTION_READ_BYTES_MAX)),
            jobs: i32::try_from(jobs).unwrap_or(2),
            subcompactions: u32::try_from(jobs / 2).unwrap_or(1),
        }
    }

    /// For a process that reads beside it. It writes nothing: what the service has not flushed yet
    /// is read from its log, and takes memory of its own.
    pub fn reading(memory_bytes: u64) -> Self {
        let cache_bytes = size(memory_bytes.min(READING_CACHE_BYTES));
        Self { cache_bytes, ..Self::writing(memory_bytes, 1) }
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * MIB;

    /// In MiB: the write buffers, each of them, the log, the first level, files.
    #[track_caller]
    fn check_bytes(memory_bytes: u64, expected: [u64; 5]) {
        let budget = Budget::writing(memory_bytes, 2);
        let found = [
            budget.write_buffers_bytes as u64,
            budget.write_buffer_bytes as u64,
            budget.wal_bytes_max,
            budget.level_bytes,
            budget.file_bytes,
        ];
        assert_eq!(found.map(|bytes| bytes / MIB), expected);
        assert_eq!(budget.cache_bytes as u64, memory_bytes);
    }

    /// Jobs, and threads of one compaction.
    #[track_caller]
    fn check_jobs(memory_bytes: u64, cores: usize, expected: (i32, u32)) {
        let budget = Budget::writing(memory_bytes, cores);
        assert_eq!((budget.jobs, budget.subcompactions), expected);
    }

    #[test]
    fn memory_is_split() {
        check_bytes(32 * MIB, [16, 6, 32, 24, 6]);
        check_bytes(64 * MIB, [32, 12, 64, 48, 12]);
        check_bytes(448 * MIB, [224, 84, 448, 336, 64]);
        check_bytes(GIB, [256, 96, 512, 384, 64]);
        check_bytes(64 * GIB, [256, 96, 512, 384, 64]);
    }

    #[test]
    fn jobs_are_as_many_as_cores_and_memory_bear() {
        check_jobs(448 * MIB, 1, (2, 1));
        check_jobs(448 * MIB, 2, (2, 1));
        check_jobs(448 * MIB, 4, (4, 2));
        check_jobs(448 * MIB, 64, (8, 4));
        check_jobs(64 * MIB, 64, (4, 2));
        check_jobs(32 * MIB, 64, (2, 1));
    }

    #[test]
    fn who_only_reads_needs_little() {
        let bytes = |memory: u64| Budget::reading(memory).cache_bytes as u64;
        assert_eq!([64 * GIB, 448 * MIB, 32 * MIB].map(bytes), [32 * MIB; 3]);
    }
}
