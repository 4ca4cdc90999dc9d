//! A store that has lost the end of its WAL: the service reports it, and reads the lost records again.

use std::fs;
use std::path::PathBuf;

use fastrand::Rng;
use testbed::exports::{self, check_equal, check_same, downloads};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{length, traffic};

const LOST: &str = "the store is behind the offsets that it committed to kafka";

fn activations(from: usize) -> impl Iterator<Item = Message> {
    (from..from + 100).map(|number| {
        let time = 1_795_305_600_000_u64 + number as u64;
        let line = format!(r#"{{"app":"app-x","event_id":"a-{number}","time":{time}}}"#);
        Message::new("app-x", line)
    })
}

fn newest_log(site: &Site) -> PathBuf {
    let files = fs::read_dir(site.path().join("store")).expect("the store exists");
    let files = files.map(|file| file.expect("a readable entry").path());
    let is_log = |file: &PathBuf| file.extension().is_some_and(|end| end == "log");
    files.filter(is_log).max().expect("the store has a WAL")
}

/// Checks whether the service reports the loss at its start, and that the rows are the same afterwards.
#[track_caller]
fn check(site: &Site, rows: &[u8], is_lost: bool) {
    let adtrail = site.start();
    adtrail.await_caught_up();
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
    assert_eq!(log.contains(LOST), is_lost, "{log}");
    check_same("app-x", &download(site), rows);
}

fn download(site: &Site) -> Vec<u8> {
    site.download("app-x", "2026-11-01", "2026-12-31", &[])
}

/// Runs the service until 100 more events are read and their offsets committed to the group. Returns all rows.
fn fill(site: &Site, from: usize) -> Vec<u8> {
    Kafka::shared().produce(&site.topics.activations, activations(from));
    let adtrail = site.start();
    adtrail.await_caught_up();
    Kafka::shared().await_committed(&site.group(), &site.topics.all());
    assert!(adtrail.terminate().0.success());
    let rows = download(site);
    assert_eq!(rows.iter().filter(|byte| **byte == b'\n').count(), from + 101);
    rows
}

#[test]
fn lost_records_are_reported_and_read_again() {
    let kafka = Kafka::shared();
    let settings = format!("{ONE_CAMPAIGN}\n[attribution]\ncorrection_horizon = \"off\"\n");
    let site = Site::new(kafka, "lost_log", 2, &settings).set("store.retention", "off");
    // A store that loses nothing reports nothing.
    let rows = fill(&site, 0);
    check(&site, &rows, false);

    // Opening the store flushes its WAL into table files, so each damage needs a new WAL.
    fill(&site, 100);
    let rows = fill(&site, 200);
    let log = newest_log(&site);
    let mut damaged = fs::read(&log).expect("the WAL is readable");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x40;
    fs::write(&log, damaged).expect("the WAL is writable");
    check(&site, &rows, true);
    check(&site, &rows, false);

    let rows = fill(&site, 300);
    fs::remove_file(newest_log(&site)).expect("the WAL is removed");
    check(&site, &rows, true);
}

/// After a kill the end of the WAL is damaged: truncated, zeroed, overwritten, or with one flipped bit.
/// `store/tests/decisions/ledger/torn.rs` does it at many more positions.
#[test]
fn records_in_a_torn_wal_are_read_again() {
    let kills = length(2, 6);
    let site = Site::new(Kafka::shared(), "lost_log.torn", 3, traffic::SETTINGS)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", "40");
    let records = traffic::records(17, 3_000);
    for (number, portion) in traffic::portions(&records, kills + 1).enumerate() {
        traffic::produce(&site.topics, portion);
        let adtrail = site.start();
        adtrail.await_caught_up();
        // More records than were produced since.
        let read = adtrail.metric("adtrail_ingest_read_total").unwrap();
        assert!(number == 0 || read > portion.len() as f64, "nothing was lost: {read}");
        if number == kills {
            check_equal(&downloads(&site, &adtrail), &exports::replayed(&records));
            break;
        }
        adtrail.kill9();
        let mut rng = Rng::with_seed(number as u64);
        let log = newest_log(&site);
        let mut bytes = fs::read(&log).unwrap();
        let at = rng.usize(bytes.len() / 2..bytes.len());
        match number % 4 {
            0 => bytes.truncate(at),
            1 => bytes[at..].fill(0),
            2 => bytes[at..].iter_mut().for_each(|byte| *byte = rng.u8(..)),
            _ => bytes[at] ^= 0x20,
        }
        fs::write(&log, bytes).unwrap();
    }
}

/// The disk of the store is not mounted: a new store is created, and the log says what that means.
#[test]
fn a_missing_store_is_reported() {
    const MISSING: &str = "the store has no position in partitions that the group has read";
    let kafka = Kafka::shared();
    let settings = format!("{ONE_CAMPAIGN}\n[attribution]\ncorrection_horizon = \"off\"\n");
    let site = Site::new(kafka, "lost_log.missing", 1, &settings).set("store.retention", "off");
    kafka.produce(&site.topics.activations, activations(0));
    let run = || {
        let adtrail = site.start();
        adtrail.await_caught_up();
        kafka.await_committed(&site.group(), &site.topics.all());
        let (status, log) = adtrail.terminate();
        assert!(status.success(), "{log}");
        log
    };
    // The first start, and a start that resumes.
    for log in [run(), run()] {
        assert!(!log.contains(MISSING) && !log.contains(LOST), "{log}");
    }
    kafka.forget(&site.topics.activations);
    kafka.produce(&site.topics.activations, activations(100));
    run();
    let (store, aside) = (site.path().join("store"), site.path().join("aside"));
    fs::rename(&store, &aside).expect("the folder is moved");
    let log = run();
    assert!(log.contains(MISSING), "{log}");
    let line = log.lines().find(|line| line.contains(MISSING)).expect("a line with the message");
    assert!(line.contains("WARN") && line.contains("records=100") && line.contains("gone=100"));
    // With the old store back, nothing is reported.
    fs::remove_dir_all(&store).expect("the folder is removed");
    fs::rename(&aside, &store).expect("the folder is moved");
    let log = run();
    assert!(!log.contains(MISSING) && !log.contains(LOST), "{log}");
}
