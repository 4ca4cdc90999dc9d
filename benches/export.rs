//! The export from a warm store: rows per CPU-second from scan to CSV, on one thread.
//!
//! `ADTRAIL_BENCH_ROWS` sets the number of rows (10,000,000).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

mod support;

use std::ops::ControlFlow;
use std::time::Instant;

use adtrail as _;
use attribution::attribute::Credit;
use attribution::event::{
    Activation, Device, Effect, EventTime, Family, Purpose, SpreadId, TouchKind,
};
use attribution::ids::IdKind;
use attribution::inherit::Inheritance;
use attribution::ledger::{DecisionWrite, EffectHome, Home, Ledger, Progress};
use attribution::row::{Contributor, CreditedTouch, InstallType, MatchType, Status, TouchDetails};
use attribution::{compose, matching};
use export::ExportQuery;
use store::embedded::Embedded;
use support::{APP, APP_KEY, START_MS, count, memory_mib};

const BATCH: usize = 10_000;

fn main() {
    let total = count("ADTRAIL_BENCH_ROWS", 10_000_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut config = config::parse(APP).expect("the settings are valid");
    config.store = config.store.keeping_all(folder.path().join("store"));
    let mut store = Embedded::open(&config.store, &config.policy).expect("a store");
    let app = config.policy.app_by_key(APP_KEY).expect("the app");

    let started = Instant::now();
    let mut written = 0;
    while written < total {
        let batch = (written..total.min(written + BATCH)).map(|n| effect(n as u64)).collect();
        store.commit(batch, &Progress::default()).expect("a commit");
        written += BATCH;
    }
    println!("{total} rows written in {:.0} s", started.elapsed().as_secs_f64());

    let reader = store.reader();
    let query = ExportQuery::all_time();
    println!(
        "{:>6} {:>12} {:>8} {:>8} {:>16} {:>8} {:>10}",
        "run", "rows", "wall s", "CPU s", "rows/CPU-second", "MB/s", "RSS MiB"
    );
    for run in 1..=5 {
        let (wall, cpu) = (Instant::now(), cpu_nanos());
        let mut bytes = 0_u64;
        let count = export::write_rows(&reader, &[app], &query, &config.policy, |chunk| {
            bytes += chunk.bytes.len() as u64;
            ControlFlow::Continue(())
        })
        .expect("an export");
        assert_eq!(count, total as u64, "every row once");
        let (wall, cpu) = (wall.elapsed().as_secs_f64(), (cpu_nanos() - cpu) as f64 / 1e9);
        println!(
            "{run:>6} {count:>12} {wall:>8.2} {cpu:>8.2} {:>16.0} {:>8.0} {:>10}",
            count as f64 / cpu,
            bytes as f64 / cpu / 1e6,
            memory_mib(std::process::id()).0
        );
    }
}

/// A credited purchase, about 230 bytes as a row.
fn effect(number: u64) -> DecisionWrite {
    let time = |ms| EventTime::from_millis((START_MS + ms) as i64).expect("a time");
    let app = attribution::event::Pid(1);
    let device = Device {
        ip: format!("203.0.113.{}", number % 250).into(),
        ua: "Mozilla/5.0 (Linux; Android 14; V2) AppleWebKit/537.36 Mobile".into(),
        model: format!("V{}", number % 97).into(),
        os: "android".into(),
        os_version: "14".into(),
    };
    let ids = vec![("oaid".into(), format!("{number:032x}").into())];
    let activation = Activation {
        pid: app,
        id: format!("a-{}", number / 3).into(),
        time: time(number * 10),
        install_begin_time: None,
        click_id: "".into(),
        ids: vec![],
        device: Device::default(),
        app_version: "".into(),
        props: vec![],
    };
    let effect = Effect {
        pid: app,
        id: format!("e-{number}").into(),
        name: "purchase".into(),
        time: time(number * 10 + 60_000),
        ids,
        device,
        app_version: "1.2".into(),
        revenue: "9.99".into(),
        currency: "CNY".into(),
        props: vec![("level".into(), "3".into())],
    };
    let touch = CreditedTouch {
        kind: TouchKind::Click,
        time: time(number * 10),
        click_id: format!("c-{number}").into(),
        match_type: MatchType::Device(IdKind::Oaid),
        details: Some(Box::new(TouchDetails {
            purpose: Purpose::Ua,
            lookback_ms: 604_800_000,
            site: "site-1".into(),
            subs: Default::default(),
        })),
    };
    let contributor = Contributor {
        spreadid: SpreadId(7),
        kind: TouchKind::Impression,
        time: time(number),
        match_type: MatchType::IpUa,
    };
    let credit = Credit {
        status: Status::Attributed,
        spreadid: SpreadId(7),
        touch: Some(touch),
        reject_reason: None,
        contributors: vec![contributor],
    };
    let activation = Some((&activation, InstallType::Install));
    let inheritance = Inheritance { activation, credit, credit_of: None };
    let row = compose::effect_row(&effect, inheritance);
    let key = matching::fact_key(Family::Effect, app, &effect.id);
    let home = Home::Effect(Box::new(EffectHome { fact: effect, present: None }));
    DecisionWrite { key, home, row, replaced: None }
}

/// CPU time of this thread so far.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0)
}
