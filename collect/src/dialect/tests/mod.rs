//! Reports, and the touches that they become.

mod networks;

use serde_json::{Value, json};

use super::Presence;
use super::catalogue::Dialects;
use super::link::{LinkKind, LinkTarget};
use super::pairs::Pairs;
use super::parse::parse;
use super::read::{Reading, Report};

const NOON_MS: i64 = 1_773_144_000_000;

fn read(dialect: &str, query: &str) -> Reading {
    let dialects = Dialects::load(None).unwrap();
    let dialect = dialects.get(dialect).unwrap();
    let pairs = Pairs::parse(query, "").unwrap();
    dialect.read(Report { kind: LinkKind::Click, app: "app-x", pairs: &pairs, arrived_ms: NOON_MS })
}

/// Checks the touch of a report, which the decoder must accept.
#[track_caller]
fn check(dialect: &str, query: &str, mut expected: Value) {
    let event = read(dialect, &format!("spreadid=7&{query}")).touch.unwrap().event;
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

/// Returns the query of the link that is written for a dialect, with values in place of these macros.
fn filled(dialect: &str, kind: LinkKind, values: &[(&str, &str)]) -> String {
    let dialects = Dialects::load(None).unwrap();
    let target = LinkTarget { app: "app-x", channel: "c", spreadid: 7, kind };
    let url = dialects.get(dialect).unwrap().url("https://click.example.com", target);
    let query = url.split_once("?spreadid=7&").unwrap().1;
    for (name, _) in values {
        assert!(
            query.split('&').any(|pair| pair.ends_with(&format!("={name}"))),
            "{name}: {query}"
        );
    }
    let fill = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap();
        let found = values.iter().find(|(other, _)| *other == value);
        found.map_or_else(|| pair.to_owned(), |(_, value)| format!("{name}={value}"))
    };
    query.split('&').map(fill).collect::<Vec<_>>().join("&")
}

/// Checks the touch of a written link after the network has replaced these macros, and no others.
#[track_caller]
fn check_link(dialect: &str, values: &[(&str, &str)], expected: Value) {
    check(dialect, &filled(dialect, LinkKind::Click, values), expected);
}

#[track_caller]
fn check_wrong(query: &str, expected: &str) {
    let error = read("generic", query).touch.unwrap_err().to_string();
    assert_eq!(error, expected);
}

/// Checks which parameters of a report have a macro that the network has not replaced.
#[track_caller]
fn check_unexpanded(dialect: &str, query: &str, expected: &[&str]) {
    let presence = read(dialect, query).presence;
    let dialects = Dialects::load(None).unwrap();
    let names = dialects.get(dialect).unwrap().names_with(&presence, Presence::Placeholder);
    assert_eq!(names.collect::<Vec<_>>(), expected, "{query}");
}

/// A link that a network has not changed says nothing but the campaign.
#[test]
fn every_link_has_macros_that_are_absent_if_they_are_not_replaced() {
    let dialects = Dialects::load(None).unwrap();
    assert_eq!(dialects.names().count(), 16);
    for name in dialects.names() {
        for kind in [LinkKind::Click, LinkKind::Impression] {
            let query = format!("spreadid=7&{}", filled(name, kind, &[]));
            let event = read(name, &query).touch.unwrap().event;
            let params = json!({"time_source": "arrival"});
            let expected = json!({
                "type": "click", "app": "app-x", "spreadid": 7, "time": NOON_MS, "params": params,
            });
            assert_eq!(Value::Object(event), expected, "{name}");
        }
    }
}

