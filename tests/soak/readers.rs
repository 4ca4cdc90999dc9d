//! Readers during the soak: one waits until each marker is exported, another downloads.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::traffic::{APPS, HOUR_MS, MARKED, Marker, START_MS};
use testbed::DEADLINE;
use testbed::adtrail::Adtrail;

/// Precision of the time at which a marker is visible.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const DOWNLOAD_INTERVAL: Duration = Duration::from_secs(3);

/// Returns, for each marker, the time from its production to its export. Ends when the sender is dropped.
pub fn await_markers(adtrail: &Adtrail, markers: &Receiver<(Marker, Instant)>) -> Vec<Duration> {
    let (mut awaited, mut took) = (Vec::new(), Vec::new());
    loop {
        match markers.try_recv() {
            Ok(marker) => awaited.push(marker),
            Err(TryRecvError::Disconnected) if awaited.is_empty() => return took,
            Err(_) => {}
        }
        awaited.retain(|(marker, produced)| {
            let is_shown = is_shown(adtrail, marker);
            took.extend(is_shown.then(|| produced.elapsed()));
            assert!(is_shown || produced.elapsed() < DEADLINE, "{marker:?} is not shown");
            !is_shown
        });
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn is_shown(adtrail: &Adtrail, marker: &Marker) -> bool {
    let (from, to) = (time(marker.time_ms), time(marker.time_ms + 1));
    let path = format!("/v1/apps/{MARKED}/events.csv?from={from}&to={to}&fields=event_id");
    let reply = adtrail.get(&path).expect("adtrail responds");
    assert!(reply.status == 200 && reply.is_whole, "{reply:?}");
    reply.text().lines().any(|line| line == marker.event_id())
}

/// Formats a time as a query parameter.
pub fn time(time_ms: u64) -> String {
    let time = jiff::Timestamp::from_millisecond(time_ms.cast_signed()).expect("the time is valid");
    format!("{time:.3}")
}

#[derive(Debug, Default)]
pub struct Downloaded {
    pub files: u64,
    pub rows: u64,
}

/// Downloads two hours of an app repeatedly: each file is complete and has no event twice.
pub fn download(
    adtrail: &Adtrail,
    is_over: impl Fn() -> bool,
    now_ms: impl Fn() -> u64,
) -> Downloaded {
    let (mut rng, mut all) = (Rng::with_seed(1), Downloaded::default());
    while !is_over() {
        let app = APPS[rng.usize(..APPS.len())];
        let from = now_ms().saturating_sub(HOUR_MS * rng.u64(2..24)).max(START_MS);
        let (from, to) = (time(from), time(from + 2 * HOUR_MS));
        let reply = adtrail.get(&format!("/v1/apps/{app}/events.csv?from={from}&to={to}"));
        let reply = reply.expect("adtrail responds");
        assert!(reply.status == 200 && reply.is_whole, "{app}, {from} to {to}");
        all.files += 1;
        all.rows += check_once(&reply.body);
        let since = Instant::now();
        while since.elapsed() < DOWNLOAD_INTERVAL && !is_over() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    all
}

/// Checks that no event has two rows. Returns their number.
#[track_caller]
fn check_once(csv: &[u8]) -> u64 {
    let mut reader = csv::Reader::from_reader(csv);
    let names = reader.headers().expect("the CSV has a header line").clone();
    let column = |name| names.iter().position(|column| column == name).expect("the column exists");
    let (kind, id) = (column("event_type"), column("event_id"));
    let mut seen = HashSet::new();
    for row in reader.into_records() {
        let row = row.expect("the row has all columns");
        let event = (row[kind].to_owned(), row[id].to_owned());
        assert!(seen.insert(event.clone()), "two rows of {event:?}");
    }
    seen.len() as u64
}
