//! Measures the whole pipeline as users run it: JSON events in a real Apache Kafka, the real binary, rows in its store.
//! Prints events per CPU-second of the adtrail process and its memory.
//!
//! `ADTRAIL_BENCH_EVENTS` sets the number of events (5,000,000). `--by-turns OLD_BINARY` compares with another binary:
//! each of `ADTRAIL_BENCH_ROUNDS` (3) rounds runs both on the same records, into empty stores.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "support/produce.rs"]
mod produce;
mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use produce::produce;
use support::{APP, APP_KEY, Events, count, cpu_seconds, memory_mib, version_of, wait_until_idle};
use testbed::adtrail::{Adtrail, binary};
use testbed::kafka::Kafka;
use testbed::site::Site;

const PARTITIONS: i32 = 4;

fn main() {
    let old = old_binary();
    let total = count("ADTRAIL_BENCH_EVENTS", 5_000_000);
    println!("{}", testbed::machine());
    println!("{}, Apache Kafka {}", version_of(&binary()), Kafka::version());
    let kafka = Kafka::start_to_measure();
    let site = Site::new(&kafka, "bench", PARTITIONS, APP).set("store.retention", "400d");
    let (bytes, seconds) =
        produce(&kafka.brokers(), site.topics.all(), Events::default().take(total));
    println!(
        "{total} events of {} bytes on average produced in {seconds:.0} s",
        bytes / total as u64
    );
    match old {
        Some(old) => by_turns(&site, &old, total),
        None => {
            run(&site, total);
        }
    }
}

/// Returns the argument of `--by-turns`. Cargo adds the argument `--bench`.
fn old_binary() -> Option<PathBuf> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let option = args.next()?;
    let (path, rest) = (args.next(), args.next());
    assert!(option == "--by-turns" && rest.is_none(), "usage: [--by-turns OLD_BINARY]");
    let path = path.expect("--by-turns is followed by the path of a binary");
    Some(PathBuf::from(path).canonicalize().expect("the old binary exists"))
}

/// Runs the old and the new binary by turns, and prints the ratio of each pair.
fn by_turns(site: &Site, old: &Path, total: usize) {
    println!("old: {} ({})", version_of(old), old.display());
    let run_as = |name: &str, binary: &Path| {
        println!("\n{name}");
        run(&site.beside().with_binary(binary), total)
    };
    let rounds = count("ADTRAIL_BENCH_ROUNDS", 3).max(1);
    let mut ratios: Vec<f64> = (1..=rounds)
        .map(|round| {
            // Each binary is the first one in half of the rounds, because the machine may become slower or faster.
            let (old, new) = if round % 2 == 1 {
                let old = run_as("old", old);
                (old, run_as("new", &binary()))
            } else {
                let new = run_as("new", &binary());
                (run_as("old", old), new)
            };
            let ratio = new.rate / old.rate;
            let exports = if new.export == old.export { "the same export" } else { "other exports" };
            println!(
                "\npair {round}: old {:.0}, new {:.0} events/CPU-second, new / old {ratio:.3}; {exports}",
                old.rate, new.rate
            );
            ratio
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("median of {rounds} pairs: new / old {:.3}", ratios[rounds / 2]);
}

/// The result of one binary.
struct Run {
    /// Events per CPU-second, compactions included.
    rate: f64,
    export: Vec<u8>,
}

/// Processes all records, and checks that the export has every row.
fn run(site: &Site, total: usize) -> Run {
    println!(
        "{:>10} {:>8} {:>8} {:>18} {:>10} {:>10}",
        "events", "wall s", "CPU s", "events/CPU-second", "RSS MiB", "peak MiB"
    );
    let started = Instant::now();
    let adtrail = site.start();
    let mut next_line = total as f64 / 5.0;
    loop {
        let read = adtrail.metric("adtrail_ingest_read_total").unwrap_or(0.0);
        if read >= next_line {
            line(&adtrail, read, started);
            next_line += total as f64 / 5.0;
        }
        if read >= total as f64 {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let rows = adtrail.metric("adtrail_store_rows").unwrap_or(0.0);
    println!("{rows:.0} rows; waiting for compactions");
    wait_until_idle(&adtrail);
    let rate = line(&adtrail, total as f64, started);
    adtrail.stop();
    let export = site.download(APP_KEY, "2026-03-01", "2027-01-01", &[]);
    let lines = export.iter().filter(|byte| **byte == b'\n').count() - 1;
    assert_eq!(lines as f64, rows, "the export has every row");
    Run { rate, export }
}

/// Prints the progress of the process. Returns its events per CPU-second.
fn line(adtrail: &Adtrail, events: f64, started: Instant) -> f64 {
    let cpu = cpu_seconds(adtrail.pid());
    let (resident, peak) = memory_mib(adtrail.pid());
    let rate = events / cpu;
    println!(
        "{events:>10.0} {:>8.1} {cpu:>8.1} {rate:>18.0} {resident:>10} {peak:>10}",
        started.elapsed().as_secs_f64(),
    );
    rate
}
