//! Tests of requests and of the mistakes of endpoints. callback/tests sends those of every preset.

use super::*;
use crate::event::Credit;
use crate::event::tests::{OAID, activation, event};

const NOW_MS: i64 = 1_773_160_001_000;

/// Its events must not be older than an hour.
const XIAOHONGSHU: &str = "preset = \"xiaohongshu\"\nvalues.advertiser_id = \"1\"\n\
    values.scene = \"701\"\nvalues.platform = \"p\"\nvalues.os = \"1\"\n";

/// Returns the endpoint with these lines of its table.
fn try_endpoint(lines: &str) -> Result<Arc<Endpoint>, CallbackError> {
    try_endpoint_of_all(&format!("channels = [\"toutiao\"]\n{lines}"))
}

/// Like [`try_endpoint`], but of all channels unless a line names some.
fn try_endpoint_of_all(lines: &str) -> Result<Arc<Endpoint>, CallbackError> {
    let text = format!(
        "[[channels]]\nid = \"toutiao\"\n[callbacks]\nallow_loopback = [\"localhost\"]\n\
         [[callbacks.endpoint]]\nname = \"a\"\n{lines}\n"
    );
    let settings = config::parse(&text).unwrap().callbacks;
    let presets = Presets::load(&settings).unwrap();
    Endpoint::all(&settings, &presets).map(|mut endpoints| endpoints.remove(0))
}

fn endpoint(lines: &str) -> Arc<Endpoint> {
    try_endpoint(lines).unwrap()
}

fn with_callback(event: CallbackEvent, callback: &str) -> CallbackEvent {
    let credit = Credit { callback: callback.into(), ..event.credit };
    CallbackEvent { credit, ..event }
}

/// Returns what people see of a response to a request without a signature.
fn shown_answer(endpoint: &Endpoint, event: &CallbackEvent, body: &[u8]) -> Box<str> {
    private::shown_answer(endpoint, event, &[], body)
}

#[track_caller]
fn check_wrong(lines: &str, expected: &str) {
    let Err(error) = try_endpoint(lines) else { panic!("expected {expected}") };
    let expected = format!("adtrail.toml:5: callbacks.endpoint[0].{expected}");
    assert_eq!(error.to_string(), expected);
}

#[track_caller]
fn check_impossible(lines: &str, event: &CallbackEvent, expected: &str) {
    let outcome = endpoint(lines).prepare(event, NOW_MS).err();
    assert_eq!(outcome, Some(NotSent::Impossible(expected.to_owned())));
}

#[test]
fn a_get_has_its_parameters_in_order() {
    let request = endpoint("preset = \"kuaishou\"").prepare(&event(), NOW_MS).unwrap();
    let expected = "https://ad.partner.gifshow.com/track/activate?callback=token%2F1%3D&event_type=3\
                    &event_time=1773160000999&purchase_amount=9.99";
    assert_eq!((request.url.as_str(), &*request.host), (expected, "ad.partner.gifshow.com"));
    assert_eq!((request.method.as_str(), request.body.len()), ("GET", 0));
    let shown = expected.replace("token%2F1%3D", "hidden");
    assert_eq!(*request.shown.url, *shown);
}

#[test]
fn a_url_of_the_settings_is_not_shown() {
    let hook = endpoint(
        "preset = \"webhook\"\nurl = \"https://hooks.example.com/T0/B0/hunter2?key=hunter3\"\n\
         credentials.secret = \"whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\"",
    );
    let event = CallbackEvent { kind: CallbackKind::ActivationAttributed, ..activation() };
    let request = hook.prepare(&event, NOW_MS).unwrap();
    assert_eq!(request.url.path(), "/T0/B0/hunter2");
    assert_eq!(&*request.shown.url, "https://hooks.example.com/hidden");
    let answer = shown_answer(&hook, &event, b"no /T0/B0/hunter2, key=hunter3");
    assert_eq!(&*answer, "no hidden, hidden");
    let answer = shown_answer(&hook, &event, b"no hook B0/hunter2, invalid key hunter3");
    assert_eq!(&*answer, "no hook B0/hidden, invalid key hidden");
    let after_field = endpoint(
        "preset = \"webhook\"\nurl = \"https://hooks.example.com/{app}/hunter2?k=hunter%203\"\n\
         credentials.secret = \"whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\"",
    );
    let answer = shown_answer(&after_field, &event, b"no hunter2, no 'hunter 3'");
    assert_eq!(&*answer, "no hidden, no 'hidden'");
}

