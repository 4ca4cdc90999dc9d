//! Every preset against a server that checks its request and answers by script.

use std::sync::Arc;

use super::super::queue::{Finished, Outcome};
use super::mock::{Answer, Mock, Received};
use super::{NOW_MS, sender};
use crate::Sender;
use crate::crypto::{AesKey, hmac_sha256_hex, md5_hex};
use crate::event::tests::{OAID, activation, event};
use crate::event::{CallbackEvent, Credit};
use crate::preset::catalogue::Presets;
use crate::webhook::WebhookKeys;

const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const AES_KEY: &str = "K34VFiiu0qar9xWICc9PPA==";

/// What a network expects.
struct Network {
    preset: &'static str,
    /// Further lines of its endpoint.
    lines: &'static str,
    /// Its URL comes with the click.
    callback_is_url: bool,
    /// Path and query of its URL.
    path: &'static str,
    method: &'static str,
    /// Names and values of the query.
    query: &'static [(&'static str, &'static str)],
    /// Pointers into the body, and values as JSON.
    body: &'static [(&'static str, &'static str)],
    success: &'static str,
    /// An error with status 200; `None` if every body is a success.
    error: Option<&'static str>,
    /// Checks headers and signature.
    check: fn(&Received),
}

const UNSIGNED: fn(&Received) = |_| {};

