//! From a network's report of a click to the collector to the callback that the network gets.

use std::fs;
use std::path::Path;
use std::process::Command;

use md5::{Digest, Md5};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use testbed::http;
use testbed::kafka::Kafka;
use testbed::prometheus::{Prometheus, check_metrics};
use testbed::site::Site;
use testbed::{cache_dir, check_exit, eventually, free_port, run_ok};

use super::cases::{CASES, Case};
use super::*;
use crate::network::Request;

/// Settings of a collector on this port, with a channel and an endpoint for each network, and a webhook.
fn settings_of_all(network: &Network, port: u16) -> String {
    let mut text = format!(
        "[collect]\nlisten = \"127.0.0.1:{port}\"\n[callbacks]\nsettle = \"0s\"\n\
         allow_loopback = [\"localhost\"]\n[[apps]]\npid = 1\nkey = \"app-x\"\n"
    );
    for (spreadid, case) in (1..).zip(&CASES) {
        let name = case.dialect;
        text += &format!(
            "[[channels]]\nid = \"{name}\"\ndialect = \"{name}\"\n\
             [[campaigns]]\nspreadid = {spreadid}\npid = 1\nchannel = \"{name}\"\n\
             [[callbacks.endpoint]]\nname = \"{name}\"\npreset = \"{name}\"\nchannels = [\"{name}\"]\n"
        );
        if case.url_query.is_none() {
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

fn md5(text: &str) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_network_of_the_collector_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("collect/dialects");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy();
        let is_tested = CASES.iter().any(|case| case.dialect == name);
        assert!(is_tested || name == "generic", "{name}");
    }
}

/// Sends a click, an activation and a purchase of one device.
fn convert(client: &Client, network: &Network, case: &Case, device: u64) {
    let Case { dialect, click, id, url_query, .. } = case;
    let callback = match url_query {
        Some(query) => network.url(&format!("/{dialect}?{query}")),
        None => "token/1".to_owned(),
    };
    let callback = utf8_percent_encode(&callback, NON_ALPHANUMERIC).to_string();
    let clicked_ms = now_ms() - 2 * MINUTE_MS;
    let click = click
        .replace("TS_MS", &clicked_ms.to_string())
        .replace("TS_S", &(clicked_ms / 1_000).to_string())
        .replace("DEVICE_MD5", &md5(&oaid(device)))
        .replace("DEVICE", &oaid(device))
        .replace("CALLBACK", &callback);
    // The campaign of the network has the number of the device.
    client.get(&format!("/click/app-x/{dialect}?spreadid={device}&{click}"));
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
        let requests = network.await_requests(&format!("/{}", case.dialect), case.requests);
        await_state(&adtrail, case.dialect, "sent", case.requests);
        assert_eq!(requests.len(), case.requests, "{requests:?}");
        (case.check)(&requests);
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
    let expected: usize = CASES.iter().map(|case| case.requests).sum();
    assert_eq!(sent, (expected + hooks.len()) as f64);
    assert_eq!(check_metrics(&adtrail.metrics()), "");
    // Honor needs an account, which its clicks have.
    for case in CASES.iter().filter(|case| case.dialect != "honor") {
        let url = case.url_query.map(|query| network.url(&format!("/{}?{query}", case.dialect)));
        let callback = url.iter().flat_map(|url| ["--callback", url]);
        let args: Vec<_> =
            ["callbacks", "test", case.dialect].into_iter().chain(callback).collect();
        check_exit(&site.run(&args), 0, &[]);
    }
    let log = adtrail.stop();
    for secret in ["token/1", "token%2F1", &oaid(1), "access-1"] {
        assert!(!log.contains(secret), "{log}");
    }
}

/// Checks that each event was sent once, with its credit, and that receivers can verify it.
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

    let requests: Vec<Value> =
        hooks.iter().map(|hook| json!({"headers": hook.headers, "body": hook.body})).collect();
    let input = json!({"secret": WEBHOOK_SECRET, "requests": requests}).to_string();
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service/callbacks/verify_webhooks.py");
    let python = cache_dir().join("python/bin/python");
    let printed = run_ok(Command::new(python).arg(script), input.as_bytes());
    assert_eq!(String::from_utf8_lossy(&printed), format!("{} verified\n", hooks.len()));
}