#[test]
fn a_value_that_is_not_known_is_left_out() {
    let request = endpoint("preset = \"kuaishou\"").prepare(&activation(), NOW_MS).unwrap();
    assert!(request.url.as_str().ends_with("&event_type=1&event_time=1773150000000"));
}

#[test]
fn a_callback_may_be_a_url() {
    let endpoint = endpoint("preset = \"kuaishou\"");
    let url = |callback: &str| {
        let request = endpoint.prepare(&with_callback(activation(), callback), NOW_MS);
        request.map(|request| (request.url.to_string(), request.shown.url.to_string()))
    };
    let end = "event_type=1&event_time=1773150000000";
    let expected = format!("https://ad.partner.gifshow.com/track/activate?callback=t&{end}");
    let shown = format!("http://ad.partner.gifshow.com/hidden?hidden&{end}");
    let plain = "http://ad.partner.gifshow.com/track/activate?callback=t";
    assert_eq!(url(plain), Ok((expected.clone(), shown.clone())));
    let encoded = "http%3A%2F%2Fad.partner.gifshow.com%2Ftrack%2Factivate%3Fcallback%3Dt";
    assert_eq!(url(encoded), Ok((expected.clone(), shown)));
    let with_type = format!("{plain}&event_type=9#x");
    assert_eq!(url(&with_type).unwrap().0, expected);
    let refused = |reason: &str| Err(NotSent::Impossible(reason.to_owned()));
    let host = "the host is not one of the preset's";
    assert_eq!(url("https://evil.example/?callback=t"), refused(host));
    assert_eq!(url("https://169.254.169.254/latest"), refused(host));
    let port = "expected port 443, or 80 without TLS";
    assert_eq!(url("https://ad.partner.gifshow.com:22/"), refused(port));
    assert_eq!(url("https://x y/"), refused("the URL is not one"));
}

/// Anybody can report a click, and the token allows more than conversions.
#[test]
fn an_access_token_goes_to_the_paths_of_the_preset_only() {
    let endpoint = endpoint("preset = \"tencent\"\ncredentials.access_token = \"token-1\"");
    let prepare = |url: &str| {
        let request = endpoint.prepare(&with_callback(activation(), url), NOW_MS);
        request.map(|request| request.url.to_string())
    };
    let url = "https://api.e.qq.com/v3.0/user_actions/add?cb=x%2F1&conv_id=2";
    assert_eq!(prepare(url).as_deref(), Ok(url));
    let event = with_callback(activation(), url);
    let shown = endpoint.prepare(&event, NOW_MS).unwrap().shown.url;
    assert_eq!(&*shown, "https://api.e.qq.com/v3.0/user_actions/add?hidden");
    let old = prepare("http://tracking.e.qq.com/conv?cb=x");
    assert_eq!(old.as_deref(), Ok("https://tracking.e.qq.com/conv?cb=x"));
    let refused = Err(NotSent::Impossible("the path is not one of the preset's".to_owned()));
    for path in [
        "/v3.0/adgroups/delete?adgroup_id=1",
        "/v3.0/user_actions/add/",
        "/v3.0/user_actions/add/../../adgroups/delete",
        "/v3.0/user_actions%2Fadd",
        "/?/v3.0/user_actions/add",
        "/",
    ] {
        assert_eq!(prepare(&format!("https://api.e.qq.com{path}")), refused, "{path}");
    }
}

#[test]
fn a_network_may_leave_texts_open_in_its_url() {
    let endpoint = endpoint("preset = \"baidu\"\ncredentials.secret = \"akey\"");
    let url = |callback: &str| {
        let event = with_callback(event(), callback);
        endpoint.prepare(&event, NOW_MS).unwrap().url.to_string()
    };
    let start = "https://ocpc.baidu.com/ocpcapi/cb/actionCb?a_type=orders&a_value=999&s=1";
    let raw =
        url("http://ocpc.baidu.com/ocpcapi/cb/actionCb?a_type={{ATYPE}}&a_value={{AVALUE}}&s=1");
    assert!(raw.starts_with(start), "{raw}");
    let encoded = "https://ocpc.baidu.com/ocpcapi/cb/actionCb?a_type=%7B%7BATYPE%7D%7D&a_value=%7B%7BAVALUE%7D%7D&s=1";
    assert_eq!(url(encoded), raw);
    assert_eq!(url(&encoded.replace("%7B", "%7b").replace("%7D", "%7d")), raw);
    let (signed, sign) = raw.split_once("&sign=").unwrap();
    assert_eq!(sign, crate::crypto::md5_hex(format!("{signed}akey")));
}

