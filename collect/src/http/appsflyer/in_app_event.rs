//! In-app events in AppsFlyer's JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// The member of `eventValue` with the revenue.
const REVENUE: &str = "af_revenue";

/// The members that are texts, and what they must be.
const TEXTS: [(&str, &str); 6] = [
    ("eventName", "a string"),
    ("eventValue", "a string that contains a JSON object"),
    ("eventTime", "a string such as \"2026-03-10 12:00:00.000\""),
    ("eventCurrency", "a string"),
    ("ip", "a string"),
    ("ua", "a string"),
];

/// The fields that are used; AppsFlyer's own names. Some clients send ids and versions as numbers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InAppEvent<'a> {
    event_name: Option<String>,
    /// JSON in a string, or empty.
    event_value: Option<String>,
    event_time: Option<String>,
    event_currency: Option<String>,
    #[serde(rename = "appsflyer_id", borrow)]
    appsflyer_id: Option<&'a RawValue>,
    #[serde(rename = "customer_user_id", borrow)]
    customer_user_id: Option<&'a RawValue>,
    #[serde(borrow)]
    bundle_identifier: Option<&'a RawValue>,
    #[serde(rename = "app_store", borrow)]
    app_store: Option<&'a RawValue>,
    #[serde(rename = "app_version_name", borrow)]
    app_version: Option<&'a RawValue>,
    #[serde(rename = "advertising_id", borrow)]
    gaid: Option<&'a RawValue>,
    #[serde(borrow)]
    idfa: Option<&'a RawValue>,
    #[serde(borrow)]
    idfv: Option<&'a RawValue>,
    #[serde(borrow)]
    oaid: Option<&'a RawValue>,
    #[serde(borrow)]
    imei: Option<&'a RawValue>,
    ip: Option<String>,
    ua: Option<String>,
    /// The version of the operating system.
    #[serde(borrow)]
    os: Option<&'a RawValue>,
}

/// Returns the event as the effects topic has it.
pub(super) fn event(body: &[u8], app: &str, arrived_ms: i64) -> Result<String, Refusal> {
    let source: InAppEvent<'_> =
        serde_json::from_slice(body).map_err(|error| unreadable(body, &error))?;
    let (mut props, revenue) = values(source.event_value.as_deref().unwrap_or_default());
    let ids = [
        ("gaid", source.gaid),
        ("idfa", source.idfa),
        ("idfv", source.idfv),
        ("oaid", source.oaid),
        ("imei", source.imei),
    ];
    let ids = ids.into_iter().filter_map(|(kind, id)| Some((kind.to_owned(), text(id?))));
    let ids: Map<String, Value> = ids.map(|(kind, id)| (kind, id.into())).collect();
    let more = [
        ("appsflyer_id", source.appsflyer_id),
        ("customer_user_id", source.customer_user_id),
        ("bundle_identifier", source.bundle_identifier),
        ("app_store", source.app_store),
    ];
    props.extend(present(more.map(|(name, value)| (name, value.map(text)))));
    let time = source.event_time.filter(|time| !time.is_empty()).map_or(arrived_ms.into(), utc);
    let mut event: Map<String, Value> = present([
        ("name", source.event_name),
        ("currency", source.event_currency),
        ("revenue", revenue),
        ("ip", source.ip),
        ("ua", source.ua),
        ("os_version", source.os.map(text)),
        ("app_version", source.app_version.map(text)),
    ])
    .collect();
    for (name, value) in [("time", time), ("ids", ids.into()), ("props", props.into())] {
        event.insert(name.to_owned(), value);
    }
    event.insert("type".to_owned(), "effect".into());
    event.insert("app".to_owned(), app.into());
    Ok(Value::Object(event).to_string())
}

/// Names the member that is wrong, without its value.
fn unreadable(body: &[u8], error: &serde_json::Error) -> Refusal {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let repeated = message.strip_prefix("duplicate field `").and_then(|rest| rest.split_once('`'));
    if let Some((name, _)) = repeated {
        return Refusal::bad_value(name, format!("{name}: expected at most once"));
    }
    if let Some((name, expected)) = member_of_wrong_type(body) {
        let detail = format!("{name}: expected {expected}");
        return Refusal { code: "wrong_type", field: Some(name.to_owned()), detail };
    }
    let detail = format!("expected a JSON object as AppsFlyer's: line {line}, column {column}");
    Refusal { code: "not_json", field: None, detail }
}