const NETWORKS: [Network; 18] = [
    Network {
        preset: "oceanengine", lines: "", callback_is_url: false, path: "/api/v2/conversion", method: "POST", query: &[],
        body: &[
            ("/event_type", "\"active_pay\""), ("/timestamp", "1773160000999"), ("/properties/pay_amount", "999"),
            ("/context/ad/callback", "\"token/1=\""), ("/context/device/platform", "\"android\""),
            ("/outer_event_id", "\"cb_1\""),
        ],
        success: "{\"code\":0}", error: Some("{\"code\":40001,\"message\":\"x\"}"), check: UNSIGNED,
    },
    Network {
        preset: "tencent", lines: "credentials.access_token = \"token-1\"", callback_is_url: true,
        path: "/v3.0/user_actions/add?cb=x%2F1&conv_id=2", method: "POST", query: &[("cb", "x/1"), ("conv_id", "2")],
        body: &[
            ("/actions/0/action_type", "\"PURCHASE\""), ("/actions/0/action_time", "1773160000"),
            ("/actions/0/outer_action_id", "\"cb_1\""), ("/actions/0/action_param/value", "999"),
            ("/actions/0/user_id/hash_oaid", "\"87f8274c36eb73fabcbf143a10eca6a4\""),
        ],
        success: "{\"code\":0,\"message\":\"\"}", error: Some("{\"code\":30000}"), check: check_tencent,
    },
    Network {
        preset: "kuaishou", lines: "", callback_is_url: true, path: "/track/activate?callback=t%2B1", method: "GET",
        query: &[("callback", "t+1"), ("event_type", "3"), ("event_time", "1773160000999"), ("purchase_amount", "9.99")],
        body: &[], success: "{\"result\":1}", error: Some("{\"result\":\"callbackinfo decoded failure\"}"), check: UNSIGNED,
    },
    Network {
        preset: "baidu", lines: "credentials.secret = \"akey\"", callback_is_url: true,
        path: "/ocpcapi/cb/actionCb?a_type={{ATYPE}}&a_value={{AVALUE}}&ext_info=x", method: "GET",
        query: &[("a_type", "orders"), ("a_value", "999"), ("ext_info", "x"), ("cb_oaid", OAID)], body: &[],
        success: "{\"error_code\":0}", error: Some("{\"error_code\":7}"), check: check_baidu,
    },
    Network {
        preset: "bilibili", lines: "", callback_is_url: false, path: "/conv/api/conversion/ad/cb/v1", method: "GET",
        query: &[("conv_type", "USER_COST"), ("conv_time", "1773160000999"), ("track_id", "token/1=")], body: &[],
        success: "{\"code\":0,\"message\":\"\",\"data\":\"\"}", error: Some("{\"code\":-400}"), check: UNSIGNED,
    },
    Network {
        preset: "xiaomi", lines: "credentials.secret = \"key-1\"", callback_is_url: false, path: "/api/callback",
        method: "GET",
        query: &[("callback", "token/1="), ("convType", "APP_PAY"), ("conv_time", "1773160000999"), ("oaid", OAID)],
        body: &[], success: "{\"code\":1}", error: Some("{\"code\":0}"), check: check_xiaomi,
    },
    Network {
        preset: "huawei", lines: "credentials.secret = \"key-1\"", callback_is_url: false,
        path: "/action-lib-track/hiad/v2/actionupload", method: "POST", query: &[],
        body: &[
            ("/callback", "\"token/1=\""), ("/conversion_type", "\"paid\""), ("/conversion_time", "\"1773160000\""),
            ("/timestamp", "\"1773160010000\""), ("/conversion_price", "\"9.99\""), ("/tracking_enabled", "\"1\""),
        ],
        success: "{\"resultCode\":0}", error: Some("{\"resultCode\":2}"), check: check_huawei,
    },
    Network {
        preset: "honor", lines: "values.advertiser_id = \"12\"\nevents.purchase = \"9\"", callback_is_url: false,
        path: "/api/ad-tracking/v1/conversion", method: "GET",
        query: &[
            ("trackId", "token/1="), ("conversionId", "9"), ("conversionTime", "1773160000999"),
            ("advertiserId", "12"), ("oaid", OAID),
        ],
        body: &[], success: "{}", error: None, check: UNSIGNED,
    },
    Network {
        preset: "oppo",
        lines: "values.pkg = \"com.x\"\nvalues.app_type = \"2\"\ncredentials.secret = \"salt\"\n\
                credentials.key = \"K34VFiiu0qar9xWICc9PPA==\"",
        callback_is_url: false, path: "/api/uploadActiveData", method: "POST", query: &[],
        body: &[
            ("/pkg", "\"com.x\""), ("/dataType", "7"), ("/appType", "2"), ("/type", "0"), ("/ascribeType", "1"),
            ("/adId", "123"), ("/payAmount", "999"), ("/timestamp", "1773160010000"), ("/requestId", "\"c-1\""),
        ],
        success: "{\"ret\":0}", error: Some("{\"ret\":1}"), check: check_oppo,
    },
    Network {
        preset: "vivo",
        lines: "values.advertiser_id = \"12\"\nvalues.src_id = \"ds-1\"\nvalues.pkg = \"com.x\"\n\
                credentials.access_token = \"token-1\"",
        callback_is_url: false, path: "/openapi/v1/advertiser/behavior/upload", method: "POST",
        query: &[("access_token", "token-1"), ("timestamp", "1773160010000"), ("advertiser_id", "12")],
        body: &[
            ("/srcType", "\"APP\""), ("/srcId", "\"ds-1\""), ("/dataList/0/userIdType", "\"OAID\""),
            ("/dataList/0/cvType", "\"PAY\""), ("/dataList/0/cvTime", "1773160000999"),
            ("/dataList/0/requestId", "\"token/1=\""), ("/dataList/0/creativeId", "\"cr\""),
        ],
        success: "{\"code\":0}", error: Some("{\"code\":10001}"), check: UNSIGNED,
    },
    Network {
        preset: "weibo", lines: "values.company = \"x y\"\nevents.purchase = \"3\"", callback_is_url: false,
        path: "/sdkserver/active", method: "GET",
        query: &[
            ("company", "x y"), ("IMP", "token/1="), ("action_type", "3"), ("active_time", "1773160000"),
            ("price", "9.99"),
        ],
        body: &[], success: "{\"result\":\"OK\",\"Code\":\"0\"}", error: Some("{\"result\":\"NO\"}"), check: UNSIGNED,
    },
    Network {
        preset: "xiaohongshu", lines: "values.advertiser_id = \"12\"\nevents.purchase = \"412\"", callback_is_url: false,
        path: "/api/open/conversion", method: "POST", query: &[],
        body: &[("/click_id", "\"token/1=\""), ("/event_type", "\"412\""), ("/timestamp", "1773160000999")],
        success: "{}", error: None, check: UNSIGNED,
    },
    Network {
        preset: "zhihu", lines: "", callback_is_url: true,
        path: "/conv?cb=x&type=__EVENTTYPE__&time=__TIMESTAMP__", method: "GET",
        query: &[("cb", "x"), ("type", "payment"), ("time", "1773160000")], body: &[],
        success: "", error: None, check: UNSIGNED,
    },
    Network {
        preset: "unity", lines: "values.game_id = \"500\"", callback_is_url: false,
        path: "/games/500/install", method: "GET",
        query: &[("advertisingTrackingId", "gaid-1"), ("attributed", "1"), ("gamerId", "g-1")], body: &[],
        success: "{\"install\":true,\"responseCode\":200,\"status\":\"ok\"}", error: Some("{\"status\":\"error\"}"),
        check: UNSIGNED,
    },
    Network {
        preset: "tiktok", lines: "values.tiktok_app_id = \"77\"\ncredentials.access_token = \"token-1\"",
        callback_is_url: false, path: "/open_api/v1.3/event/track/", method: "POST", query: &[],
        body: &[
            ("/event_source", "\"app\""), ("/data/0/event", "\"Purchase\""), ("/data/0/event_time", "1773160000"),
            ("/data/0/event_id", "\"cb_1\""), ("/data/0/ad/callback", "\"token/1=\""),
            ("/data/0/properties/value", "9.99"), ("/data/0/properties/currency", "\"CNY\""),
        ],
        success: "{\"code\":0}", error: Some("{\"code\":40002}"), check: check_tiktok,
    },
    Network {
        preset: "webhook", lines: "credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"",
        callback_is_url: false, path: "/hook", method: "POST", query: &[],
        body: &[
            ("/type", "\"effect.attributed\""), ("/timestamp", "\"2026-03-10T16:26:40.999Z\""),
            ("/data/event_name", "\"purchase\""), ("/data/channel", "\"toutiao\""), ("/data/spreadid", "7"),
            ("/data/revision", "2"), ("/data/revenue", "\"9.99\""), ("/data/props/level", "\"3\""),
        ],
        success: "", error: None, check: check_webhook,
    },
    Network {
        preset: "appsflyer_push", lines: "credentials.access_token = \"token-1\"", callback_is_url: false,
        path: "/push", method: "POST", query: &[],
        body: &[
            ("/event_name", "\"purchase\""), ("/event_time", "\"2026-03-10 16:26:40.999\""),
            ("/media_source", "\"toutiao\""), ("/af_c_id", "\"7\""), ("/appsflyer_id", "\"a-1\""),
            ("/event_value", "\"{\\\"level\\\":\\\"3\\\"}\""), ("/event_revenue", "\"9.99\""), ("/af_sub1", "\"a b\""),
        ],
        success: "", error: None, check: check_push,
    },
    // The same preset as above, with a token instead of a URL.
    Network {
        preset: "kuaishou", lines: "", callback_is_url: false, path: "/track/activate?callback={callback|url}",
        method: "GET", query: &[("callback", "token/1="), ("event_type", "3")], body: &[],
        success: "{\"result\":1}", error: Some("{\"result\":2}"), check: UNSIGNED,
    },
];

