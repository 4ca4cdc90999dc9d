//! Effect of an app's fanout on its regions and its export: one app has nine tenths of all rows, in one partition and
//! in several.
//!
//! `ADTRAIL_BENCH_SPREAD_ROWS` sets the number of rows (2,000,000).

#![allow(clippy::expect_used, reason = "a bench may fail loudly")]

extern crate adtrail_store as store;

#[path = "../../benches/support/stored.rs"]
mod stored;
#[path = "../../benches/support/mod.rs"]
mod support;

use std::ops::ControlFlow;

use attribution::facts::event::EventTime;
use store::embedded::Embedded;
use stored::fill;
use support::count;

const APPS: u32 = 10;

fn main() {
    println!("{}", testbed::machine());
    let rows = count("ADTRAIL_BENCH_SPREAD_ROWS", 2_000_000);
    println!("{rows} rows, nine tenths of them of one app, over 64 partitions");
    println!(
        "{:>6} {:>8} {:>12} {:>14} {:>16} {:>14}",
        "fanout", "regions", "bytes: skew", "writes: skew", "a scan, CPU-s", "rows/CPU-s"
    );
    for fanout in [1, 4, 16, 64] {
        measure(rows, fanout);
    }
}

fn measure(rows: usize, fanout: u16) {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let mut text = String::new();
    for pid in 0..APPS {
        text += &format!("[[apps]]\npid = {pid}\nkey = \"app-{pid}\"\n");
        if pid == 0 {
            text += &format!("[apps.store]\nfanout = {fanout}\n");
        }
    }
    let mut config = config::parse(&text).expect("the settings are valid");
    config.store.path = folder.path().join("store");
    config.store.retention_ms = None;
    let mut store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    fill(&mut store, rows, |number| match number.is_multiple_of(10) {
        true => 1 + (number / 10 % 9) as u32,
        false => 0,
    });
    store.compact().expect("the store can be compacted");
    let reader = store.reader();
    let app = config.policy.app_by_key("app-0").expect("the app is configured");
    let (mut best, mut found) = (f64::INFINITY, 0);
    for _ in 0..3 {
        found = 0;
        let start = thread_cpu();
        let visit = |_: &_, value: &[u8]| {
            found += u64::from(!value.is_empty());
            ControlFlow::Continue(())
        };
        reader
            .scan_rows(app, EventTime::default(), EventTime::END, visit)
            .expect("the scan succeeds");
        best = best.min(thread_cpu() - start);
    }
    let regions = reader.regions().expect("an embedded store has regions");
    println!(
        "{fanout:>6} {:>8} {:>12.1} {:>14.1} {:>16.2} {:>14.0}",
        regions.iter().len(),
        regions.skew(|region| region.size.bytes as f64),
        regions.skew(|region| region.writes.total as f64),
        best,
        found as f64 / best
    );
}

/// Returns the CPU seconds used by this thread.
fn thread_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    nanos.unwrap_or(0.0) / 1e9
}
