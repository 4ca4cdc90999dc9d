//! The published JSON Schemas: a validator in Python accepts the same events as `adtrail replay`.

mod asyncapi;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testbed::site::{ONE_CAMPAIGN, Site, Topics};
use testbed::{cache_dir, run, run_ok};

const FAMILIES: [&str; 3] = ["click", "activation", "effect"];

/// Maximum number of bad lines that `adtrail replay` logs.
const LOGGED_MAX: usize = 20;

fn in_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn schema_file(family: &str) -> PathBuf {
    in_project(&format!("schemas/json/{family}.schema.json"))
}

const RFC3339: &str = "2026-03-10T12:00:00Z";

/// Stands for several fields: a click with empty values in all fields that identify a device.
const EMPTY_IDS: &str = "click_id, ids, ip";

/// Returns an event with every field of its family.
fn full(family: &str) -> Value {
    let mut event = json!({"type": family, "app": "app-x", "time": 1_773_144_000_000_u64,
        "ids": {"oaid": "o-1"}, "ip": "203.0.113.9", "ua": "u", "device_model": "m",
        "os": "android", "os_version": "14"});
    let fields = match family {
        "click" => json!({"click_id": "c-1", "spreadid": 7, "purpose": "ua", "lookback_ms": 5,
            "site": "s", "params": {"p": "x"}}),
        "activation" => json!({"event_id": "a-1", "click_id": "c-1", "app_version": "1",
            "install_begin_time": 1_773_143_990_000_u64, "props": {"p": "x"}}),
        _ => json!({"event_id": "e-1", "name": "buy", "app_version": "1", "props": {"p": "x"},
            "revenue": "9.99", "currency": "CNY"}),
    };
    let fields = fields.as_object().expect("it is an object").clone();
    event.as_object_mut().expect("it is an object").extend(fields);
    event
}

fn values() -> Vec<Value> {
    let values = json!([
        null, "", "x", true, 0, 1, -1, 1.0, 1.5, 1e300, 4_294_967_295_u32, 4_294_967_296_u64,
        1_199_145_599_999_u64, 1_199_145_600_000_u64, 253_402_300_799_999_u64,
        253_402_300_800_000_u64, RFC3339, "9.99", "-1", "9,99", "1e3", ".5", "5.",
        "0".repeat(64), "0".repeat(65), "ua", "retargeting", "click", "impression",
        "activation", "effect", [], ["x"], {}, {"a": "b"}, {"a": ""}, {"a": null}, {"a": 1},
        {"a": {"b": "c"}}, {"a": ["b"]}, {"a": []}, {"a": ["b", null]}, {"a": ["b", 1]},
        {"a": [["b"]]}
    ]);
    values.as_array().expect("it is an array").clone()
}

/// An event to be validated.
#[derive(Debug)]
struct Case {
    family: usize,
    /// Field that differs from [`full`], and its value; `None` if the field is missing.
    field: String,
    value: Option<Value>,
    event: Value,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (family, name) in FAMILIES.into_iter().enumerate() {
        let full = full(name);
        let fields = full.as_object().expect("it is an object").keys().map(String::as_str);
        for field in fields.chain(["unknown"]) {
            for value in values().into_iter().map(Some).chain([None]) {
                let mut event = full.clone();
                let members = event.as_object_mut().expect("it is an object");
                match &value {
                    Some(value) => drop(members.insert(field.to_owned(), value.clone())),
                    None => drop(members.remove(field)),
                }
                cases.push(Case { family, field: field.to_owned(), value, event });
            }
        }
        for event in values() {
            cases.push(Case { family, field: String::new(), value: None, event });
        }
    }
    let click =
        json!({"type": "click", "app": "app-x", "spreadid": 7, "time": 1_773_144_000_000_u64});
    let mut empty = click.clone();
    (empty["click_id"], empty["ids"], empty["ip"]) = (json!(""), json!({"oaid": ""}), Value::Null);
    cases.push(Case { family: 0, field: String::new(), value: None, event: click });
    cases.push(Case { family: 0, field: EMPTY_IDS.to_owned(), value: None, event: empty });
    cases
}

