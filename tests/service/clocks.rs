//! Clocks that are wrong: those of producers, by years, and this machine's own, which is set while the
//! service runs. An export depends on neither.

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
/// `run.shutdown_deadline`, and what a slow machine takes to see the end of a process.
const DEADLINE: Duration = Duration::from_secs(30 + 5);

fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// All that there is, to the end of time.
fn whole(site: &Site) -> Vec<u8> {
    site.download("app-x", "1970-01-01", "9999-12-31", &[])
}

/// An event of a device, and when the broker takes it.
fn event(kind: &str, id: &str, device: &str, time: i64, own: Value) -> (String, String) {
    let name = if kind == "click" { "click_id" } else { "event_id" };
    let mut event =
        json!({ "type": kind, "app": "app-x", name: id, "time": time, "ids": { "oaid": device } });
    event.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    (kind.to_owned(), event.to_string())
}

/// A click, what comes of it, and an effect of that.
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

/// What `adtrail replay` makes of the events.
fn replayed(site: &Site, events: &[(String, String)]) -> Vec<u8> {
    let lines: String = events.iter().map(|(_, line)| format!("{line}\n")).collect();
    site.replay("app-x", lines.as_bytes())
}

/// Why each dead letter is one, and how many there are.
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

/// Whose clock is wrong on the way is of no matter, as long as it is less than a day ahead of the
/// broker's; all others are as they would be without.
#[test]
fn producers_ten_years_ahead_or_before_1970_or_all_at_once() {
    let site = Site::new(Kafka::shared(), "clocks.producers", 2, ONE_CAMPAIGN)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", "50");
    // Brokers refuse what is stamped an hour ahead of their clock, unless they are told not to.
    let settings = [("message.timestamp.after.max.ms", "9223372036854775807")];
    site.topics.all().iter().for_each(|topic| Kafka::shared().set_topic(topic, &settings));
    let adtrail = site.start();
    let now = now_ms();
    let ahead = now + 10 * YEAR_MS;
    let (mut good, mut produced) = (Vec::new(), 0);
    let mut give = |events: Vec<_>, broker_ms, is_good: bool| {
        produced += events.len() as u64;
        produce(&site, &events, broker_ms);
        // One after the other, so that none is committed before what came first.
        adtrail.await_read(produced);
        if is_good {
            good.extend(events);
        }
    };
    give(journey("first", now), now, true);
    // By their own clock alone: dead letters.
    give(journey("ahead", ahead), now, false);
    give(journey("a-day-ahead", now + DAY_MS + 10), now, false);
    give(journey("nearly", now + DAY_MS - 10), now, true);
    give(journey("negative", -5 * YEAR_MS), now, false);
    // By the clock that stamps their messages, too.
    give(journey("stamped", ahead), ahead, true);
    give(journey("stamped-later", ahead + HOUR_MS), ahead + HOUR_MS, true);
    // Nothing has expired by that: their clicks are known yet.
    let (click, rest) = (journey("split", now)[..1].to_vec(), journey("split", now)[1..].to_vec());
    give(click, now, true);
    give(rest, now + HOUR_MS, true);
    let (_, again) = event("activation", "a-late", "first", now + 5, json!({}));
    give(vec![("activation".into(), again)], now, true);
    // All in one millisecond, of few devices.
    let crowd: Vec<_> = (0..900)
        .map(|n| {
            let (id, device) = (format!("same-{n}"), format!("device-{}", n % 40));
            match n % 3 {
                0 => event("click", &id, &device, now, json!({ "spreadid": 7 })),
                1 => event("activation", &id, &device, now, json!({})),
                _ => event("effect", &id, &device, now, json!({ "name": "buy" })),
            }
        })
        .collect();
    give(crowd, now, true);
    check_same("app-x", &whole(&site), &replayed(&site, &good));
    assert_eq!(letters(&site), BTreeMap::from([("bad_time".into(), 9)]));
    let rows = rows::by_event_id(rows::parse(&whole(&site)));
    for id in ["a-first", "a-nearly", "a-stamped", "a-stamped-later", "a-split", "e-split"] {
        assert_eq!(rows[id]["status"], "attributed", "{id}");
    }
    let reply = adtrail.admin("/readyz").unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
}

