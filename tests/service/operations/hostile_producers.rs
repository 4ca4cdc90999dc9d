//! Producers whose events are as large as they may be, to take the memory or the time of the service.

use std::thread;

use testbed::adtrail::Adtrail;
use testbed::http::Reply;
use testbed::kafka::{Kafka, Message};
use testbed::rows;
use testbed::site::{ONE_CAMPAIGN, Site};

/// 2025-03-10T12:00:00Z.
const NOON_MS: i64 = 1_741_608_000_000;
const DAY: &str = "from=2025-03-10&to=2025-03-10";

/// The growth of resident memory that an attack may cause, in MiB: `store.memory`, a batch of events and
/// a page of decisions with their encoded copies, and as much again for what the allocator keeps.
const GROWTH_MIB_MAX: u64 = 256;

fn site(name: &str) -> Site {
    Site::new(Kafka::shared(), name, 1, ONE_CAMPAIGN).set("store.memory", "64MiB")
}

fn message(line: String) -> Message {
    Message::new("app-x", line).at(NOON_MS)
}

/// Returns texts of 60 kB for `params` or `props`, almost the size of an event.
fn large_texts() -> String {
    let text = "x".repeat(7_500);
    let texts: Vec<_> = (0..8).map(|n| format!(r#""p{n}":"{text}""#)).collect();
    texts.join(",")
}

#[track_caller]
fn check_whole(adtrail: &Adtrail, path: &str) -> Reply {
    let reply = adtrail.get(path).unwrap();
    let route = path.split('?').next();
    assert!(reply.status == 200 && reply.is_whole, "{}: {route:?}", reply.status);
    reply
}

#[track_caller]
fn check_growth(adtrail: &Adtrail, work: impl FnOnce()) {
    let growth_mib = adtrail.growth_mib(work);
    assert!(growth_mib < GROWTH_MIB_MAX, "{growth_mib} MiB");
}

/// Follows the links from page to page. Returns the number of events.
fn timeline_events(adtrail: &Adtrail, path: String) -> usize {
    let (mut events, mut next) = (0, Some(path));
    while let Some(path) = next {
        let reply = check_whole(adtrail, &path);
        events += reply.text().matches(r#""type":"#).count();
        let link = reply.header("link").and_then(|link| link.split_once('<')?.1.split_once('>'));
        next = link.map(|(path, _)| path.to_owned());
    }
    events
}

/// The clicks are over before the activation, so that none of 42 MB of them settles its decision. Loaded at once, they
/// take more than a GiB.
#[test]
fn large_clicks_that_settle_nothing_take_little_memory() {
    const CLICKS: i64 = 700;
    let device = r#""ids":{"oaid":"00000001-1111-4222-8333-444444444444"}"#;
    let site = site("hostile.clicks");
    let params = format!(r#""lookback_ms":1,"params":{{{}}}"#, large_texts());
    let click = |n: i64| {
        let (id, time) = (format!("c-{n}"), NOON_MS - 60_000 - n);
        message(format!(
            r#"{{"app":"app-x","click_id":"{id}","spreadid":7,"time":{time},{device},{params}}}"#
        ))
    };
    Kafka::shared().produce(&site.topics.clicks, (0..CLICKS).map(click));
    let adtrail = site.start();
    adtrail.await_read(CLICKS as u64);

    let activation = format!(r#"{{"app":"app-x","event_id":"a-1","time":{NOON_MS},{device}}}"#);
    check_growth(&adtrail, || {
        Kafka::shared().produce(&site.topics.activations, [message(activation)]);
        adtrail.await_read(CLICKS as u64 + 1);
    });
    let found =
        rows::parse(&check_whole(&adtrail, &format!("/v1/apps/app-x/events.csv?{DAY}")).body);
    assert_eq!((found.len(), &*found[0]["status"]), (1, "organic"));

    check_growth(&adtrail, || {
        check_whole(&adtrail, "/v1/apps/app-x/activations/a-1/explain");
    });
    check_growth(&adtrail, || {
        let device = "/v1/apps/app-x/devices/oaid/00000001-1111-4222-8333-444444444444";
        let events = timeline_events(&adtrail, format!("{device}?limit=1000"));
        assert_eq!(events, CLICKS as usize + 1);
    });
    adtrail.stop();
}

/// 40 s apart, every second activation is a duplicate; one before all of them makes it the others. Their records and
/// rows have 150 MB, several times as much with all copies.
#[test]
fn a_late_activation_that_changes_many_takes_little_memory() {
    const LATER: i64 = 10_000;
    let device = r#""ids":{"oaid":"00000001-1111-4222-8333-444444444444"}"#;
    let props = format!(r#""props":{{"p":"{}"}}"#, "x".repeat(7_500));
    let site = site("hostile.activations");
    let activation = |id: &str, time: i64, at: i64| {
        let line = format!(r#"{{"app":"app-x","event_id":"{id}","time":{time},{device},{props}}}"#);
        Message::new("app-x", line).at(at)
    };
    let time = |n: i64| NOON_MS + n * 40_000;
    let later = (0..LATER).map(|n| activation(&format!("a-{n}"), time(n), time(n)));
    Kafka::shared().produce(&site.topics.activations, later);
    let adtrail = site.start();
    adtrail.await_read(LATER as u64);

    check_growth(&adtrail, || {
        let earlier = activation("a", NOON_MS - 20_000, time(LATER));
        Kafka::shared().produce(&site.topics.activations, [earlier]);
        adtrail.await_read(LATER as u64 + 1);
    });
    let changed = adtrail.metric("adtrail_attribution_corrections_total");
    assert_eq!(changed, Some(LATER as f64));
    adtrail.stop();
}

/// Names of 36 MB are dead letters. Of the others, which have the maximum length, a summary has at most 8 MiB.
#[test]
fn summaries_of_many_long_names_take_little_memory() {
    const LARGE: usize = 600;
    const LONG: usize = 40_000;
    let site = site("hostile.names").set("ingest.bad_records_max", "10000");
    let effect = |n: usize, name: String| {
        let time = NOON_MS + n as i64;
        message(format!(r#"{{"app":"app-x","event_id":"e-{n}","name":"{name}","time":{time}}}"#))
    };
    let large = (0..LARGE).map(|n| effect(n, format!("{n:060000}")));
    let long = (0..LONG).map(|n| effect(n, format!("{n:0256}")));
    Kafka::shared().produce(&site.topics.effects, large.chain(long));
    let adtrail = site.start();
    adtrail.await_read((LARGE + LONG) as u64);
    let too_large = adtrail.metric_of("adtrail_ingest_dead_lettered_total", "code=\"too_large\"");
    assert_eq!(too_large, Some(LARGE as f64));

    let all = format!("/v1/apps/app-x/summary?{DAY}&by=event_name");
    check_growth(&adtrail, || {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let reply = adtrail.get(&all).unwrap();
                    let has_limit = reply.text().contains("names of more than 8388608 bytes");
                    assert!(reply.status == 400 && has_limit, "{}", reply.status);
                });
            }
            check_whole(&adtrail, &format!("/v1/apps/app-x/summary?{DAY}&by=status"));
        });
    });
    let half = "from=2025-03-10T12:00:00Z&to=2025-03-10T12:00:20Z";
    let half = format!("/v1/apps/app-x/summary?{half}&by=event_name");
    check_growth(&adtrail, || {
        let names = check_whole(&adtrail, &half).text().matches(r#""event_name""#).count();
        assert!(names >= LONG / 2, "{names}");
    });
    adtrail.stop();
}

/// Reading the props of a row once per column would take thousands of times the CPU time.
#[test]
fn many_prop_columns_cost_little_more_than_one() {
    const ROWS: usize = 100;
    const COLUMNS: usize = 4_000;
    /// Downloads of one column that together cost more than one with all columns.
    const DOWNLOADS: usize = 200;
    let site = site("hostile.columns");
    let texts = large_texts();
    let activation = |n: usize| {
        let time = NOON_MS + n as i64;
        message(format!(
            r#"{{"app":"app-x","event_id":"a-{n}","time":{time},"props":{{{texts}}}}}"#
        ))
    };
    Kafka::shared().produce(&site.topics.activations, (0..ROWS).map(activation));
    let adtrail = site.start();
    adtrail.await_read(ROWS as u64);

    let path = |columns: usize| {
        let columns: Vec<_> = (0..columns).map(|n| format!("props.c{n}")).collect();
        format!("/v1/apps/app-x/events.csv?{DAY}&fields={}", columns.join(","))
    };
    let ticks = |work: &dyn Fn()| {
        let before = adtrail.cpu_ticks();
        work();
        adtrail.cpu_ticks() - before
    };
    let (one, many) = (path(1), path(COLUMNS));
    let of_one = ticks(&|| (0..DOWNLOADS).for_each(|_| drop(check_whole(&adtrail, &one))));
    let of_many = ticks(&|| {
        thread::scope(|scope| {
            let download = scope.spawn(|| check_whole(&adtrail, &many));
            // Another client.
            check_whole(&adtrail, &one);
            assert_eq!(download.join().unwrap().text().lines().count(), ROWS + 1);
        });
    });
    assert!(of_many < of_one.max(10), "{of_many} and {of_one} ticks");
    adtrail.stop();
}
