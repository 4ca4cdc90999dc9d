//! The same set of events gives the same bytes: in any order, with any redeliveries, across kills and restarts, and
//! from files without Kafka.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use attribution::ledger::{Ledger as _, Position};
use store::embedded::Embedded;
use testbed::exports::{self, Workload, by_command, check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS};
use testbed::{eventually, from_env, rows, run_ok};

/// Small batches, so that a kill can come between hundreds of them.
const BATCH_RECORDS: &str = "40";

static WORKLOAD: Workload = Workload::new(|| traffic::records(1, 3000));

fn site(name: &str, partitions: i32) -> Site {
    traffic::site(name, partitions).set("ingest.batch_records_max", BATCH_RECORDS)
}

/// Checks the workload itself: it produces every kind of row.
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
    assert!(rows.iter().any(|row| row["event_id"].starts_with('#')), "no row has a derived id");
    assert!(
        rows.iter().any(|row| !row["contributor3_spreadid"].is_empty()),
        "no row has three contributors"
    );
}

#[test]
fn one_uninterrupted_run_exports_what_replay_does() {
    let site = site("convergence.plain", 1);
    let records = traffic::redelivered(WORKLOAD.records(), 1);
    traffic::produce(&site.topics, &records);
    let adtrail = site.start();
    adtrail.await_read(records.len() as u64);
    WORKLOAD.check(&site, &adtrail);
    let bad = records.iter().filter(|record| record.is_bad).count();
    assert_eq!(adtrail.metric("adtrail_ingest_dead_lettered_total"), Some(bad as f64));
    // Without corrections the order would not be tested.
    assert!(adtrail.metric("adtrail_attribution_corrections_total") > Some(100.0));
    adtrail.stop();
    // The command exports the same without the service.
    check_equal(&by_command(&site), WORKLOAD.expected());
}

/// Number of records that are produced in the lifetime of one process.
const LIFE_RECORDS: usize = 300;
/// Number of records that are produced at a time.
const PRODUCED_RECORDS: usize = 20;

#[test]
fn repeated_kills_lose_nothing() {
    let (kills, seed) = (from_env("ADTRAIL_KILLS", 6_u64), from_env("ADTRAIL_KILLS_SEED", 2));
    let mut moments = fastrand::Rng::with_seed(seed);
    let site = site("convergence.killed", 4);
    // Each record is produced twice on average.
    let records_once = traffic::records(seed, (kills as usize + 1) * LIFE_RECORDS / 2);
    let records = traffic::redelivered(&records_once, seed);
    let mut portions = traffic::portions(&records, kills as usize + 1);
    let mut kills_under_load = 0;
    for portion in portions.by_ref().take(kills as usize) {
        let is_up = AtomicBool::new(false);
        thread::scope(|scope| {
            // Produces in parallel, so that the process is killed while it reads: the first records before it is ready,
            // the others afterwards.
            scope.spawn(|| {
                for chunk in portion.chunks(PRODUCED_RECORDS) {
                    traffic::produce(&site.topics, chunk);
                    eventually("adtrail is ready", || {
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
            kills_under_load += u64::from(check_store_matches_positions(&site));
        });
    }
    println!("{kills} kills, {kills_under_load} with uncommitted records");
    assert!(kills_under_load * 3 >= kills, "{kills_under_load} of {kills} kills came under load");
    traffic::produce(&site.topics, portions.next().unwrap());
    let adtrail = site.start();
    adtrail.await_caught_up();
    let read = adtrail.metric("adtrail_ingest_read_total").unwrap();
    println!("read after the last kill: {read} of {}", records.len());
    assert!((1.0..records.len() as f64).contains(&read), "positions are lost: {read}");
    check_equal(&downloads(&site, &adtrail), &exports::replayed(&records_once));
}

/// Checks that a closed store exports exactly what `replay` makes of the records before its positions. Returns whether
/// Kafka has further records.
fn check_store_matches_positions(site: &Site) -> bool {
    let copy = tempfile::tempdir().expect("the folder is created");
    let store = site.path().join("store");
    run_ok(Command::new("cp").arg("-a").arg(&store).arg(copy.path()), b"");
    let file = site.write_all_settings();
    let sources =
        config::Sources { file: Some(file.as_ref()), environment: Vec::new(), flags: Vec::new() };
    let mut config = config::load(&sources).expect("the settings are valid");
    config.store.path = copy.path().join("store");
    let mut store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    let positions = store.positions().expect("the positions are readable");
    let next = |topic: &str, partition: i32| {
        let of = |at: &&Position| &*at.topic == topic && at.partition == partition;
        positions.iter().find(of).map_or(0, |at| at.next_offset)
    };
    let (mut lines, mut has_more) = (Vec::new(), false);
    for topic in site.topics.all() {
        for record in Kafka::shared().consume_all(topic) {
            if record.offset < next(topic, record.partition) {
                lines.extend(record.value.expect("every record has a value"));
                lines.push(b'\n');
            } else {
                has_more = true;
            }
        }
    }
    check_equal(&by_command(site), &APPS.map(|app| site.replay(app, &lines)));
    has_more
}