/// Returns whether adtrail accepts an event for which schema and adtrail are known to differ; `None` for other events.
fn difference(case: &Case) -> Option<bool> {
    let (family, text) = (FAMILIES[case.family], case.value.as_ref().and_then(Value::as_str));
    let float = case.value.as_ref().filter(|value| value.is_f64()).and_then(Value::as_f64);
    match (case.field.as_str(), text, float) {
        // Optional on a topic, which implies the type, but required in a file.
        ("type", None, None) if case.value.is_none() => Some(false),
        // In a file, the event is an activation.
        ("type", Some("activation"), _) if family != "activation" => Some(true),
        // The existing apps are those of the settings.
        ("app", Some(key), _) if !key.is_empty() => Some(false),
        // The validator does not check formats.
        ("install_begin_time", Some(""), _) => None,
        ("time" | "install_begin_time", Some(text), _) => (text != RFC3339).then_some(false),
        // In JSON Schema 1e300 is an integer.
        ("lookback_ms", _, Some(1e300)) => Some(false),
        // JSON Schema does not see exponents.
        ("revenue", _, Some(1e300)) => Some(false),
        // adtrail treats an empty text as a missing field, but producers should not rely on that.
        ("lookback_ms" | "ids" | "params" | "props", Some(""), _) => Some(true),
        // One of these fields is required, and must not be empty.
        (EMPTY_IDS, ..) => Some(false),
        _ => None,
    }
}

fn by_schema(cases: &[Case]) -> Vec<bool> {
    let lines = cases.iter().map(|case| json!([case.family, case.event.to_string()]).to_string());
    let lines: String = lines.map(|line| line + "\n").collect();
    let mut judge = Command::new(cache_dir().join("python/bin/python"));
    judge.arg(in_project("tests/commands/schemas/validate.py")).args(FAMILIES.map(schema_file));
    let verdicts = String::from_utf8(run_ok(&mut judge, lines.as_bytes())).expect("valid UTF-8");
    verdicts.lines().map(|verdict| verdict == "true").collect()
}

/// Returns the events that `adtrail replay` logs as bad lines; it logs at most [`LOGGED_MAX`].
fn rejected_by_replay<'c>(site: &Site, cases: &[&'c Case]) -> Vec<&'c Case> {
    let lines: String = cases.iter().map(|case| format!("{}\n", case.event)).collect();
    fs::write(site.path().join("events"), lines).expect("the file is written");
    let output = run(&mut site.command(&["replay", "events"]), b"");
    let stderr = String::from_utf8(output.stderr).expect("valid UTF-8");
    let number = |line: &str| {
        let (number, _) = line.split_once(" events:")?.1.split_once(':')?;
        number.parse::<usize>().ok()
    };
    let rejected: Vec<_> = stderr.lines().filter_map(number).map(|line| cases[line - 1]).collect();
    assert_eq!(output.status.code(), Some(i32::from(!rejected.is_empty())), "{stderr}");
    rejected
}

#[test]
fn adtrail_accepts_the_events_that_the_json_schemas_accept() {
    let cases = cases();
    let verdicts = by_schema(&cases);
    assert_eq!(verdicts.len(), cases.len());
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (case, by_schema) in cases.iter().zip(verdicts) {
        let expected = difference(case);
        assert_ne!(expected, Some(by_schema), "no difference: {case:?}");
        let is_accepted = expected.unwrap_or(by_schema);
        if is_accepted { &mut good } else { &mut bad }.push(case);
    }
    assert!(good.len() > 100 && bad.len() > 100, "{} good, {} bad", good.len(), bad.len());
    let site = Site::on(Topics::of("schemas"), "127.0.0.1:1".into(), ONE_CAMPAIGN);
    let rejected = rejected_by_replay(&site, &good);
    assert!(rejected.is_empty(), "the schema accepts events that adtrail rejects: {rejected:#?}");
    for chunk in bad.chunks(LOGGED_MAX) {
        let rejected = rejected_by_replay(&site, chunk);
        let is_rejected = |case: &&&Case| rejected.iter().any(|other| std::ptr::eq(*other, **case));
        let accepted: Vec<_> = chunk.iter().filter(|case| !is_rejected(case)).collect();
        assert!(
            accepted.is_empty(),
            "adtrail accepts events that the schema rejects: {accepted:#?}"
        );
    }
}
