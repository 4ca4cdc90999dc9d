//! A store that has lost the end of its log: the service says so, and reads again what was lost.

use std::fs;
use std::path::PathBuf;

use fastrand::Rng;
use testbed::exports::{self, check_equal, check_same, downloads};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{length, traffic};

const LOST: &str = "the store is of an earlier moment than it was";

fn activations(from: usize) -> impl Iterator<Item = Message> {
    (from..from + 100).map(|number| {
        let time = 1_795_305_600_000_u64 + number as u64;
        let line = format!(r#"{{"app":"app-x","event_id":"a-{number}","time":{time}}}"#);
        Message::new("app-x", line)
    })
}

fn newest_log(site: &Site) -> PathBuf {
    let files = fs::read_dir(site.path().join("store")).expect("a store");
    let files = files.map(|file| file.expect("a file").path());
    let is_log = |file: &PathBuf| file.extension().is_some_and(|end| end == "log");
    files.filter(is_log).max().expect("a log")
}

/// What the service says at its start, and whether the rows are those of before.
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

/// The rows once more events are in, and Kafka's group knows of them.
fn filled(site: &Site, from: usize) -> Vec<u8> {
    Kafka::shared().produce(&site.topics.activations, activations(from));
    let adtrail = site.start();
    adtrail.await_caught_up();
    Kafka::shared().await_told(&site.group(), &site.topics.all());
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
    // Nobody knows what a store had that was never told of.
    let rows = filled(&site, 0);
    check(&site, &rows, false);

    // Opening moves what is in the log into files, so each damage has a log of its own.
    filled(&site, 100);
    let rows = filled(&site, 200);
    let log = newest_log(&site);
    let mut damaged = fs::read(&log).expect("a log");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x40;
    fs::write(&log, damaged).expect("a write");
    check(&site, &rows, true);
    check(&site, &rows, false);

    let rows = filled(&site, 300);
    fs::remove_file(newest_log(&site)).expect("a log");
    check(&site, &rows, true);
}

/// Killed under load, and the end of the log is not what was written: cut, zeros, other bytes, a bit.
/// `store/tests/decisions/ledger/torn.rs` does it at many more places.
#[test]
fn a_log_that_is_torn_at_a_kill_is_read_again() {
    let kills = length(2, 6);
    let site = Site::new(Kafka::shared(), "lost_log.torn", 3, traffic::SETTINGS)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", "40");
    let records = traffic::records(17, 3_000);
    for (number, portion) in traffic::portions(&records, kills + 1).enumerate() {
        traffic::produce(&site.topics, portion);
        let adtrail = site.start();
        adtrail.await_caught_up();
        // More than has come since.
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

/// The disk of the store is not mounted: a new store begins, and it is said what that means.
#[test]
fn a_missing_store_is_reported() {
    const MISSING: &str = "the store has no position in partitions that the group has read";
    let kafka = Kafka::shared();
    let settings = format!("{ONE_CAMPAIGN}\n[attribution]\ncorrection_horizon = \"off\"\n");
    let site = Site::new(kafka, "lost_log.missing", 1, &settings).set("store.retention", "off");
    kafka.produce(&site.topics.activations, activations(0));
    let told = || {
        let adtrail = site.start();
        adtrail.await_caught_up();
        kafka.await_told(&site.group(), &site.topics.all());
        let (status, log) = adtrail.terminate();
        assert!(status.success(), "{log}");
        log
    };
    // The first start of all, and one that goes on.
    for log in [told(), told()] {
        assert!(!log.contains(MISSING) && !log.contains(LOST), "{log}");
    }
    kafka.forget(&site.topics.activations);
    kafka.produce(&site.topics.activations, activations(100));
    told();
    let (store, aside) = (site.path().join("store"), site.path().join("aside"));
    fs::rename(&store, &aside).expect("a folder");
    let log = told();
    assert!(log.contains(MISSING), "{log}");
    let line = log.lines().find(|line| line.contains(MISSING)).expect("a line");
    assert!(line.contains("WARN") && line.contains("records=100") && line.contains("gone=100"));
    // Brought back, it is as if nothing had been.
    fs::remove_dir_all(&store).expect("a folder");
    fs::rename(&aside, &store).expect("a folder");
    let log = told();
    assert!(!log.contains(MISSING) && !log.contains(LOST), "{log}");
}
