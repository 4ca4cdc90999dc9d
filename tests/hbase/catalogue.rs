//! Campaigns that the settings do not have, from a store in HBase.

use serde_json::{Value, json};
use testbed::kafka::{Kafka, Message};
use testbed::site::ONE_CAMPAIGN;
use testbed::{eventually, hbase};

use super::{output_of, remove};

const NAME: &str = "hbase-catalogue";

#[test]
fn unknown_campaigns_are_found_in_hbase() {
    let settings = format!("[attribution]\ncorrection_horizon = \"off\"\n{ONE_CAMPAIGN}");
    let site = hbase::with_tables(NAME, 1, &settings);
    let worker = site.start_role("attribute");
    let noon_ms = 1_741_608_000_000_i64;
    let produce = |topic: &str, event: Value| {
        Kafka::shared().produce(topic, [Message::new("app-x", event.to_string())]);
    };
    for (spreadid, id) in [(7, "c-1"), (8, "c-2"), (8, "c-3"), (8, "c-3")] {
        let click = json!({
            "type": "click", "app": "app-x", "spreadid": spreadid, "click_id": id, "time": noon_ms,
            "params": {"campaign_name": "Spring", "reported_channel": "toutiao"},
        });
        produce(&site.topics.clicks, click);
    }
    let activation = json!({
        "type": "activation", "app": "app-x", "event_id": "a-1", "time": noon_ms + 60_000, "click_id": "c-3",
    });
    produce(&site.topics.activations, activation);
    let expected = json!({
        "spreadid": 8, "app": "app-x", "channel": "toutiao", "name": "Spring", "clicks": 2, "impressions": 0,
        "activations": 1, "effects": 0, "first_seen": "2025-03-10T12:00:00.000Z",
        "last_seen": "2025-03-10T12:00:00.000Z",
    });
    eventually("all events are listed", || {
        let line = output_of(&site, &["catalogue", "unknown"], 0, &[]);
        let found: Value = serde_json::from_str(&line).unwrap_or_default();
        if found == expected { Ok(()) } else { Err(line) }
    });
    worker.stop();
    remove(NAME);
}