#[test]
fn a_view_is_not_a_click() {
    let endpoint = endpoint("preset = \"oceanengine\"");
    let match_type = |touch_type: &str| {
        let event = activation();
        let credit = Credit { touch_type: touch_type.into(), ..event.credit };
        let request = endpoint.prepare(&CallbackEvent { credit, ..event }, NOW_MS).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        body.pointer("/context/ad/match_type").cloned()
    };
    assert_eq!(match_type("click"), Some(0.into()));
    assert_eq!(match_type("impression"), Some(1.into()));
    assert_eq!(match_type(""), None);
}

#[test]
fn a_body_has_what_is_known() {
    let request = endpoint("preset = \"oceanengine\"\nevents.purchase = \"active_pay\"");
    let request = request.prepare(&event(), NOW_MS).unwrap();
    let body = String::from_utf8(request.body).unwrap();
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["event_type"], "active_pay");
    assert_eq!(json["timestamp"], 1_773_160_000_999_i64);
    assert_eq!(json["properties"]["pay_amount"], 999);
    assert_eq!(json["context"]["ad"]["callback"], "token/1=");
    assert_eq!(json["context"]["device"]["oaid"], OAID);
    assert_eq!(json["context"]["device"].get("idfa"), None);
    assert_eq!(request.headers["content-type"], "application/json");
    let shown = request.shown.body;
    assert!(!shown.contains("token/1=") && !shown.contains(OAID) && shown.contains("active_pay"));
}

#[test]
fn an_endpoint_gets_the_events_that_it_has_names_for() {
    let lines = "preset = \"kuaishou\"\nevents.login = \"5\"\nevents.purchase = \"\"";
    let endpoint = endpoint(lines);
    assert!(endpoint.wants(CallbackKind::Activation, "activation"));
    assert!(endpoint.wants(CallbackKind::Effect, "login"));
    assert!(!endpoint.wants(CallbackKind::Effect, "purchase"));
    assert!(!endpoint.wants(CallbackKind::Effect, "level"));
    assert!(!endpoint.wants(CallbackKind::ActivationRejected, "activation"));
    let names: Vec<_> = endpoint.event_names().unwrap().into_iter().collect();
    assert_eq!(names, ["activation", "login", "register"]);
    let unwanted = NotSent::Unwanted("the endpoint has no name for the event");
    assert_eq!(endpoint.prepare(&event(), NOW_MS).err(), Some(unwanted));
}

#[test]
fn a_reinstall_has_a_name_of_its_own() {
    let again = CallbackEvent { install_type: "reinstall".into(), ..activation() };
    let unwanted = NotSent::Unwanted("the endpoint has no name for the event");
    let outcome = endpoint("preset = \"kuaishou\"").prepare(&again, NOW_MS).err();
    assert_eq!(outcome, Some(unwanted));
    let named = endpoint("preset = \"kuaishou\"\nevents.reinstall = \"84\"");
    let request = named.prepare(&again, NOW_MS).unwrap();
    assert!(request.url.as_str().contains("&event_type=84&"), "{}", request.url);
    let names: Vec<_> = named.event_names().unwrap().into_iter().collect();
    assert_eq!(names, ["activation", "purchase", "register"], "it is not an effect");
    let webhook = endpoint(
        "preset = \"webhook\"\nurl = \"https://a.example/\"\n\
         credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"",
    );
    let again = CallbackEvent { kind: CallbackKind::ActivationAttributed, ..again };
    assert!(webhook.prepare(&again, NOW_MS).is_ok());
    let push = endpoint(
        "preset = \"appsflyer_push\"\nurl = \"https://a.example/\"\n\
         credentials.access_token = \"t\"\nevents.activation = \"\"",
    );
    let body: serde_json::Value =
        serde_json::from_slice(&push.prepare(&again, NOW_MS).unwrap().body).unwrap();
    assert_eq!(body["event_name"], "re-attribution");
}

