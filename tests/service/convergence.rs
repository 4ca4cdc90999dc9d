//! The same set of events gives the same bytes: in any order, with any redeliveries, through
//! kills and restarts, and from files without Kafka.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use attribution::ledger::{Ledger as _, Position};
use store::embedded::Embedded;
use testbed::exports::{self, Workload, check_equal, check_same, downloads};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{eventually, from_env, rows, run_ok};

/// A few hundred batches of a few dozen records: room to be interrupted in.
const BATCH_RECORDS: &str = "40";

static WORKLOAD: Workload = Workload::new(|| traffic::records(1, 3000));

fn site(name: &str, partitions: i32) -> Site {
    Site::new(Kafka::shared(), name, partitions, traffic::SETTINGS)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", BATCH_RECORDS)
}

/// That the events are worth it: everything that can happen to a row happens.
#[test]
fn the_events_lead_to_every_kind_of_row() {
    let of_apps = WORKLOAD.expected().iter().map(|csv| rows::by_event_id(rows::parse(csv)));
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
    let records = traffic::redelivered(WORKLOAD.records(), 1);
    traffic::produce(&site.topics, &records);
    let adtrail = site.start();
    adtrail.await_read(records.len() as u64);
    check_equal(&downloads(&site, &adtrail), WORKLOAD.expected());
    let bad = records.iter().filter(|record| record.is_bad).count();
    assert_eq!(adtrail.metric("adtrail_ingest_dead_lettered_total"), Some(bad as f64));
    // Else nothing came late, and the order was no test.
    assert!(adtrail.metric("adtrail_attribution_corrections_total") > Some(100.0));
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{status}: {log}");
    // The same without the service.
    check_equal(&APPS.map(|app| site.download(app, FROM, TO, &[])), WORKLOAD.expected());
}

/// Records of one life, and how many come at a time while it lives.
const LIFE_RECORDS: usize = 300;
const AT_A_TIME: usize = 20;

#[test]
fn killed_again_and_again() {
    let (kills, seed) = (from_env("ADTRAIL_KILLS", 6_u64), from_env("ADTRAIL_KILLS_SEED", 2));
    let mut moments = fastrand::Rng::with_seed(seed);
    let site = site("convergence.killed", 4);
    // Each comes twice in the mean.
    let some = traffic::records(seed, (kills as usize + 1) * LIFE_RECORDS / 2);
    let records = traffic::redelivered(&some, seed);
    let mut portions = traffic::portions(&records, kills as usize + 1);
    let mut with_more_to_read = 0;
    for portion in portions.by_ref().take(kills as usize) {
        let is_up = AtomicBool::new(false);
        thread::scope(|scope| {
            // Beside it, so that it is killed while it reads: the first before it is up, the others from then on.
            scope.spawn(|| {
                for some in portion.chunks(AT_A_TIME) {
                    traffic::produce(&site.topics, some);
                    eventually("it is up", || {
                        is_up.load(Ordering::Relaxed).then_some(()).ok_or("")
                    });
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let adtrail = site.start();
            is_up.store(true, Ordering::Relaxed);
            if moments.bool() {
                adtrail.await_some_read();
            }
            thread::sleep(Duration::from_millis(moments.u64(..400)));
            adtrail.kill9();
            with_more_to_read += u64::from(check_at_its_positions(&site));
        });
    }
    println!("{kills} kills, {with_more_to_read} with records that were not committed");
    assert!(with_more_to_read * 3 >= kills, "{with_more_to_read} of {kills} kills came under load");
    traffic::produce(&site.topics, portions.next().unwrap());
    let adtrail = site.start();
    adtrail.await_caught_up();
    let read = adtrail.metric("adtrail_ingest_read_total").unwrap();
    println!("read after the last kill: {read} of {}", records.len());
    assert!((1.0..records.len() as f64).contains(&read), "positions are not kept: {read}");
    check_equal(&downloads(&site, &adtrail), &exports::replayed(&some));
}

/// What a store that nobody has open shows is what `replay` makes of the records before its positions: neither
/// is ahead of the other. Whether there are more records by now.
fn check_at_its_positions(site: &Site) -> bool {
    let copy = tempfile::tempdir().expect("a temporary folder");
    let store = site.path().join("store");
    run_ok(Command::new("cp").arg("-a").arg(&store).arg(copy.path()), b"");
    let file = site.written();
    let sources = config::Sources { file: Some(&file), environment: Vec::new(), flags: Vec::new() };
    let mut config = config::load(&sources).expect("valid settings");
    config.store.path = copy.path().join("store");
    let mut store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    let positions = store.positions().expect("positions");
    let next = |topic: &str, partition: i32| {
        let of = |at: &&Position| &*at.topic == topic && at.partition == partition;
        positions.iter().find(of).map_or(0, |at| at.next_offset)
    };
    let (mut lines, mut has_more) = (Vec::new(), false);
    for topic in site.topics.all() {
        for record in Kafka::shared().consume_all(topic) {
            if record.offset < next(topic, record.partition) {
                lines.extend(record.value.expect("a record of the crowd"));
                lines.push(b'\n');
            } else {
                has_more = true;
            }
        }
    }
    for app in APPS {
        check_same(app, &site.download(app, FROM, TO, &[]), &site.replay(app, &lines));
    }
    has_more
}
