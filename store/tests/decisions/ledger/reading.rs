//! Reading rows beside the one that writes them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::reader::Reader;
use attribution::facts::event::EventTime;
use attribution::worker::Worker;
use tempfile::TempDir;

use super::support::facts::{
    A, DAY, HOUR, SECOND, a_and, activation, click, effect, identified, millis,
};
use super::support::rules::{apps, rules};
use super::support::run::{Shelf, give, on_disk, read, settings};

/// The ids of app X's rows within the times.
fn ids(reader: &Reader, from: EventTime, to: EventTime) -> Vec<u64> {
    let mut times = Vec::new();
    let visit = |key: &adtrail_store::layout::key::RowKey, _: &[u8]| {
        times.push(key.event_time.millis());
        ControlFlow::Continue(())
    };
    reader.scan_rows(&apps()[0], from, to, visit).expect("a scan");
    times
}

#[test]
fn a_range_is_half_open() {
    let (store, _dir) = on_disk(&rules());
    let mut worker = Worker::new(store, rules());
    give(&mut worker, identified([5, 6, 7].map(|ms| effect(&format!("e{ms}"), millis(ms)))));
    give(&mut worker, identified([activation("y", millis(6)).of_app_y()]));
    let reader = worker.ledger().reader();
    assert_eq!(ids(&reader, millis(5), millis(7)), [5, 6]);
    assert_eq!(ids(&reader, millis(6), millis(8)), [6, 7]);
    assert_eq!(ids(&reader, millis(6), millis(6)), [0; 0]);
    assert_eq!(ids(&reader, millis(7), millis(6)), [0; 0]);
}

#[test]
fn a_scan_can_be_broken_off() {
    let (store, _dir) = on_disk(&rules());
    let mut worker = Worker::new(store, rules());
    give(&mut worker, identified([5, 6, 7].map(|ms| effect(&format!("e{ms}"), millis(ms)))));
    let mut seen = 0;
    let stop = |_: &_, _: &[u8]| {
        seen += 1;
        ControlFlow::Break(())
    };
    let reader = worker.ledger().reader();
    reader.scan_rows(&apps()[0], millis(0), EventTime::MAX, stop).expect("a scan");
    assert_eq!(seen, 1);
}

#[test]
fn a_scan_sees_the_rows_of_the_moment_of_its_call() {
    let (store, _dir) = on_disk(&rules());
    let mut worker = Worker::new(store, rules());
    let drafts = (0..200)
        .map(|n| activation(&format!("a{n}"), a_and(n)).only("imei", &format!("{}", n + 1)));
    give(&mut worker, identified(drafts));
    let reader = worker.ledger().reader();
    let before = worker.ledger().shown();
    let mut seen = Vec::new();
    let visit = |key: &adtrail_store::layout::key::RowKey, _: &[u8]| {
        seen.push((key.event_time, key.spreadid));
        if seen.len() == 1 {
            // All rows move to another campaign, and one more comes.
            let clicks = (0..200)
                .map(|n| click(&format!("c{n}"), a_and(-HOUR)).only("imei", &format!("{}", n + 1)));
            give(&mut worker, identified(clicks.chain([activation("more", a_and(100))])));
        }
        ControlFlow::Continue(())
    };
    reader.scan_rows(&apps()[0], millis(0), EventTime::MAX, visit).expect("a scan");
    assert_eq!(seen.len(), before.len());
    assert!(seen.iter().all(|(_, spreadid)| spreadid.0 == 0));
    let after = worker.ledger().shown();
    assert_eq!(after.len(), 201);
    assert_eq!(after.iter().filter(|row| row.short.contains(" attributed ")).count(), 200);
}

#[test]
fn a_reader_beside_the_writer_sees_what_is_committed() {
    let (store, dir) = on_disk(&rules());
    let mut worker = Worker::new(store, rules());
    let beside = || open_for_reading(&settings(dir.path())).expect("the store opens");
    assert_eq!(read(&beside()), []);
    give(&mut worker, identified([activation("a", A)]));
    let first = beside();
    assert_eq!(read(&first), worker.ledger().shown());
    give(&mut worker, identified([click("c1", a_and(-HOUR)), effect("e", a_and(1))]));
    assert_eq!(read(&beside()), worker.ledger().shown());
    assert_eq!(read(&beside()).len(), 2);
    // What was opened before shows its own moment.
    assert_eq!(read(&first).len(), 1);
}

/// Each batch brings the row of the next millisecond, so one that is missed leaves a hole. What is written
/// goes from the log into files all the time, and the log with it.
#[test]
fn a_reader_beside_a_writer_that_moves_its_log_sees_no_hole() {
    let (store, dir) = on_disk(&rules());
    let (opened, mut has_holes) = (AtomicU64::new(0), false);
    let written_min = testbed::length(300, 1_000);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut worker = Worker::new(store, rules());
            let mut n = 0;
            // However slowly a reader gets in between.
            while n < written_min || opened.load(Ordering::Relaxed) < OPENED_MIN {
                give(&mut worker, identified([activation(&format!("a{n}"), millis(n)).anyone()]));
                if n % 4 == 0 {
                    worker.ledger().compact();
                }
                n += 1;
            }
            n
        });
        while !writer.is_finished() {
            // Files go faster here than anywhere else: now and then too fast to be opened.
            let Ok(reader) = open_for_reading(&settings(dir.path())) else { continue };
            let found = ids(&reader, millis(0), EventTime::MAX);
            let count = found.len() as u64;
            has_holes |= found != (0..count).collect::<Vec<_>>();
            opened.fetch_add(if has_holes { OPENED_MIN } else { 1 }, Ordering::Relaxed);
        }
        writer.join().expect("no panic")
    });
    assert!(!has_holes, "rows are missing");
    let reader = open_for_reading(&settings(dir.path())).expect("the store opens");
    assert_eq!(ids(&reader, millis(0), EventTime::MAX).len(), usize::try_from(written).unwrap());
}

const OPENED_MIN: u64 = 4;

#[test]
fn rows_that_are_too_old_are_not_shown() {
    let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
    let mut settings = settings(dir.path());
    settings.retention_ms = Some(10 * DAY as u64);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    let ago = |ms: i64| millis(now.as_millis() as i64 - ms);
    let store = Embedded::open(&settings, &rules()).expect("the store opens");
    let mut worker = Worker::new(store, rules());
    let drafts = [
        activation("old", ago(10 * DAY + HOUR)).only("imei", "1"),
        activation("a", ago(10 * DAY - HOUR)),
        activation("future", ago(-DAY)).only("imei", "2"),
    ];
    give(&mut worker, identified(drafts));
    let shown: Vec<_> = worker.ledger().shown().into_iter().map(|row| row.short).collect();
    assert_eq!(shown, ["a: install organic", "future: install organic"]);
    let beside = open_for_reading(&settings).expect("the store opens");
    assert_eq!(read(&beside), worker.ledger().shown());
    // What a decision rests on stays, and corrections go on.
    give(&mut worker, identified([click("c1", ago(10 * DAY + SECOND))]));
    assert_eq!(worker.ledger().shown().len(), 2);
    drop((worker, beside));
    settings.retention_ms = None;
    let store = Embedded::open(&settings, &rules()).expect("the store opens");
    assert_eq!(store.shown().len(), 3, "nothing is lost before it is compacted");
}