#[test]
fn what_a_network_needs_must_be_known() {
    let kuaishou = "preset = \"kuaishou\"";
    let missing = "a field that the network needs is not known";
    check_impossible(kuaishou, &with_callback(event(), ""), missing);
    let tencent = "preset = \"tencent\"\ncredentials.access_token = \"t\"";
    check_impossible(tencent, &with_callback(event(), "token"), "the touch has no callback URL");
    let long = with_callback(event(), &"a".repeat(17 << 10));
    check_impossible(kuaishou, &long, "the URL is too long");
}

#[test]
fn settings_of_an_endpoint_are_checked_with_its_preset() {
    check_wrong("preset = \"huawei\"", "credentials.secret: missing, expected by the preset");
    check_wrong("preset = \"weibo\"", "values.company: missing, expected by the preset");
    check_wrong(
        "preset = \"weibo\"\nvalues.company = \"\"",
        "values.company: missing, expected by the preset",
    );
    check_wrong(
        "preset = \"kuaishou\"\ncredentials.key = \"x\"",
        "credentials.key: expected 16 bytes in base64",
    );
    let webhook =
        "preset = \"webhook\"\ncredentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n";
    let check_url = |url: &str, expected: &str| {
        check_wrong(&format!("{webhook}url = \"{url}\""), &format!("url: {expected}"));
    };
    let start = "expected a scheme, a host and a path before the first field";
    check_url("https://{app}.example/", start);
    check_url("https://a.example{app}/", start);
    check_url("http://a.example/", "expected https");
    check_url("https://a.example:8443/", "expected port 443, or 80 without TLS");
    check_url("https://192.168.0.1/", "a private address");
    check_url("https://u:p@a.example/", "the URL has a user or a password");
    check_url("https://a.example/{x}", "expected a field, the nearest is \"id\": \"x\"");
    check_url(
        "https://a.example/hunter2{",
        "expected braces in pairs, and {{ for a brace: (not shown)",
    );
    let of_url = |field: &str, expected: &str| {
        let lines = format!("{webhook}url = \"https://a.example/{{{field}}}\"");
        check_wrong(&lines, &format!("{expected}: missing, expected by url"));
    };
    of_url("values.account", "values.account");
    of_url("credentials.access_token", "credentials.access_token");
    of_url("ids.oaid|aes128_ecb", "credentials.key");
    let other = format!("{webhook}url = \"https://a.example/{{values.a|default:x}}\"");
    assert!(try_endpoint(&other).is_ok());
    let late = "settle: expected less than 3600s, the maximum age of events";
    check_wrong(&format!("{XIAOHONGSHU}settle = \"1h\""), late);
    let kinds = "preset = \"kuaishou\"\nkinds = [\"activation.changed\"]";
    check_wrong(kinds, "kinds: the preset does not have \"activation.changed\"");
    check_wrong(webhook, "url: missing, expected by the preset");
    let changes =
        format!("{webhook}url = \"https://a.example/\"\nkinds = [\"activation.changed\"]");
    let too = "kinds: expected \"activation.attributed\" too, whose credit is then changed";
    check_wrong(&changes, too);
    let secret =
        "preset = \"webhook\"\nurl = \"https://a.example/\"\ncredentials.secret = \"hunter2\"";
    let expected = "credentials.secret: expected a secret of 24 to 64 bytes in base64, with or without \"whsec_\"";
    check_wrong(secret, expected);
}

#[test]
fn an_endpoint_that_gets_nothing_is_refused() {
    let nothing = "events: expected a name for an event of one of its kinds, because nothing is sent \
                   otherwise";
    let all = "events = { activation = \"\", register = \"\", purchase = \"\" }";
    let kuaishou = "preset = \"kuaishou\"\n";
    check_wrong(&format!("{kuaishou}{all}"), nothing);
    check_wrong(&format!("{kuaishou}kinds = [\"activation\"]\nevents.activation = \"\""), nothing);
    let effects =
        format!("{kuaishou}kinds = [\"effect\"]\nevents = {{ register = \"\", purchase = \"\"");
    check_wrong(&format!("{effects} }}"), nothing);
    for lines in [
        format!("{effects}, login = \"7\" }}"),
        format!("{kuaishou}events = {{ activation = \"\", register = \"\" }}"),
        format!(
            "{kuaishou}kinds = [\"activation\"]\nevents = {{ activation = \"\", reinstall = \"2\" }}"
        ),
    ] {
        assert!(try_endpoint(&lines).is_ok(), "{lines}");
    }
}

