//! Reports of each network, and the touches that they become.

use serde_json::{Value, json};

use super::catalogue::Dialects;
use super::pairs::Pairs;
use super::read::{BadParameter, Report, Touch};

const NOON_MS: i64 = 1_773_144_000_000;

fn read<T>(
    dialect: &str,
    query: &str,
    then: impl FnOnce(Result<Touch<'_>, BadParameter>) -> T,
) -> T {
    let dialects = Dialects::load(None).unwrap();
    let dialect = dialects.get(dialect).unwrap();
    let pairs = Pairs::parse(query, "").unwrap();
    then(dialect.read(Report { kind: "click", app: "app-x", pairs: &pairs, arrived_ms: NOON_MS }))
}

/// Checks the touch of a report, which the decoder must accept.
#[track_caller]
fn check(dialect: &str, query: &str, mut expected: Value) {
    let event = read(dialect, &format!("spreadid=7&{query}"), |touch| touch.unwrap().event);
    for (name, value) in [("type", "click"), ("app", "app-x")] {
        expected[name] = value.into();
    }
    expected["spreadid"] = 7.into();
    let event = Value::Object(event);
    assert_eq!(event, expected);
    let config = config::parse("[[apps]]\npid = 1\nkey = \"app-x\"\n").unwrap();
    let bytes = serde_json::to_vec(&event).unwrap();
    let topic = Some(ingest::TopicKind::Clicks);
    assert!(ingest::decode::decode(&bytes, topic, &config.policy).is_ok(), "{event}");
}

#[track_caller]
fn check_wrong(query: &str, expected: &str) {
    let error = read("generic", query, |touch| touch.unwrap_err().to_string());
    assert_eq!(error, expected);
}

#[track_caller]
fn check_unexpanded(dialect: &str, query: &str, expected: &[&str]) {
    let query = format!("spreadid=7&{query}");
    read(dialect, &query, |touch| assert_eq!(touch.unwrap().unexpanded, expected));
}

#[test]
fn all_dialects_are_valid() {
    assert!(Dialects::load(None).unwrap().names().any(|name| name == "generic"));
}

#[test]
fn generic_parameters_are_named_as_fields() {
    check(
        "generic",
        "click_id=c-1&time=1773144000123&oaid=97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841&imei_md5=0c2bd03c39f19845bf54ea0abafae70e&\
         ip=203.0.113.9&ua=Mozilla%2F5.0+(Linux)&device_model=Pixel%208&os=android&os_version=14&site=s&sub1=a&\
         campaign_name=Spring+sale&callback=a+b%2Bc%3D",
        json!({
            "click_id": "c-1", "time": 1_773_144_000_123_u64, "ip": "203.0.113.9", "ua": "Mozilla/5.0 (Linux)",
            "device_model": "Pixel 8", "os": "android", "os_version": "14", "site": "s",
            "ids": {"oaid": "97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841", "imei_md5": "0c2bd03c39f19845bf54ea0abafae70e"},
            "params": {"sub1": "a", "campaign_name": "Spring sale", "callback": "a+b+c="},
        }),
    );
    let time = "2026-03-10T12:00:00Z";
    check(
        "generic",
        &format!("click_id=c-1&time={time}"),
        json!({"click_id": "c-1", "time": time}),
    );
}

/// The MD5 is that of `printf %s token | md5sum`.
#[test]
fn a_callback_token_identifies_a_click_without_an_id() {
    check(
        "generic",
        "callback=token&time=1773144000000",
        json!({
            "click_id": "generic:94a08da1fecbb6e8b46990538c7b50b2", "time": NOON_MS,
            "params": {"callback": "token"},
        }),
    );
}

#[test]
fn a_report_without_a_time_has_that_of_its_arrival() {
    let params = json!({"time_source": "arrival"});
    check("generic", "click_id=c-1", json!({"click_id": "c-1", "time": NOON_MS, "params": params}));
}

#[test]
fn unexpanded_macros_are_absent() {
    let params = json!({"time_source": "arrival"});
    let query = "click_id=c-1&time={time}&oaid=%7Boaid%7D&ip={ip}&unknown={x}";
    check("generic", query, json!({"click_id": "c-1", "time": NOON_MS, "params": params}));
    check_unexpanded("generic", query, &["time", "oaid", "ip"]);
    check_unexpanded("generic", "click_id=c-1&time=1773144000000", &[]);
}

#[test]
fn every_link_may_have_a_purpose_and_a_lookback() {
    check(
        "generic",
        "click_id=c-1&time=1773144000000&purpose=retargeting&lookback_ms=86400000",
        json!({"click_id": "c-1", "time": NOON_MS, "purpose": "retargeting", "lookback_ms": 86_400_000}),
    );
}

#[test]
fn unusable_parameters_are_named() {
    let campaign = "spreadid: expected the number of the campaign, 1 to 4294967295, in the link";
    for query in ["click_id=c-1", "spreadid=0", "spreadid=x", "spreadid=4294967296", "spreadid="] {
        check_wrong(query, campaign);
    }
    check_wrong("spreadid=7&lookback_ms=1d", "lookback_ms: expected a number of milliseconds");
}
