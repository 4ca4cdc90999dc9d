//! Events that nobody expects and the rules allow, through `adtrail replay`: each gives its row, or
//! a line of its own that says which field is wrong.

use std::collections::BTreeMap;
use std::process::Output;

use serde_json::{Value, json};
use testbed::rows::{self, Row};
use testbed::site::{ONE_CAMPAIGN, Site, Topics};

const NOON_MS: u64 = 1_773_144_000_000;

const KINDS: [&str; 8] = ["oaid", "gaid", "idfa", "caid", "idfv", "imei", "android_id", "mac"];

fn event(kind: &str, time: impl Into<Value>, own: Value) -> String {
    let mut event = json!({ "type": kind, "app": "app-x", "time": time.into() });
    let own = own.as_object().expect("an object").clone();
    event.as_object_mut().expect("an object").extend(own);
    event.to_string()
}

fn click(id: &str, time: impl Into<Value>, ids: &Value) -> String {
    event("click", time, json!({ "click_id": id, "spreadid": 7, "ids": ids }))
}

fn activation(id: &str, time: impl Into<Value>, ids: &Value) -> String {
    event("activation", time, json!({ "event_id": id, "ids": ids }))
}

fn effect(id: &str, time: impl Into<Value>, ids: &Value) -> String {
    event("effect", time, json!({ "event_id": id, "name": "buy", "ids": ids }))
}

/// What is said on standard error, and the rows by their events' ids.
fn replay(lines: &[String], code: i32) -> (String, BTreeMap<String, Row>) {
    let site = Site::on(Topics::of("extremes"), "127.0.0.1:1".into(), ONE_CAMPAIGN);
    let text = lines.join("\n");
    let Output { status, stdout, stderr } =
        testbed::run(&mut site.command(&["replay", "-"]), text.as_bytes());
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{said}");
    (said, rows::by_event_id(rows::parse(&stdout)))
}

fn good(lines: &[String]) -> BTreeMap<String, Row> {
    let (said, rows) = replay(lines, 0);
    assert_eq!(said, "");
    rows
}

#[track_caller]
fn check(row: &Row, expected: &[(&str, &str)]) {
    for (column, value) in expected {
        assert_eq!(row[*column], *value, "{column} of {}", row["event_id"]);
    }
}

#[test]
fn texts_of_ten_thousand_characters() {
    let long = |first: char| format!("{first}{}", "é".repeat(9_999));
    let ids = json!({ "oaid": long('d') });
    let named =
        json!({ "event_id": long('e'), "name": long('n'), "currency": long('y'), "ids": ids });
    let rows = good(&[
        click(&long('c'), NOON_MS - 1, &ids),
        activation(&long('a'), NOON_MS, &ids),
        event("effect", NOON_MS + 1, named),
    ]);
    assert_eq!(rows.len(), 2);
    let credit = [("status", "attributed"), ("click_id", &*long('c')), ("oaid", &long('d'))];
    check(&rows[&long('a')], &credit);
    check(&rows[&long('e')], &credit);
    let own =
        [("event_name", &*long('n')), ("currency", &long('y')), ("activation_id", &long('a'))];
    check(&rows[&long('e')], &own);
}

#[test]
fn five_hundred_props() {
    let props: BTreeMap<String, String> =
        (0..500).map(|number| (format!("key-{number}"), format!("\"{number}\",\n"))).collect();
    let own = json!({ "event_id": "a", "props": props });
    let rows = good(&[event("activation", NOON_MS, own)]);
    let found: BTreeMap<String, String> = serde_json::from_str(&rows["a"]["props"]).unwrap();
    assert_eq!(found, props);
}

#[test]
fn revenue_is_kept_to_the_letter() {
    let digits = "1234567890123456789012345678901234567890";
    let revenues = [
        format!("{digits}.12"),
        format!("\"-0{digits}\""),
        format!("\"+0.{digits}0\""),
        "9007199254740993".into(),
        "-0.00".into(),
    ];
    let lines: Vec<String> = (0..)
        .zip(&revenues)
        .map(|(number, revenue)| {
            let line = effect(&format!("e-{number}"), NOON_MS, &json!({}));
            // A number of serde_json's would be rounded.
            line.replacen('{', &format!("{{\"revenue\":{revenue},"), 1)
        })
        .collect();
    let rows = good(&lines);
    for (number, revenue) in revenues.iter().enumerate() {
        assert_eq!(rows[&format!("e-{number}")]["revenue"], revenue.trim_matches('"'));
    }
}

/// Windows reach beyond both ends, and stop there.
#[test]
fn the_first_and_the_last_millisecond() {
    let (first, last) = (json!({ "oaid": "first" }), json!({ "oaid": "last" }));
    let rows = good(&[
        click("c-first", 0, &first),
        activation("a-first", 1, &first),
        effect("e-first", "1970-01-01T00:00:00Z", &first),
        activation("a-zero", 0, &json!({ "oaid": "zero" })),
        click("c-last", "9999-12-31T23:59:59.998Z", &last),
        activation("a-last", "9999-12-31T23:59:59.999Z", &last),
        effect("e-last", 253_402_300_799_999_u64, &last),
    ]);
    for end in ["first", "last"] {
        let click_id = format!("c-{end}");
        let credit = [("status", "attributed"), ("click_id", &*click_id)];
        check(&rows[&format!("a-{end}")], &credit);
        check(&rows[&format!("e-{end}")], &credit);
    }
    check(&rows["a-zero"], &[("status", "organic"), ("event_time", "1970-01-01T00:00:00.000Z")]);
    check(&rows["e-last"], &[("event_time", "9999-12-31T23:59:59.999Z")]);
}