/// Returns the first member that is not a text, and what it must be; `None` if the body is not an object of JSON.
fn member_of_wrong_type(body: &[u8]) -> Option<(&'static str, &'static str)> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    let is_wrong = |value: &RawValue| !value.get().starts_with('"') && value.get() != "null";
    TEXTS.into_iter().find(|(name, _)| members.get(*name).is_some_and(|value| is_wrong(value)))
}

fn present<const N: usize>(
    texts: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = (String, Value)> {
    texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into())))
}

/// AppsFlyer's times are in UTC, without a zone. Some clients add one.
fn utc(time: String) -> Value {
    // After the dashes of the date.
    match time.bytes().skip("2026-03-10".len()).any(|byte| b"Zz+-".contains(&byte)) {
        true => time.into(),
        false => format!("{time}Z").into(),
    }
}

/// Returns the properties of an event's value, and its revenue. The digits of numbers stay as they are. A member that
/// is null is absent.
fn values(value: &str) -> (Map<String, Value>, Option<String>) {
    let Ok(members) = serde_json::from_str::<BTreeMap<String, Option<&RawValue>>>(value) else {
        let whole = (!value.is_empty()).then(|| ("value".to_owned(), Value::from(value)));
        return (whole.into_iter().collect(), None);
    };
    let revenue =
        members.get(REVENUE).copied().flatten().map(|value| without_exponent(text(value)));
    let present = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let props = present.map(|(name, value)| (name, Value::from(text(value))));
    (props.collect(), revenue)
}

/// Returns a number as a plain decimal. Java writes an amount of ten million or more as `1.2E7`.
fn without_exponent(text: String) -> String {
    let has_exponent = text.contains(['e', 'E']);
    match text.parse::<f64>() {
        Ok(number) if has_exponent && number.is_finite() => number.to_string(),
        _ => text,
    }
}

