//! `adtrail collect --echo`: what each request became, as a line of JSON. Lines have device ids, addresses and tokens,
//! so that they are for those who set up a network, and never in a log.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::dialect::Presence;
use crate::metrics::Labels;
use crate::notes::{Notes, Values};
use crate::refusal::{EventOutcome, REFUSED, Refusal};
use crate::signature::Outcome;

/// Writes a line, which has no line break.
pub type Echo = Arc<dyn Fn(&str) + Send + Sync>;

/// A line for an event.
#[derive(Serialize)]
struct EventLine<'a> {
    time: String,
    request: &'a str,
    app: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    channel: &'a str,
    outcome: &'static str,
    #[serde(flatten)]
    refusal: Option<&'a Refusal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'static str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    read: &'a Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_replaced: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    unknown: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a RawValue>,
}

/// A line for a request that was refused before its events were read.
#[derive(Serialize)]
struct RequestLine<'a> {
    time: String,
    request: &'a str,
    outcome: &'static str,
    code: &'static str,
    detail: &'a str,
}

/// Returns the time to the millisecond.
fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Returns the line of an event.
pub(crate) fn event_line(
    labels: Labels<'_>,
    notes: &Notes,
    values: &Values,
    outcome: &EventOutcome,
) -> String {
    let names = |presence| notes.names_with(presence).collect();
    line(&EventLine {
        time: now(),
        request: labels.kind,
        app: &notes.app,
        channel: labels.channel,
        outcome: outcome.name(),
        refusal: outcome.refusal(),
        signature: notes.signature.map(Outcome::name),
        read: &values.read,
        not_replaced: names(Presence::Placeholder),
        missing: names(Presence::Missing),
        unknown: &values.unknown,
        event: values.event.as_deref(),
    })
}

/// Returns the line of a request that was refused before its events were read. `request` is its method and URL.
pub(crate) fn request_line(request: &str, code: &'static str, detail: &str) -> String {
    let time = now();
    line(&RequestLine { time, request, outcome: REFUSED, code, detail })
}

/// Returns the JSON without line breaks, and with an escape in place of each character that a terminal could
/// interpret. All of these are in strings, except for the white space of an event.
fn line(value: &impl Serialize) -> String {
    // Texts and raw JSON can always be written.
    let json = serde_json::to_string(value).unwrap_or_default();
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\n' | '\r' | '\t' => shown.push(' '),
            ' '..='~' => shown.push(character),
            _ if character.escape_debug().len() == 1 => shown.push(character),
            _ => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    shown.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::catalogue::Dialects;
    use crate::dialect::link::LinkKind;
    use crate::dialect::pairs::Pairs;
    use crate::dialect::read::Report;

    /// Returns the line of a report by Weibo, without its time.
    fn weibo(query: &str, event: &str, outcome: &EventOutcome) -> Value {
        let dialects = Dialects::load(None).unwrap();
        let dialect = dialects.get("weibo").unwrap();
        let pairs = Pairs::parse(query, "").unwrap();
        let report = Report { kind: LinkKind::Click, app: "app-x", pairs: &pairs, arrived_ms: 0 };
        let mut notes = Notes::new("app-x", true);
        notes.set_report(dialect, dialect.read(report).presence, &pairs, Some(Outcome::Missing));
        notes.set_event(event);
        let values = notes.values.as_deref().unwrap();
        let labels = Labels { kind: "click", channel: "weibo" };
        let shown = event_line(labels, &notes, values, outcome);
        assert!(!shown.contains('\n'), "{shown}");
        let mut shown: Value = serde_json::from_str(&shown).unwrap();
        assert!(shown["time"].take().as_str().unwrap().ends_with('Z'));
        shown
    }

    #[test]
    fn a_line_has_values_and_names_what_is_wrong() {
        let query = "spreadid=7&imp=a+b&oaid={oaid}&ip=&ua=x+y&oiad=1&idfa_md5=0&idfa_md5=1&imei_md5=0&\
                     clicktime=1773144000000&oaid_md5=0";
        let expected = json!({
            "time": null, "request": "click", "app": "app-x", "channel": "weibo", "outcome": "produced",
            "signature": "missing",
            "read": {
                "spreadid": "7", "imp": "a+b", "ua": "x y", "idfa_md5": "0", "imei_md5": "0", "oaid_md5": "0",
                "clicktime": "1773144000000",
            },
            "not_replaced": ["oaid"], "unknown": ["oiad"],
            "missing": [
                "ip", "androidid_md5", "mac_md5", "caid", "devicetype", "customer_id", "campaign_id",
                "campaign_name", "ad_id", "ad_name", "creative_id", "creative_name",
            ],
            "event": {"type": "click", "revenue": "9.90"},
        });
        let event = "{\"type\":\"click\",\n\"revenue\":\"9.90\"}";
        assert_eq!(weibo(query, event, &EventOutcome::Produced), expected);
    }

    #[test]
    fn a_refused_event_has_its_reason() {
        let refusal = Refusal::bad_value("spreadid", "expected a campaign");
        let shown = weibo("imp=1", "[]", &EventOutcome::Refused(Box::new(refusal)));
        assert_eq!(shown["outcome"], "refused");
        assert_eq!((&shown["code"], &shown["field"]), (&"bad_value".into(), &"spreadid".into()));
        assert_eq!(shown["detail"], "expected a campaign");
    }

    #[test]
    fn an_event_in_the_spool_has_no_reason() {
        let shown = weibo("imp=1", "{}", &EventOutcome::Spooled);
        assert_eq!((&shown["outcome"], &shown["code"]), (&"spooled".into(), &Value::Null));
    }

    #[test]
    fn a_terminal_interprets_no_character_of_a_request() {
        let hostile = "/\u{1b}[2J\u{9b}\u{7f}\u{202e}\u{2028}\u{e0001}\u{6625}\"\\";
        let shown = request_line(hostile, "path", "d");
        let escaped = "/\\u001b[2J\\u009b\\u007f\\u202e\\u2028\\udb40\\udc01\u{6625}\\\"\\\\\"";
        assert!(shown.contains(escaped), "{shown}");
        let read: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read["request"], hostile);
    }
}
