//! Two versions of the layout on one data directory: the service brings a store of any past one to the
//! present, and leaves one of a later version alone, from which a backup of before leads back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use rocksdb::{ColumnFamilyDescriptor, DB, Options};
use serde_json::{Value, json};
use testbed::exports::{self, check_equal, downloads};
use testbed::kafka::{Kafka, Message};
use testbed::site::{Site, Topics};
use testbed::traffic::{self, Record};
use testbed::{length, run_ok};

/// One of 8 is on its way to the next.
const LAYOUTS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 9];
/// Each of them is brought to the present one in `store/tests/disk/layouts.rs`.
const SOME_LAYOUTS: [u32; 3] = [1, 7, 9];

/// The rules of the kept stores, as `store/tests/support/rules.rs` has them.
const KEPT_SETTINGS: &str = r#"
[[apps]]
pid = 1
key = "app-x"
[apps.attribution]
probabilistic = true
[apps.fraud]
ctit_min = "10s"
clicks_per_device_max = 50
[[apps]]
pid = 2
key = "app-y"
[[channels]]
id = "ads"
[[campaigns]]
spreadid = 2
pid = 1
channel = "ads"
[[campaigns]]
spreadid = 3
pid = 1
channel = "ads"
"#;

/// 2026-03-10T12:00:00Z.
const NOON_MS: i64 = 1_773_144_000_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

struct Event {
    kind: &'static str,
    app: &'static str,
    time: i64,
    line: String,
}

/// `own` is what this one has besides; a touch's campaign is the number that its id has.
fn event(kind: &'static str, app: &'static str, id: &str, time: i64, own: Value) -> Event {
    let mut event = json!({ "type": kind, "app": app, "time": time });
    let is_touch = matches!(kind, "click" | "impression");
    event[if is_touch { "click_id" } else { "event_id" }] = id.into();
    if is_touch {
        let digits: String = id.chars().filter(char::is_ascii_digit).collect();
        event["spreadid"] = digits.parse::<u32>().unwrap().into();
    }
    if kind == "effect" {
        event["name"] = "purchase".into();
    }
    event.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    Event { kind, app, time, line: event.to_string() }
}

fn at(n: i64, ms: i64) -> i64 {
    NOON_MS + n * 7 * MINUTE + ms
}

fn ids(n: i64) -> Value {
    json!({ "oaid": format!("{n:08x}-1111-4222-8333-444444444444") })
}

fn of_y() -> Value {
    json!({ "ids": { "oaid": "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5" } })
}

/// What `store/tests/disk/layouts.rs` made the kept stores of.
fn kept_events() -> Vec<Event> {
    let x = "app-x";
    let mut events = Vec::new();
    for n in 0..40 {
        if n % 3 != 0 {
            let own = json!({ "ids": ids(n), "site": "site, with \"quotes\"" });
            events.push(event("click", x, &format!("c{}x{n}", n % 5 + 1), at(n, -HOUR), own));
        }
        if n % 4 == 0 {
            let id = format!("i{}x{n}", n % 7 + 1);
            events.push(event("impression", x, &id, at(n, -2 * HOUR), json!({ "ids": ids(n) })));
        }
        let own = json!({ "ids": ids(n), "ip": "203.0.113.9", "props": { "channel": "\u{5e7f}\u{544a}" } });
        events.push(event("activation", x, &format!("a{n}"), at(n, 0), own));
        if n % 2 == 0 {
            let own = json!({ "ids": ids(n), "revenue": "9.99", "currency": "CNY" });
            events.push(event("effect", x, &format!("e{n}"), at(n, HOUR), own));
        }
        if n % 10 == 0 {
            let own = json!({ "ids": ids(n) });
            events.push(event("activation", x, &format!("again{n}"), at(n, 2 * DAY), own));
            events.push(event("activation", "app-y", &format!("y{n}"), at(n, 0), of_y()));
        }
        if n % 8 == 0 {
            let own = json!({ "ip": format!("198.51.100.{n}"), "ua": "Mozilla/5.0" });
            events.push(event("click", x, &format!("c4place{n}"), at(n, -HOUR), own));
        }
        if n % 9 == 0 {
            let own = json!({ "ids": ids(n) });
            events.push(event("click", x, &format!("c9late{n}"), at(n, -MINUTE), own));
        }
    }
    events
}