fn check_tencent(received: &Received) {
    assert_eq!(received.header("access-token"), Some("token-1"));
    assert_eq!(received.header("timestamp"), Some("1773160010"));
    assert_eq!(received.header("nonce").map(str::len), Some(32));
}

fn check_baidu(received: &Received) {
    let (signed, sign) = received.path.split_once("&sign=").unwrap();
    let host = received.header("host").unwrap();
    assert_eq!(sign, md5_hex(format!("http://{host}{signed}akey")));
}

fn check_xiaomi(received: &Received) {
    let (signed, sign) = received.path.split_once("&sign=").unwrap();
    let (_, query) = signed.split_once('?').unwrap();
    assert_eq!(sign, md5_hex(format!("{query}key-1")));
}

fn check_huawei(received: &Received) {
    let response = hmac_sha256_hex(b"key-1", received.body.as_bytes());
    let expected = format!("Digest validTime=\"{NOW_MS}\", response=\"{response}\"");
    assert_eq!(received.header("authorization"), Some(&*expected));
}

fn check_oppo(received: &Received) {
    assert_eq!(received.header("timestamp"), Some("1773160010000"));
    let signature = md5_hex(format!("{}1773160010000salt", received.body));
    assert_eq!(received.header("signature"), Some(&*signature));
    let encrypted = AesKey::from_base64(AES_KEY).unwrap().encrypt(OAID).unwrap();
    assert_eq!(received.json()["ouId"], *encrypted);
}

