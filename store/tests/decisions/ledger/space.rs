//! The space of rows that retention takes away comes back by itself.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use adtrail_store::embedded::Embedded;
use adtrail_store::layout::key::RowKey;
use attribution::facts::event::EventTime;
use attribution::ledger::{Facts as _, Ledger as _, Progress};
use attribution::rules::policy::{DAY_MS, HOUR_MS};
use tempfile::TempDir;

use super::rows::{commit, decided};
use super::support::facts::{a_and, activation};
use super::support::rules::{apps, rules};
use super::support::run::settings;

/// 120 MiB of rows, ten at each tenth of a day.
const ROWS: i64 = 3_840;
const ROW_BYTES: usize = 32 << 10;
/// Of the rows that go, most. What is kept of the events themselves stays.
const SWEPT_BYTES: u64 = 80 << 20;
const KEPT_DAYS: u64 = 10;

fn bytes(path: &Path) -> u64 {
    let files = path.read_dir().expect("a folder").flatten();
    let tables = files.filter(|file| file.path().extension().is_some_and(|of| of == "sst"));
    tables.map(|file| file.metadata().map_or(0, |data| data.len())).sum()
}

fn until(store: &mut Embedded, time: EventTime) {
    let progress = Progress { consumed_until: Some(time), ..Progress::default() };
    store.commit(Vec::new(), &progress).expect("a commit");
}

fn time(number: i64) -> EventTime {
    a_and(number / 10 * DAY_MS as i64 / 10)
}

/// Time and hash of each row.
fn rows(store: &Embedded) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let visit = |key: &RowKey, _: &[u8]| {
        found.push((key.event_time.millis(), key.seq));
        ControlFlow::Continue(())
    };
    let range = (EventTime::default(), EventTime::MAX);
    store.reader().scan_rows(&apps()[0], range.0, range.1, visit).expect("a scan");
    found
}

/// A store of many rows, on disk.
fn make(store: &mut Embedded) {
    let mut random = fastrand::Rng::with_seed(7);
    let numbers: Vec<i64> = (0..ROWS).collect();
    for part in numbers.chunks(64) {
        let rows = part.iter().map(|number| {
            // Nothing that could be compressed.
            let text: String =
                std::iter::repeat_with(|| random.alphanumeric()).take(ROW_BYTES).collect();
            decided(activation(&format!("a{number}"), time(*number)).prop("text", &text), 1, None)
        });
        commit(store, rows);
    }
    until(store, time(ROWS));
    store.compact();
}

/// Until so much is left, however long it takes: a store that gives nothing back never ends.
fn await_less(path: &Path, bytes_max: u64) {
    let begun = Instant::now();
    while bytes(path) > bytes_max {
        let left = bytes(path);
        assert!(begun.elapsed() < Duration::from_secs(120), "{left} bytes are left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn space_comes_back_and_nothing_younger_goes() {
    let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
    let mut settings = settings(dir.path());
    let open = |settings: &config::Store| Embedded::open(settings, &rules()).expect("it opens");
    let mut store = open(&settings);
    make(&mut store);
    let all = rows(&store);
    let before = bytes(dir.path());
    assert!(before > 80 << 20, "{before} bytes");
    drop(store);

    settings.retention_ms = Some(KEPT_DAYS * DAY_MS);
    let mut store = open(&settings);
    let end = store.consumed_until().expect("a time");
    until(&mut store, end);
    // Closed as soon as it has begun, and not ended: that goes on at the next start.
    drop(store);
    let store = open(&settings);
    await_less(dir.path(), before - SWEPT_BYTES);
    let gone = (end.minus(KEPT_DAYS * DAY_MS).millis() / HOUR_MS) * HOUR_MS;
    let left: Vec<_> = all.into_iter().filter(|(time, _)| *time >= gone).collect();
    assert!(left.len() as u64 >= KEPT_DAYS * 100);
    assert!(rows(&store) == left, "what is younger is there");
    drop(store);
    assert!(rows(&open(&settings)) == left);
}
