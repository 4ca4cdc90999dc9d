//! What each network expects of a request.

use super::NOW_MS;
use super::mock::Received;
use crate::crypto::{hmac_sha256_hex, md5_hex};
use crate::event::tests::OAID;
use crate::webhook::WebhookKeys;

pub(super) const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// [`OAID`], encrypted with the key of the endpoint of OPPO.
pub(super) const ENCRYPTED_OAID: &str =
    "avN42ZFm1Fl+x8HjyuCn6YAd192aaLXHnOk5TTWQUiB+tYdHjsARK/efb4adyJZ5";

/// What a network expects.
pub(super) struct Network {
    pub preset: &'static str,
    /// Further lines of its endpoint.
    pub lines: &'static str,
    /// Its URL comes with the click.
    pub callback_is_url: bool,
    /// Path and query of its URL.
    pub path: &'static str,
    pub method: &'static str,
    /// Names and values of the query.
    pub query: &'static [(&'static str, &'static str)],
    /// Pointers into the body, and values as JSON.
    pub body: &'static [(&'static str, &'static str)],
    pub success: &'static str,
    /// An error with status 200; `None` if every body is a success.
    pub error: Option<&'static str>,
    /// Checks headers and signature.
    pub check: fn(&Received),
}

const UNSIGNED: fn(&Received) = |_| {};

