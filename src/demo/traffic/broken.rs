//! Messages that are no events, as real producers send them.

use ingest::TopicKind;
use serde_json::{Value, json};

use super::Message;

/// One of four kinds, in turn; `sample` is an event of the same app.
pub fn message(turn: u32, sample: &Message) -> Message {
    let Message { topic, key, time_ms, .. } = *sample;
    let text = |event: Value| event.to_string().into_bytes();
    let (topic, value) = match turn % 4 {
        // Cut off, by a producer that ran into its limit.
        0 => (topic, sample.value[..sample.value.len() / 2].to_vec()),
        1 => {
            let event = json!({"app": "demo-retired", "time": time_ms, "event_id": "a-1"});
            (TopicKind::Activations, text(event))
        }
        2 => {
            // Without the device's time zone the sender's clock was before 1970.
            let event = json!({"app": key, "time": -28_800_000, "event_id": "a-2"});
            (TopicKind::Activations, text(event))
        }
        // The campaign is missing.
        _ => (TopicKind::Clicks, text(json!({"app": key, "time": time_ms, "click_id": "c-1"}))),
    };
    Message { topic, value, is_broken: true, ..sample.clone() }
}