#[test]
fn all_wrong_endpoints_are_reported() {
    let text = "[[channels]]\nid = \"c\"\n\
                [[callbacks.endpoint]]\nname = \"a\"\npreset = \"webhok\"\n\
                [[callbacks.endpoint]]\nname = \"b\"\npreset = \"kuaishou\"\nchannels = [\"c\"]\n\
                [[callbacks.endpoint]]\nname = \"c\"\npreset = \"kuaishou\"\n";
    let settings = config::parse(text).unwrap().callbacks;
    let outcome = Endpoint::all(&settings, &Presets::load(&settings).unwrap());
    let expected = "adtrail.toml:3: callbacks.endpoint[0].preset: no such preset, the nearest is \
                    \"webhook\": \"webhok\"\n\
                    adtrail.toml:10: callbacks.endpoint[2].channels: missing, expected the channels of \
                    the network";
    assert_eq!(outcome.err().unwrap().to_string(), expected);
}

/// As in other errors of settings.
#[test]
fn endpoints_are_numbered_by_file() {
    let text = "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"webhok\"\n\
                [[callbacks.endpoint]]\nname = \"b\"\npreset = \"webhok\"\n";
    let mut settings = config::parse(text).unwrap().callbacks;
    settings.endpoints[1].location = config::Location::File { path: "more.toml".into(), line: 7 };
    let outcome = Endpoint::all(&settings, &Presets::load(&settings).unwrap());
    let error = outcome.err().unwrap().to_string();
    assert!(error.contains("\nmore.toml:7: callbacks.endpoint[0].preset: "), "{error}");
}

#[test]
fn a_network_gets_its_own_channels_only() {
    let error = try_endpoint_of_all("preset = \"kuaishou\"").err().unwrap().to_string();
    assert!(error.ends_with("channels: missing, expected the channels of the network"), "{error}");
    let webhook = "preset = \"webhook\"\nurl = \"https://a.example/\"\n\
                   credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"";
    assert!(try_endpoint_of_all(webhook).unwrap().channels().is_empty());
}

#[test]
fn an_event_of_another_channel_is_not_sent() {
    let endpoint = endpoint("preset = \"kuaishou\"");
    let of_channel = |channel: &str| Credit { channel: channel.into(), ..event().credit };
    let other = CallbackEvent { credit: of_channel("other"), ..event() };
    let unwanted = NotSent::Unwanted("the endpoint is not of the app or the channel");
    assert_eq!(endpoint.prepare(&other, NOW_MS).err(), Some(unwanted));
    let moved = CallbackEvent {
        kind: CallbackKind::ActivationChanged,
        previous: Some(of_channel("toutiao")),
        ..other
    };
    let unnamed = NotSent::Unwanted("the endpoint has no name for the event");
    assert_eq!(endpoint.prepare(&moved, NOW_MS).err(), Some(unnamed));
    let webhook = self::endpoint(
        "preset = \"webhook\"\nurl = \"https://a.example/\"\n\
         credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"",
    );
    assert!(webhook.prepare(&moved, NOW_MS).is_ok(), "the channel has lost the credit");
}

#[test]
fn two_endpoints_may_send_the_same_events_to_a_network() {
    let doubles = |one: &str, two: &str| endpoint(one).doubles(&endpoint(two));
    let kuaishou = "preset = \"kuaishou\"";
    assert!(doubles(kuaishou, &format!("{kuaishou}\nevents.activation = \"\"")));
    assert!(!doubles(kuaishou, "preset = \"bilibili\""));
    let [activation, effects] =
        ["events = { register = \"\", purchase = \"\" }", "events = { activation = \"\" }"]
            .map(|events| format!("{kuaishou}\n{events}"));
    assert!(!doubles(&activation, &effects));
    let webhook = "preset = \"webhook\"\nurl = \"https://a.example/\"\n\
                   credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"";
    assert!(!doubles(webhook, webhook), "its receiver knows both");
}

