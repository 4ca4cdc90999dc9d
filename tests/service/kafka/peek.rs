//! `adtrail peek`: the records of a topic as JSON lines.

use std::process::Command;

use serde_json::{Value, json};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{Captured, await_exit, check_refused, eventually, run, run_ok, shell_line};

use super::NOON_MS;

fn activation(id: &str, time_ms: i64) -> String {
    format!(r#"{{"app":"app-x","event_id":"{id}","time":{time_ms},"ids":{{"oaid":"d-1"}}}}"#)
}

fn at(partition: i32, time_ms: i64, value: impl Into<Vec<u8>>) -> Message {
    Message { partition: Some(partition), ..Message::new("app-x", value).at(time_ms) }
}

fn lines(stdout: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn peek(site: &Site, args: &[&str]) -> Vec<Value> {
    lines(&run_ok(&mut site.command(&[&["peek"], args].concat()), b""))
}

/// Returns partition and offset of each line.
fn offsets(lines: &[Value]) -> Vec<(i64, i64)> {
    let number = |line: &Value, name: &str| line[name].as_i64().unwrap();
    lines.iter().map(|line| (number(line, "partition"), number(line, "offset"))).collect()
}

#[test]
fn peek_shows_a_topic_to_its_end() {
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "peek.all", 2, ONE_CAMPAIGN);
    let topic = &*site.topics.activations;
    kafka.produce(
        topic,
        [
            at(0, NOON_MS, activation("a-1", NOON_MS)),
            at(0, NOON_MS + 1, "[1]"),
            at(1, NOON_MS + 2, b"\x00\xff".to_vec()),
            Message { partition: Some(1), ..Message::default() }.at(NOON_MS + 3),
            at(1, NOON_MS + 4, activation("a-2", NOON_MS)),
        ],
    );
    let mut shown = peek(&site, &[topic]);
    // Records are in order within a partition; partitions may be interleaved.
    shown.sort_by_key(|line| line["partition"].as_i64());
    assert_eq!(offsets(&shown), [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]);
    let event = |id: &str| {
        json!({"type": "activation", "app": "app-x", "event_id": id,
            "time": "2025-03-10T12:00:00.000Z", "ids": {"oaid": "d-1"}})
    };
    assert_eq!(
        shown[0],
        json!({"partition": 0, "offset": 0, "time": "2025-03-10T12:00:00.000Z", "key": "app-x",
            "schema": "json", "event": event("a-1")})
    );
    assert_eq!(shown[1]["error"]["code"], "not_an_object");
    assert_eq!(shown[1]["value"], "[1]");
    assert_eq!(shown[2]["error"]["code"], "not_avro");
    assert_eq!(shown[2]["value"], json!({"base64": "AP8="}));
    assert_eq!((&shown[3]["key"], &shown[3]["event"]), (&Value::Null, &Value::Null));
    assert!(shown[3].get("error").is_none());
    assert_eq!(shown[4]["event"], event("a-2"));

    let raw = peek(&site, &[topic, "--raw", "--count", "1"]);
    assert_eq!(raw.len(), 1);
    assert!(raw[0].get("event").is_none() && raw[0]["headers"] == json!([]), "{raw:?}");
    let from = |time: &str| {
        let mut offsets = offsets(&peek(&site, &[topic, "--from-time", time]));
        offsets.sort_unstable();
        offsets
    };
    assert_eq!(from("2025-03-10T12:00:00.002Z"), [(1, 0), (1, 1), (1, 2)]);
    assert_eq!(from("2025-03-10T20:00:00.001+08:00"), [(0, 1), (1, 0), (1, 1), (1, 2)]);
    assert_eq!(from("2025-03-11"), []);
    assert_eq!(peek(&site, &[&site.topics.clicks]).len(), 0);
    assert_eq!(peek(&site, &[topic, "--count", "0"]).len(), 0);
}

#[test]
fn peek_at_end_waits_for_new_records() {
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "peek.new", 2, ONE_CAMPAIGN);
    let topic = &*site.topics.activations;
    kafka.produce(topic, [at(0, NOON_MS, "old"), at(1, NOON_MS, "old")]);
    let mut command = site.command(&["peek", topic, "--at-end", "--count", "3"]);
    let [shown, stderr] = [Captured::empty(), Captured::empty()];
    let mut child = command.stdout(shown.sink()).stderr(stderr.sink()).spawn().unwrap();
    // Records produced before peek has found the end are not shown, and peek does not report when it has.
    eventually("a new record is shown", || {
        kafka.produce(topic, [at(0, NOON_MS, "new")]);
        if shown.text().is_empty() { Err("nothing") } else { Ok(()) }
    });
    kafka.produce(topic, [at(1, NOON_MS, "last"), at(0, NOON_MS, "last"), at(1, NOON_MS, "last")]);
    assert!(await_exit(&mut child).success());
    let text = shown.text();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(!text.contains("old") && text.contains("new"), "{text}");
    assert_eq!(stderr.text(), "");
}

#[test]
fn a_closed_pipe_ends_peek_without_an_error() {
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "peek.pipe", 1, ONE_CAMPAIGN);
    let topic = &*site.topics.activations;
    let long = "x".repeat(1000);
    kafka.produce(topic, (0..500).map(|_| at(0, NOON_MS, long.as_str())));
    let peek = shell_line(&site.command(&["peek", topic]));
    let pipe = format!("set -o pipefail; {peek} | head -n 1");
    let output = run(Command::new("bash").args(["-c", &pipe]), b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines(&output.stdout).len(), 1);
    assert!(output.stderr.is_empty());

    let refused = |args: &[&str], code: i32, part: &str| {
        check_refused(&site.run(&[&["peek"], args].concat()), code, &[part]);
    };
    refused(&["no.such.topic"], 1, "no.such.topic");
    refused(&[topic, "--from-time", "yesterday"], 2, "RFC 3339");
    refused(&[topic, "--from-time", "2025-03-10", "--at-end"], 2, "--at-end");
}
