//! The disk space of rows past retention is reclaimed without a manual compaction.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use adtrail_store::embedded::Embedded;
use adtrail_store::layout::key::RowKey;
use attribution::facts::event::EventTime;
use attribution::ledger::{Facts as _, Ledger as _, Progress};
use attribution::rules::policy::{DAY_MS, HOUR_MS};

use super::rows::{commit, decision_write};
use super::support::facts::{a_plus, activation};
use super::support::folders::temp_folder;
use super::support::rules::{apps, rules};
use super::support::run::settings;

/// 120 MiB of rows, ten at each tenth of a day.
const ROWS: i64 = 3_840;
const ROW_BYTES: usize = 32 << 10;
/// The bytes to reclaim: most of the expired rows. The records of their events remain.
const RECLAIMED_BYTES: u64 = 80 << 20;
const RETENTION_DAYS: u64 = 10;

fn table_file_bytes(path: &Path) -> u64 {
    let files = path.read_dir().expect("the folder is readable").flatten();
    let tables =
        files.filter(|file| file.path().extension().is_some_and(|extension| extension == "sst"));
    tables.map(|file| file.metadata().map_or(0, |data| data.len())).sum()
}

/// Commits `time` as the low watermark.
fn consume_until(store: &mut Embedded, time: EventTime) {
    let progress = Progress { consumed_until: Some(time), ..Progress::default() };
    store.commit(Vec::new(), &progress).expect("the commit begins");
    store.wait_for_commit().expect("the commit succeeds");
}

fn time(number: i64) -> EventTime {
    a_plus(number / 10 * DAY_MS as i64 / 10)
}

/// Returns time and hash of each row.
fn rows(store: &Embedded) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let visit = |key: &RowKey, _: &[u8]| {
        found.push((key.event_time.millis(), key.seq));
        ControlFlow::Continue(())
    };
    let range = (EventTime::default(), EventTime::MAX);
    store.reader().scan_rows(&apps()[0], range.0, range.1, visit).expect("the scan succeeds");
    found
}

/// Writes many rows and compacts the store.
fn fill(store: &mut Embedded) {
    let mut random = fastrand::Rng::with_seed(7);
    let numbers: Vec<i64> = (0..ROWS).collect();
    for part in numbers.chunks(64) {
        let rows = part.iter().map(|number| {
            // Incompressible text.
            let text: String =
                std::iter::repeat_with(|| random.alphanumeric()).take(ROW_BYTES).collect();
            decision_write(
                activation(&format!("a{number}"), time(*number)).prop("text", &text),
                1,
                None,
            )
        });
        commit(store, rows);
    }
    consume_until(store, time(ROWS));
    store.compact().unwrap();
}

/// Waits until at most `bytes_max` are used.
fn await_reclaimed(path: &Path, bytes_max: u64) {
    let started = Instant::now();
    while table_file_bytes(path) > bytes_max {
        let used = table_file_bytes(path);
        assert!(started.elapsed() < Duration::from_secs(120), "{used} bytes are still used");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn space_is_reclaimed_and_younger_rows_are_kept() {
    let dir = temp_folder();
    let mut settings = settings(dir.path());
    let open =
        |settings: &config::Store| Embedded::open(settings, &rules()).expect("the store opens");
    let mut store = open(&settings);
    fill(&mut store);
    let all = rows(&store);
    let before = table_file_bytes(dir.path());
    assert!(before > 80 << 20, "{before} bytes");
    drop(store);

    settings.retention_ms = Some(RETENTION_DAYS * DAY_MS);
    let mut store = open(&settings);
    let end = store.consumed_until().expect("the store has a low watermark");
    consume_until(&mut store, end);
    // Closes the store right after reclaiming has begun. Reclaiming continues when the store is reopened.
    drop(store);
    let store = open(&settings);
    await_reclaimed(dir.path(), before - RECLAIMED_BYTES);
    let expired_before_ms = (end.minus(RETENTION_DAYS * DAY_MS).millis() / HOUR_MS) * HOUR_MS;
    let kept: Vec<_> = all.into_iter().filter(|(time, _)| *time >= expired_before_ms).collect();
    assert!(kept.len() as u64 >= RETENTION_DAYS * 100);
    assert!(rows(&store) == kept, "rows within retention are lost");
    drop(store);
    assert!(rows(&open(&settings)) == kept);
}
