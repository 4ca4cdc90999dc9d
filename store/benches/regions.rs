//! What spreading an app does to its regions and to its export: one app with nine tenths of all
//! rows, in one partition and over several.
//!
//! `ADTRAIL_BENCH_SPREAD_ROWS` sets the number of rows (2,000,000).

#![allow(clippy::expect_used, reason = "a bench may fail loudly")]

use std::ops::ControlFlow;

use adtrail_store::embedded::Embedded;
use attribution::facts::event::{Device, Effect, EventTime, Family, Pid};
use attribution::facts::match_keys;
use attribution::ledger::record::{EffectRecord, FactRecord};
use attribution::ledger::{DecisionWrite, Ledger, Progress};
use attribution::rules::build_row;
use attribution::rules::inherit::Inheritance;
use attribution::rules::row::Status;
use attribution::rules::winner::Credit;

const BATCH: u64 = 10_000;
const APPS: u32 = 10;
const START_MS: u64 = 1_772_323_200_000;

fn main() {
    let rows = std::env::var("ADTRAIL_BENCH_SPREAD_ROWS").ok().and_then(|text| text.parse().ok());
    let rows: u64 = rows.unwrap_or(2_000_000);
    println!("{rows} rows, nine tenths of them of one app, over 64 partitions");
    println!(
        "{:>6} {:>8} {:>12} {:>14} {:>16} {:>14}",
        "fanout", "regions", "bytes: skew", "writes: skew", "a scan, CPU-s", "rows/CPU-s"
    );
    for fanout in [1, 4, 16, 64] {
        measure(rows, fanout);
    }
}

fn measure(rows: u64, fanout: u16) {
    let folder = tempfile::tempdir().expect("a temporary folder");
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
    let mut store = Embedded::open(&config.store, &config.policy).expect("a store");
    for first in (0..rows).step_by(BATCH as usize) {
        let batch = (first..rows.min(first + BATCH)).map(decision).collect();
        store.commit(batch, &Progress::default()).expect("a commit");
    }
    store.compact();
    let reader = store.reader();
    let app = config.policy.app_by_key("app-0").expect("the app");
    let (mut least, mut found) = (f64::INFINITY, 0);
    for _ in 0..3 {
        found = 0;
        let start = thread_cpu();
        let visit = |_: &_, value: &[u8]| {
            found += u64::from(!value.is_empty());
            ControlFlow::Continue(())
        };
        reader.scan_rows(app, EventTime::default(), EventTime::END, visit).expect("a scan");
        least = least.min(thread_cpu() - start);
    }
    let regions = reader.regions().expect("its own");
    println!(
        "{fanout:>6} {:>8} {:>12.1} {:>14.1} {:>16.2} {:>14.0}",
        regions.iter().len(),
        regions.skew(|region| region.figures.bytes as f64),
        regions.skew(|region| region.writes.total as f64),
        least,
        found as f64 / least
    );
}

/// An effect, one in ten milliseconds, about 220 bytes as a row.
fn decision(number: u64) -> DecisionWrite {
    let pid = Pid(if number.is_multiple_of(10) { 1 + (number / 10 % 9) as u32 } else { 0 });
    let time = EventTime::from_millis((START_MS + number * 10) as i64).expect("a time");
    let effect = Effect {
        pid,
        id: format!("e-{number}").into(),
        name: "purchase".into(),
        time,
        ids: vec![("oaid".into(), format!("{number:032x}").into())],
        device: Device {
            ip: format!("203.0.113.{}", number % 250).into(),
            ua: "Mozilla/5.0 (Linux; Android 14; V2) AppleWebKit/537.36 Mobile".into(),
            model: format!("V{}", number % 97).into(),
            os: "android".into(),
            os_version: "14".into(),
        },
        app_version: "1.2".into(),
        revenue: "9.99".into(),
        currency: "CNY".into(),
        props: vec![("level".into(), "3".into())],
    };
    let credit = Credit::nobody(Status::Orphan, None);
    let row =
        build_row::effect_row(&effect, Inheritance { activation: None, credit, credit_of: None });
    let key = match_keys::fact_key(Family::Effect, pid, &effect.id);
    let record = FactRecord::Effect(Box::new(EffectRecord { fact: effect, current_row: None }));
    DecisionWrite { key, record, row, replaced: None }
}

/// CPU-seconds of this thread so far.
fn thread_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    nanos.unwrap_or(0.0) / 1e9
}
