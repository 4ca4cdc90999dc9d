//! Activations and effects that apps and servers send.

use std::collections::BTreeMap;
use std::fmt;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use ingest::TopicKind;
use ingest::decode::ignored_click_id;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::{Deserializer as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::problem::{Problem, retry_later};
use super::{body, tokens};
use crate::Collector;
use crate::dialect::pairs::Pairs;
use crate::event::Pending;
use crate::metrics::Labels;
use crate::notes::Notes;
use crate::refusal::Refusal;
use crate::state::App;

/// Maximum number of events of a request.
const EVENTS_MAX: usize = 1_000;

/// The field of an activation with the text of Google Play's install referrer.
const REFERRER: &str = "referrer";

/// The response to a request whose events were read.
#[derive(Debug, Serialize)]
struct Answer {
    accepted: usize,
    /// One entry for each event, in their order.
    results: Vec<EventResult>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum EventResult {
    Accepted,
    /// Sending it again will not help, unless it is `unavailable` or `rate_limited`.
    Rejected(Refusal),
}

impl EventResult {
    fn status(&self) -> StatusCode {
        match self {
            Self::Accepted => StatusCode::OK,
            Self::Rejected(refusal) => refusal.status(),
        }
    }
}

pub(crate) async fn activation(
    State(collector): State<Collector>,
    Path(app): Path<String>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    events(&collector, TopicKind::Activations, &app, request).await
}

pub(crate) async fn effect(
    State(collector): State<Collector>,
    Path(app): Path<String>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    events(&collector, TopicKind::Effects, &app, request).await
}

/// Answers once all events are in Kafka or in the spool, or are not in time.
async fn events(
    collector: &Collector,
    topic: TopicKind,
    app: &str,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (Parts { headers, .. }, body) = request.into_parts();
    let app = tokens::writable_app(collector, &headers, app)?;
    let body = body::read(&headers, body, collector.settings().body_bytes_max).await?;
    let events = split(&body)?;
    let kind = if topic == TopicKind::Activations { "activation" } else { "effect" };
    let labels = Labels { kind, channel: "" };
    let pending: Vec<_> = events
        .into_iter()
        .map(|event| {
            let mut received = collector.receive(labels, &app.key);
            let pending = submit(collector, topic, app, event, &mut received.notes);
            (received, pending)
        })
        .collect();
    let mut delivered = Vec::with_capacity(pending.len());
    for (received, pending) in pending {
        delivered.push(received.delivered(pending).await);
    }
    let mut results = Vec::with_capacity(delivered.len());
    for delivered in delivered {
        results.push(match delivered.stored().await {
            Ok(()) => EventResult::Accepted,
            Err(refusal) => EventResult::Rejected(refusal),
        });
    }
    Ok(answer(results))
}

/// 200 if any event was accepted and none is to be sent again.
fn answer(results: Vec<EventResult>) -> Response {
    let accepted = results.iter().filter(|result| matches!(result, EventResult::Accepted)).count();
    let statuses = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS, StatusCode::OK];
    let first =
        statuses.into_iter().find(|status| results.iter().any(|result| result.status() == *status));
    let status = first.unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = (status, Json(Answer { accepted, results })).into_response();
    retry_later(&mut response);
    response
}

/// Splits a body: a JSON object, an array of objects, or objects one after the other, such as lines.
fn split(body: &[u8]) -> Result<Vec<&RawValue>, Problem> {
    let is_array = body.trim_ascii_start().first() == Some(&b'[');
    let mut json = serde_json::Deserializer::from_slice(body);
    let events: Result<Vec<&RawValue>, _> = if is_array {
        json.deserialize_seq(First).and_then(|events| json.end().map(|()| events))
    } else {
        json.into_iter::<&RawValue>().take(EVENTS_MAX + 1).collect()
    };
    // The error has line and column, and no part of the body.
    let events = events.map_err(|error| Problem::bad_body(format!("not JSON: {error}")))?;
    match events.len() {
        0 => Err(Problem::bad_body("expected at least one event")),
        1..=EVENTS_MAX => Ok(events),
        _ => Err(Problem::bad_body(format!("expected at most {EVENTS_MAX} events"))),
    }
}

/// Keeps the first events of an array, one more than a request may have, whatever its length.
struct First;

impl<'de> Visitor<'de> for First {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut events = Vec::new();
        while events.len() <= EVENTS_MAX {
            match array.next_element()? {
                Some(event) => events.push(event),
                None => return Ok(events),
            }
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(events)
    }
}

fn submit(
    collector: &Collector,
    topic: TopicKind,
    app: &App,
    event: &RawValue,
    notes: &mut Notes,
) -> Result<Pending, Refusal> {
    notes.set_event(event.get());
    let event = complete(topic, app, event)?;
    notes.set_event(&event);
    collector.submit(event, topic, app)
}

/// Adds the app, and the click id of an install referrer. All other values keep their text, because the digits of a
/// number matter.
fn complete(topic: TopicKind, app: &App, event: &RawValue) -> Result<String, Refusal> {
    let not_an_object = |_| Refusal {
        code: "not_an_object",
        field: None,
        detail: "expected a JSON object".to_owned(),
    };
    let mut fields: BTreeMap<String, &RawValue> =
        serde_json::from_str(event.get()).map_err(not_an_object)?;
    let named = fields.get("app").filter(|named| named.get() != "null");
    if named.is_some_and(|named| text(named).as_deref() != Some(&*app.key)) {
        return Err(Refusal::bad_value("app", "app: expected the app of the path, or none"));
    }
    fields.insert("app".to_owned(), &app.key_json);
    let click_id = match topic {
        TopicKind::Activations => {
            let referrer = fields.remove(REFERRER).and_then(text);
            let own = fields.get("click_id").and_then(|id| text(id));
            let has_id = own.is_some_and(|id| ignored_click_id(id.trim()).is_none());
            referrer.filter(|_| !has_id).and_then(|referrer| referrer_click_id(&referrer))
        }
        TopicKind::Clicks | TopicKind::Effects => None,
    };
    let click_id = click_id.and_then(|id| serde_json::value::to_raw_value(&id).ok());
    if let Some(id) = &click_id {
        fields.insert("click_id".to_owned(), id);
    }
    // Texts and raw JSON can always be written.
    serde_json::to_string(&fields).map_err(not_an_object)
}

/// Returns a text that is not empty.
fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str::<String>(value.get()).ok().filter(|text| !text.is_empty())
}

