//! The embedded store without the service: the cost of commits compared with RocksDB alone, of lookups in a large
//! store, recovery after a crash, and the cost of callbacks. Results are in docs/performance.md.
//!
//! `ADTRAIL_BENCH_STORE_ROWS` (4,000,000), `ADTRAIL_BENCH_STORE_TOUCHES` (5,000,000) and
//! `ADTRAIL_BENCH_STORE_CALLBACKS` (1,000,000) set the sizes; 0 skips a part.
//! `ADTRAIL_BENCH_STORE_MEMORY` sets `store.memory`.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

mod bare;
mod callbacks;
mod crash;
mod facts;
mod lookups;
mod rows;
#[path = "../../../benches/support/mod.rs"]
mod support;
mod timed;
mod touches;

use std::path::Path;
use std::time::Duration;

use adtrail_store::embedded::{Embedded, EngineStats};
use config::Config;
use support::count;

/// The allocator of the released binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Facts per batch.
const BATCH: usize = 5_000;
const MIB: f64 = 1_048_576.0;

fn main() {
    if let Some(folder) = std::env::var_os(crash::FOLDER) {
        crash::write_until_killed(Path::new(&folder));
    }
    println!("{}", testbed::machine());
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let rows = count("ADTRAIL_BENCH_STORE_ROWS", 4_000_000);
    let touches = count("ADTRAIL_BENCH_STORE_TOUCHES", 5_000_000);
    if touches > 0 {
        touches::run(&folder.path().join("touches"), touches);
    }
    if rows > 0 {
        rows::run(folder.path(), rows);
    }
    let callbacks = count("ADTRAIL_BENCH_STORE_CALLBACKS", 1_000_000);
    if callbacks > 0 {
        callbacks::run(folder.path(), callbacks);
    }
}

/// Returns the default settings, with the store at `path` and without retention.
fn settings(path: &Path) -> Config {
    let memory = std::env::var("ADTRAIL_BENCH_STORE_MEMORY").unwrap_or("448MiB".into());
    let mut config = config::parse(&facts::settings(&memory)).expect("the settings are valid");
    config.store.path = path.into();
    config.store.retention_ms = None;
    config
}

/// Waits until flushes and compactions have finished.
fn settle(store: &Embedded) -> EngineStats {
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let stats = store.engine().stats().expect("the statistics are readable");
        let pending: u64 = stats.tables.iter().map(|table| table.compaction_pending_bytes).sum();
        if stats.compactions_running + stats.flushes_running + pending == 0 {
            return stats;
        }
    }
}

/// Returns the bytes written to disk, including the log, per committed byte.
fn write_amplification(stats: &EngineStats) -> f64 {
    let written =
        stats.wal_written_bytes + stats.flush_written_bytes + stats.compaction_written_bytes;
    written as f64 / stats.written_bytes as f64
}

fn disk_bytes(stats: &EngineStats) -> u64 {
    stats.tables.iter().map(|table| table.disk_bytes).sum()
}

/// Returns percentiles of the values; 0.5 is the median.
fn percentiles<const N: usize>(values: &mut [f64], shares: [f64; N]) -> [f64; N] {
    values.sort_by(f64::total_cmp);
    shares.map(|share| values[((values.len() - 1) as f64 * share) as usize])
}

/// Returns the CPU seconds used by this thread.
fn thread_seconds() -> f64 {
    run_seconds(Path::new("/proc/thread-self"))
}

/// Returns the CPU seconds used by a thread, with nanosecond resolution.
fn run_seconds(thread: &Path) -> f64 {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let nanos: f64 =
        text.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    nanos / 1e9
}