/// Any of the eight alone would be another device's.
#[test]
fn one_activation_with_the_ids_of_eight_devices() {
    let mut lines = Vec::new();
    let device = |number: usize| format!("device-{number}");
    for (number, kind) in KINDS.iter().enumerate() {
        let ids = json!({ *kind: device(number) });
        let time = NOON_MS + number as u64;
        lines.push(click(&format!("c-{number}"), time, &ids));
        lines.push(activation(&format!("own-{number}"), time + 1_000, &ids));
    }
    let all: BTreeMap<&str, String> =
        KINDS.iter().enumerate().map(|(number, kind)| (*kind, device(number))).collect();
    lines.push(activation("all", NOON_MS + 3_600_000, &json!(all)));
    lines.push(effect("e", NOON_MS + 3_600_001, &json!(all)));
    let rows = good(&lines);
    assert_eq!(rows.len(), 10);
    for (number, kind) in KINDS.iter().enumerate() {
        let click_id = format!("c-{number}");
        let expected =
            [("status", "attributed"), ("install_type", "install"), ("match_type", kind)];
        check(&rows[&format!("own-{number}")], &expected);
        check(&rows[&format!("own-{number}")], &[("click_id", &*click_id)]);
    }
    check(&rows["all"], &[("status", "unattributed"), ("install_type", "reinstall")]);
    // In the set of `all` the seven later ones are duplicates of the first.
    let expected = [("activation_id", "all"), ("status", "attributed"), ("click_id", "c-0")];
    check(&rows["e"], &expected);
}

/// An empty text is as good as absent: where a field may be, and where it must not.
#[test]
fn empty_texts_everywhere() {
    let optional = [
        "click_id",
        "event_id",
        "ids",
        "ip",
        "ua",
        "device_model",
        "os",
        "os_version",
        "app_version",
        "site",
        "purpose",
        "lookback_ms",
        "install_begin_time",
        "revenue",
        "currency",
        "params",
        "props",
    ];
    let empty = |kind: &str, more: Value| {
        let fields = optional.map(|field| (field.to_owned(), json!("")));
        let mut fields: serde_json::Map<String, Value> = fields.into_iter().collect();
        fields.extend(more.as_object().expect("an object").clone());
        event(kind, NOON_MS, fields.into())
    };
    let members = json!({ "ids": { "oaid": "", "": "x" }, "props": { "": "" } });
    let wrong = [
        (empty("click", json!({ "spreadid": 7 })), "click_id"),
        (empty("click", json!({ "spreadid": "", "click_id": "c" })), "spreadid"),
        (empty("effect", json!({ "name": "" })), "name"),
        (empty("activation", json!({ "app": "" })), "app"),
        (empty("activation", json!({ "time": "" })), "time"),
        (empty("", json!({})), "type"),
    ];
    let mut lines = vec![
        empty("click", json!({ "spreadid": 7, "ids": { "oaid": "d" } })),
        empty("activation", json!({ "event_id": "a", "ids": { "oaid": "d" } })),
        empty("activation", json!({})),
        empty("activation", members),
        empty("effect", json!({ "event_id": "e", "name": "buy" })),
    ];
    let right = lines.len();
    lines.extend(wrong.iter().map(|(line, _)| line.clone()));
    let (said, rows) = replay(&lines, 1);
    assert_eq!(rows.len(), 4, "{rows:?}");
    // The click is of the same millisecond.
    check(&rows["a"], &[("status", "organic"), ("oaid", "d"), ("ip", ""), ("props", "")]);
    check(&rows["e"], &[("status", "orphan"), ("revenue", ""), ("currency", "")]);
    assert_eq!(rows.keys().filter(|id| id.starts_with('#')).count(), 2, "{rows:?}");
    for (line, (_, field)) in (right + 1..).zip(&wrong) {
        let place = format!("-:{line}: missing_field: {field} at byte ");
        assert!(said.contains(&place), "{place} is not in: {said}");
    }
    assert!(said.contains("6 lines are no events"), "{said}");
}

#[test]
fn what_is_past_the_limits_is_named_by_line_and_field() {
    let revenue =
        |revenue: &str| event("effect", NOON_MS, json!({ "name": "n", "revenue": revenue }));
    let lines = [
        activation("a", NOON_MS, &json!({})),
        revenue(&"1".repeat(65)),
        activation("a", 253_402_300_800_000_u64, &json!({})),
        activation("a", "10000-01-01T00:00:00Z", &json!({})),
        activation(&"a".repeat(1 << 20), NOON_MS, &json!({})),
        revenue(&"1".repeat(64)),
    ];
    let (said, rows) = replay(&lines, 1);
    assert_eq!(rows.len(), 2);
    for told in [
        "-:2: bad_value: revenue at byte ",
        "at most 64 characters",
        "-:3: bad_time: time at byte ",
        "-:4: bad_value: time at byte ",
        "from 1970 to 9999",
        "-:5: too_large: ",
        "at most 1048576 bytes",
    ] {
        assert!(said.contains(told), "{told} is not in: {said}");
    }
}
