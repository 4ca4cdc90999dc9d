//! From a network's report of a click to the collector to the callback that the network gets.

use testbed::http;
use testbed::kafka::Kafka;
use testbed::prometheus::{Prometheus, check_metrics};
use testbed::site::Site;
use testbed::{eventually, free_port};

use super::*;
use crate::network::Request;

/// A network with its channel.
struct Case {
    dialect: &'static str,
    /// More lines of its endpoint.
    lines: &'static str,
    /// The parameters of a click, with `TS_MS`, `TS_S`, `DEVICE` and `CALLBACK`.
    click: &'static str,
    /// The kind of id that its clicks have.
    id: &'static str,
    /// The callback of a click is the URL.
    callback_is_url: bool,
    success: &'static str,
    /// Checks the requests of an activation and of a purchase.
    check: fn(&Request, &Request),
}

const CASES: [Case; 4] = [
    Case {
        dialect: "oceanengine",
        lines: "",
        click: "request_id=r-1&cid=2&os=0&oaid=DEVICE&ts=TS_MS&callback=CALLBACK",
        id: "oaid",
        callback_is_url: false,
        success: "{\"code\":0}",
        check: |install, purchase| {
            let (install, purchase) = (install.json(), purchase.json());
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
        callback_is_url: true,
        success: "{\"code\":0}",
        check: |install, purchase| {
            assert_eq!(install.headers["access-token"], "access-1");
            assert_eq!(install.parameter("cb"), Some("token"));
            let (install, purchase) = (install.json(), purchase.json());
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
        callback_is_url: true,
        success: "{\"result\":1}",
        check: |install, purchase| {
            assert_eq!((&*install.method, install.parameter("event_type")), ("GET", Some("1")));
            assert_eq!(install.parameter("cb"), Some("token"));
            assert_eq!(purchase.parameter("event_type"), Some("3"));
            assert_eq!(purchase.parameter("purchase_amount"), Some("9.99"));
        },
    },
    Case {
        dialect: "tiktok",
        lines: "credentials.access_token = \"access-1\"\nvalues.tiktok_app_id = \"77\"\n",
        click: "campaign_id=8&os=0&gaid=DEVICE&callback=CALLBACK",
        id: "gaid",
        callback_is_url: false,
        success: "{\"code\":0}",
        check: |install, purchase| {
            assert_eq!(install.headers["access-token"], "access-1");
            let (install, purchase) = (install.json(), purchase.json());
            assert_eq!(install["data"][0]["event"], "InstallApp");
            assert_eq!(install["data"][0]["ad"]["callback"], "token/1");
            assert_eq!(install["data"][0]["ad"]["campaign_id"], "8");
            assert_eq!(purchase["data"][0]["event"], "Purchase");
            assert_eq!(purchase["data"][0]["properties"]["value"], 9.99);
        },
    },
];

/// Settings of a collector on this port, with a channel and an endpoint for each network, and a webhook.
fn settings_of_all(network: &Network, port: u16) -> String {
    let mut text = format!(
        "[collect]\nlisten = \"127.0.0.1:{port}\"\n[callbacks]\nsettle = \"0s\"\n\
         allow_loopback = [\"localhost\"]\n[[apps]]\npid = 1\nkey = \"app-x\"\n"
    );
    for (index, case) in CASES.iter().enumerate() {
        let name = case.dialect;
        text += &format!(
            "[[channels]]\nid = \"{name}\"\ndialect = \"{name}\"\n\
             [[campaigns]]\nspreadid = {}\npid = 1\nchannel = \"{name}\"\n\
             [[callbacks.endpoint]]\nname = \"{name}\"\npreset = \"{name}\"\nchannels = [\"{name}\"]\n",
            index + 1
        );
        if !case.callback_is_url {
            text += &format!("url = \"{}\"\n", network.url(&format!("/{name}")));
        }
        text += case.lines;
    }
    text + &webhook(network, "")
}

struct Client {
    address: String,
    authorization: String,
}

impl Client {
    fn get(&self, path: &str) {
        let reply = http::get(&self.address, path).expect("the collector responds");
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
    }

    fn post(&self, path: &str, body: &Value) {
        let headers = [("Authorization", &*self.authorization)];
        let body = body.to_string();
        let reply = http::send("POST", &self.address, path, &headers, body.as_bytes());
        let reply = reply.expect("the collector responds");
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
    }
}

/// Sends a click, an activation and a purchase of one device.
fn convert(client: &Client, network: &Network, case: &Case, device: u64) {
    let Case { dialect, click, id, callback_is_url, .. } = case;
    let callback = match callback_is_url {
        true => {
            let url = network.url(&format!("/{dialect}?cb=token"));
            url.replace(':', "%3A").replace('/', "%2F").replace('?', "%3F").replace('=', "%3D")
        }
        false => "token%2F1".to_owned(),
    };
    let clicked_ms = now_ms() - 2 * MINUTE_MS;
    let click = click
        .replace("TS_MS", &clicked_ms.to_string())
        .replace("TS_S", &(clicked_ms / 1_000).to_string())
        .replace("DEVICE", &oaid(device))
        .replace("CALLBACK", &callback);
    let spreadid = device;
    client.get(&format!("/click/app-x/{dialect}?spreadid={spreadid}&{click}"));
    // A network without a time of the click has that of the report.
    let event = |event_id: String| {
        let ids = json!({(*id): oaid(device)});
        json!({"event_id": event_id, "time": now_ms(), "ids": ids, "os": "android"})
    };
    client.post("/activation/app-x", &event(format!("a-{device}")));
    let mut purchase = event(format!("e-{device}"));
    purchase["name"] = "purchase".into();
    purchase["revenue"] = "9.99".into();
    purchase["currency"] = "CNY".into();
    client.post("/effect/app-x", &purchase);
}

#[test]
fn every_network_gets_the_install_and_then_the_purchase() {
    let (network, port) = (Network::start(), free_port());
    let settings = settings_of_all(&network, port);
    let mut site = Site::new(Kafka::shared(), "callbacks.networks", 2, &settings).impatient();
    let (token, entry) = site.new_token(&["--write", "--all-apps"]);
    site.change(&format!("{settings}{entry}"));
    let client =
        Client { address: format!("127.0.0.1:{port}"), authorization: format!("Bearer {token}") };
    for case in &CASES {
        network.answer(&format!("/{}", case.dialect), 200, case.success);
    }
    network.answer("/hook", 204, "");
    let adtrail = site.start();
    for (device, case) in (1..).zip(&CASES) {
        convert(&client, &network, case, device);
    }
    for case in &CASES {
        let requests = network.await_requests(&format!("/{}", case.dialect), 2);
        let [install, purchase] = &requests[..] else { panic!("{requests:?}") };
        (case.check)(install, purchase);
        await_state(&adtrail, case.dialect, "sent", 2);
    }
    let hooks = network.await_requests("/hook", 2 * CASES.len());
    check_webhooks(&hooks);
    await_state(&adtrail, "hook", "sent", hooks.len());

    let prometheus = Prometheus::start(&[&adtrail.admin]);
    let identity =
        "sum by (endpoint) (adtrail_callbacks_by_state) - on (endpoint) adtrail_callbacks_made";
    eventually("the metrics are scraped", || {
        let values = prometheus.query(identity);
        if values.len() == CASES.len() + 1 { Ok(()) } else { Err(format!("{values:?}")) }
    });
    assert!(prometheus.query(identity).iter().all(|rest| *rest == 0.0));
    let sent = prometheus.value("sum(adtrail_callbacks_by_state{state=\"sent\"})");
    assert_eq!(sent, 4.0 * CASES.len() as f64);
    assert_eq!(check_metrics(&adtrail.metrics()), "");
    let log = adtrail.stop();
    for secret in ["token/1", "token%2F1", &oaid(1), "access-1"] {
        assert!(!log.contains(secret), "{log}");
    }
}

/// Checks that each event was sent once, with its credit.
fn check_webhooks(hooks: &[Request]) {
    let mut events: Vec<String> = Vec::new();
    for hook in hooks {
        let json = hook.json();
        let kind = if json["data"]["event_name"] == "purchase" { "effect" } else { "activation" };
        assert_eq!(json["type"], format!("{kind}.attributed"));
        assert!(CASES.iter().any(|case| json["data"]["channel"] == case.dialect), "{json}");
        assert!(hook.headers["webhook-signature"].starts_with("v1,"), "{hook:?}");
        events.push(hook.headers["webhook-id"].clone());
    }
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), hooks.len(), "each callback has an id of its own");
}
