//! Rows per CPU-second from a warm store to CSV: scanning, decoding and writing.

use std::error::Error;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;

use adtrail_export::{ExportQuery, Format, write_rows};
use attribution::facts::canonical;
use attribution::facts::event::{
    Activation, Device, EventTime, Fact, Pid, Purpose, SpreadId, Touch, TouchKind,
};
use attribution::worker::{Batch, Worker};
use store::embedded::Embedded;

const ROWS: u64 = 400_000;
const ROUNDS: u32 = 5;
/// 2026-03-10T00:00:00Z.
const START_MS: u64 = 1_773_100_800_000;

const SETTINGS: &str = r#"
    [store]
    retention = "off"
    [[apps]]
    pid = 1
    key = "app-x"
    [[channels]]
    id = "toutiao"
    [[campaigns]]
    spreadid = 7
    pid = 1
    channel = "toutiao"
    name = "Spring"
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let mut config = config::parse(SETTINGS)?;
    config.store.path = dir.path().join("store");
    let ledger = Embedded::open(&config.store, &config.policy)?;
    let mut worker = Worker::new(ledger, Arc::clone(&config.policy));
    for first in (0..ROWS).step_by(5_000) {
        let mut facts: Vec<_> = (first..first + 5_000).flat_map(facts).collect();
        facts.iter_mut().for_each(|fact| canonical::identify(fact, "app-x"));
        worker.process(Batch { facts, ..Batch::default() })?;
    }
    let reader = worker.ledger().reader();
    let app = config.policy.app(Pid(1)).ok_or("the app is configured")?;
    for zone in ["UTC", "Europe/Berlin"] {
        let range = [("from", "2026-03-10"), ("to", "2026-04-10"), ("timezone", zone)];
        let query = ExportQuery::parse(Format::Csv, range)?;
        for _ in 0..ROUNDS {
            let start_ns = cpu_ns()?;
            let mut bytes = 0;
            let rows = write_rows(&reader, &[app], &query, &config.policy, |chunk| {
                bytes += black_box(chunk.bytes).len();
                ControlFlow::Continue(())
            })?;
            let seconds = (cpu_ns()? - start_ns) as f64 / 1e9;
            println!(
                "{zone}: {rows} rows of {} bytes: {:.2} M rows and {:.0} MB per CPU-second",
                bytes as u64 / rows.max(1),
                rows as f64 / seconds / 1e6,
                bytes as f64 / seconds / 1e6,
            );
        }
    }
    Ok(())
}

/// CPU time of this thread in nanoseconds, which other load does not affect.
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().ok_or("schedstat is empty")?.parse()?)
}

/// A click and the install that it is credited with, every 5 seconds.
fn facts(number: u64) -> [Fact; 2] {
    let time = EventTime::default().plus(START_MS + 5_000 * number);
    let ids = vec![("oaid".into(), format!("1fe9a970-efbb-29e0-0bdd-{number:012}").into())];
    let device = Device {
        ip: "203.0.113.9".into(),
        ua: "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko)"
            .into(),
        model: "Pixel 8".into(),
        os: "android".into(),
        os_version: "14".into(),
    };
    let touch = Touch {
        pid: Pid(1),
        id: "".into(),
        click_id: format!("c-{number}").into(),
        kind: TouchKind::Click,
        purpose: Purpose::Ua,
        spreadid: SpreadId(7),
        time: time.minus(3_600_000),
        lookback_ms: None,
        ids: ids.clone(),
        device: device.clone(),
        site: "".into(),
        params: vec![],
    };
    let activation = Activation {
        pid: Pid(1),
        id: format!("a-{number}").into(),
        time,
        install_begin_time: None,
        click_id: "".into(),
        ids,
        device,
        app_version: "1.2".into(),
        props: vec![("store".into(), "huawei".into())],
    };
    [Fact::Touch(touch.into()), Fact::Activation(activation.into())]
}
