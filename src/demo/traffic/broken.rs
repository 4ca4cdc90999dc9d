//! Messages that are no events, as real producers send them.

use ingest::TopicKind;
use serde_json::json;

use super::catalogue::App;
use super::journey::Delivery;

/// One of four kinds, in turn; `sample` is an event of the app.
pub fn message(turn: u32, app: &App, sample: &Delivery) -> (TopicKind, Vec<u8>) {
    let (key, time_ms) = (app.key, sample.time_ms);
    let event = match turn % 4 {
        0 => {
            // Cut off, by a producer that ran into its limit.
            let kept = sample.value.len() / 2;
            return (sample.topic, sample.value[..kept].to_vec());
        }
        1 => json!({"app": "demo-retired", "time": time_ms, "event_id": "a-1"}),
        // Without the device's time zone the sender's clock was before 1970.
        2 => json!({"app": key, "time": -28_800_000, "event_id": "a-2"}),
        _ => {
            // The campaign is missing.
            let click = json!({"app": key, "time": time_ms, "click_id": "c-1"});
            return (TopicKind::Clicks, click.to_string().into_bytes());
        }
    };
    (TopicKind::Activations, event.to_string().into_bytes())
}