/// Rows go by the broker's time where that is earlier than the machine's: a clock that is ahead takes
/// none away that is younger than the settings say.
#[test]
fn a_clock_that_is_ahead_takes_no_rows_away() {
    let settings = format!("{ONE_CAMPAIGN}[attribution]\ncorrection_horizon = \"off\"\n");
    let site =
        Site::new(Kafka::shared(), "clocks.retention", 1, &settings).set("store.retention", "48h");
    let now = now_ms();
    let kept = [journey("old", now - 46 * HOUR_MS), journey("new", now)].concat();
    let gone = journey("gone", now - 51 * HOUR_MS);
    let faults = Faults::of(&site);
    let adtrail = faults.start(&site);
    produce(&site, &[&gone[..], &kept[..]].concat(), now);
    adtrail.await_read(9);
    // All partitions were heard of: from now on the broker's time is known.
    let name = "adtrail_ingest_consumed_until_timestamp_seconds";
    let mut read = 9;
    eventually("all partitions are consumed", || {
        produce(&site, &journey("new", now), now);
        read += 3;
        adtrail.await_read(read);
        let until = adtrail.metric(name).unwrap_or_default();
        if until > 0.0 { Ok(()) } else { Err("not known yet") }
    });
    let expected = replayed(&site, &kept);
    for ahead_ms in [DAY_MS, YEAR_MS, -HOUR_MS, DAY_MS] {
        faults.set_clock(ahead_ms);
        produce(&site, &journey("new", now), now);
        read += 3;
        adtrail.await_read(read);
        check_same("app-x", &whole(&site), &expected);
    }
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
    let adtrail = faults.start(&site);
    check_same("app-x", &whole(&site), &expected);
    drop(adtrail);
}

/// What needs the facts of before is decided by them afterwards, and the store opens again.
#[test]
fn broker_and_machine_a_year_ahead_for_a_moment_let_nothing_expire() {
    let topics = Topics::of("clocks.both");
    let settings = [("message.timestamp.after.max.ms", "9223372036854775807")];
    topics.all().iter().for_each(|topic| Kafka::shared().create_topic(topic, 1, &settings));
    let site =
        Site::on(topics, Kafka::shared().brokers(), ONE_CAMPAIGN).set("store.retention", "off");
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
    check_same("app-x", &whole(&site), &expected);
    assert!(adtrail.terminate().0.success());
    let adtrail = faults.start(&site);
    check_same("app-x", &whole(&site), &expected);
    drop(adtrail);
}

/// A store that was written by a clock that nobody doubted is not called damaged.
#[test]
fn a_store_of_a_clock_that_was_ahead_says_so() {
    let topics = Topics::of("clocks.started");
    let settings = [("message.timestamp.after.max.ms", "9223372036854775807")];
    topics.all().iter().for_each(|topic| Kafka::shared().create_topic(topic, 1, &settings));
    let site =
        Site::on(topics, Kafka::shared().brokers(), ONE_CAMPAIGN).set("store.retention", "off");
    let faults = Faults::of(&site);
    faults.set_clock(YEAR_MS);
    let adtrail = faults.start(&site);
    let ahead = now_ms() + YEAR_MS;
    produce(&site, &journey("d", ahead), ahead);
    adtrail.await_read(3);
    assert!(adtrail.terminate().0.success());
    faults.set_clock(0);
    let (status, log) = faults.spawn(&site).wait();
    assert_eq!(status.code(), Some(1), "{log}");
    for part in ["a clock that was ahead of this machine's", "set this machine's clock", "backup"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("store is damaged:"), "{log}");
}

/// While events come, and while none do: they are read on at once, and it stops when it is told to.
#[test]
fn a_clock_that_is_set_while_events_come_holds_nothing_up() {
    let records = traffic::records(17, 1200);
    // Without topics for dead letters: brokers take what a clock stamps that is ahead in those that
    // adtrail makes.
    let topics = Topics::of("clocks.set");
    topics.all().iter().for_each(|topic| Kafka::shared().create_topic(topic, 3, &[]));
    let site = Site::on(topics, Kafka::shared().brokers(), traffic::SETTINGS)
        .set("store.retention", "off")
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
    let (status, log) = adtrail.terminate();
    assert!(status.success() && since.elapsed() < DEADLINE, "{:?}: {log}", since.elapsed());
}
