//! A store that has lost the end of its log: the service says so, and reads again what was lost.
#![cfg(test)]

mod support;

use std::fs;
use std::path::PathBuf;

use support::kafka::{Kafka, Message};
use support::site::{ONE_CAMPAIGN, Site};

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
    assert!(download(site) == rows);
}

fn download(site: &Site) -> Vec<u8> {
    site.download("app-x", "2026-11-01", "2026-12-31", &[])
}

/// The rows once more events are in.
fn filled(site: &Site, from: usize) -> Vec<u8> {
    Kafka::shared().produce(&site.topics.activations, activations(from));
    let adtrail = site.start();
    adtrail.await_caught_up();
    assert!(adtrail.terminate().0.success());
    let rows = download(site);
    assert_eq!(rows.iter().filter(|byte| **byte == b'\n').count(), from + 101);
    rows
}

#[test]
fn what_was_lost_is_told_and_read_again() {
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
