//! The same set of events gives the same bytes: in any order, with any redeliveries, through
//! kills and restarts, and from files without Kafka.
#![cfg(test)]

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use testbed::crowd::{self, APPS, FROM, Record, TO};
use testbed::exports::{self, Exports, by_http, check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::rows;
use testbed::site::Site;

/// A few hundred batches of a few dozen records: room to be interrupted in.
const BATCH_RECORDS: &str = "40";

fn records() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    RECORDS.get_or_init(|| crowd::records(1, 3000))
}

fn site(name: &str, partitions: i32) -> Site {
    Site::new(Kafka::shared(), name, partitions, crowd::SETTINGS)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", BATCH_RECORDS)
}

/// What `adtrail replay` makes of the records in their own order, by app.
fn replayed() -> &'static Exports {
    static REPLAYED: OnceLock<Exports> = OnceLock::new();
    REPLAYED.get_or_init(|| exports::replayed(records()))
}

/// That the events are worth it: everything that can happen to a row happens.
#[test]
fn the_events_lead_to_every_kind_of_row() {
    let of_apps = replayed().iter().map(|csv| rows::by_event_id(rows::parse(csv)));
    let rows: Vec<_> = of_apps.flat_map(|by_id| by_id.into_values()).collect();
    let seen = |column: &str| -> BTreeSet<&str> { rows.iter().map(|row| &*row[column]).collect() };
    let all = |names: &[&'static str]| -> BTreeSet<&str> { names.iter().copied().collect() };
    let statuses = ["attributed", "duplicate", "organic", "orphan", "rejected", "unattributed"];
    assert_eq!(seen("status"), all(&statuses));
    assert_eq!(seen("install_type"), all(&["", "duplicate", "install", "reinstall"]));
    assert_eq!(seen("touch_type"), all(&["", "click", "impression"]));
    assert_eq!(seen("channel"), all(&["", "kuaishou, \"ks\"", "toutiao", "unknown"]));
    for match_type in
        ["click_id", "oaid", "gaid", "idfa", "imei", "android_id", "mac", "caid", "ip_device"]
    {
        assert!(seen("match_type").contains(match_type), "no match by {match_type}");
    }
    assert!(rows.iter().any(|row| row["event_id"].starts_with('#')), "no id of its own making");
    assert!(rows.iter().any(|row| !row["contributor3_spreadid"].is_empty()), "few touches");
}

#[test]
fn one_partition_without_interruption() {
    let site = site("convergence.plain", 1);
    let records = crowd::redelivered(records(), 1);
    crowd::produce(&site.topics, &records);
    let adtrail = site.start();
    adtrail.await_read(records.len() as u64);
    check_equal(&downloads(&site, &adtrail), replayed());
    let bad = records.iter().filter(|record| record.is_bad).count();
    assert_eq!(adtrail.metric("adtrail_ingest_dead_lettered_total"), Some(bad as f64));
    // Else nothing came late, and the order was no test.
    assert!(adtrail.metric("adtrail_attribution_corrections_total") > Some(100.0));
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{status}: {log}");
    // The same without the service.
    check_equal(&APPS.map(|app| site.download(app, FROM, TO, &[])), replayed());
}

#[test]
fn killed_again_and_again() {
    let kills = std::env::var("ADTRAIL_KILLS").map_or(15, |text| text.parse().expect("a number"));
    let seed =
        std::env::var("ADTRAIL_KILLS_SEED").map_or(2, |text| text.parse().expect("a number"));
    let mut moments = fastrand::Rng::with_seed(seed);
    let site = site("convergence.killed", 4);
    let records = crowd::redelivered(records(), seed);
    let mut portions = crowd::portions(&records, kills + 1);
    for portion in portions.by_ref().take(kills) {
        thread::scope(|scope| {
            // Beside it, so that it is killed while it reads.
            scope.spawn(|| portion.chunks(300).for_each(|some| crowd::produce(&site.topics, some)));
            let adtrail = site.start();
            if moments.bool() {
                adtrail.await_some_read();
            }
            thread::sleep(Duration::from_millis(moments.u64(..500)));
            // Whatever there is of it is shown once.
            rows::by_event_id(rows::parse(&by_http(&adtrail, APPS[0])));
            rows::by_event_id(rows::parse(&site.download(APPS[0], FROM, TO, &[])));
            adtrail.kill9();
        });
    }
    crowd::produce(&site.topics, portions.next().unwrap());
    let adtrail = site.start();
    adtrail.await_caught_up();
    let read = adtrail.metric("adtrail_ingest_read_total").unwrap();
    println!("read after the last kill: {read} of {}", records.len());
    assert!((1.0..records.len() as f64).contains(&read), "positions are not kept: {read}");
    check_equal(&downloads(&site, &adtrail), replayed());
}

#[test]
fn stopped_and_started() {
    const STOPS: usize = 3;
    let site = site("convergence.stopped", 3);
    let records = crowd::redelivered(records(), 3);
    let mut portions = records.chunks(records.len().div_ceil(STOPS + 1));
    for portion in portions.by_ref().take(STOPS) {
        crowd::produce(&site.topics, portion);
        let adtrail = site.start();
        adtrail.await_some_read();
        let (status, log) = adtrail.terminate();
        assert!(status.success(), "{status}: {log}");
    }
    crowd::produce(&site.topics, portions.next().unwrap());
    let adtrail = site.start();
    adtrail.await_caught_up();
    let read = adtrail.metric("adtrail_ingest_read_total").unwrap();
    assert!((1.0..records.len() as f64).contains(&read), "positions are not kept: {read}");
    check_equal(&downloads(&site, &adtrail), replayed());
}
