//! `adtrail verify` with and without a running service.

use std::process::Output;

use serde_json::Value;
use testbed::check_exit;
use testbed::disk::{flip_bit, wal_files};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};

/// 2025-03-10T12:00:00Z.
const NOON_MS: i64 = 1_741_608_000_000;
const EVENTS: i64 = 600;

/// Produces clicks and activations, half of which match a click.
fn produce(kafka: &Kafka, site: &Site) {
    let id = |number: i64| format!("device-{number}-of-nobody");
    let clicks = (0..EVENTS).map(|number| {
        let (time, oaid) = (NOON_MS - number, id(number));
        let line = format!(
            r#"{{"app":"app-x","click_id":"c{number}","spreadid":7,"time":{time},"ids":{{"oaid":"{oaid}"}}}}"#
        );
        Message::new("app-x", line).at(NOON_MS)
    });
    let activations = (0..EVENTS).map(|number| {
        let (time, oaid) = (NOON_MS + 60_000 + number, id(number * 2));
        let line = format!(
            r#"{{"app":"app-x","event_id":"a{number}","time":{time},"ids":{{"oaid":"{oaid}"}}}}"#
        );
        Message::new("app-x", line).at(NOON_MS)
    });
    kafka.produce(&site.topics.clicks, clicks);
    kafka.produce(&site.topics.activations, activations);
}

fn download(site: &Site) -> Vec<u8> {
    site.download("app-x", "2025-03-10", "2025-03-10", &[])
}

/// Checks exit code and output.
#[track_caller]
fn check(output: &Output, code: i32, parts: &[&str]) {
    let text = check_exit(output, code, &[]) + &String::from_utf8_lossy(&output.stdout);
    // The width of columns does not matter.
    let shown = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(shown.contains(part), "{part:?}: {text}");
    }
    assert!(!text.contains("of-nobody"), "a device id is shown: {text}");
}

#[test]
fn a_store_is_verified_while_the_service_runs_and_after_damage() {
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "verify", 1, ONE_CAMPAIGN);
    produce(kafka, &site);
    let adtrail = site.start();
    adtrail.await_read(2 * EVENTS as u64);
    check(&site.run(&["verify"]), 0, &["decisions 600 0"]);
    let refused = site.run(&["verify", "--repair"]);
    check(&refused, 1, &["in use"]);
    adtrail.kill9();
    let before = download(&site);
    check(&site.run(&["verify"]), 0, &["rows 600 0"]);

    let wals = wal_files(&site.path().join("store")).collect::<Vec<_>>().into_iter();
    let wal = wals.max_by_key(|wal| wal.metadata().unwrap().len()).unwrap();
    flip_bit(&wal);
    let name = wal.file_name().unwrap().to_str().unwrap();
    check(&site.run(&["verify"]), 1, &[name, "the write-ahead log", "--repair"]);
    let report: Value = serde_json::from_slice(&site.run(&["verify", "--json"]).stdout).unwrap();
    assert_eq!(
        (&report["whole"], &report["problems"][0]["problem"]),
        (&false.into(), &"log_damaged".into())
    );
    check(&site.run(&["verify", "--repair"]), 0, &["repaired"]);
    check(&site.run(&["verify"]), 0, &[]);
    // The truncated records were removed with their positions, so they are read again.
    site.read_all();
    assert!(before == download(&site), "the export has changed");
    check(&site.run(&["verify"]), 0, &["rows 600 0"]);
}
