//! Valid and invalid JSON events, and the error messages.

use attribution::facts::canonical;
use attribution::facts::event::{EventTime, Family, Pid, Purpose, SpreadId, TouchKind};

use super::*;
use crate::fuzz::POLICY;

const CLICK: &str = r#"{"type":"click","app":"app-x","click_id":"c-1","spreadid":7,
 "time":1773144000000,"purpose":"retargeting","lookback_ms":604800000,
 "ids":{"oaid":"1fe9a970","imei_md5":"ab"},"ip":"203.0.113.9","ua":"Mozilla \"5.0\"",
 "device_model":"P60","os":"android","os_version":"14","site":"s","params":{"sub1":"x"}}"#;
const ACTIVATION: &str = r#"{"type":"activation","app":"app-x","event_id":"a-1",
 "time":1773150000000,"install_begin_time":1773149990000,"click_id":"c-1","ids":{"oaid":"o"},
 "ip":"1.2.3.4","ua":"u","device_model":"m","os":"o","os_version":"v","app_version":"1.2",
 "props":{"store":"huawei"}}"#;
const EFFECT: &str = r#"{"type":"effect","app":"app-x","event_id":"e-1","name":"purchase",
 "time":1773160000000,"ids":{"oaid":"o"},"ip":"1.2.3.4","ua":"u","device_model":"m","os":"o",
 "os_version":"v","app_version":"1.2","revenue":"9.99","currency":"CNY","props":{"level":"3"}}"#;

fn decode_mixed(json: impl AsRef<[u8]>) -> Result<Fact, DecodeError> {
    decode(json.as_ref(), None, &POLICY)
}

