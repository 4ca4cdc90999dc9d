//! Wrong clocks: producers' clocks that are off by years, and this machine's clock, which is set while the service
//! runs. Exports depend on neither.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use testbed::exports::{self, check_equal, check_same, downloads};
use testbed::faults::Faults;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site, Topics};
use testbed::{eventually, rows, traffic};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const YEAR_MS: i64 = 365 * DAY_MS;
/// `run.shutdown_deadline`, plus the time in which a slow machine detects the end of a process.
const DEADLINE: Duration = Duration::from_secs(30 + 5);

/// Returns a site whose topics accept timestamps in the future. By default, brokers reject timestamps more than an hour
/// ahead of their clock.
fn site(name: &str, partitions: i32) -> Site {
    let site = Site::new(Kafka::shared(), name, partitions, ONE_CAMPAIGN);
    let settings = [("message.timestamp.after.max.ms", "9223372036854775807")];
    site.topics.all().iter().for_each(|topic| Kafka::shared().set_topic(topic, &settings));
    site
}

fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Downloads all rows.
fn all_rows(site: &Site) -> Vec<u8> {
    site.download("app-x", "1970-01-01", "9999-12-31", &[])
}

/// Returns kind and JSON of an event of this device.
fn event(kind: &str, id: &str, device: &str, time: i64, fields: Value) -> (String, String) {
    let name = if kind == "click" { "click_id" } else { "event_id" };
    let mut event =
        json!({ "type": kind, "app": "app-x", name: id, "time": time, "ids": { "oaid": device } });
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    (kind.to_owned(), event.to_string())
}

/// A click, the activation that it is credited with, and an effect.
fn journey(name: &str, time: i64) -> Vec<(String, String)> {
    vec![
        event("click", &format!("c-{name}"), name, time, json!({ "spreadid": 7 })),
        event("activation", &format!("a-{name}"), name, time + 1, json!({})),
        event("effect", &format!("e-{name}"), name, time + 2, json!({ "name": "buy" })),
    ]
}

fn produce(site: &Site, events: &[(String, String)], broker_ms: i64) {
    let [clicks, activations, effects] = site.topics.all();
    Kafka::shared().produce_all(events.iter().map(|(kind, line)| {
        let topic = match kind.as_str() {
            "click" => clicks,
            "activation" => activations,
            _ => effects,
        };
        (topic, Message::new("app-x", line.clone()).at(broker_ms))
    }));
}

/// Runs `adtrail replay` on the events.
fn replayed(site: &Site, events: &[(String, String)]) -> Vec<u8> {
    let lines: String = events.iter().map(|(_, line)| format!("{line}\n")).collect();
    site.replay("app-x", lines.as_bytes())
}

/// Counts dead letters by error code.
fn letters(site: &Site) -> BTreeMap<String, usize> {
    let mut codes = BTreeMap::new();
    for topic in site.topics.all() {
        for letter in Kafka::shared().consume_all(&format!("{topic}.dlq")) {
            let code = letter.headers.iter().find(|(name, _)| name == "adtrail.error.code");
            let code = code.map(|(_, code)| String::from_utf8_lossy(code).into_owned());
            *codes.entry(code.unwrap_or_default()).or_default() += 1;
        }
    }
    codes
}

