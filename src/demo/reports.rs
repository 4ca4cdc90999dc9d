//! Clicks and impressions as a network reports them: over HTTP, to the collector.

use ingest::TopicKind;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::traffic::Message;
use super::traffic::catalogue::{self, REPORTED};

/// A parameter of every report whose macro the network does not know, as happens in practice.
const NOT_REPLACED: &str = "caid={caid}";

/// Returns the path and query of the report of a touch. `None` for other messages, and for touches of channels that do
/// not report to the collector.
pub fn path(message: &Message) -> Option<String> {
    if message.topic != TopicKind::Clicks || message.is_invalid {
        return None;
    }
    let event: Map<String, Value> = serde_json::from_slice(&message.value).ok()?;
    let spreadid = event.get("spreadid")?.as_u64()?;
    let channel = catalogue::channel(spreadid).filter(|channel| *channel == REPORTED.id)?;
    let (kind, app) = (event.get("type")?.as_str()?, message.key);
    let mut query = format!("spreadid={spreadid}&{NOT_REPLACED}");
    for (name, value) in &event {
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, value)| append(&mut query, name, value));
            }
            value if !matches!(&**name, "type" | "app" | "spreadid") => {
                append(&mut query, name, value);
            }
            _ => {}
        }
    }
    Some(format!("/{kind}/{app}/{channel}?{query}"))
}

/// Appends a parameter. The generic dialect has the names of fields, ids and params.
fn append(query: &mut String, name: &str, value: &Value) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    query.push_str(&format!("&{name}={}", utf8_percent_encode(&text, NON_ALPHANUMERIC)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(topic: TopicKind, event: &Value) -> Message {
        let value = event.to_string().into_bytes();
        let key = "demo-shop";
        Message { topic, key, value, time_ms: 0, arrival_ms: 0, is_invalid: false }
    }

    #[test]
    fn touches_of_one_channel_are_reported() {
        let mut touch = json!({
            "type": "impression", "app": "demo-shop", "spreadid": 101, "time": 1_773_144_000_000_u64,
            "ids": {"oaid": "a-b"}, "params": {"sub1": "x"}, "ua": "A b&c=\u{6625}",
        });
        let expected = "/impression/demo-shop/toutiao?spreadid=101&caid={caid}&oaid=a%2Db&sub1=x&time=1773144000000\
                        &ua=A%20b%26c%3D%E6%98%A5";
        let clicks = TopicKind::Clicks;
        assert_eq!(path(&message(clicks, &touch)).as_deref(), Some(expected));
        assert_eq!(path(&message(TopicKind::Activations, &touch)), None);
        assert_eq!(path(&Message { is_invalid: true, ..message(clicks, &touch) }), None);
        for other in [102, 201, 9] {
            touch["spreadid"] = other.into();
            assert_eq!(path(&message(clicks, &touch)), None, "{other}");
        }
    }
}
