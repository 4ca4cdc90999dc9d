//! Measures the whole pipeline as users run it: JSON events in a real Apache Kafka, the real binary, rows in its store.
//! Prints events per CPU-second of the adtrail process and its memory.
//!
//! `ADTRAIL_BENCH_EVENTS` sets the number of events (5,000,000).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "support/produce.rs"]
mod produce;
mod support;

use std::time::{Duration, Instant};

use produce::produce;
use support::{APP, APP_KEY, count, cpu_seconds, memory_mib};
use testbed::adtrail::Adtrail;
use testbed::kafka::Kafka;
use testbed::site::Site;

const PARTITIONS: i32 = 4;

fn main() {
    let total = count("ADTRAIL_BENCH_EVENTS", 5_000_000);
    let kafka = Kafka::start();
    let site = Site::new(&kafka, "bench", PARTITIONS, APP).set("store.retention", "400d");
    let (bytes, seconds) = produce(&kafka.brokers(), site.topics.all(), total);
    println!(
        "{total} events of {} bytes on average produced in {seconds:.0} s",
        bytes / total as u64
    );
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
    line(&adtrail, total as f64, started);
    adtrail.stop();
    let export = site.download(APP_KEY, "2026-03-01", "2027-01-01", &[]);
    let lines = export.iter().filter(|byte| **byte == b'\n').count() - 1;
    assert_eq!(lines as f64, rows, "the export has every row");
}

/// Waits until the process uses almost no CPU.
fn wait_until_idle(adtrail: &Adtrail) {
    loop {
        let before = cpu_seconds(adtrail.pid());
        std::thread::sleep(Duration::from_secs(2));
        if cpu_seconds(adtrail.pid()) - before < 0.2 {
            return;
        }
    }
}

fn line(adtrail: &Adtrail, events: f64, started: Instant) {
    let cpu = cpu_seconds(adtrail.pid());
    let (resident, peak) = memory_mib(adtrail.pid());
    println!(
        "{events:>10.0} {:>8.1} {cpu:>8.1} {:>18.0} {resident:>10} {peak:>10}",
        started.elapsed().as_secs_f64(),
        events / cpu
    );
}
