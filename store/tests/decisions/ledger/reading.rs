//! Reading rows while another process writes them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::reader::Reader;
use attribution::facts::event::EventTime;
use attribution::worker::Worker;

use super::support::facts::{
    A, DAY, HOUR, SECOND, a_plus, activation, click, effect, identified, millis,
};
use super::support::folders::temp_folder;
use super::support::rules::{apps, rules};
use super::support::run::{LedgerUnderTest, on_disk, process, read, settings};

/// Returns the times, in milliseconds, of app X's rows in a range.
fn times(reader: &Reader, from: EventTime, to: EventTime) -> Vec<u64> {
    let mut found = Vec::new();
    let visit = |key: &adtrail_store::layout::key::RowKey, _: &[u8]| {
        found.push(key.event_time.millis());
        ControlFlow::Continue(())
    };
    reader.scan_rows(&apps()[0], from, to, visit).expect("the scan succeeds");
    found
}

#[test]
fn a_range_is_half_open() {
    let (store, _dir) = on_disk(&rules());
    let mut worker = Worker::new(store, rules());
    process(&mut worker, identified([5, 6, 7].map(|ms| effect(&format!("e{ms}"), millis(ms)))));
    process(&mut worker, identified([activation("y", millis(6)).of_app_y()]));
    let reader = worker.ledger().reader();
    assert_eq!(times(&reader, millis(5), millis(7)), [5, 6]);
    assert_eq!(times(&reader, millis(6), millis(8)), [6, 7]);
    assert_eq!(times(&reader, millis(6), millis(6)), [0; 0]);
    assert_eq!(times(&reader, millis(7), millis(6)), [0; 0]);
}

#[test]
fn a_scan_can_be_stopped() {
    let (store, _dir) = on_disk(&rules());
    let mut worker = Worker::new(store, rules());
    process(&mut worker, identified([5, 6, 7].map(|ms| effect(&format!("e{ms}"), millis(ms)))));
    let mut seen = 0;
    let stop = |_: &_, _: &[u8]| {
        seen += 1;
        ControlFlow::Break(())
    };
    let reader = worker.ledger().reader();
    reader.scan_rows(&apps()[0], millis(0), EventTime::MAX, stop).expect("the scan succeeds");
    assert_eq!(seen, 1);
}

#[test]
fn a_reader_in_another_process_sees_committed_rows() {
    let (store, dir) = on_disk(&rules());
    let mut worker = Worker::new(store, rules());
    let open = || open_for_reading(&settings(dir.path())).expect("the store opens");
    assert_eq!(read(&open()), []);
    process(&mut worker, identified([activation("a", A)]));
    let first = open();
    assert_eq!(read(&first), worker.ledger().row_texts());
    process(&mut worker, identified([click("c1", a_plus(-HOUR)), effect("e", a_plus(1))]));
    assert_eq!(read(&open()), worker.ledger().row_texts());
    assert_eq!(read(&open()).len(), 2);
    // The first reader still sees its own snapshot.
    assert_eq!(read(&first).len(), 1);
}

/// Each batch adds a row at the next millisecond, so a missed batch leaves a gap. Flushes constantly move data from the
/// log into files and replace the log.
#[test]
fn a_reader_sees_no_gaps_while_the_log_is_flushed() {
    let (store, dir) = on_disk(&rules());
    let (opened, mut has_gaps) = (AtomicU64::new(0), false);
    let written_min = testbed::length(300, 1_000);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut worker = Worker::new(store, rules());
            let mut n = 0;
            // Continues until readers have opened the store a few times.
            while n < written_min || opened.load(Ordering::Relaxed) < OPENED_MIN {
                process(
                    &mut worker,
                    identified([activation(&format!("a{n}"), millis(n)).without_ids()]),
                );
                if n % 4 == 0 {
                    worker.ledger().compact().unwrap();
                }
                n += 1;
            }
            n
        });
        while !writer.is_finished() {
            // Files are replaced faster here than in practice, so opening the store fails now and then.
            let Ok(reader) = open_for_reading(&settings(dir.path())) else { continue };
            let found = times(&reader, millis(0), EventTime::MAX);
            let count = found.len() as u64;
            has_gaps |= found != (0..count).collect::<Vec<_>>();
            opened.fetch_add(if has_gaps { OPENED_MIN } else { 1 }, Ordering::Relaxed);
        }
        writer.join().expect("the thread does not panic")
    });
    assert!(!has_gaps, "rows are missing");
    let reader = open_for_reading(&settings(dir.path())).expect("the store opens");
    assert_eq!(times(&reader, millis(0), EventTime::MAX).len(), usize::try_from(written).unwrap());
}

const OPENED_MIN: u64 = 4;

#[test]
fn rows_past_retention_are_hidden() {
    let dir = temp_folder();
    let mut settings = settings(dir.path());
    settings.retention_ms = Some(10 * DAY as u64);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    let ago = |ms: i64| millis(now.as_millis() as i64 - ms);
    let store = Embedded::open(&settings, &rules()).expect("the store opens");
    let mut worker = Worker::new(store, rules());
    let drafts = [
        activation("old", ago(10 * DAY + HOUR)).only("imei", "1"),
        activation("a", ago(10 * DAY - HOUR)),
        activation("future", ago(-DAY)).only("imei", "2"),
    ];
    process(&mut worker, identified(drafts));
    let shown: Vec<_> = worker.ledger().row_texts().into_iter().map(|row| row.short).collect();
    assert_eq!(shown, ["a: install organic", "future: install organic"]);
    let reader = open_for_reading(&settings).expect("the store opens");
    assert_eq!(read(&reader), worker.ledger().row_texts());
    // Facts that decisions depend on are kept, and corrections continue.
    process(&mut worker, identified([click("c1", ago(10 * DAY + SECOND))]));
    assert_eq!(worker.ledger().row_texts().len(), 2);
    drop((worker, reader));
    settings.retention_ms = None;
    let store = Embedded::open(&settings, &rules()).expect("the store opens");
    assert_eq!(store.row_texts().len(), 3, "rows past retention were deleted before a compaction");
}