/// Returns a string without its quotes, and everything else as JSON.
fn text(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(body: Value, expected: Value) {
        let event = event(body.to_string().as_bytes(), "x", 1_773_144_000_000).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&event).unwrap(), expected);
    }

    #[test]
    fn an_event_of_appsflyer_becomes_an_effect() {
        check(
            json!({
                "appsflyer_id": "1-2", "eventName": "af_purchase", "eventTime": "2026-03-10 12:00:00.000",
                "eventValue": "{\"af_revenue\":9.90,\"af_content_id\":\"c\",\"af_quantity\":1,\"af_price\":null}",
                "eventCurrency": "CNY", "app_version_name": "1.2",
                "advertising_id": "6d92078a-8246-4ba4-ae5b-76104861e7dc", "ip": "203.0.113.9", "os": "14", "other": 1,
                "bundleIdentifier": "com.x",
            }),
            json!({
                "type": "effect", "app": "x", "name": "af_purchase", "time": "2026-03-10 12:00:00.000Z",
                "revenue": "9.90", "currency": "CNY", "ids": {"gaid": "6d92078a-8246-4ba4-ae5b-76104861e7dc"},
                "ip": "203.0.113.9", "os_version": "14", "app_version": "1.2",
                "props": {
                    "af_revenue": "9.90", "af_content_id": "c", "af_quantity": "1", "appsflyer_id": "1-2",
                    "bundle_identifier": "com.x",
                },
            }),
        );
    }

    #[test]
    fn an_event_without_time_and_value_has_that_of_its_arrival() {
        let expected = |props: Value| {
            let time = 1_773_144_000_000_i64;
            json!({"type": "effect", "app": "x", "name": "open", "time": time, "ids": {}, "props": props})
        };
        check(json!({"eventName": "open", "eventValue": ""}), expected(json!({})));
        check(
            json!({"eventName": "open", "eventValue": "text"}),
            expected(json!({"value": "text"})),
        );
        let no_revenue = "{\"af_revenue\":null}";
        check(json!({"eventName": "open", "eventValue": no_revenue}), expected(json!({})));
    }

    #[test]
    fn a_revenue_has_no_exponent() {
        for (revenue, expected) in [
            ("1.2E7", "12000000"),
            ("\"1.23456789123E7\"", "12345678.9123"),
            ("-1e-4", "-0.0001"),
            ("9.90", "9.90"),
            ("\"1E999\"", "1E999"),
            ("\"free\"", "free"),
        ] {
            let (props, found) = values(&format!("{{\"af_revenue\":{revenue}}}"));
            assert_eq!(found.as_deref(), Some(expected), "{revenue}");
            assert_eq!(props["af_revenue"], revenue.trim_matches('"'));
        }
    }

    #[test]
    fn a_time_without_a_zone_is_in_utc() {
        assert_eq!(utc("2026-03-10 12:00:00.000".to_owned()), "2026-03-10 12:00:00.000Z");
        for zone in ["Z", "z", "+08:00", "-05:00"] {
            let time = format!("2026-03-10T12:00:00{zone}");
            assert_eq!(utc(time.clone()), time);
        }
    }

    #[test]
    fn ids_and_versions_may_be_numbers() {
        check(
            json!({
                "eventName": "open", "eventValue": "", "customer_user_id": 1_234_567_890_123_456_789_u64, "os": 14,
                "app_version_name": 1.2, "app_store": null,
            }),
            json!({
                "type": "effect", "app": "x", "name": "open", "time": 1_773_144_000_000_i64, "ids": {},
                "os_version": "14", "app_version": "1.2", "props": {"customer_user_id": "1234567890123456789"},
            }),
        );
    }

    /// The event of AppsFlyer's OpenAPI document, with a name.
    #[test]
    fn the_published_example_is_an_effect() {
        let body = json!({
            "appsflyer_id": "1234567890123-1234567", "customer_user_id": "customer_user_id", "eventName": "af_purchase",
            "eventValue": "{ \"af_revenue\": \"6\", \"af_content_type\": \"wallets\", \"af_content_id\": \"15854\", \
                           \"your_custom_attribute\" :\"456.123\" }",
            "eventTime": "2019-05-15 12:17:01.123", "eventCurrency": "USD", "ip": "192.0.2.1", "os": "14.5.1",
            "idfa": "9876F1AA-2983-3855-27BB-2C626772EFAB", "idfv": "95C9BD22-4A4C-41C8-9548-ED07C5C8C145",
            "app_version_name": "my_app_version", "app_store": "my_android_store_is_best", "att": 3, "aie": true,
            "bundleIdentifier": "com.myapp", "sharing_filter": ["googleadwords_int", "adcolony_int"],
        });
        let event = event(body.to_string().as_bytes(), "x", 0).unwrap();
        let config = config::parse("[[apps]]\npid = 1\nkey = \"x\"\n").unwrap();
        let topic = Some(ingest::TopicKind::Effects);
        let fact = ingest::decode::decode(event.as_bytes(), topic, &config.policy).unwrap();
        assert_eq!(fact.time().millis(), 1_557_922_621_123);
        let event: Value = serde_json::from_str(&event).unwrap();
        let shown = ["revenue", "app_version", "os_version"].map(|name| event[name].as_str());
        assert_eq!(shown, [Some("6"), Some("my_app_version"), Some("14.5.1")]);
    }

    #[test]
    fn an_unreadable_event_is_refused_without_its_content() {
        let check = |body: &str, code: &str, field: Option<&str>, detail: &str| {
            let refusal = event(body.as_bytes(), "x", 0).unwrap_err();
            assert_eq!((refusal.code, refusal.field.as_deref()), (code, field), "{body}");
            assert!(refusal.detail.contains(detail), "{refusal:?}");
            assert!(!refusal.detail.contains("secret"), "{refusal:?}");
        };
        for body in ["{\"eventName\": secret}", "\"secret\"", "{\"eventName\":\"\\ud800\"}"] {
            check(body, "not_json", None, "expected a JSON object as AppsFlyer's: line 1, column ");
        }
        check(
            r#"{"eventName":"n", "eventValue": {"secret":1}}"#,
            "wrong_type",
            Some("eventValue"),
            "eventValue: expected a string that contains a JSON object",
        );
        check(
            r#"{"eventTime":1}"#,
            "wrong_type",
            Some("eventTime"),
            "eventTime: expected a string",
        );
        check(
            r#"{"idfa":"secret","ip":null,"idfa":"secret"}"#,
            "bad_value",
            Some("idfa"),
            "idfa: expected at most once",
        );
    }
}