fn check_tiktok(received: &Received) {
    assert_eq!(received.header("access-token"), Some("token-1"));
}

fn check_webhook(received: &Received) {
    assert_eq!(received.header("webhook-id"), Some("cb_1"));
    assert_eq!(received.header("webhook-timestamp"), Some("1773160010"));
    let keys = WebhookKeys::parse([WEBHOOK_SECRET]).unwrap();
    let signature = keys.sign("cb_1", NOW_MS / 1_000, received.body.as_bytes());
    assert_eq!(received.header("webhook-signature"), Some(&*signature));
    assert_eq!(received.header("content-type"), Some("application/json"));
}

fn check_push(received: &Received) {
    assert_eq!(received.header("authorization"), Some("token-1"));
    assert_eq!(received.json().get("idfa"), None);
}

/// A network with its server.
struct Site {
    mock: Mock,
    sender: Sender,
    event: CallbackEvent,
}

impl Network {
    fn site(&self) -> Site {
        let mock = Mock::start();
        let url = mock.url(self.path);
        let of_settings =
            if self.callback_is_url { String::new() } else { format!("url = \"{url}\"\n") };
        let (sender, _) = sender(&format!(
            "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"{}\"\nrequests_per_second_max = 10000\n{of_settings}{}\n",
            self.preset, self.lines
        ));
        let callback = if self.callback_is_url { url } else { "token/1=".to_owned() };
        Site { mock, sender, event: self.event(&callback) }
    }

    fn event(&self, callback: &str) -> CallbackEvent {
        // Unity takes activations only.
        let event = if self.preset == "unity" { activation() } else { event() };
        let mut credit = Credit { callback: callback.into(), ..event.credit };
        for (name, value) in [("ad_id", "123"), ("creative_id", "cr"), ("gamer_id", "g-1")] {
            credit.params.insert(name.into(), value.into());
        }
        let mut ids = event.ids;
        ids.insert("gaid".into(), "GAID-1".into());
        CallbackEvent { credit, ids, ..event }
    }
}

impl Site {
    async fn send(&self, answer: Answer) -> Finished {
        self.mock.answers(answer);
        let endpoint = &self.sender.endpoints()[0];
        self.sender.try_once(endpoint, &self.event).await
    }
}

fn reply(status: u16, body: &str) -> Answer {
    Answer::Reply(status, body.to_owned())
}

#[test]
fn every_preset_is_tested() {
    let presets = Presets::load(&config::Callbacks::default()).unwrap();
    for preset in presets.iter() {
        let is_tested = NETWORKS.iter().any(|network| *network.preset == *preset.name);
        assert!(is_tested, "{}", preset.name);
    }
}

#[tokio::test]
async fn requests_are_what_each_network_expects() {
    for network in &NETWORKS {
        let site = network.site();
        let finished = site.send(reply(200, network.success)).await;
        let name = network.preset;
        assert_eq!(finished.outcome, Outcome::Sent, "{name}: {finished:?}");
        let received = site.mock.received();
        let [received] = &received[..] else { panic!("{name}: one request is expected") };
        assert_eq!(received.method, network.method, "{name}");
        for (parameter, expected) in network.query {
            assert_eq!(received.parameter(parameter).as_deref(), Some(*expected), "{name} {parameter}");
        }
        for (pointer, expected) in network.body {
            let found = received.json().pointer(pointer).map(ToString::to_string);
            assert_eq!(found.as_deref(), Some(*expected), "{name} {pointer}");
        }
        assert_eq!(received.body.is_empty(), network.body.is_empty(), "{name}");
        (network.check)(received);
    }
}