pub(super) static NETWORKS: [Network; 18] = [
    Network {
        preset: "oceanengine",
        lines: "",
        callback_is_url: false,
        path: "/api/v2/conversion",
        method: "POST",
        query: &[],
        body: &[
            ("/event_type", "\"active_pay\""),
            ("/timestamp", "1773160000999"),
            ("/properties/pay_amount", "999"),
            ("/context/ad/callback", "\"token/1=\""),
            ("/context/ad/match_type", "0"),
            ("/context/device/platform", "\"android\""),
            ("/outer_event_id", "\"cb_1\""),
        ],
        success: "{\"code\":0}",
        error: Some("{\"code\":40001,\"message\":\"x\"}"),
        check: UNSIGNED,
    },
    Network {
        preset: "tencent",
        lines: "credentials.access_token = \"token-1\"",
        callback_is_url: true,
        path: "/v3.0/user_actions/add?cb=x%2F1&conv_id=2",
        method: "POST",
        query: &[("cb", "x/1"), ("conv_id", "2")],
        body: &[
            ("/actions/0/action_type", "\"PURCHASE\""),
            ("/actions/0/action_time", "1773160000"),
            ("/actions/0/outer_action_id", "\"cb_1\""),
            ("/actions/0/action_param/value", "999"),
            ("/actions/0/user_id/hash_oaid", "\"87f8274c36eb73fabcbf143a10eca6a4\""),
        ],
        success: "{\"code\":0,\"message\":\"\"}",
        error: Some("{\"code\":30000}"),
        check: check_tencent,
    },
    Network {
        preset: "kuaishou",
        lines: "",
        callback_is_url: true,
        path: "/track/activate?callback=t%2B1",
        method: "GET",
        query: &[
            ("callback", "t+1"),
            ("event_type", "3"),
            ("event_time", "1773160000999"),
            ("purchase_amount", "9.99"),
        ],
        body: &[],
        success: "{\"result\":1}",
        error: Some("{\"result\":\"callbackinfo decoded failure\"}"),
        check: UNSIGNED,
    },
    Network {
        preset: "baidu",
        lines: "credentials.secret = \"akey\"",
        callback_is_url: true,
        path: "/ocpcapi/cb/actionCb?a_type={{ATYPE}}&a_value={{AVALUE}}&ext_info=x",
        method: "GET",
        query: &[("a_type", "orders"), ("a_value", "999"), ("ext_info", "x"), ("cb_oaid", OAID)],
        body: &[],
        success: "{\"error_code\":0}",
        error: Some("{\"error_code\":7}"),
        check: check_baidu,
    },
    Network {
        preset: "bilibili",
        lines: "",
        callback_is_url: false,
        path: "/conv/api/conversion/ad/cb/v1",
        method: "GET",
        query: &[
            ("conv_type", "USER_COST"),
            ("conv_time", "1773160000999"),
            ("track_id", "token/1="),
        ],
        body: &[],
        success: "{\"code\":0,\"message\":\"\",\"data\":\"\"}",
        error: Some("{\"code\":-400}"),
        check: UNSIGNED,
    },
    Network {
        preset: "xiaomi",
        lines: "credentials.secret = \"key-1\"",
        callback_is_url: false,
        path: "/api/callback",
        method: "GET",
        query: &[
            ("callback", "token/1="),
            ("convType", "APP_PAY"),
            ("conv_time", "1773160000999"),
            ("oaid", OAID),
        ],
        body: &[],
        success: "{\"code\":1}",
        error: Some("{\"code\":2}"),
        check: check_xiaomi,
    },
    Network {
        preset: "huawei",
        lines: "credentials.secret = \"key-1\"",
        callback_is_url: false,
        path: "/action-lib-track/hiad/v2/actionupload",
        method: "POST",
        query: &[],
        body: &[
            ("/callback", "\"token/1=\""),
            ("/conversion_type", "\"paid\""),
            ("/conversion_time", "\"1773160000\""),
            ("/timestamp", "\"1773160010000\""),
            ("/conversion_price", "\"9.99\""),
            ("/tracking_enabled", "\"1\""),
            ("/campaign_id", "\"cmp\""),
        ],
        success: "{\"resultCode\":0}",
        error: Some("{\"resultCode\":2}"),
        check: check_huawei,
    },
    Network {
        preset: "honor",
        lines: "values.advertiser_id = \"12\"\nevents.purchase = \"9\"",
        callback_is_url: false,
        path: "/api/ad-tracking/v1/conversion",
        method: "GET",
        query: &[
            ("trackId", "token/1="),
            ("conversionId", "9"),
            ("conversionTime", "1773160000999"),
            ("advertiserId", "12"),
            ("oaid", OAID),
        ],
        body: &[],
        success: "{}",
        error: None,
        check: UNSIGNED,
    },
    Network {
        preset: "oppo",
        lines: "values.pkg = \"com.x\"\nvalues.app_type = \"2\"\ncredentials.secret = \"salt\"\n\
                credentials.key = \"K34VFiiu0qar9xWICc9PPA==\"",
        callback_is_url: false,
        path: "/api/uploadActiveData",
        method: "POST",
        query: &[],
        body: &[
            ("/pkg", "\"com.x\""),
            ("/dataType", "7"),
            ("/appType", "2"),
            ("/type", "0"),
            ("/ascribeType", "1"),
            ("/adId", "123"),
            ("/payAmount", "999"),
            ("/timestamp", "1773160010000"),
            ("/requestId", "\"c-1\""),
        ],
        success: "{\"ret\":0}",
        error: Some("{\"ret\":1}"),
        check: check_oppo,
    },
    Network {
        preset: "vivo",
        lines: "values.advertiser_id = \"12\"\nvalues.src_id = \"ds-1\"\nvalues.pkg = \"com.x\"\n\
                credentials.access_token = \"token-1\"",
        callback_is_url: false,
        path: "/openapi/v1/advertiser/behavior/upload",
        method: "POST",
        query: &[
            ("access_token", "token-1"),
            ("timestamp", "1773160010000"),
            ("advertiser_id", "12"),
        ],
        body: &[
            ("/srcType", "\"APP\""),
            ("/srcId", "\"ds-1\""),
            ("/dataList/0/userIdType", "\"OAID\""),
            ("/dataList/0/cvType", "\"PAY\""),
            ("/dataList/0/cvTime", "1773160000999"),
            ("/dataList/0/requestId", "\"token/1=\""),
            ("/dataList/0/creativeId", "\"cr\""),
        ],
        success: "{\"code\":0}",
        error: Some("{\"code\":10001}"),
        check: UNSIGNED,
    },
    Network {
        preset: "weibo",
        lines: "values.company = \"x y\"\nevents.purchase = \"3\"",
        callback_is_url: false,
        path: "/sdkserver/active",
        method: "GET",
        query: &[
            ("company", "x y"),
            ("IMP", "token/1="),
            ("action_type", "3"),
            ("active_time", "1773160000"),
            ("price", "9.99"),
        ],
        body: &[],
        success: "{\"result\":\"OK\",\"Code\":\"0\"}",
        error: Some("{\"result\":\"NO\"}"),
        check: UNSIGNED,
    },
    Network {
        preset: "xiaohongshu",
        lines: "values.advertiser_id = \"12\"\nvalues.scene = \"701\"\nvalues.platform = \"p\"\n\
                values.os = \"1\"\nevents.purchase = \"412\"",
        callback_is_url: false,
        path: "/api/open/conversion",
        method: "POST",
        query: &[],
        body: &[
            ("/click_id", "\"token/1=\""),
            ("/event_type", "412"),
            ("/scene", "\"701\""),
            ("/timestamp", "1773160000999"),
            ("/os", "1"),
            ("/platform", "\"p\""),
        ],
        success: "{\"code\":0}",
        error: Some("{\"code\":1}"),
        check: UNSIGNED,
    },
    Network {
        preset: "zhihu",
        lines: "",
        callback_is_url: true,
        path: "/conv?cb=x&type=__EVENTTYPE__&value=__EVENTVALUE__&time=__TIMESTAMP__",
        method: "GET",
        query: &[("cb", "x"), ("type", "payment"), ("value", "9.99"), ("time", "1773160000")],
        body: &[],
        success: "",
        error: None,
        check: UNSIGNED,
    },
    Network {
        preset: "unity",
        lines: "values.game_id = \"500\"",
        callback_is_url: false,
        path: "/games/500/install",
        method: "GET",
        query: &[("advertisingTrackingId", "gaid-1"), ("attributed", "1"), ("gamerId", "gamer-1")],
        body: &[],
        success: "{\"install\":true,\"responseCode\":200,\"status\":\"ok\"}",
        error: Some("{\"status\":\"error\"}"),
        check: UNSIGNED,
    },
    Network {
        preset: "tiktok",
        lines: "values.tiktok_app_id = \"77\"\nvalues.app_id = \"com.example.x\"\ncredentials.access_token = \"token-1\"",
        callback_is_url: false,
        path: "/open_api/v1.3/event/track/",
        method: "POST",
        query: &[],
        body: &[
            ("/event_source", "\"app\""),
            ("/data/0/event", "\"Purchase\""),
            ("/data/0/event_time", "1773160000"),
            ("/data/0/event_id", "\"cb_1\""),
            ("/event_source_id", "\"77\""),
            ("/data/0/app/app_id", "\"com.example.x\""),
            ("/data/0/ad/callback", "\"token/1=\""),
            ("/data/0/properties/value", "9.99"),
            ("/data/0/properties/currency", "\"CNY\""),
        ],
        success: "{\"code\":0}",
        error: Some("{\"code\":40002}"),
        check: check_tiktok,
    },
    Network {
        preset: "webhook",
        lines: "credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"",
        callback_is_url: false,
        path: "/hook",
        method: "POST",
        query: &[],
        body: &[
            ("/type", "\"effect.attributed\""),
            ("/timestamp", "\"2026-03-10T16:26:40.999Z\""),
            ("/data/event_name", "\"purchase\""),
            ("/data/channel", "\"toutiao\""),
            ("/data/spreadid", "7"),
            ("/data/revision", "2"),
            ("/data/revenue", "\"9.99\""),
            ("/data/props/level", "\"3\""),
        ],
        success: "",
        error: None,
        check: check_webhook,
    },
    Network {
        preset: "appsflyer_push",
        lines: "credentials.access_token = \"token-1\"",
        callback_is_url: false,
        path: "/push",
        method: "POST",
        query: &[],
        body: &[
            ("/event_name", "\"purchase\""),
            ("/event_time", "\"2026-03-10 16:26:40.999\""),
            ("/media_source", "\"toutiao\""),
            ("/af_c_id", "\"7\""),
            ("/appsflyer_id", "\"a-1\""),
            ("/event_value", "\"{\\\"level\\\":\\\"3\\\"}\""),
            ("/event_revenue", "\"9.99\""),
            ("/af_sub1", "\"a b\""),
        ],
        success: "",
        error: None,
        check: check_push,
    },
    // The same preset as above, with a token instead of a URL.
    Network {
        preset: "kuaishou",
        lines: "",
        callback_is_url: false,
        path: "/track/activate?callback={callback|url}",
        method: "GET",
        query: &[("callback", "token/1="), ("event_type", "3")],
        body: &[],
        success: "{\"result\":1}",
        error: Some("{\"result\":2}"),
        check: UNSIGNED,
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
    assert_eq!(received.json()["ouId"], ENCRYPTED_OAID);
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