/// Returns the click id that a link of this collector puts into the install referrer, which some apps pass on encoded
/// once more.
fn referrer_click_id(referrer: &str) -> Option<String> {
    let click_id = |referrer: &str| Pairs::parse(referrer, "")?.value("click_id", false);
    click_id(referrer).or_else(|| click_id(&percent_decode_str(referrer).decode_utf8_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_event_has_the_app_of_its_path() {
        let text = "[kafka]\nbrokers = \"127.0.0.1:1\"\n[collect]\nlisten = \"127.0.0.1:1\"\n\
                    [[apps]]\npid = 1\nkey = \"app-x\"\n";
        let config = config::parse(text).unwrap();
        let settings = config.collect.as_ref().unwrap();
        let collector = Collector::start(&config, settings, None).unwrap();
        let app = collector.app("app-x").unwrap();
        for event in ["{}", r#"{"app":null}"#, r#"{ "app" : "app-x" }"#] {
            let event = RawValue::from_string(event.to_owned()).unwrap();
            let completed = complete(TopicKind::Effects, app, &event).unwrap();
            assert_eq!(completed, r#"{"app":"app-x"}"#, "{event}");
        }
        for event in [r#"{"app":"app-y"}"#, r#"{"app":""}"#, r#"{"app":1}"#] {
            let event = RawValue::from_string(event.to_owned()).unwrap();
            let refusal = complete(TopicKind::Effects, app, &event).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some("app"), "{event}");
        }
    }

    #[test]
    fn the_install_referrer_has_the_click_id_of_a_link() {
        let check = |referrer, expected: Option<&str>| {
            assert_eq!(referrer_click_id(referrer).as_deref(), expected, "{referrer}");
        };
        check("click_id=go-1", Some("go-1"));
        check("utm_source=x&click_id=go-1", Some("go-1"));
        check("click_id%3Dgo-1", Some("go-1"));
        check("utm_source%3Dx%26click_id%3Dgo-1", Some("go-1"));
        check("utm_source=google-play&utm_medium=organic", None);
        check("", None);
    }

    #[test]
    fn a_body_has_a_limited_number_of_events() {
        let check = |body: &str, expected: Result<usize, &str>| {
            let found = split(body.as_bytes()).map(|events| events.len());
            let found = found.map_err(|problem| format!("{problem:?}"));
            match expected {
                Ok(count) => assert_eq!(found, Ok(count), "{body}"),
                Err(text) => assert!(found.as_ref().unwrap_err().contains(text), "{found:?}"),
            }
        };
        let array = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
        check(" [{},1]\n", Ok(2));
        check("{}\n{} {}", Ok(3));
        check(&array(EVENTS_MAX), Ok(EVENTS_MAX));
        for body in [array(EVENTS_MAX + 1), array(100 * EVENTS_MAX), "{}".repeat(EVENTS_MAX + 1)] {
            check(&body, Err("at most 1000 events"));
        }
        for body in ["", " ", "[]"] {
            check(body, Err("at least one event"));
        }
        let unfinished = array(EVENTS_MAX + 2).replace("}]", "");
        for body in ["[{}", "[{}] {}", "[{},]", "{} ]", unfinished.as_str()] {
            check(body, Err("not JSON"));
        }
    }

    #[test]
    fn only_the_first_events_of_an_array_are_kept() {
        let body = format!("[{}0]", "0,".repeat(100 * EVENTS_MAX));
        let mut json = serde_json::Deserializer::from_str(&body);
        assert_eq!(json.deserialize_seq(First).unwrap().len(), EVENTS_MAX + 1);
    }
}
