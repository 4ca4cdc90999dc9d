//! Redelivery changes nothing: records that are produced up to nine times, a deleted consumer group, and a store
//! that is behind the group, even by a day after which state has expired.

use std::fs;
use std::path::Path;
use std::process::Command;

use testbed::exports::{Workload, check_same};
use testbed::kafka::{Kafka, Message};
use testbed::run_ok;
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::traffic;

static WORKLOAD: Workload = Workload::new(|| traffic::records(9, 2000));

fn site(name: &str) -> Site {
    traffic::site(name, 3).set("ingest.batch_records_max", "100")
}

fn copy(from: &Path, to: &Path) {
    run_ok(Command::new("cp").arg("-a").args([from, to]), b"");
}

#[test]
fn a_restored_store_rereads_the_records_it_lacks() {
    let site = site("redelivery.behind");
    let (store, saved) = (site.path().join("store"), site.path().join("saved"));
    let all = traffic::redelivered(WORKLOAD.records(), 9);
    let (first, rest) = all.split_at(all.len() / 4);
    traffic::produce(&site.topics, first);
    site.read_all();
    copy(&store, &saved);
    traffic::produce(&site.topics, rest);
    assert_eq!(site.read_all(), rest.len() as u64);
    for _ in 0..2 {
        fs::remove_dir_all(&store).unwrap();
        copy(&saved, &store);
        assert_eq!(site.read_all(), rest.len() as u64);
    }
    WORKLOAD.check_all(&site);
}

#[test]
fn rows_are_the_same_after_nine_deliveries_and_a_deleted_group() {
    let site = site("redelivery.nine");
    // Each record is delivered one to nine times.
    let all = traffic::redelivered(&traffic::redelivered(WORKLOAD.records(), 10), 11);
    let (first, rest) = all.split_at(all.len() / 2);
    traffic::produce(&site.topics, first);
    assert_eq!(site.read_all(), first.len() as u64);
    // Reading resumes from the store's positions, not from the group's offsets.
    Kafka::shared().delete_group(&site.group());
    traffic::produce(&site.topics, rest);
    assert_eq!(site.read_all(), rest.len() as u64);
    WORKLOAD.check_all(&site);
}

const HOUR: i64 = 3_600_000;
/// 2025-03-10T00:00:00Z.
const START: i64 = 1_741_564_800_000;

/// Returns events of three days, ordered by broker timestamp: topic, line and broker timestamp. Devices and ids recur
/// within hours and after days; no event is more than an hour late.
fn three_days() -> Vec<(usize, String, i64)> {
    const EVENTS: usize = 2_400;
    let mut rng = fastrand::Rng::with_seed(12);
    let mut all: Vec<_> = (0..EVENTS as i64)
        .map(|n| {
            let broker_ms = START + n * 72 * HOUR / EVENTS as i64;
            let time = broker_ms - rng.i64(0..HOUR);
            let (device, recent) = (rng.u32(..40), n - rng.i64(0..30));
            let ids = format!(r#""ids":{{"oaid":"device-{device}"}}"#);
            let common = format!(r#""app":"app-x","time":{time},{ids}"#);
            let (topic, fields) = match rng.u8(..10) {
                0..5 => (0, format!(r#""type":"click","click_id":"c-{n}","spreadid":7"#)),
                5..7 => (1, format!(r#""type":"activation","event_id":"a-{recent}""#)),
                _ => (2, format!(r#""type":"effect","name":"n","event_id":"e-{recent}""#)),
            };
            (topic, format!("{{{fields},{common}}}"), broker_ms)
        })
        .collect();
    all.sort_by_key(|(_, _, broker_ms)| *broker_ms);
    all
}

#[test]
fn a_store_one_day_behind_makes_the_same_decisions_despite_expired_state() {
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "redelivery.day", 1, ONE_CAMPAIGN)
        .set("attribution.correction_horizon", "2h")
        .set("attribution.click_window", "6h")
        .set("attribution.reattribution_window", "12h")
        .set("attribution.effect_window", "8h")
        .set("ingest.batch_records_max", "50");
    let all = three_days();
    let produce = |part: &[(usize, String, i64)]| {
        let topics = site.topics.all();
        let message = |(topic, line, broker_ms): &(usize, String, i64)| {
            (topics[*topic], Message::new("app-x", line.clone()).at(*broker_ms))
        };
        kafka.produce_all(part.iter().map(message));
    };
    let (store, saved) = (site.path().join("store"), site.path().join("saved"));
    let [first, second, third] = [0, 1, 2].map(|day| &all[day * 800..][..800]);
    produce(first);
    site.read_all();
    copy(&store, &saved);
    produce(second);
    assert_eq!(site.read_all(), 800);
    fs::remove_dir_all(&store).unwrap();
    copy(&saved, &store);
    assert_eq!(site.read_all(), 800);
    produce(third);
    assert_eq!(site.read_all(), 800);
    // The state behind the decisions of the first day must have expired; otherwise this tests nothing.
    let (_, activation, broker_ms) =
        first.iter().rfind(|(topic, ..)| *topic == 1).expect("there is an activation");
    let activation: serde_json::Value = serde_json::from_str(activation).expect("valid JSON");
    let id = activation["event_id"].as_str().expect("the id is present");
    let explanation = site.run(&["explain", "--app", "app-x", "--activation", id]);
    let explanation = String::from_utf8_lossy(&explanation.stdout).into_owned();
    assert!(explanation.contains("Touches before 2025-03-11T"), "{explanation}");
    let lines: Vec<&str> = all.iter().map(|(_, line, _)| line.as_str()).collect();
    let expected = site.replay("app-x", lines.join("\n").as_bytes());
    check_same("app-x", &site.download("app-x", "2025-03-01", "2025-04-01", &[]), &expected);
    // By its old broker timestamp this click is not too late, but the decision that it could change is final.
    let time = activation["time"].as_i64().expect("it is a number") - 1;
    let ids = &activation["ids"];
    let click = format!(
        r#"{{"type":"click","app":"app-x","click_id":"late","spreadid":7,"time":{time},"ids":{ids}}}"#
    );
    let adtrail = site.start();
    kafka.produce(&site.topics.clicks, [Message::new("app-x", click).at(*broker_ms)]);
    adtrail.await_read(1);
    assert_eq!(adtrail.metric("adtrail_ingest_late_records_total"), Some(1.0));
    check_same("app-x", &site.download("app-x", "2025-03-01", "2025-04-01", &[]), &expected);
}
