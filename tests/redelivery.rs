//! Whatever comes again changes nothing: records that were produced up to nine times, a store that
//! is a day behind what was read, a group that is gone.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use testbed::crowd::{self, Record};
use testbed::exports::{self, Exports, check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::run_ok;
use testbed::site::Site;

fn records() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    RECORDS.get_or_init(|| crowd::records(9, 2000))
}

fn replayed() -> &'static Exports {
    static REPLAYED: OnceLock<Exports> = OnceLock::new();
    REPLAYED.get_or_init(|| exports::replayed(records()))
}

fn site(name: &str) -> Site {
    Site::new(Kafka::shared(), name, 3, crowd::SETTINGS)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", "100")
}

/// Reads all that there is, and stops: how many records that were.
fn read_all(site: &Site) -> f64 {
    let adtrail = site.start();
    adtrail.await_caught_up();
    let read = adtrail.metric("adtrail_ingest_read_total").unwrap();
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
    read
}

fn copy(from: &Path, to: &Path) {
    run_ok(Command::new("cp").arg("-a").args([from, to]), b"");
}

#[test]
fn a_store_that_is_behind_reads_again_what_it_has_lost() {
    let site = site("redelivery.behind");
    let (store, kept) = (site.path().join("store"), site.path().join("kept"));
    let all = crowd::redelivered(records(), 9);
    let (some, rest) = all.split_at(all.len() / 4);
    crowd::produce(&site.topics, some);
    read_all(&site);
    copy(&store, &kept);
    crowd::produce(&site.topics, rest);
    assert_eq!(read_all(&site), rest.len() as f64);
    for _ in 0..2 {
        fs::remove_dir_all(&store).unwrap();
        copy(&kept, &store);
        assert_eq!(read_all(&site), rest.len() as f64);
    }
    let adtrail = site.start();
    check_equal(&downloads(&site, &adtrail), replayed());
}

#[test]
fn up_to_nine_times_and_without_a_group() {
    let site = site("redelivery.nine");
    // One to nine times each.
    let all = crowd::redelivered(&crowd::redelivered(records(), 10), 11);
    let (some, rest) = all.split_at(all.len() / 2);
    crowd::produce(&site.topics, some);
    assert_eq!(read_all(&site), some.len() as f64);
    // The store's positions count: no group is asked where to read on.
    let group = site.path().file_name().unwrap().to_str().unwrap();
    Kafka::shared().delete_group(group);
    crowd::produce(&site.topics, rest);
    assert_eq!(read_all(&site), rest.len() as f64);
    let adtrail = site.start();
    check_equal(&downloads(&site, &adtrail), replayed());
}