#[test]
fn generic_parameters_are_named_as_fields() {
    check(
        "generic",
        "click_id=c-1&time=1773144000123&oaid=97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841&\
         imei_md5=0c2bd03c39f19845bf54ea0abafae70e&\
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
    let expected = json!({"click_id": "c-1", "time": NOON_MS, "params": params});
    check("generic", "click_id=c-1", expected.clone());
    for time in ["0", "null", "NULL", "-1", "undefined", "%200", "0000000000000"] {
        let query = format!("click_id=c-1&time={time}");
        check("generic", &query, expected.clone());
        let presence = read("generic", &query).presence;
        assert_eq!(
            presence[..3],
            [Presence::Value, Presence::Missing, Presence::Missing],
            "{time}"
        );
    }
}

#[test]
fn unexpanded_macros_are_absent() {
    let params = json!({"time_source": "arrival"});
    let query = "click_id=c-1&time={time}&oaid=%7Boaid%7D&ip={ip}&unknown={x}";
    check("generic", query, json!({"click_id": "c-1", "time": NOON_MS, "params": params}));
    check_unexpanded("generic", query, &["time", "oaid", "ip"]);
    check_unexpanded("generic", "click_id=c-1&time=1773144000000", &[]);
}

/// Someone has edited the link.
#[test]
fn unexpanded_macros_of_other_names_are_absent() {
    let params = json!({"time_source": "arrival"});
    let query =
        "click_id=__CLICKID__&time=%%TIME%%&callback=%257Btoken%257D&ua=$UA$&ip=203.0.113.9";
    check("generic", query, json!({"ip": "203.0.113.9", "time": NOON_MS, "params": params}));
    check_unexpanded("generic", query, &["click_id", "time", "ua", "callback"]);
    let query = "caid=[\"a\"]&campaign_name=x_{y}&time=1773144000000&ip=[2001:db8::1]";
    check_unexpanded("generic", query, &[]);
}

#[test]
fn a_macro_that_looks_percent_encoded_is_absent() {
    let text = "parameters = [{ name = \"a\", macro = \"%%ADID%%\", field = \"params.a\" }]";
    let dialect = parse("x", text).unwrap();
    let pairs = Pairs::parse("spreadid=7&a=%%ADID%%", "").unwrap();
    let report = Report { kind: LinkKind::Click, app: "app-x", pairs: &pairs, arrived_ms: NOON_MS };
    assert_eq!(*dialect.read(report).presence, [Presence::Placeholder]);
}

/// Otherwise many clicks would be one touch.
#[test]
fn values_that_identify_nobody_are_no_part_of_a_click_id() {
    let more = "ip=203.0.113.9&ts=1773144000000";
    let event = |params: Value| json!({"ip": "203.0.113.9", "time": NOON_MS, "params": params});
    for id in ["null", "-1", "__REQUESTID__", "00000000-0000-0000-0000-000000000000"] {
        let query = format!("request_id={id}&cid=17&{more}");
        check("oceanengine", &query, event(json!({"creative_id": "17"})));
    }
    check("kuaishou", &format!("callback=NULL&{more}"), event(json!({"callback": "NULL"})));
    let mut expected = event(json!({"creative_id": "unknown"}));
    expected["click_id"] = "r-1".into();
    check("oceanengine", &format!("request_id=r-1&cid=unknown&{more}"), expected);
}

/// A report without a campaign shows what it has, too.
#[test]
fn a_report_has_a_value_a_macro_or_nothing_of_a_parameter() {
    let presence = read("weibo", "imp=i-1&oaid={oaid}&ip=").presence;
    let dialects = Dialects::load(None).unwrap();
    let weibo = dialects.get("weibo").unwrap();
    let check = |wanted, expected: &[&str]| {
        assert_eq!(weibo.names_with(&presence, wanted).collect::<Vec<_>>(), expected, "{wanted:?}");
    };
    check(Presence::Value, &["imp"]);
    check(Presence::Placeholder, &["oaid"]);
    let presence = &presence[..8];
    let missing = weibo.names_with(presence, Presence::Missing).collect::<Vec<_>>();
    assert_eq!(missing, ["idfa_md5", "imei_md5", "oaid_md5", "ip", "ua", "clicktime"]);
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
    assert_eq!(read("weibo", "spreadid=7&clicktime=noon").spreadid, Some(7));
    for time in ["1773144000000", "253402300800", "noon"] {
        let error =
            read("tencent", &format!("spreadid=7&click_id=q&time={time}")).touch.unwrap_err();
        assert_eq!(error.to_string(), "time: expected a time in seconds since 1970", "{time}");
    }
    let event = read("tencent", "spreadid=7&click_id=q&time=253402300799").touch.unwrap().event;
    assert_eq!(event["time"], 253_402_300_799_000_u64);
}

/// The system decides if it is known, and else the case.
#[test]
fn an_advertising_id_is_of_its_system() {
    let text = "parameters = [{ name = \"ifa\", macro = \"{ifa}\", field = \"ifa\" }, \
                { name = \"os\", macro = \"{os}\", field = \"os\" }]";
    let dialect = parse("x", text).unwrap();
    let upper = "6D92078A-8246-4BA4-AE5B-76104861E7DC";
    let lower = upper.to_ascii_lowercase();
    let check_ifa = |os: &str, ifa: &str, kind: &str| {
        let query = format!("spreadid=7&ifa={ifa}&os={os}");
        let pairs = Pairs::parse(&query, "").unwrap();
        let report =
            Report { kind: LinkKind::Click, app: "app-x", pairs: &pairs, arrived_ms: NOON_MS };
        let event = dialect.read(report).touch.unwrap().event;
        assert_eq!(event["ids"], json!({kind: ifa}), "{os} {ifa}");
    };
    check_ifa("android", upper, "gaid");
    check_ifa("iOS", &lower, "idfa");
    check_ifa("{os}", upper, "idfa");
    check_ifa("{os}", &lower, "gaid");
}

#[test]
fn names_in_a_link_are_escaped() {
    let dialects = Dialects::load(None).unwrap();
    let target =
        LinkTarget { app: "app x", channel: "c?#", spreadid: 7, kind: LinkKind::Impression };
    let url = dialects.get("generic").unwrap().url("https://h", target);
    assert!(
        url.starts_with("https://h/impression/app%20x/c%3F%23?spreadid=7&click_id={click_id}&"),
        "{url}"
    );
}

#[test]
fn a_link_without_a_place_for_a_signature_says_so() {
    let check = |dialect: &str, scheme: &str, mode: &str, expected: bool| {
        let text = format!(
            "[[channels]]\nid = \"c\"\ndialect = \"{dialect}\"\n[channels.signature]\n\
             scheme = \"{scheme}\"\nmode = \"{mode}\"\nkeys = [{{ secret = \"a\" }}]\n"
        );
        let config = config::parse(&text).unwrap();
        let target = LinkTarget { app: "app-x", channel: "c", spreadid: 7, kind: LinkKind::Click };
        let link = Dialects::load(None).unwrap().link(&config, "https://h", target).unwrap();
        assert_eq!(link.is_unsigned, expected, "{dialect} {scheme} {mode}");
    };
    check("baidu", "baidu", "report", false);
    check("xiaomi", "xiaomi", "enforce", false);
    check("baidu", "hmac_sha256", "enforce", true);
    check("generic", "appsflyer_v1", "report", true);
    check("generic", "hmac_sha256", "off", false);
}
