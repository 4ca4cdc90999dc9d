//! Timelines over HTTP.

use attribution::facts::event::Fact;
use serde_json::{Value, json};

use crate::tests::fixture::{Answer, Bed, DAY, MINUTE, activation, click, effect};

const DEVICE: &str = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
/// MD5 of the lower-case id.
const MD5: &str = "83e9158a4fb54c0e1ef0b238639a23ae";

fn bed() -> Bed {
    let mut facts = vec![
        click(9, "c-0", DEVICE, DAY - 3 * MINUTE),
        click(7, "c-1", DEVICE, DAY - MINUTE),
        Fact::Activation(activation("a-1", DEVICE, DAY + MINUTE)),
        Fact::Effect(effect("e-1", "purchase", DEVICE, DAY + 2 * MINUTE)),
        Fact::Effect(effect("e-2", "purchase", "another", DAY + 2 * MINUTE)),
    ];
    // This device is known only by the MD5 of another kind of id.
    let mut hashed = activation("a-2", "", DAY + 9 * MINUTE);
    hashed.ids = vec![("imei_md5".into(), "0123456789abcdef0123456789ABCDEF".into())];
    facts.push(Fact::Activation(hashed));
    Bed::new(facts)
}

fn path(kind: &str, value: &str) -> String {
    format!("/v1/apps/app-x/devices/{kind}/{value}")
}

/// Returns the ids of a timeline's events.
fn names(document: &Value) -> Vec<&str> {
    let events = document["events"].as_array().expect("events").iter();
    events.map(|one| one["event_id"].as_str().or(one["click_id"].as_str()).unwrap()).collect()
}

#[test]
fn a_timeline_lists_all_events_of_a_device() {
    let bed = bed();
    let answer = bed.get(&path("oaid", DEVICE));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let expected = json!({
        "app": "app-x",
        "complete_since": {"touches": null, "activations": null, "effects": null},
        "events": [
            {"type": "effect", "time": "2026-03-10T00:02:00.000Z", "event_id": "e-1",
             "event_name": "purchase", "status": "attributed", "spreadid": 7,
             "campaign": "Say \"hi\"", "channel": "tou,tiao", "revenue": "9.99", "currency": "CNY"},
            {"type": "activation", "time": "2026-03-10T00:01:00.000Z", "event_id": "a-1",
             "status": "attributed", "install_type": "install", "spreadid": 7,
             "campaign": "Say \"hi\"", "channel": "tou,tiao", "match_type": "oaid",
             "touch_time": "2026-03-09T23:59:00.000Z", "click_id": "c-1"},
            {"type": "click", "time": "2026-03-09T23:59:00.000Z", "click_id": "c-1",
             "purpose": "ua", "spreadid": 7, "campaign": "Say \"hi\"", "channel": "tou,tiao",
             "site": null},
            {"type": "click", "time": "2026-03-09T23:57:00.000Z", "click_id": "c-0",
             "purpose": "ua", "spreadid": 9, "campaign": null, "channel": "unknown",
             "site": null},
        ],
    });
    assert_eq!(answer.json(), expected);
    assert!(!answer.text().contains(DEVICE), "the response has no device id");
    let local = bed.get(&format!("{}?timezone=Asia/Shanghai", path("oaid", DEVICE))).json();
    assert_eq!(local["events"][0]["time"], "2026-03-10T08:02:00.000+08:00");
}

#[test]
fn a_device_is_found_by_any_form_of_its_id() {
    let bed = bed();
    let check = |kind: &str, value: &str, expected: &[&str]| {
        let answer = bed.get(&path(kind, value));
        assert_eq!(answer.status, 200, "{kind} {value}");
        assert_eq!(names(&answer.json()), expected, "{kind} {value}");
    };
    let all = ["e-1", "a-1", "c-1", "c-0"];
    check("oaid", DEVICE, &all);
    check("oaid", &DEVICE.to_uppercase(), &all);
    check("oaid", &DEVICE.replace('-', ""), &all);
    check("oaid_md5", MD5, &all);
    check("oaid", &MD5.to_uppercase(), &all);
    check("gaid", DEVICE, &[]);
    check("oaid", "nobody", &[]);
    check("imei_md5", "0123456789ABCDEF0123456789abcdef", &["a-2"]);
    check("imei", "0123456789abcdef0123456789abcdef", &["a-2"]);
    let other = format!("/v1/apps/app%20y/devices/oaid/{DEVICE}");
    assert_eq!(names(&bed.get(&other).json()), [] as [&str; 0]);
}

#[test]
fn a_timeline_has_pages() {
    let bed = bed();
    let pages = bed.pages(&format!("{}?limit=1&timezone=UTC", path("oaid", DEVICE)));
    let pages: Vec<Value> = pages.iter().map(Answer::json).collect();
    let found: Vec<_> = pages.iter().flat_map(names).collect();
    assert_eq!(found, ["e-1", "a-1", "c-1", "c-0"]);
}

#[test]
fn invalid_requests_are_problems_without_the_device_id() {
    let bed = bed();
    let check = |target: &str, status: u16, parameter: Option<&str>| {
        let answer = bed.get(target);
        assert_eq!(answer.status, status, "{target}");
        assert_eq!(answer.json()["parameter"].as_str(), parameter, "{target}");
        assert!(!answer.text().contains(DEVICE), "{target}");
    };
    check(&format!("/v1/apps/nobody/devices/oaid/{DEVICE}"), 404, None);
    check(&path("udid", DEVICE), 400, Some("kind"));
    check(&path("oaid", "00000000-0000-0000-0000-000000000000"), 400, Some("value"));
    check(&path("oaid_md5", DEVICE), 400, Some("value"));
    check(&format!("{}?limit=0", path("oaid", DEVICE)), 400, Some("limit"));
    check(&format!("{}?from=2026-03-10", path("oaid", DEVICE)), 400, Some("from"));
    check(&format!("{}?limit=1&limit=1", path("oaid", DEVICE)), 400, Some("limit"));
    check(&format!("{}?timezone=x", path("oaid", DEVICE)), 400, Some("timezone"));
    check(&format!("{}?after=x", path("oaid", DEVICE)), 400, Some("after"));
    let page = bed.get(&format!("{}?limit=1", path("oaid", DEVICE)));
    let after = page.cursor();
    check(&format!("{}?after={after}", path("oaid", "another")), 400, Some("after"));
}
