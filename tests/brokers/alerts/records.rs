//! Alerts about the records of topics.

use super::*;
use crate::network::Network;

const MINUTE_MS: i64 = 60_000;

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// An event with its own time as broker timestamp.
fn event_at(id: &str, time_ms: i64) -> Message {
    let event = format!(r#"{{"app":"app-x","event_id":"{id}","time":{time_ms}}}"#);
    Message::new("app-x", event).at(time_ms)
}

#[test]
fn a_record_that_is_too_large_to_decompress_raises_an_alert() {
    let kafka = Kafka::shared();
    let site = site(kafka, "huge", "");
    let site = site.set("kafka.librdkafka.receive.message.max.bytes", "40000000");
    let fixture = healthy(kafka, site);
    let settings = [("message.max.bytes", "200000000"), ("compression.type", "zstd")];
    let huge = Message::new("app-x", "0".repeat(120_000_000));
    kafka.producer_with(&settings).produce_all([(&*fixture.site.topics.effects, huge)]);
    let alerts = ["AdtrailUnreadableRecords", "AdtrailDeadLetters"];
    fixture.await_alerts(&alerts, &WAITING);
}

#[test]
fn an_old_broker_timestamp_raises_an_alert() {
    let kafka = Kafka::shared();
    let fixture = healthy(kafka, site(kafka, "late", "").impatient());
    let (recent_s, mut number) = ((now_ms() / 1_000 - 600) as f64, 1_000);
    eventually("the low watermark is recent", || {
        number += 1;
        fixture.produce([event(number)]);
        match fixture.adtrail.metric("adtrail_ingest_consumed_until_timestamp_seconds") {
            Some(until) if until > recent_s => Ok(()),
            until => Err(format!("{until:?}")),
        }
    });
    fixture.produce([event_at("late", now_ms() - 24 * 60 * MINUTE_MS)]);
    fixture.await_alerts(&["AdtrailLateRecords"], &WAITING);
}

/// Two producers with different partitioners, for half an hour by broker timestamps.
#[test]
fn an_app_on_two_partitions_raises_an_alert() {
    let kafka = Kafka::shared();
    let fixture = healthy(kafka, Site::new(kafka, "alerts.keys", 2, ONE_CAMPAIGN));
    let times = [now_ms() - 30 * MINUTE_MS, now_ms()];
    let records = times.into_iter().flat_map(|time_ms| {
        [0, 1].map(|partition| {
            let id = format!("{partition}-{time_ms}");
            Message { partition: Some(partition), ..event_at(&id, time_ms) }
        })
    });
    fixture.produce(records);
    let allowed = [&WAITING[..], &["AdtrailLateRecords"]].concat();
    fixture.await_alerts(&["AdtrailKeyPartitionMismatch"], &allowed);
}

#[test]
fn a_macro_that_is_not_replaced_raises_an_alert() {
    let kafka = Kafka::shared();
    let fixture = healthy(kafka, site(kafka, "macros", ""));
    let mut number = 0;
    fixture.await_alerts_while(&["AdtrailIgnoredValues"], &[], || {
        number += 1;
        let click = format!(
            r#"{{"type":"click","app":"app-x","spreadid":7,"click_id":"c-{number}","time":{},"ids":{{"oaid":"__OAID__"}}}}"#,
            now_ms()
        );
        kafka.produce(&fixture.site.topics.clicks, [Message::new("app-x", click)]);
    });
}

/// No fault of the environment makes adtrail lose count, so one record is added to the count in a scrape of it.
#[test]
fn a_record_that_is_not_accounted_for_raises_an_alert() {
    let kafka = Kafka::shared();
    let fixture = healthy(kafka, site(kafka, "lost", ""));
    let scrape = fixture.adtrail.metrics();
    let topic = &fixture.site.topics.activations;
    let count =
        |records: u32| format!("adtrail_ingest_read_total{{topic=\"{topic}\"}} {records}\n");
    let changed = scrape.replace(&count(50), &count(51));
    assert_ne!(scrape, changed);
    let network = Network::start();
    network.answer("/metrics", 200, &changed);
    let url = network.url("");
    let address = url.strip_prefix("http://").expect("a URL");
    let prometheus = Prometheus::start_with(&[address], "adtrail", &rules());
    let fixture = Fixture { prometheus, ..fixture };
    fixture.await_alerts(&["AdtrailUnaccounted"], &[]);
}
