//! Callbacks over HBase: all workers share one outbox, and what one has claimed is sent by another if it is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{eventually, hbase};

use super::network::Network;
use super::{output_of, remove};

const NAME: &str = "hbase-callbacks";
const MINUTE_MS: u64 = 60_000;
/// Number of activations of each half.
const EVENTS: u64 = 100;

fn settings(network: &Network) -> String {
    let url = network.url("/hook");
    format!(
        "[attribution]\ncorrection_horizon = \"off\"\n\
         [callbacks]\nsettle = \"0s\"\nallow_loopback = [\"localhost\"]\n\
         [[callbacks.endpoint]]\nname = \"hook\"\npreset = \"webhook\"\nurl = \"{url}\"\n\
         kinds = [\"activation.attributed\"]\nrequests_per_second_max = 10000\n\
         credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n{ONE_CAMPAIGN}"
    )
}

/// Produces a click and an activation of each of these devices.
fn produce(site: &Site, devices: std::ops::Range<u64>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now_ms = u64::try_from(now.as_millis()).expect("before the year 500 million");
    let message = |event: Value| Message::new("app-x", event.to_string());
    let ids = |device: u64| json!({"oaid": format!("1fe9a970-efbb-29e0-0bdd-{device:012x}")});
    let clicks = devices.clone().map(|device| {
        message(json!({
            "type": "click", "app": "app-x", "spreadid": 7, "click_id": format!("c-{device}"),
            "time": now_ms - 2 * MINUTE_MS, "ids": ids(device),
        }))
    });
    let activations = devices.map(|device| {
        message(json!({
            "type": "activation", "app": "app-x", "event_id": format!("a-{device}"),
            "time": now_ms - MINUTE_MS, "ids": ids(device),
        }))
    });
    Kafka::shared().produce(&site.topics.clicks, clicks);
    Kafka::shared().produce(&site.topics.activations, activations);
}

#[test]
fn workers_share_the_callbacks_and_a_killed_one_loses_none() {
    let network = Network::start();
    network.answer("/hook", 200, "");
    let site = hbase::with_tables(NAME, 4, &settings(&network)).impatient();
    let killed = site.start_role("attribute");
    produce(&site, 0..EVENTS);
    network.await_requests("/hook", 1);
    killed.kill9();
    let workers = [site.start_role("attribute"), site.start_role("attribute")];
    produce(&site, EVENTS..2 * EVENTS);
    let counts = eventually("all callbacks are sent", || {
        let line = output_of(&site, &["callbacks", "list", "--counts"], 0, &[]);
        let counts: Value = serde_json::from_str(&line).unwrap_or_default();
        if counts["sent"] == 2 * EVENTS { Ok(counts) } else { Err(line) }
    });
    let states = ["pending", "sent", "dropped", "withheld", "too_old", "dead"];
    let ended: u64 = states.iter().filter_map(|state| counts[state].as_u64()).sum();
    assert_eq!(counts["made"], ended, "{counts}");

    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for hook in network.received("/hook") {
        let event = hook.json()["data"]["event_id"].to_string();
        ids.entry(event).or_default().insert(hook.headers["webhook-id"].clone());
    }
    assert_eq!(ids.len() as u64, 2 * EVENTS);
    assert!(ids.values().all(|of_event| of_event.len() == 1), "{ids:?}");
    assert_eq!(output_of(&site, &["callbacks", "retry"], 0, &[]), "{\"retried\":0}\n");
    for worker in workers {
        worker.stop();
    }
    remove(NAME);
}
