//! Invalid messages, as real producers send them.

use ingest::TopicKind;
use serde_json::{Value, json};

use super::Message;

/// Returns one of four kinds of invalid messages, in turn. `sample` is an event of the same app.
pub fn message(turn: u32, sample: &Message) -> Message {
    let Message { topic, key, time_ms, .. } = *sample;
    let text = |event: Value| event.to_string().into_bytes();
    let (topic, value) = match turn % 4 {
        // Truncated by a length limit of the producer.
        0 => (topic, sample.value[..sample.value.len() / 2].to_vec()),
        1 => {
            let event = json!({"app": "demo-retired", "time": time_ms, "event_id": "a-1"});
            (TopicKind::Activations, text(event))
        }
        2 => {
            // A clock reset to 1970, in a time zone ahead of UTC.
            let event = json!({"app": key, "time": -28_800_000, "event_id": "a-2"});
            (TopicKind::Activations, text(event))
        }
        // The campaign is missing.
        _ => (TopicKind::Clicks, text(json!({"app": key, "time": time_ms, "click_id": "c-1"}))),
    };
    Message { topic, value, is_invalid: true, ..sample.clone() }
}