/// Events up to a day ahead of the broker timestamp are accepted. Wrong timestamps of some events do not affect others.
#[test]
fn events_with_impossible_times_become_dead_letters() {
    let site = site("clocks.producers", 2).set("ingest.batch_records_max", "50");
    let adtrail = site.start();
    let now = now_ms();
    let ahead = now + 10 * YEAR_MS;
    let (mut accepted, mut produced) = (Vec::new(), 0);
    let mut produce_and_await = |events: Vec<_>, broker_ms, is_accepted: bool| {
        produced += events.len() as u64;
        produce(&site, &events, broker_ms);
        // One after the other, so that they are committed in this order.
        adtrail.await_read(produced);
        if is_accepted {
            accepted.extend(events);
        }
    };
    produce_and_await(journey("first", now), now, true);
    // Only the event time is wrong.
    produce_and_await(journey("ahead", ahead), now, false);
    produce_and_await(journey("a-day-ahead", now + DAY_MS + 10), now, false);
    produce_and_await(journey("nearly", now + DAY_MS - 10), now, true);
    produce_and_await(journey("negative", -5 * YEAR_MS), now, false);
    // The broker timestamp is wrong as well.
    produce_and_await(journey("stamped", ahead), ahead, true);
    produce_and_await(journey("stamped-later", ahead + HOUR_MS), ahead + HOUR_MS, true);
    // The wrong timestamps have expired nothing: earlier clicks are still known.
    let (click, rest) = (journey("split", now)[..1].to_vec(), journey("split", now)[1..].to_vec());
    produce_and_await(click, now, true);
    produce_and_await(rest, now + HOUR_MS, true);
    let (_, late) = event("activation", "a-late", "first", now + 5, json!({}));
    produce_and_await(vec![("activation".into(), late)], now, true);
    // Many events of few devices in one millisecond.
    let burst: Vec<_> = (0..900)
        .map(|n| {
            let (id, device) = (format!("same-{n}"), format!("device-{}", n % 40));
            match n % 3 {
                0 => event("click", &id, &device, now, json!({ "spreadid": 7 })),
                1 => event("activation", &id, &device, now, json!({})),
                _ => event("effect", &id, &device, now, json!({ "name": "buy" })),
            }
        })
        .collect();
    produce_and_await(burst, now, true);
    check_same("app-x", &all_rows(&site), &replayed(&site, &accepted));
    assert_eq!(letters(&site), BTreeMap::from([("bad_time".into(), 9)]));
    let rows = rows::by_event_id(rows::parse(&all_rows(&site)));
    for id in ["a-first", "a-nearly", "a-stamped", "a-stamped-later", "a-split", "e-split"] {
        assert_eq!(rows[id]["status"], "attributed", "{id}");
    }
    let reply = adtrail.admin("/readyz").unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    adtrail.stop();
}

/// Rows expire by the broker's time if that is earlier than the machine's, so a clock that is ahead removes no row
/// before its retention ends.
#[test]
fn a_clock_ahead_of_time_expires_no_rows_early() {
    let site = Site::new(Kafka::shared(), "clocks.retention", 1, ONE_CAMPAIGN)
        .set("attribution.correction_horizon", "off")
        .set("store.retention", "48h");
    let now = now_ms();
    let retained = [journey("old", now - 46 * HOUR_MS), journey("new", now)].concat();
    let expired = journey("gone", now - 51 * HOUR_MS);
    let faults = Faults::of(&site);
    let adtrail = faults.start(&site);
    produce(&site, &[&expired[..], &retained[..]].concat(), now);
    adtrail.await_read(9);
    // The broker's time is known once all partitions have been consumed.
    let name = "adtrail_ingest_consumed_until_timestamp_seconds";
    let mut read = 9;
    eventually("all partitions are consumed", || {
        produce(&site, &journey("new", now), now);
        read += 3;
        adtrail.await_read(read);
        let until = adtrail.metric(name).unwrap_or_default();
        if until > 0.0 { Ok(()) } else { Err("not known yet") }
    });
    let expected = replayed(&site, &retained);
    for ahead_ms in [DAY_MS, YEAR_MS, -HOUR_MS, DAY_MS] {
        faults.set_clock(ahead_ms);
        produce(&site, &journey("new", now), now);
        read += 3;
        adtrail.await_read(read);
        check_same("app-x", &all_rows(&site), &expected);
    }
    adtrail.stop();
    let _adtrail = faults.start(&site);
    check_same("app-x", &all_rows(&site), &expected);
}

