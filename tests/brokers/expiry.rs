//! State goes by the broker's time, and nothing that was decided goes with it.

use testbed::adtrail::Adtrail;
use testbed::eventually;
use testbed::kafka::{Kafka, Message};
use testbed::rows::{self, Row};
use testbed::site::{ONE_CAMPAIGN, Site};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// 2025-03-10T12:00:00Z.
const NOON: i64 = 1_741_608_000_000;
const LATER: i64 = NOON + 20 * DAY;

/// An event that the broker takes at once. Of the two partitions of a topic the second has none.
fn event(fields: &str, time: i64) -> Message {
    let value = format!(r#"{{"app":"app-x","time":{time},{fields}}}"#);
    Message { partition: Some(0), ..Message::new("app-x", value).at(time) }
}

fn click(id: &str, device: &str, time: i64) -> Message {
    let ids = format!(r#""ids":{{"oaid":"{device}"}}"#);
    event(&format!(r#""type":"click","click_id":"{id}","spreadid":7,{ids}"#), time)
}

fn activation(id: &str, device: &str, more: &str, time: i64) -> Message {
    event(&format!(r#""event_id":"{id}","ids":{{"oaid":"{device}"}}{more}"#), time)
}

fn effect(id: &str, device: &str, time: i64) -> Message {
    event(&format!(r#""event_id":"{id}","name":"purchase","ids":{{"oaid":"{device}"}}"#), time)
}

/// Produces to all topics and waits until it is committed.
fn give(site: &Site, kafka: &Kafka, adtrail: &Adtrail, messages: [Vec<Message>; 3]) {
    for (topic, messages) in site.topics.all().into_iter().zip(messages) {
        kafka.produce(topic, messages);
    }
    // What has just been produced is no lag before it was heard of.
    let produced =
        site.topics.all().map(|topic| kafka.consume_all(topic).len()).iter().sum::<usize>();
    eventually("all is committed", || match adtrail.metric("adtrail_ingest_read_total") {
        Some(read) if read >= produced as f64 => Ok(()),
        read => Err(format!("{read:?} of {produced}")),
    });
}

fn rows_of(adtrail: &Adtrail) -> Vec<Row> {
    let reply = adtrail.get("/v1/apps/app-x/events.csv?from=2025-01-01&to=2025-12-31");
    rows::parse(&reply.expect("adtrail answers").body)
}

#[track_caller]
fn check(rows: &[Row], event_id: &str, click_id: &str, touch_time: &str) {
    let row = rows.iter().find(|row| row["event_id"] == event_id).expect("a row of the event");
    assert_eq!((&*row["click_id"], &*row["touch_time"]), (click_id, touch_time), "{row:?}");
}

#[test]
fn a_click_id_returns_after_its_state_has_expired() {
    let kafka = Kafka::start();
    let site = Site::new(&kafka, "expiry", 2, ONE_CAMPAIGN).set("store.retention", "off");
    let adtrail = site.start();
    give(
        &site,
        &kafka,
        &adtrail,
        [
            vec![click("c1", "d1", NOON)],
            vec![activation("a", "d1", "", NOON + HOUR)],
            vec![effect("e", "d1", NOON + 2 * HOUR)],
        ],
    );
    give(
        &site,
        &kafka,
        &adtrail,
        [
            vec![click("c2", "d2", LATER)],
            vec![activation("b", "d2", "", LATER)],
            vec![effect("f", "d2", LATER)],
        ],
    );
    // The partitions without records are asked for their ends now and then; batches tell of it.
    eventually("all partitions are consumed up to the later day", || {
        let tick = Message { value: None, ..event("", LATER) };
        kafka.produce(&site.topics.clicks, [tick]);
        let name = "adtrail_ingest_consumed_until_timestamp_seconds";
        let until = adtrail.metric(name).unwrap_or_default();
        if until == LATER as f64 / 1e3 { Ok(()) } else { Err(until.to_string()) }
    });
    let told = site.run(&["explain", "--app", "app-x", "--activation", "a"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("by click c1 of 2025-03-10T12:00:00.000Z"), "{told}");
    assert!(told.contains("Touches before 2025-03-16T11:50:00.000Z."), "{told}");
    let naming = r#","click_id":"c1""#;
    give(
        &site,
        &kafka,
        &adtrail,
        [
            vec![click("c1", "d3", LATER + HOUR)],
            vec![activation("g", "d4", naming, LATER + 2 * HOUR)],
            vec![],
        ],
    );
    let rows = rows_of(&adtrail);
    assert_eq!(rows.len(), 5);
    for event_id in ["a", "e"] {
        check(&rows, event_id, "c1", "2025-03-10T12:00:00.000Z");
    }
    check(&rows, "g", "c1", "2025-03-30T13:00:00.000Z");
    assert_eq!(adtrail.metric("adtrail_ingest_disordered_total"), Some(0.0));

    // Stamped long ago, this click passes for one in time; what it could change is decided.
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
    let adtrail = site.start();
    kafka.produce(&site.topics.clicks, [click("c0", "d1", NOON + HOUR / 2)]);
    eventually("it is noticed", || match adtrail.metric("adtrail_ingest_read_total") {
        Some(1.0..) => Ok(()),
        read => Err(format!("{read:?}")),
    });
    assert_eq!(rows_of(&adtrail), rows);
    assert_eq!(adtrail.metric("adtrail_ingest_disordered_total"), Some(1.0));
}
