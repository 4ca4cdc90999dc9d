//! Callbacks: what networks and webhooks are notified of, on a real Kafka and servers of networks on this machine.
//! `traces` has the spans of callbacks and of what comes before and after them.

mod cases;
mod commands;
mod crashes;
mod credit;
mod networks;
mod traces;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testbed::adtrail::Adtrail;
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;

use crate::network::Network;
#[cfg(feature = "crash-points")]
pub(super) use crashes::POINTS;

/// A secret of 24 bytes.
const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const MINUTE_MS: u64 = 60_000;

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_millis()).expect("before the year 500 million")
}

/// The id of a device, by its number.
fn oaid(device: u64) -> String {
    format!("1fe9a970-efbb-29e0-0bdd-{device:012x}")
}

/// Settings of `app-x` with the channels `a` and `b`, with the campaigns 1 and 2, and these endpoints.
fn settings(endpoints: &str) -> String {
    let mut text = "[attribution]\ncorrection_horizon = \"off\"\n\
                    [callbacks]\nsettle = \"0s\"\nallow_loopback = [\"localhost\"]\n\
                    [[apps]]\npid = 1\nkey = \"app-x\"\n"
        .to_owned();
    for (spreadid, channel) in [(1, "a"), (2, "b")] {
        text += &format!(
            "[[channels]]\nid = \"{channel}\"\n[[campaigns]]\nspreadid = {spreadid}\npid = 1\n\
             channel = \"{channel}\"\n"
        );
    }
    text + endpoints
}

/// An endpoint of Ocean Engine for a channel, with a path of its own.
fn ocean(network: &Network, channel: &str, more: &str) -> String {
    let url = network.url(&format!("/{channel}"));
    format!(
        "[[callbacks.endpoint]]\nname = \"{channel}\"\npreset = \"oceanengine\"\nurl = \"{url}\"\n\
         channels = [\"{channel}\"]\n{more}"
    )
}

fn webhook(network: &Network, more: &str) -> String {
    let url = network.url("/hook");
    format!(
        "[[callbacks.endpoint]]\nname = \"hook\"\npreset = \"webhook\"\nurl = \"{url}\"\n\
         credentials.secret = \"{WEBHOOK_SECRET}\"\n{more}"
    )
}

/// Produces an event of `app-x`.
fn produce(site: &Site, event: &Value) {
    let topic = match event["type"].as_str() {
        Some("click") => &site.topics.clicks,
        Some("activation") => &site.topics.activations,
        _ => &site.topics.effects,
    };
    Kafka::shared().produce(topic, [Message::new("app-x", event.to_string())]);
}

/// A click on an ad of a campaign, this long before now, with the callback token `token-ID`.
fn click(spreadid: u32, id: &str, device: u64, before_ms: u64) -> Value {
    json!({
        "type": "click", "app": "app-x", "spreadid": spreadid, "click_id": id,
        "time": now_ms() - before_ms, "ids": {"oaid": oaid(device)},
        "params": {"callback": format!("token-{id}")},
    })
}

fn activation(id: &str, device: u64, before_ms: u64) -> Value {
    json!({
        "type": "activation", "app": "app-x", "event_id": id, "time": now_ms() - before_ms,
        "ids": {"oaid": oaid(device)}, "os": "android",
    })
}

fn purchase(id: &str, device: u64, before_ms: u64) -> Value {
    json!({
        "type": "effect", "app": "app-x", "event_id": id, "name": "purchase",
        "time": now_ms() - before_ms, "ids": {"oaid": oaid(device)},
        "revenue": "9.99", "currency": "CNY",
    })
}

/// Waits until an endpoint has this many callbacks in a state.
#[track_caller]
fn await_state(adtrail: &Adtrail, endpoint: &str, state: &str, count: usize) {
    let labels = format!("endpoint=\"{endpoint}\",state=\"{state}\"");
    let is_expected = |found: f64| found == count as f64;
    adtrail.await_metric("adtrail_callbacks_by_state", &labels, is_expected);
}

/// Checks that every callback that was made has one state.
#[track_caller]
fn check_conserved(adtrail: &Adtrail) {
    let metrics = adtrail.metrics();
    let sum = |name: &str| testbed::adtrail::sum(&metrics, name, "");
    let made = sum("adtrail_callbacks_made");
    assert!(made.is_some_and(|made| made > 0.0), "{metrics}");
    assert_eq!(sum("adtrail_callbacks_by_state"), made, "{metrics}");
}