/// What comes after: each depends on what is in the stores.
fn later_events() -> Vec<Event> {
    let x = "app-x";
    let on = |n| json!({ "ids": ids(n) });
    let again =
        json!({ "ids": ids(7), "ip": "203.0.113.9", "props": { "channel": "\u{5e7f}\u{544a}" } });
    let place = json!({ "ip": "198.51.100.8", "ua": "Mozilla/5.0" });
    vec![
        event("click", x, "c2later", at(6, -2 * MINUTE), on(6)),
        event("click", x, "c3later", at(3, -2 * MINUTE), on(3)),
        event("effect", x, "e3", at(3, HOUR), on(3)),
        event("activation", x, "again4", at(4, 3 * DAY), on(4)),
        event("activation", x, "double5", at(5, 1_000), on(5)),
        event("activation", x, "a7", at(7, 0), again),
        event("activation", x, "by-address", at(8, 0), place),
        event("activation", "app-y", "y-later", at(9, 0), of_y()),
    ]
}

fn produce(topics: &Topics, events: &[Event]) {
    Kafka::shared().produce_all(events.iter().map(|event| {
        let topic = match event.kind {
            "activation" => &topics.activations,
            "effect" => &topics.effects,
            _ => &topics.clicks,
        };
        (&**topic, Message::new(event.app, event.line.clone()).at(event.time))
    }));
}

/// What `adtrail replay` makes of the events, by app.
fn replayed(site: &Site, events: &[Event]) -> [Vec<u8>; 2] {
    let file = site.path().join("events.ndjson");
    let lines: Vec<&str> = events.iter().map(|event| &*event.line).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    ["app-x", "app-y"].map(|app| {
        run_ok(&mut site.command(&["replay", "--app", app, file.to_str().unwrap()]), b"")
    })
}

fn shown(site: &Site) -> [Vec<u8>; 2] {
    ["app-x", "app-y"].map(|app| site.download(app, "2026-03-01", "2026-03-31", &[]))
}

/// A site whose store a past layout wrote, from the topics that its positions are of.
fn kept(layout: u32) -> Site {
    let site = Site::on(Topics::of("adtrail"), Kafka::shared().brokers(), KEPT_SETTINGS)
        .set("store.retention", "off")
        .set("store.partitions", "8");
    let file = format!("store/tests/kept/layout-{layout}.tar.gz");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::create_dir(site.path().join("store")).unwrap();
    run_ok(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(site.path().join("store")), b"");
    site
}

#[test]
fn a_store_of_each_past_layout_goes_on_under_the_service() {
    let topics = Topics::of("adtrail");
    for topic in topics.all() {
        Kafka::shared().create_topic(topic, 4, &[]);
        Kafka::shared().create_topic(&format!("{topic}.dlq"), 1, &[]);
    }
    // What the stores have read: 102 records of a partition.
    let read = (0..102).map(|_| Message { partition: Some(3), ..Message::default() });
    Kafka::shared().produce(&topics.clicks, read.map(|message| message.at(NOON_MS)));
    let layouts = length(&SOME_LAYOUTS[..], &LAYOUTS);
    let sites: Vec<_> = layouts.iter().map(|layout| kept(*layout)).collect();
    let mut events = kept_events();
    let expected = replayed(&sites[0], &events);
    for (site, layout) in sites.iter().zip(layouts) {
        // It is killed while it brings the store to the present layout, or soon after.
        for _ in 0..2 {
            let adtrail = site.spawn();
            thread::sleep(Duration::from_millis(fastrand::u64(..200)));
            adtrail.kill9();
        }
        let adtrail = site.start();
        adtrail.await_caught_up();
        assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0), "layout {layout}");
        check_equal(&shown(site), &expected);
        assert!(adtrail.terminate().0.success());
    }
    // And what they had, once more.
    let later = later_events();
    produce(&topics, &later);
    produce(&topics, &events);
    let count = (later.len() + events.len()) as u64;
    events.extend(later);
    let expected = replayed(&sites[0], &events);
    for site in &sites {
        let adtrail = site.start();
        adtrail.await_read(count);
        check_equal(&shown(site), &expected);
        assert_eq!(adtrail.metric("adtrail_ingest_dead_lettered_total"), Some(0.0));
        assert!(adtrail.terminate().0.success());
        let verified = site.run(&["verify"]);
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    }
}