#[tokio::test]
async fn what_is_kept_of_a_request_has_no_ids_and_no_tokens() {
    for network in &NETWORKS {
        let site = network.site();
        let answer = format!("{} token/1= {OAID} GAID-1 token-1 203.0.113.9", network.success);
        let finished = site.send(reply(500, &answer)).await;
        let shown = format!("{:?}", finished.attempt.unwrap());
        for private in ["token/1=", "token%2F1%3D", OAID, "GAID-1", "gaid-1", "token-1", "t%2B1", "203.0.113.9", "cb=x"] {
            assert!(!shown.contains(private), "{}: {private} in {shown}", network.preset);
        }
    }
}

#[tokio::test]
async fn failures_are_tried_again_or_not() {
    for network in &NETWORKS {
        let (site, name) = (network.site(), network.preset);
        let is_retry = |finished: &Finished| matches!(finished.outcome, Outcome::Retry { .. });
        if let Some(error) = network.error {
            let finished = site.send(reply(200, error)).await;
            assert!(is_retry(&finished), "{name}: {finished:?}");
        }
        for (status, retried) in [(400, false), (403, false), (404, false), (408, true), (500, true), (503, true)] {
            let finished = site.send(reply(status, network.success)).await;
            assert_eq!(is_retry(&finished), retried, "{name} {status}");
            assert_eq!(finished.outcome == Outcome::Dead, !retried, "{name} {status}");
            assert_eq!(finished.attempt.unwrap().status, Some(status));
        }
        let finished = site.send(Answer::HangUp).await;
        assert!(is_retry(&finished), "{name}: {finished:?}");
        site.mock.received();
        let location = "Location: http://169.254.169.254/latest/meta-data";
        let finished = site.send(Answer::With(302, location, network.success.to_owned())).await;
        assert!(is_retry(&finished), "{name}: {finished:?}");
        assert_eq!(site.mock.received().len(), 1, "{name}: a redirect is not followed");
        let finished = site.send(Answer::With(429, "Retry-After: 120", String::new())).await;
        assert_eq!(finished.outcome, Outcome::Retry { due_ms: NOW_MS + 120_000 }, "{name}");
    }
}

#[tokio::test]
async fn a_network_says_what_it_refuses_for_good() {
    let tencent = NETWORKS.iter().find(|network| network.preset == "tencent").unwrap();
    let finished = tencent.site().send(reply(200, "{\"code\":20001}")).await;
    assert_eq!(finished.outcome, Outcome::Dead);
    assert_eq!(&*finished.attempt.unwrap().reason, "status 200, code 20001");
}

#[tokio::test]
async fn a_webhook_is_signed_with_both_secrets_during_a_rotation() {
    let mock = Mock::start();
    let (sender, _) = sender(&format!(
        "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"webhook\"\nurl = \"{}\"\n\
         credentials.secret = \"whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\"\n\
         credentials.previous_secret = \"{WEBHOOK_SECRET}\"\n",
        mock.url("/hook")
    ));
    let endpoint: &Arc<_> = &sender.endpoints()[0];
    let finished = sender.try_once(endpoint, &event()).await;
    assert_eq!(finished.outcome, Outcome::Sent);
    let received = mock.received().remove(0);
    let signatures = received.header("webhook-signature").unwrap();
    let old = WebhookKeys::parse([WEBHOOK_SECRET]).unwrap();
    let expected = old.sign("cb_1", NOW_MS / 1_000, received.body.as_bytes());
    assert!(signatures.ends_with(&format!(" {expected}")), "{signatures}");
    assert_eq!(signatures.split(' ').count(), 2);
}

#[tokio::test]
async fn a_changed_credit_has_the_previous_one() {
    let mock = Mock::start();
    let (sender, _) = sender(&format!(
        "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"webhook\"\nurl = \"{}\"\n\
         credentials.secret = \"{WEBHOOK_SECRET}\"\n",
        mock.url("/hook")
    ));
    let previous = Credit { channel: "other".into(), spreadid: 9, ..Credit::default() };
    let changed = CallbackEvent {
        kind: config::CallbackKind::Changed,
        previous: Some(previous),
        ..activation()
    };
    sender.try_once(&sender.endpoints()[0], &changed).await;
    let json = mock.received()[0].json();
    assert_eq!(json["type"], "activation.changed");
    assert_eq!((&json["data"]["previous"]["channel"], &json["data"]["channel"]), (&"other".into(), &"toutiao".into()));
    assert_eq!(json["data"]["previous"]["spreadid"], 9);
}
