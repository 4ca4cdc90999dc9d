//! What each network reports of a click, and what it expects of the callbacks.

use crate::network::Request;

/// A network with its channel.
pub struct Case {
    pub dialect: &'static str,
    /// More lines of its endpoint.
    pub lines: &'static str,
    /// The parameters of a click, with `TS_MS`, `TS_S`, `DEVICE`, `DEVICE_MD5` and `CALLBACK`.
    pub click: &'static str,
    /// The kind of id that its clicks have.
    pub id: &'static str,
    /// The query of the URL that is the callback of a click; `None` if that is a token.
    pub url_query: Option<&'static str>,
    pub success: &'static str,
    /// It gets the install, and most get the purchase.
    pub requests: usize,
    pub check: fn(&[Request]),
}

/// As it is encoded in queries.
const TOKEN: Option<&str> = Some("token%2F1");

pub const CASES: [Case; 15] = [
    Case {
        dialect: "oceanengine",
        lines: "",
        click: "request_id=r-1&cid=2&os=0&oaid=DEVICE&ts=TS_MS&callback=CALLBACK",
        id: "oaid",
        url_query: None,
        success: "{\"code\":0}",
        requests: 2,
        check: |requests| {
            let [install, purchase] = [0, 1].map(|index| requests[index].json());
            assert_eq!(install["event_type"], "active");
            assert_eq!(install["context"]["ad"]["callback"], "token/1");
            assert_eq!(install["context"]["device"]["platform"], "android");
            assert_eq!(purchase["event_type"], "active_pay");
            assert_eq!(purchase["properties"]["pay_amount"], 999);
            assert_eq!(purchase["context"]["ad"]["callback"], "token/1");
        },
    },
    Case {
        dialect: "tencent",
        lines: "credentials.access_token = \"access-1\"\n",
        click: "click_id=t-1&time=TS_S&device_os_type=android&oaid=DEVICE&callback=CALLBACK",
        id: "oaid",
        url_query: Some("cb=token"),
        success: "{\"code\":0}",
        requests: 2,
        check: |requests| {
            assert_eq!(requests[0].headers["access-token"], "access-1");
            assert_eq!(requests[0].parameter("cb"), Some("token"));
            let [install, purchase] = [0, 1].map(|index| requests[index].json());
            assert_eq!(install["actions"][0]["action_type"], "ACTIVATE_APP");
            assert_eq!(purchase["actions"][0]["action_type"], "PURCHASE");
            assert_eq!(purchase["actions"][0]["action_param"]["value"], 999);
        },
    },
    Case {
        dialect: "kuaishou",
        lines: "",
        click: "did=5&oaid=DEVICE&ts=TS_MS&callback=CALLBACK",
        id: "oaid",
        url_query: Some("cb=token"),
        success: "{\"result\":1}",
        requests: 2,
        check: |requests| {
            let [install, purchase] = [&requests[0], &requests[1]];
            assert_eq!((&*install.method, install.parameter("event_type")), ("GET", Some("1")));
            assert_eq!(install.parameter("cb"), Some("token"));
            assert_eq!(purchase.parameter("event_type"), Some("3"));
            assert_eq!(purchase.parameter("purchase_amount"), Some("9.99"));
        },
    },
    Case {
        dialect: "tiktok",
        lines: "credentials.access_token = \"access-1\"\nvalues.tiktok_app_id = \"77\"\n\
                values.app_id = \"com.example.x\"\n",
        click: "campaign_id=8&aid=9&cid=10&os=0&gaid=DEVICE&callback=CALLBACK",
        id: "gaid",
        url_query: None,
        success: "{\"code\":0}",
        requests: 2,
        check: |requests| {
            assert_eq!(requests[0].headers["access-token"], "access-1");
            let [install, purchase] = [0, 1].map(|index| requests[index].json());
            assert_eq!(install["data"][0]["event"], "InstallApp");
            assert_eq!(install["data"][0]["ad"]["callback"], "token/1");
            let ids = ["campaign_id", "ad_id", "creative_id"];
            assert_eq!(ids.map(|id| &install["data"][0]["ad"][id]), ["8", "9", "10"]);
            assert_eq!(purchase["data"][0]["event"], "Purchase");
            assert_eq!(purchase["data"][0]["properties"]["value"], 9.99);
        },
    },
    Case {
        dialect: "baidu",
        lines: "credentials.secret = \"akey\"\n",
        click: "click_id=b-1&oaid=DEVICE&ts=TS_MS&callback_url=CALLBACK",
        id: "oaid",
        url_query: Some("a_type={{ATYPE}}&a_value={{AVALUE}}&cb=token"),
        success: "{\"error_code\":0}",
        requests: 2,
        check: |requests| {
            assert_eq!(requests[0].parameter("a_type"), Some("activate"));
            assert_eq!(requests[1].parameter("a_type"), Some("orders"));
            assert_eq!(requests[1].parameter("a_value"), Some("999"));
            assert_eq!(requests[1].parameter("sign").map(str::len), Some(32));
        },
    },
    Case {
        dialect: "bilibili",
        lines: "",
        click: "track_id=CALLBACK&oaid=DEVICE&ts=TS_MS",
        id: "oaid",
        url_query: None,
        success: "{\"code\":0}",
        requests: 2,
        check: |requests| {
            assert_eq!(requests[0].parameter("track_id"), TOKEN);
            assert_eq!(requests[0].parameter("conv_type"), Some("APP_FIRST_ACTIVE"));
            assert_eq!(requests[1].parameter("conv_type"), Some("USER_COST"));
        },
    },
    Case {
        dialect: "honor",
        lines: "",
        click: "track_id=CALLBACK&advertiser_id=5&oaid=DEVICE",
        id: "oaid",
        url_query: None,
        success: "",
        requests: 1,
        check: |requests| {
            assert_eq!(requests[0].parameter("trackId"), TOKEN);
            assert_eq!(requests[0].parameter("advertiserId"), Some("5"));
        },
    },
    Case {
        dialect: "huawei",
        lines: "credentials.secret = \"key-1\"\n",
        click: "aid=1&oaid=DEVICE&ts=TS_MS&callback=CALLBACK",
        id: "oaid",
        url_query: None,
        success: "{\"resultCode\":0}",
        requests: 2,
        check: |requests| {
            assert!(requests[0].headers["authorization"].starts_with("Digest validTime="));
            let [install, purchase] = [0, 1].map(|index| requests[index].json());
            assert_eq!(install["callback"], "token/1");
            assert_eq!(install["conversion_type"], "activate");
            assert_eq!(purchase["conversion_price"], "9.99");
        },
    },
    Case {
        dialect: "oppo",
        lines: "credentials.secret = \"salt\"\ncredentials.key = \"K34VFiiu0qar9xWICc9PPA==\"\n\
                values.pkg = \"com.example.x\"\nvalues.app_type = \"1\"\n",
        click: "req=o-1&ad_id=9&oaid=DEVICE",
        id: "oaid",
        url_query: None,
        success: "{\"ret\":0}",
        requests: 2,
        check: |requests| {
            assert_eq!(requests[0].headers["signature"].len(), 32);
            let [install, purchase] = [0, 1].map(|index| requests[index].json());
            assert_eq!((&install["adId"], &install["dataType"]), (&9.into(), &1.into()));
            assert_eq!(purchase["payAmount"], 999);
        },
    },
    Case {
        dialect: "unity",
        lines: "values.game_id = \"3\"\n",
        click: "ifa=DEVICE&gamer_id=g-1",
        id: "gaid",
        url_query: None,
        success: "{\"status\":\"ok\"}",
        requests: 1,
        check: |requests| {
            assert_eq!(requests[0].parameter("gamerId"), Some("g-1"));
            assert_eq!(requests[0].parameter("attributed"), Some("1"));
        },
    },
    Case {
        dialect: "vivo",
        lines: "credentials.access_token = \"access-1\"\nvalues.advertiser_id = \"1\"\n\
                values.src_id = \"2\"\nvalues.pkg = \"com.example.x\"\n",
        click: "request_id=CALLBACK&creative_id=6&oaid=DEVICE_MD5",
        id: "oaid",
        url_query: None,
        success: "{\"code\":0}",
        requests: 2,
        check: |requests| {
            let [install, purchase] = [0, 1].map(|index| requests[index].json());
            assert_eq!(install["dataList"][0]["requestId"], "token/1");
            assert_eq!(install["dataList"][0]["creativeId"], "6");
            assert_eq!(install["dataList"][0]["userIdType"], "OAID");
            assert_eq!(purchase["dataList"][0]["cvType"], "PAY");
        },
    },
    Case {
        dialect: "weibo",
        lines: "values.company = \"c\"\n",
        click: "imp=CALLBACK&oaid=DEVICE&clicktime=TS_MS",
        id: "oaid",
        url_query: None,
        success: "{\"result\":\"OK\"}",
        requests: 1,
        check: |requests| assert_eq!(requests[0].parameter("IMP"), TOKEN),
    },
    Case {
        dialect: "xiaohongshu",
        lines: "values.advertiser_id = \"1\"\nvalues.scene = \"701\"\nvalues.platform = \"p\"\n\
                values.os = \"1\"\n",
        click: "click_id=CALLBACK&oaid_md5=DEVICE_MD5",
        id: "oaid",
        url_query: None,
        success: "{\"code\":0}",
        requests: 1,
        check: |requests| assert_eq!(requests[0].json()["click_id"], "token/1"),
    },
    Case {
        dialect: "xiaomi",
        lines: "credentials.secret = \"key-1\"\n",
        click: "adid=1&oaid=DEVICE&click_time=TS_MS&callback=CALLBACK",
        id: "oaid",
        url_query: None,
        success: "{\"code\":1}",
        requests: 2,
        check: |requests| {
            assert_eq!(requests[0].parameter("callback"), TOKEN);
            assert_eq!(requests[0].parameter("convType"), Some("APP_ACTIVE"));
            assert_eq!(requests[1].parameter("sign").map(str::len), Some(32));
        },
    },
    Case {
        dialect: "zhihu",
        lines: "",
        click: "session_id=z-1&os=0&oaid=DEVICE&ts=TS_S&callback=CALLBACK",
        id: "oaid",
        url_query: Some("cb=token&event=__EVENTTYPE__&value=__EVENTVALUE__&at=__TIMESTAMP__"),
        success: "",
        requests: 2,
        check: |requests| {
            assert_eq!(requests[0].parameter("event"), Some("install"));
            assert_eq!(requests[1].parameter("event"), Some("payment"));
            assert_eq!(requests[1].parameter("value"), Some("9.99"));
        },
    },
];