/// Writes another layout's number into a store, as a version with that layout would have; its number of
/// before.
fn set_layout(store: &Path, change: impl Fn(u32) -> u32) -> u32 {
    let names = DB::list_cf(&Options::default(), store).unwrap();
    let tables =
        names.iter().map(|name| {
            let mut options = Options::default();
            match name.as_str() {
                "cells" => options
                    .set_merge_operator_associative("add", store::layout::hourly_counts::merge),
                "counts" => options
                    .set_merge_operator_associative("add", store::layout::summary_counts::merge),
                _ => {}
            }
            ColumnFamilyDescriptor::new(name, options)
        });
    let db =
        DB::open_cf_descriptors(&Options::default(), store, tables.collect::<Vec<_>>()).unwrap();
    let meta = db.cf_handle("meta").unwrap();
    let found = db.get_cf(meta, "layout").unwrap().unwrap();
    let found = u32::from_be_bytes(found.try_into().unwrap());
    db.put_cf(meta, "layout", change(found).to_be_bytes()).unwrap();
    found
}

/// All bytes of a directory, and when they were written.
fn bytes_of(store: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let files = fs::read_dir(store).unwrap().map(|file| file.unwrap().path());
    let state = |path: PathBuf| {
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        let bytes = fs::read(&path).unwrap();
        (path, (written, bytes))
    };
    files.map(state).collect()
}

#[track_caller]
fn check_refused(output: &Output, layout: u32) {
    let said = String::from_utf8_lossy(&output.stderr);
    let versions = format!("layout version {}, this adtrail reads version {layout}", layout + 1);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&versions) && !said.contains("panicked"), "{said}");
}

fn records() -> Vec<Record> {
    traffic::records(16, 1_500)
}

fn site(name: &str) -> Site {
    Site::new(Kafka::shared(), name, 2, traffic::SETTINGS)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", "100")
}

fn read(site: &Site, records: &[Record]) {
    traffic::produce(&site.topics, records);
    let adtrail = site.start();
    adtrail.await_caught_up();
    Kafka::shared().await_told(&site.group(), &site.topics.all());
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
}

#[test]
fn an_older_version_changes_no_byte_of_a_newer_store() {
    let site = site("upgrade.refused");
    let records = records();
    let (some, rest) = records.split_at(records.len() / 2);
    read(&site, some);
    let store = site.path().join("store");
    let layout = set_layout(&store, |layout| layout + 1);
    let before = bytes_of(&store);
    let day = ["--app", "app-x", "--from", "2025-03-10", "--to", "2025-03-10"];
    for command in [
        &["run"][..],
        &[&["download"][..], &day].concat()[..],
        &["backup", "backups"],
        &["verify"],
        &["verify", "--repair"],
        &["regions"],
        &["explain", "--app", "app-x", "--activation", "a-1"],
    ] {
        check_refused(&site.run(command), layout);
        let after = bytes_of(&store);
        let names = |of: &BTreeMap<PathBuf, _>| of.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&before), "{command:?}");
        assert!(after == before, "{command:?} has changed a file");
    }
    // The newer one goes on as if nothing had been.
    set_layout(&store, |found| found - 1);
    traffic::produce(&site.topics, rest);
    let adtrail = site.start();
    adtrail.await_caught_up();
    check_equal(&downloads(&site, &adtrail), &exports::replayed(&records));
}

/// The steps of docs/backup.md.
#[test]
fn a_backup_of_before_leads_back_to_the_older_version() {
    let site = site("upgrade.back");
    let records = records();
    let mut portions = records.chunks(records.len().div_ceil(3));
    read(&site, portions.next().unwrap());
    let backup = site.run(&["backup", "backups"]);
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    // The newer version reads on, until it is seen that it will not do.
    read(&site, portions.next().unwrap());
    let store = site.path().join("store");
    let layout = set_layout(&store, |layout| layout + 1);
    check_refused(&site.run(&["run"]), layout);
    fs::rename(&store, site.path().join("store.newer")).unwrap();
    let restored = site.run(&["restore", "backups"]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    traffic::produce(&site.topics, portions.next().unwrap());
    let adtrail = site.start();
    adtrail.await_caught_up();
    check_equal(&downloads(&site, &adtrail), &exports::replayed(&records));
    let (status, log) = adtrail.terminate();
    assert!(status.success() && log.contains("the store is of an earlier moment"), "{log}");
}