/// Returns a record with the required fields of its family, overridden by `fields`.
fn with(kind: &str, fields: &str) -> String {
    let required = match kind {
        "click" => {
            [r#""app":"app-x""#, r#""spreadid":7"#, r#""time":1773144000005"#, r#""click_id":"c""#]
        }
        "activation" => [r#""app":"app-x""#, r#""time":1773144000005"#, r#""x":1"#, r#""y":1"#],
        _ => [r#""app":"app-x""#, r#""name":"n""#, r#""time":1773144000005"#, r#""x":1"#],
    };
    let name = |field: &str| field.split(':').next().unwrap_or_default().to_owned();
    let others: Vec<&str> = required.into_iter().filter(|f| !fields.contains(&name(f))).collect();
    let comma = if fields.is_empty() { "" } else { "," };
    format!("{{\"type\":\"{kind}\",{}{comma}{fields}}}", others.join(","))
}

#[track_caller]
fn check(kind: &str, fields: &str, expected: Result<(), (ErrorCode, &str)>) {
    let outcome = decode_mixed(with(kind, fields));
    let found = match &outcome {
        Ok(_) => Ok(()),
        Err(error) => Err((error.code, error.field.as_deref().unwrap_or_default())),
    };
    assert_eq!(found, expected, "{fields}: {outcome:?}");
}

#[track_caller]
fn check_raw(json: impl AsRef<[u8]>, expected: Option<ErrorCode>) {
    let outcome = decode_mixed(json);
    assert_eq!(outcome.as_ref().err().map(|error| error.code), expected, "{outcome:?}");
}

fn pair(key: &str, value: &str) -> (Box<str>, Box<str>) {
    (key.into(), value.into())
}

#[test]
fn all_fields_of_a_click_are_decoded() {
    let Ok(Fact::Touch(touch)) = decode_mixed(CLICK) else { panic!("expected a click") };
    assert_eq!((touch.pid, touch.id(), touch.click_id()), (Pid(1), "c-1", "c-1"));
    assert_eq!((touch.kind, touch.purpose), (TouchKind::Click, Purpose::Retargeting));
    assert_eq!((touch.spreadid, touch.time.millis()), (SpreadId(7), 1_773_144_000_000));
    assert_eq!(touch.lookback_ms, Some(604_800_000));
    assert!(touch.ids().eq([("imei_md5", "ab"), ("oaid", "1fe9a970")]), "{touch:?}");
    let device = touch.device();
    assert_eq!((device.ip, device.ua), ("203.0.113.9", "Mozilla \"5.0\""));
    assert_eq!((device.model, device.os), ("P60", "android"));
    assert_eq!((device.os_version, touch.site()), ("14", "s"));
    assert!(touch.params().eq([("sub1", "x")]), "{touch:?}");
}

#[test]
fn all_fields_of_an_activation_are_decoded() {
    let Ok(Fact::Activation(activation)) = decode_mixed(ACTIVATION) else {
        panic!("expected an activation")
    };
    assert_eq!((&*activation.id, &*activation.click_id), ("a-1", "c-1"));
    assert_eq!(activation.install_begin_time, EventTime::from_millis(1_773_149_990_000));
    assert_eq!(&*activation.app_version, "1.2");
    assert_eq!(activation.props, vec![pair("store", "huawei")]);
}

#[test]
fn all_fields_of_an_effect_are_decoded() {
    let Ok(Fact::Effect(effect)) = decode_mixed(EFFECT) else { panic!("expected an effect") };
    assert_eq!((&*effect.id, &*effect.name), ("e-1", "purchase"));
    assert_eq!((&*effect.revenue, &*effect.currency), ("9.99", "CNY"));
    assert_eq!(effect.props, vec![pair("level", "3")]);
}

#[test]
fn a_record_without_id_is_identified_by_content() {
    let fact = decode_mixed(with("activation", "")).expect("the event is valid");
    assert!(fact.id().starts_with('#'), "{}", fact.id());
    let mut again = fact.clone();
    canonical::identify(&mut again, "app-x");
    assert_eq!(fact, again);
    let same = decode_mixed(with("activation", r#""ip":null,"ua":"","unknown":[1]"#));
    assert_eq!(Ok(fact), same);
}

#[test]
fn an_event_id_of_no_event_is_replaced_and_reported() {
    use attribution::facts::placeholders::IgnoredReason::{Macro, Placeholder};
    let of_content = decode_mixed(with("activation", "")).expect("the event is valid");
    for (id, ignored) in [
        ("null", Some(Placeholder)),
        ("00000000-0000-0000-0000-000000000000", Some(Placeholder)),
        ("{event_id}", Some(Macro)),
        (" ", None),
        ("", None),
    ] {
        let event = with("activation", &format!(r#""event_id":"{id}""#));
        let built = super::build(event.as_bytes(), None, &POLICY).expect("the event is valid");
        assert_eq!((&built.fact, built.ignored_event_id), (&of_content, ignored), "{id:?}");
    }
    for id in ["0", "-1", "7", "f"] {
        let event = with("activation", &format!(r#""event_id":"{id}""#));
        let built = super::build(event.as_bytes(), None, &POLICY).expect("the event is valid");
        assert_eq!((built.fact.id(), built.ignored_event_id), (id, None));
    }
}

#[test]
fn missing_required_fields_are_errors() {
    use ErrorCode::MissingField;
    check("click", "", Ok(()));
    check("click", r#""app":null"#, Err((MissingField, "app")));
    check("click", r#""app":"""#, Err((MissingField, "app")));
    check("click", r#""spreadid":null"#, Err((MissingField, "spreadid")));
    check("click", r#""time":null"#, Err((MissingField, "time")));
    check("click", r#""time":"""#, Err((MissingField, "time")));
    check("click", r#""click_id":null"#, Err((MissingField, "click_id")));
    check("click", r#""click_id":"","ids":{},"ip":"""#, Err((MissingField, "click_id")));
    check("click", r#""click_id":"","ids":{"oaid":""}"#, Err((MissingField, "click_id")));
    check("click", r#""click_id":"","ids":{"oaid":"o"}"#, Ok(()));
    check("click", r#""click_id":null,"ip":"1.2.3.4""#, Ok(()));
    check("activation", "", Ok(()));
    check("activation", r#""time":null"#, Err((MissingField, "time")));
    check("effect", "", Ok(()));
    check("effect", r#""name":null"#, Err((MissingField, "name")));
    check("effect", r#""name":"""#, Err((MissingField, "name")));
    check("effect", r#""time":null"#, Err((MissingField, "time")));
    check_raw(r#"{"app":"app-x","time":1773144000005}"#, Some(MissingField));
    check_raw("{}", Some(MissingField));
}

#[test]
fn errors_of_wrong_types_name_the_field() {
    for (kind, fields) in [
        ("click", "app ip ua device_model os os_version click_id site purpose"),
        ("activation", "app ip ua device_model os os_version event_id click_id app_version"),
        ("effect", "app ip ua device_model os os_version event_id name app_version currency"),
    ] {
        for field in fields.split(' ') {
            for value in ["1", "1.5", "-1", "true", "[]", "{}"] {
                check(kind, &format!("\"{field}\":{value}"), Err((ErrorCode::WrongType, field)));
            }
        }
    }
    for value in ["1", "true", "[]", "\"text\""] {
        for (kind, field) in [("click", "ids"), ("click", "params"), ("effect", "props")] {
            check(kind, &format!("\"{field}\":{value}"), Err((ErrorCode::WrongType, field)));
        }
    }
    for value in ["\"7\"", "7.5", "true", "[]", "{}"] {
        for field in ["spreadid", "lookback_ms"] {
            check("click", &format!("\"{field}\":{value}"), Err((ErrorCode::WrongType, field)));
        }
    }
}

#[test]
fn errors_name_members_that_are_not_texts() {
    for value in ["1", "true", "[\"a\"]", "{\"b\":\"c\"}"] {
        let expected = Err((ErrorCode::WrongType, "props.level"));
        check("effect", &format!("\"props\":{{\"a\":\"b\",\"level\":{value}}}"), expected);
    }
    check("effect", r#""props":{"level":null}"#, Ok(()));
    let long = with("effect", &format!("\"props\":{{\"{}\":1}}", "k".repeat(100_000)));
    assert!(decode_mixed(long).expect_err("the value is not a text").message.len() < 200);
    let effect = decode_mixed(with("effect", r#""props":{"b":"1","a":null,"b":"2","":""}"#));
    let Ok(Fact::Effect(effect)) = effect else { panic!("expected an effect") };
    assert_eq!(effect.props, vec![pair("", ""), pair("b", "2")]);
}

#[test]
fn an_id_may_have_several_values() {
    let ids = |json: &str| match decode_mixed(with("effect", &format!("\"ids\":{json}"))) {
        Ok(Fact::Effect(effect)) => Ok(effect.ids),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err((error.code, error.field.unwrap_or_default())),
    };
    let several = r#"{"oaid":["b","a",null],"caid":"x","gaid":[],"idfa":null}"#;
    let expected = [pair("caid", "x"), pair("gaid", ""), pair("oaid", "b"), pair("oaid", "a")];
    assert_eq!(ids(several), Ok(expected.to_vec()));
    let bad = |field: &str| Err((ErrorCode::BadValue, field.to_owned()));
    assert_eq!(ids(r#"{"oaid":"a","oaid":"b"}"#), bad("ids.oaid"));
    assert_eq!(ids(r#"{"oaid":"a","oaid":null}"#), bad("ids.oaid"));
    assert_eq!(ids(r#"{"oaid":["a"],"oaid":["b"]}"#), bad("ids.oaid"));
    let wrong = Err((ErrorCode::WrongType, "ids.oaid".to_owned()));
    for value in ["1", "[1]", "[\"a\",1]", "[[\"a\"]]", "{}"] {
        assert_eq!(ids(&format!("{{\"oaid\":{value}}}")), wrong, "{value}");
    }
    let many = |count| format!("{{\"oaid\":{:?},\"serial\":[\"a\",\"b\"]}}", vec!["a"; count]);
    assert_eq!(ids(&many(32)).map(|ids| ids.len()), Ok(34));
    assert_eq!(ids(&many(33)), bad("ids"));
    assert_eq!(ids(&format!("{{\"caid\":\"{}\"}}", "a,".repeat(32))), bad("ids"));
}

#[test]
fn each_topic_allows_only_its_event_types() {
    use TopicKind::{Activations, Clicks, Effects};
    let code = |kind: Option<&str>, topic| {
        let kind = kind.map_or_else(String::new, |kind| format!(r#""type":"{kind}","#));
        let fields = r#""app":"app-x","spreadid":7,"time":1773144000005,"click_id":"c","name":"n""#;
        let json = format!("{{{kind}{fields}}}");
        decode(json.as_bytes(), topic, &POLICY)
            .map(|fact| fact.id_space().family())
            .map_err(|e| e.code)
    };
    let bad = Err(ErrorCode::BadValue);
    for kind in [None, Some(""), Some("click"), Some("impression")] {
        assert_eq!(code(kind, Some(Clicks)), Ok(Family::Touch), "{kind:?}");
    }
    assert_eq!(code(Some("effect"), Some(Clicks)), bad);
    assert_eq!(code(Some("activation"), Some(Clicks)), bad);
    assert_eq!(code(None, Some(Activations)), Ok(Family::Activation));
    assert_eq!(code(Some("activation"), Some(Activations)), Ok(Family::Activation));
    assert_eq!(code(Some("click"), Some(Activations)), bad);
    assert_eq!(code(None, Some(Effects)), Ok(Family::Effect));
    assert_eq!(code(Some("effect"), Some(Effects)), Ok(Family::Effect));
    assert_eq!(code(Some("activation"), Some(Effects)), bad);
    assert_eq!(code(Some("install"), None), bad);
    assert_eq!(code(Some("Click"), None), bad);
    assert_eq!(code(None, None), Err(ErrorCode::MissingField));
}

#[test]
fn spreadids_lookbacks_and_purposes_are_checked() {
    let bad = Err((ErrorCode::BadValue, "spreadid"));
    check("click", r#""spreadid":1"#, Ok(()));
    check("click", r#""spreadid":4294967295"#, Ok(()));
    check("click", r#""spreadid":0"#, bad);
    check("click", r#""spreadid":-1"#, bad);
    check("click", r#""spreadid":4294967296"#, bad);
    check("click", r#""spreadid":7.0"#, Ok(()));
    check("click", r#""spreadid":4.294967295e9"#, Ok(()));
    check("click", r#""spreadid":4.294967296e9"#, bad);
    check("click", r#""lookback_ms":1e3"#, Ok(()));
    check("click", r#""lookback_ms":-1.0"#, Err((ErrorCode::BadValue, "lookback_ms")));
    check("click", r#""lookback_ms":0"#, Ok(()));
    check("click", r#""lookback_ms":null"#, Ok(()));
    check("click", r#""lookback_ms":-1"#, Err((ErrorCode::BadValue, "lookback_ms")));
    check("click", r#""purpose":"ua""#, Ok(()));
    check("click", r#""purpose":"""#, Ok(()));
    check("click", r#""purpose":"UA""#, Err((ErrorCode::BadValue, "purpose")));
}

#[test]
fn times_are_whole_milliseconds_or_rfc3339() {
    use ErrorCode::{BadTime, BadValue, WrongType};
    for (kind, field) in
        [("click", "time"), ("effect", "time"), ("activation", "install_begin_time")]
    {
        let check_time = |value: &str, expected: Option<ErrorCode>| {
            let expected = expected.map_or(Ok(()), |code| Err((code, field)));
            check(kind, &format!("\"{field}\":{value}"), expected);
        };
        check_time("1199145600000", None);
        check_time("1.1991456e12", None);
        check_time("1773144000000.0", None);
        check_time("1199145599999", Some(BadTime));
        check_time("1773144000", Some(BadTime));
        check_time("253402300799999", None);
        check_time("253402300800000", Some(BadTime));
        check_time("9007199254740993", Some(BadTime));
        check_time("18446744073709551615", Some(BadTime));
        check_time("18446744073709551616", Some(WrongType));
        check_time("1e3", Some(BadTime));
        check_time("1773144000000.5", Some(WrongType));
        check_time("true", Some(WrongType));
        check_time("[1]", Some(WrongType));
        check_time("\"2026-03-10T12:00:00.0009Z\"", None);
        check_time("\"2007-12-31T23:59:59Z\"", Some(BadTime));
        check_time("\"soon\"", Some(BadValue));
        check_time("1e999", Some(BadValue));
    }
    for never in ["0", "-1", "-9223372036854775808", "0.0", "\"1970-01-01T00:00:00Z\""] {
        check("effect", &format!("\"time\":{never}"), Err((BadTime, "time")));
        let begin = with("activation", &format!("\"install_begin_time\":{never}"));
        let Ok(Fact::Activation(activation)) = decode_mixed(begin) else { panic!("{never}") };
        assert_eq!(activation.install_begin_time, None);
    }
    let fact = decode_mixed(with("activation", r#""time":"2026-03-10T20:00:00.0009+08:00""#));
    assert_eq!(fact.map(|fact| fact.time().millis()), Ok(1_773_144_000_000));
}

#[test]
fn revenues_are_kept_exactly_as_written() {
    let kept = |json: &str| {
        let Ok(Fact::Effect(effect)) = decode_mixed(with("effect", &format!("\"revenue\":{json}")))
        else {
            panic!("{json}")
        };
        effect.revenue
    };
    let longest = "9".repeat(64);
    for (json, expected) in [
        ("9.990", "9.990"),
        ("\"9.990\"", "9.990"),
        ("123456789012345678901234567890.123", "123456789012345678901234567890.123"),
        ("-0", "-0"),
        ("\"+1\"", "+1"),
        ("\"\\u0031.5\"", "1.5"),
        ("null", ""),
        ("\"\"", ""),
        ("0", "0"),
        ("-0.10", "-0.10"),
        ("\"+007.50\"", "+007.50"),
        (&*longest, &*longest),
    ] {
        assert_eq!(&*kept(json), expected);
    }
    let bad = Err((ErrorCode::BadValue, "revenue"));
    let wrong = Err((ErrorCode::WrongType, "revenue"));
    check("effect", r#""revenue":1e3"#, bad);
    check("effect", r#""revenue":"\ud800""#, bad);
    for text in ["1e3", "free", "-", ".5", "5.", "1,5", "1.2.3", "--1", "NaN", " 1", "١"] {
        check("effect", &format!("\"revenue\":\"{text}\""), bad);
    }
    check("effect", &format!("\"revenue\":{}", "9".repeat(65)), bad);
    check("effect", r#""revenue":true"#, wrong);
    check("effect", r#""revenue":{"amount":1}"#, wrong);
}

#[test]
fn records_that_are_not_objects_are_refused() {
    for json in ["null", "1", "\"x\"", "[]", r#"["click","app-x"]"#, " true "] {
        check_raw(json, Some(ErrorCode::NotAnObject));
    }
    for json in [" ", "x", "nul", "[1", "{", "}", "NaN", "'{}'", "\u{feff}{}"] {
        check_raw(json, Some(ErrorCode::NotJson));
    }
    check_raw(with("effect", r#""revenue":NaN"#), Some(ErrorCode::NotJson));
    check_raw(with("click", r#""time":Infinity"#), Some(ErrorCode::NotJson));
    check_raw(with("click", r#""time":01"#), Some(ErrorCode::NotJson));
}

#[test]
fn only_white_space_may_follow_a_record() {
    check_raw(format!("\n {CLICK}\r\n\t "), None);
    check_raw(format!("{CLICK},"), Some(ErrorCode::NotJson));
    check_raw(format!("{CLICK}{CLICK}"), Some(ErrorCode::NotJson));
    check_raw(format!("{CLICK}\0"), Some(ErrorCode::NotJson));
}

#[test]
fn a_truncated_record_is_not_json() {
    for record in [CLICK, ACTIVATION, EFFECT] {
        for end in 0..record.len() {
            check_raw(&record.as_bytes()[..end], Some(ErrorCode::NotJson));
        }
    }
}

#[test]
fn invalid_utf8_and_lone_surrogates_are_refused() {
    for member in [r#""ip":"~""#, r#""nobody_reads_this":"~""#] {
        let mut invalid = with("click", member).into_bytes();
        for byte in invalid.iter_mut().filter(|byte| **byte == b'~') {
            *byte = 0xff;
        }
        check_raw(&invalid, Some(ErrorCode::NotJson));
    }
    check("click", r#""ip":"\ud800""#, Err((ErrorCode::BadValue, "ip")));
    check("click", r#""ids":{"oaid":"\udc00x"}"#, Err((ErrorCode::BadValue, "ids")));
    check("click", r#""ip":"\ud83d\ude00""#, Ok(()));
}

#[test]
fn a_repeated_field_is_named() {
    check("click", r#""ip":"1","ip":"2""#, Err((ErrorCode::BadValue, "ip")));
    check("click", r#""other":"1","other":"2""#, Ok(()));
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let nested = |open: &str, close: &str, depth| open.repeat(depth) + "1" + &close.repeat(depth);
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = nested(open, close, 100_000);
        check("click", &format!("\"unknown\":{deep}"), Ok(()));
        check_raw(
            with("click", &format!("\"unknown\":{}", open.repeat(100_000))),
            Some(ErrorCode::NotJson),
        );
        for field in ["\"ip\"", "\"ids\"", "\"time\"", "\"spreadid\""] {
            assert!(decode_mixed(with("click", &format!("{field}:{deep}"))).is_err());
        }
        assert!(decode_mixed(with("effect", &format!("\"revenue\":{deep}"))).is_err());
        assert!(decode_mixed(&deep).is_err());
    }
}

#[test]
fn the_key_of_an_unknown_app_is_truncated_and_escaped() {
    check("click", r#""app":"app-y""#, Err((ErrorCode::UnknownApp, "app")));
    let long = with("click", &format!("\"app\":\"{}\"", "y\\n".repeat(10_000)));
    let error = decode_mixed(long).expect_err("the app does not exist");
    assert!(error.message.len() < 300, "{error}");
    assert!(!error.message.contains('\n'), "{error}");
}

#[test]
fn events_of_the_maximum_length_are_accepted() {
    let of_length = |bytes: usize| {
        let click = with("click", "");
        click.clone() + &" ".repeat(bytes - click.len())
    };
    check_raw(of_length(EVENT_BYTES_MAX), None);
    check_raw(of_length(EVENT_BYTES_MAX + 1), Some(ErrorCode::TooLarge));
    check_raw("x".repeat(10_000_000), Some(ErrorCode::TooLarge));
}

#[test]
fn texts_have_a_maximum_length() {
    let text = |field: &str, bytes: usize| format!("\"{field}\":\"{}\"", "x".repeat(bytes));
    for (kind, field, max) in [
        ("click", "click_id", 1024),
        ("click", "site", 1024),
        ("click", "ip", 1024),
        ("click", "ua", 2048),
        ("click", "device_model", 256),
        ("click", "os", 256),
        ("click", "os_version", 256),
        ("activation", "click_id", 1024),
        ("activation", "event_id", 1024),
        ("activation", "app_version", 256),
        ("effect", "event_id", 1024),
        ("effect", "name", 256),
        ("effect", "app_version", 256),
        ("effect", "currency", 64),
    ] {
        check(kind, &text(field, max), Ok(()));
        check(kind, &text(field, max + 1), Err((ErrorCode::TooLarge, field)));
    }
    let error = decode_mixed(with("click", &text("ua", 2049))).expect_err("the text is too long");
    let message = error.message;
    assert!(message.starts_with("ua at byte "), "{message}");
    assert!(message.ends_with(" is too long; expected at most 2048 bytes"), "{message}");
}

#[test]
fn members_have_a_maximum_number_and_length() {
    fn too_large(field: &str) -> Result<(), (ErrorCode, &str)> {
        Err((ErrorCode::TooLarge, field))
    }
    for (kind, field, max) in
        [("click", "params", 8192), ("effect", "props", 8192), ("effect", "ids", 2048)]
    {
        let member =
            |name: &str, bytes| format!("\"{field}\":{{\"{name}\":\"{}\"}}", "x".repeat(bytes));
        check(kind, &member("caid", max), Ok(()));
        check(kind, &member("caid", max + 1), too_large(&format!("{field}.caid")));
        let name = |bytes: usize| "n".repeat(bytes);
        check(kind, &member(&name(256), 1), Ok(()));
        check(kind, &member(&name(257), 1), too_large(&format!("{field}.{}", name(64))));
        let nulls = |count: usize| {
            let members: Vec<_> = (0..count).map(|n| format!("\"m{n}\":null")).collect();
            format!("\"{field}\":{{{}}}", members.join(","))
        };
        check(kind, &nulls(256), Ok(()));
        check(kind, &nulls(257), too_large(field));
    }
    // Ignored kinds are stored with the event, so they count.
    let list = |texts: &[&str]| format!("\"ids\":{{\"serial\":{texts:?}}}");
    check("effect", &list(&["a"; 256]), Ok(()));
    check("effect", &list(&["a"; 257]), too_large("ids"));
    check("effect", &list(&["a", &*"x".repeat(2049)]), too_large("ids.serial"));
}

#[track_caller]
fn check_message(kind: &str, fields: &str, expected: &str) {
    let error = decode_mixed(with(kind, fields)).expect_err("the event is invalid");
    assert_eq!(error.message, expected);
}

#[test]
fn messages_name_the_location_and_the_allowed_values() {
    check_message(
        "click",
        r#""spreadid":"7""#,
        "spreadid at byte 77 is a string; expected a whole number from 1 to 4294967295",
    );
    check_message(
        "click",
        r#""spreadid":null"#,
        "spreadid at byte 77 is missing or empty; expected a whole number from 1 to 4294967295",
    );
    check_message(
        "effect",
        r#""props":{"level":3}"#,
        "props.level at byte 86 is a number; expected a string",
    );
    check_message(
        "activation",
        r#""props":{"level":3}"#,
        "props.level at byte 85 is a number; expected a string",
    );
    // A device id in place of a name.
    check_message(
        "activation",
        r#""ids":{"867530900000001":3}"#,
        "ids.(not shown) at byte 74 is a number; expected a string or an array of strings",
    );
    let error = decode_mixed(r#"{"type":"click","app":"867530900000001"}"#)
        .expect_err("the app does not exist");
    assert!(error.message.starts_with("app at byte 22 is unknown;"), "{}", error.message);
    let error = decode_mixed("{\"app\":}").expect_err("the event is not JSON");
    assert_eq!(error.message, "expected value at line 1 column 8");
    let error =
        decode_mixed(r#"{"type":"click","app":"app-x"}"#).expect_err("the spreadid is missing");
    assert!(error.message.starts_with("spreadid is missing or empty;"), "{error}");
}

#[test]
fn messages_never_contain_a_device_id() {
    const ID: &str = "secret-device";
    for fields in [
        format!("\"ids\":{{\"oaid\":[\"{ID}\",1]}}"),
        format!("\"ids\":{{\"oaid\":\"{ID}\",\"oaid\":\"{ID}\"}}"),
        format!("\"ids\":\"{ID}\""),
        format!("\"ip\":{{\"{ID}\":\"{ID}\"}}"),
        format!("\"time\":\"{ID}\""),
        format!("\"purpose\":\"{ID}\""),
        format!("\"ids\":{{\"oaid\":\"{ID}\\ud800\"}}"),
        format!("\"ids\":{{\"oaid\":\"{ID}\"}}x"),
    ] {
        let error = decode_mixed(with("click", &fields)).expect_err("the event is invalid");
        assert!(!error.message.contains(ID), "{error}");
    }
}
