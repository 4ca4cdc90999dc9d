//! A store that has lost the end of its WAL: the service reports it, and reads the lost records again.

use std::fs;
use std::path::PathBuf;

use testbed::disk::{flip_bit, wal_files};
use testbed::exports::check_same;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};

const LOST: &str = "the store is behind the offsets that it committed to kafka";

fn site(name: &str, partitions: i32) -> Site {
    let site = Site::new(Kafka::shared(), name, partitions, ONE_CAMPAIGN);
    site.set("attribution.correction_horizon", "off")
}

fn activations(from: usize) -> impl Iterator<Item = Message> {
    (from..from + 100).map(|number| {
        let time = 1_795_305_600_000_u64 + number as u64;
        let line = format!(r#"{{"app":"app-x","event_id":"a-{number}","time":{time}}}"#);
        Message::new("app-x", line)
    })
}

fn newest_wal(site: &Site) -> PathBuf {
    wal_files(&site.path().join("store")).max().expect("the store has a WAL")
}

/// Starts the service, checks whether it reports a loss, and that the rows are as expected afterwards.
#[track_caller]
fn check(site: &Site, rows: &[u8], is_lost: bool) {
    let adtrail = site.start();
    adtrail.await_caught_up();
    let log = adtrail.stop();
    assert_eq!(log.contains(LOST), is_lost, "{log}");
    check_same("app-x", &download(site), rows);
}

fn download(site: &Site) -> Vec<u8> {
    site.download("app-x", "2026-11-01", "2026-12-31", &[])
}

/// Runs the service until 100 more events are read and their offsets are committed to the group. Returns all rows.
fn read_more(site: &Site, from: usize) -> Vec<u8> {
    Kafka::shared().produce(&site.topics.activations, activations(from));
    let adtrail = site.start();
    adtrail.await_caught_up();
    Kafka::shared().await_committed(&site.group(), &site.topics.all());
    adtrail.stop();
    let rows = download(site);
    assert_eq!(rows.iter().filter(|byte| **byte == b'\n').count(), from + 101);
    rows
}

#[test]
fn lost_records_are_reported_and_read_again() {
    let site = site("lost_wal", 2);
    // A store that loses nothing reports nothing.
    let rows = read_more(&site, 0);
    check(&site, &rows, false);

    // Opening the store flushes its WAL into table files, so each damage needs a new WAL.
    read_more(&site, 100);
    let rows = read_more(&site, 200);
    // `store/tests/decisions/ledger/damaged_log.rs` damages a WAL in every way and at many positions.
    flip_bit(&newest_wal(&site));
    check(&site, &rows, true);
    check(&site, &rows, false);

    let rows = read_more(&site, 300);
    fs::remove_file(newest_wal(&site)).expect("the WAL is removed");
    check(&site, &rows, true);
}

/// The disk of the store is not mounted: a new store is created, and the log says what that means.
#[test]
fn a_missing_store_is_reported() {
    const MISSING: &str = "the store has no position in partitions that the group has read";
    let kafka = Kafka::shared();
    let site = site("lost_wal.missing", 1);
    kafka.produce(&site.topics.activations, activations(0));
    let run = || {
        let adtrail = site.start();
        adtrail.await_caught_up();
        kafka.await_committed(&site.group(), &site.topics.all());
        adtrail.stop()
    };
    // The first start, and a start that resumes.
    for log in [run(), run()] {
        assert!(!log.contains(MISSING) && !log.contains(LOST), "{log}");
    }
    kafka.delete_records(&site.topics.activations);
    kafka.produce(&site.topics.activations, activations(100));
    run();
    let (store, aside) = (site.path().join("store"), site.path().join("aside"));
    fs::rename(&store, &aside).expect("the folder is moved");
    let log = run();
    assert!(log.contains(MISSING), "{log}");
    let line = log.lines().find(|line| line.contains(MISSING)).expect("a line has the message");
    assert!(line.contains("WARN") && line.contains("records=100") && line.contains("gone=100"));
    // With the old store back, nothing is reported.
    fs::remove_dir_all(&store).expect("the folder is removed");
    fs::rename(&aside, &store).expect("the folder is moved");
    let log = run();
    assert!(!log.contains(MISSING) && !log.contains(LOST), "{log}");
}
