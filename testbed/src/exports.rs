//! The exports of the crowd's apps, from a service and as they have to be.

use std::collections::HashMap;
use std::thread;

use super::adtrail::Adtrail;
use super::crowd::{self, APPS, FROM, Record, TO};
use super::site::{Site, Topics};

/// A CSV for each of [`APPS`].
pub type Exports = [Vec<u8>; APPS.len()];

/// What `adtrail replay` makes of the records in their own order.
pub fn replayed(records: &[Record]) -> Exports {
    let site = Site::on(Topics::of("replayed"), "nowhere:1".into(), crowd::SETTINGS);
    let file = site.path().join("events.ndjson");
    std::fs::write(&file, crowd::file(records)).unwrap();
    let file = file.to_str().unwrap();
    APPS.map(|app| {
        let output = site.run(&["replay", "--app", app, file]);
        let said = String::from_utf8_lossy(&output.stderr);
        let bad = records.iter().filter(|record| record.is_bad).count();
        assert!(said.contains(&format!("{bad} lines are no events")), "{said}");
        output.stdout
    })
}

/// Over HTTP and by the command, beside the running service; both are the same bytes.
pub fn downloads(site: &Site, adtrail: &Adtrail) -> Exports {
    APPS.map(|app| {
        let by_http = by_http(adtrail, app);
        assert!(by_http == site.download(app, FROM, TO, &[]), "HTTP and command differ for {app}");
        by_http
    })
}

pub fn by_http(adtrail: &Adtrail, app: &str) -> Vec<u8> {
    let path = format!("/v1/apps/{app}/events.csv?from={FROM}&to={TO}");
    let reply = adtrail.get(&path).unwrap();
    assert!(reply.status == 200 && reply.is_whole, "{reply:?}");
    reply.body
}

#[track_caller]
pub fn check_equal(found: &[Vec<u8>], expected: &[Vec<u8>]) {
    assert_eq!(found.len(), expected.len());
    for ((found, expected), app) in found.iter().zip(expected).zip(APPS) {
        check_same(app, found, expected);
    }
}

/// That an export is as it has to be, byte for byte. What was compared is printed: `scripts/guarantees` adds it up.
#[track_caller]
pub fn check_same(app: &str, found: &[u8], expected: &[u8]) {
    let (rows, lost, doubled) = compare(found, expected);
    let test = thread::current();
    let test = test.name().unwrap_or("main");
    println!("compared by {test}: {rows} rows, {lost} lost, {doubled} doubled");
    let [found, expected] = [found, expected].map(|bytes| String::from_utf8_lossy(bytes));
    for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{app}, line {}", line + 1);
    }
    assert_eq!(found.len(), expected.len(), "{app}: one goes on");
}

/// How many rows were expected, and of these how many are missing and how many are there again.
fn compare(found: &[u8], expected: &[u8]) -> (usize, usize, usize) {
    let [found, expected] = [found, expected].map(times_by_id);
    let missing = |id: &&Vec<u8>| !found.contains_key(*id);
    let lost = expected.keys().filter(missing).count();
    let doubled = found.values().map(|times| times - 1).sum();
    (expected.values().sum(), lost, doubled)
}

/// How often each event has a row.
fn times_by_id(csv: &[u8]) -> HashMap<Vec<u8>, usize> {
    let mut reader = csv::Reader::from_reader(csv);
    let names = reader.byte_headers().expect("a line of names");
    let id = names.iter().position(|name| name == b"event_id").expect("a column of ids");
    let mut times = HashMap::new();
    // What is no row is missing.
    for record in reader.byte_records().filter_map(Result::ok) {
        *times.entry(record[id].to_vec()).or_insert(0) += 1;
    }
    times
}