/// Later events are still attributed to the earlier facts, and the store opens again.
#[test]
fn broker_and_machine_briefly_a_year_ahead_expire_nothing() {
    let site = site("clocks.both", 1);
    let faults = Faults::of(&site);
    let adtrail = faults.start(&site);
    let now = now_ms();
    let all: Vec<_> = (0..20).map(|n| journey(&format!("d-{n}"), now)).collect();
    let clicks: Vec<_> = all.iter().map(|journey| journey[0].clone()).collect();
    let rest: Vec<_> = all.iter().flat_map(|journey| journey[1..].to_vec()).collect();
    produce(&site, &clicks, now);
    adtrail.await_read(20);
    faults.set_clock(YEAR_MS);
    let ahead = now + YEAR_MS;
    let meanwhile: Vec<_> = (0..5).flat_map(|n| journey(&format!("m-{n}"), ahead)).collect();
    for (number, events) in meanwhile.chunks(3).enumerate() {
        produce(&site, events, ahead);
        adtrail.await_read(20 + 3 * (number as u64 + 1));
    }
    let until = adtrail.metric("adtrail_ingest_consumed_until_timestamp_seconds").unwrap();
    assert!(until > 0.0 && until < (now + HOUR_MS) as f64 / 1e3, "{until}");
    faults.set_clock(0);
    produce(&site, &rest, now + 1_000);
    adtrail.await_read(35 + 40);
    let expected = replayed(&site, &[clicks, meanwhile, rest].concat());
    check_same("app-x", &all_rows(&site), &expected);
    adtrail.stop();
    let _adtrail = faults.start(&site);
    check_same("app-x", &all_rows(&site), &expected);
}

/// The message names the wrong clock and does not call the store damaged.
#[test]
fn a_store_written_with_a_clock_ahead_is_refused() {
    let site = site("clocks.started", 1);
    let faults = Faults::of(&site);
    faults.set_clock(YEAR_MS);
    let adtrail = faults.start(&site);
    let ahead = now_ms() + YEAR_MS;
    produce(&site, &journey("d", ahead), ahead);
    adtrail.await_read(3);
    adtrail.stop();
    faults.set_clock(0);
    let parts = ["a clock that was ahead of this machine's", "set this machine's clock", "backup"];
    let log = faults.spawn(&site).check_ended(1, &parts);
    assert!(!log.contains("store is damaged:"), "{log}");
}

/// Events are read without delay after each change of the clock, and the service shuts down in time.
#[test]
fn setting_the_clock_delays_neither_ingest_nor_shutdown() {
    let records = traffic::records(17, 1200);
    // Topics for dead letters are created by adtrail, with settings that accept timestamps ahead of the broker's clock.
    let topics = Topics::of("clocks.set");
    topics.all().iter().for_each(|topic| Kafka::shared().create_topic(topic, 3, &[]));
    let site = Site::on(topics, Kafka::shared().brokers(), traffic::SETTINGS)
        .set("ingest.batch_records_max", "50");
    let faults = Faults::of(&site);
    let adtrail = faults.start(&site);
    let steps = [-HOUR_MS, 0, DAY_MS, -HOUR_MS, YEAR_MS, -DAY_MS];
    let mut read = 0;
    for (portion, ahead_ms) in records.chunks(records.len().div_ceil(steps.len())).zip(steps) {
        let (before, after) = portion.split_at(portion.len() / 2);
        traffic::produce(&site.topics, before);
        faults.set_clock(ahead_ms);
        traffic::produce(&site.topics, after);
        read += portion.len() as u64;
        adtrail.await_read(read);
        assert_eq!(adtrail.admin("/readyz").unwrap().status, 200, "{ahead_ms} ms ahead");
    }
    check_equal(&downloads(&site, &adtrail), &exports::replayed(&records));
    faults.set_clock(-2 * DAY_MS);
    let since = Instant::now();
    let log = adtrail.stop();
    assert!(since.elapsed() < DEADLINE, "{:?}: {log}", since.elapsed());
}