#[test]
fn a_network_limits_the_age_of_events() {
    let age = |lines: &str| endpoint(lines).max_age_ms();
    assert_eq!(age(XIAOHONGSHU), 3_600_000);
    assert_eq!(age(&format!("{XIAOHONGSHU}max_age = \"10m\"")), 600_000);
    assert_eq!(age("preset = \"kuaishou\""), 86_400_000);
}

#[test]
fn a_response_is_shown_without_what_it_repeats() {
    let endpoint = endpoint("preset = \"kuaishou\"\ncredentials.secret = \"hunter2\"");
    let body = format!("token/1= token%2F1%3D {OAID} hunter2\n203.0.113.9 ok");
    let shown = shown_answer(&endpoint, &event(), body.as_bytes());
    assert_eq!(&*shown, "hidden hidden hidden hiddenhidden ok");
    let hashed = format!("{} {}", OAID.to_uppercase(), crate::crypto::md5_hex(OAID));
    let shown = shown_answer(&endpoint, &event(), hashed.as_bytes());
    assert_eq!(&*shown, "hidden hidden");
    let of_url = with_callback(event(), "https://ad.partner.gifshow.com/t?callback=token%2F7%3D");
    let body = br"no token/7= token\/7= token%2F7%3D";
    let shown = shown_answer(&endpoint, &of_url, body);
    assert_eq!(&*shown, "no hidden hidden hidden");
    let padded = with_callback(event(), "https://ad.partner.gifshow.com/t?cb=QUJDREVGR0hJSg%3D%3D");
    let shown = shown_answer(&endpoint, &padded, br"bad QUJDREVGR0hJSg\u003d\u003d");
    assert_eq!(&*shown, r"bad hidden\u003d\u003d");
    let long = shown_answer(&endpoint, &event(), "é".repeat(3_000).as_bytes());
    assert_eq!(long.chars().count(), 2_049);
}

#[test]
fn a_response_is_shown_without_hashes_of_ids() {
    use crate::crypto::{md5_hex, sha256_hex};
    let endpoint = endpoint("preset = \"kuaishou\"");
    let check = |body: &str, expected: &str| {
        assert_eq!(&*shown_answer(&endpoint, &event(), body.as_bytes()), expected);
    };
    check(&format!("oaid={}", md5_hex(OAID)), "oaid=hidden");
    check(&md5_hex(OAID).to_uppercase(), "hidden");
    check(&md5_hex(OAID.to_uppercase()), "hidden");
    check(&format!("{{\"id\":\"{}\"}}", sha256_hex(OAID)), "{\"id\":\"hidden\"}");
    // Among other digits.
    check(&format!("7{}0", md5_hex(OAID)), "7hidden0");
    check(&format!("trace {}", md5_hex("another id")), &format!("trace {}", md5_hex("another id")));
}

#[test]
fn a_response_is_shown_without_what_was_encrypted_and_signed() {
    let endpoint = endpoint(
        "preset = \"oppo\"\nvalues.pkg = \"com.x\"\nvalues.app_type = \"2\"\n\
         credentials.secret = \"salt\"\ncredentials.key = \"K34VFiiu0qar9xWICc9PPA==\"",
    );
    let mut event = event();
    event.credit.params.insert("ad_id".into(), "123".into());
    event.ids.insert("imei".into(), "868823031739689".into());
    let request = endpoint.prepare(&event, NOW_MS).unwrap();
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let signature = request.headers["signature"].to_str().unwrap();
    let [oaid, imei] = ["ouId", "imei"].map(|name| body[name].as_str().unwrap());
    assert!(oaid.contains('/') && imei.ends_with("=="), "{oaid} {imei}");
    let check = |body: String, expected: &str| {
        let shown = private::shown_answer(&endpoint, &event, &request.signatures, body.as_bytes());
        assert_eq!(&*shown, expected, "{body}");
    };
    check(format!("wrong sign {signature}"), "wrong sign hidden");
    check(format!("unknown {oaid}"), "unknown hidden");
    check(format!("unknown {}", oaid.replace('/', "\\/")), "unknown hidden");
    check(format!("unknown {}", crate::template::url_encode(oaid)), "unknown hidden");
    check(format!("unknown {}", imei.replace('=', "\\u003d")), "unknown hidden\\u003d\\u003d");
    check(format!("pkg com.x, {NOW_MS}"), "pkg com.x, 1773160001000");
}
