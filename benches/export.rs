//! Measures the export from a warm store: rows per CPU-second from scan to CSV, all threads. With two or more
//! processors several threads write parts of it; `taskset -c 0` disables that.
//!
//! `ADTRAIL_BENCH_ROWS` sets the number of rows (10,000,000).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "support/stored.rs"]
mod stored;
mod support;

use std::ops::ControlFlow;
use std::thread::sleep;
use std::time::{Duration, Instant};

use adtrail as _;
use export::ExportQuery;
use store::embedded::Embedded;
use stored::fill;
use support::{APP, APP_KEY, count, cpu_seconds, memory_mib};

/// Waits until the process was idle for a second, because compactions would count as its CPU-seconds.
fn wait_for_compactions() {
    let cpu = || cpu_seconds(std::process::id());
    let mut before = f64::NEG_INFINITY;
    while cpu() - before > 0.02 {
        before = cpu();
        sleep(Duration::from_secs(1));
    }
}

fn main() {
    println!("{}", testbed::machine());
    let total = count("ADTRAIL_BENCH_ROWS", 10_000_000);
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config::parse(APP).expect("the settings are valid");
    config.store = config.store.keeping_all(folder.path().join("store"));
    let mut store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    let app = config.policy.app_by_key(APP_KEY).expect("the app is configured");

    let started = Instant::now();
    fill(&mut store, total, |_| 1);
    println!("{total} rows written in {:.0} s", started.elapsed().as_secs_f64());
    wait_for_compactions();

    let reader = store.reader();
    let query = ExportQuery::all_time();
    println!(
        "{:>6} {:>12} {:>8} {:>8} {:>16} {:>8} {:>10}",
        "run", "rows", "wall s", "CPU s", "rows/CPU-second", "MB/s", "RSS MiB"
    );
    for run in 1..=5 {
        let (wall, cpu) = (Instant::now(), cpu_seconds(std::process::id()));
        let mut bytes = 0_u64;
        let count = export::write_rows(&reader, &[app], &query, &config.policy, |chunk| {
            bytes += chunk.bytes.len() as u64;
            ControlFlow::Continue(())
        })
        .expect("the export succeeds");
        assert_eq!(count, total as u64, "every row once");
        let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds(std::process::id()) - cpu);
        println!(
            "{run:>6} {count:>12} {wall:>8.2} {cpu:>8.2} {:>16.0} {:>8.0} {:>10}",
            count as f64 / cpu,
            bytes as f64 / cpu / 1e6,
            memory_mib(std::process::id()).0
        );
    }
}
