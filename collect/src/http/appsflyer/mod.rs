//! The server-to-server intake of AppsFlyer, so that a server which reports to it only needs another host.
//!
//! The parameters are those of AppsFlyer's OpenAPI documents. `af_campaign_id` is the campaign's number,
//! `af_media_source` the channel's id, and AppsFlyer's app id the app's key.

mod engagement;
mod in_app_event;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request};
use ingest::TopicKind;
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::problem::Problem;
use super::{body, tokens};
use crate::Collector;
use crate::dialect::pairs::Pairs;
use crate::metrics::Labels;

/// The body of a successful response to a click or an impression, and to an event.
const ENGAGEMENT_ANSWER: &str = "ok";
const EVENT_ANSWER: &str = "OK";

const JSON: &str = "application/json";

pub(crate) async fn click(
    State(collector): State<Collector>,
    Path(path): Path<(String, String)>,
    request: Request<Body>,
) -> Result<&'static str, Problem> {
    engagement(&collector, "click", path, request).await.map_err(Problem::with_message)
}

pub(crate) async fn impression(
    State(collector): State<Collector>,
    Path(path): Path<(String, String)>,
    request: Request<Body>,
) -> Result<&'static str, Problem> {
    engagement(&collector, "impression", path, request).await.map_err(Problem::with_message)
}

async fn engagement(
    collector: &Collector,
    kind: &'static str,
    (platform, app): (String, String),
    request: Request<Body>,
) -> Result<&'static str, Problem> {
    let (Parts { method, uri, headers, .. }, body) = request.into_parts();
    let app = collector.app(&app).ok_or_else(Problem::unknown_app)?;
    let form = form(&method, &headers, body, collector).await?;
    let query = uri.query().unwrap_or_default();
    let pairs = Pairs::parse(query, &form).ok_or_else(Problem::too_many_parameters)?;
    let channel = pairs.value("af_media_source", true);
    let channel = channel.as_deref().and_then(|id| collector.channel(id)).map(|(id, _)| id);

    let labels = Labels { kind, channel: channel.unwrap_or_default() };
    let mut received = collector.receive(labels, &app.key);
    let signature =
        channel.and_then(|channel| collector.check_signature(channel, &uri, !form.is_empty()));
    received.notes.set_parameters(&pairs, signature);
    let arrived_ms = Timestamp::now().as_millisecond();
    let notes = &mut received.notes;
    let pending = engagement::event(kind, &platform, &pairs, arrived_ms).and_then(|mut touch| {
        let is_of_channel = |channel: &&str| collector.is_campaign_of(touch.spreadid, app, channel);
        let channel = channel.filter(is_of_channel).ok_or_else(engagement::unknown_campaign)?;
        collector.add_params(&mut touch.event, touch.spreadid, channel, signature);
        let event = engagement::with_app(touch, &app.key);
        notes.set_event(&event);
        collector.submit(event, TopicKind::Clicks, app)
    });
    let acknowledged = received.acknowledged(pending).await;
    acknowledged.map_err(|refusal| Problem::refused(&refusal))?;
    Ok(ENGAGEMENT_ANSWER)
}

/// Returns the parameters in the body of a POST request, a form or a JSON object, in the form of a query.
async fn form(
    method: &Method,
    headers: &HeaderMap,
    body: Body,
    collector: &Collector,
) -> Result<String, Problem> {
    if method != Method::POST {
        return Ok(String::new());
    }
    let body = body::read(headers, body, collector.settings().body_bytes_max).await?;
    if body::media_type(headers) != JSON {
        if body.trim_ascii_start().first() == Some(&b'{') {
            return Err(Problem::media_type(JSON));
        }
        let form = String::from_utf8(body.to_vec());
        return form.map_err(|_| Problem::bad_body("expected UTF-8"));
    }
    let not_an_object = |_| Problem::bad_body("expected a JSON object");
    let fields: Map<String, Value> = serde_json::from_slice(&body).map_err(not_an_object)?;
    Ok(query(&fields))
}

/// Returns the members as a query. One that is null is absent.
fn query(fields: &Map<String, Value>) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs = fields.iter().filter_map(|(name, value)| match value {
        Value::Null => None,
        Value::String(text) => Some(format!("{name}={}", encode(text))),
        other => Some(format!("{name}={}", encode(&other.to_string()))),
    });
    pairs.collect::<Vec<_>>().join("&")
}

pub(crate) async fn in_app_event(
    State(collector): State<Collector>,
    Path(app): Path<String>,
    request: Request<Body>,
) -> Result<&'static str, Problem> {
    effect(&collector, &app, request).await.map_err(Problem::with_message)
}

async fn effect(
    collector: &Collector,
    app: &str,
    request: Request<Body>,
) -> Result<&'static str, Problem> {
    let (Parts { headers, .. }, body) = request.into_parts();
    let app = tokens::writable_app(collector, &headers, app)?;
    let body: Bytes = body::read(&headers, body, collector.settings().body_bytes_max).await?;
    let labels = Labels { kind: "effect", channel: "" };
    let mut received = collector.receive(labels, &app.key);
    let arrived_ms = Timestamp::now().as_millisecond();
    let pending = in_app_event::event(&body, &app.key, arrived_ms).and_then(|event| {
        received.notes.set_event(&event);
        collector.submit(event, TopicKind::Effects, app)
    });
    let acknowledged = received.acknowledged(pending).await;
    acknowledged.map_err(|refusal| Problem::refused(&refusal))?;
    Ok(EVENT_ANSWER)
}

#[cfg(test)]
mod tests {
    use axum::http::{StatusCode, header};
    use axum::response::IntoResponse as _;

    use super::*;
    use crate::test_bed::Bed;

    #[tokio::test]
    async fn a_campaign_is_of_its_app_and_channel() {
        let bed = Bed::new("");
        let status = async |app: &str, channel: &str| {
            let uri = format!(
                "/v1.0/s2s/click/app/android/{app}?af_media_source={channel}&af_campaign_id=7&af_click_id=c-1"
            );
            let request = Request::get(uri).body(Body::empty()).unwrap();
            let path = Path(("android".to_owned(), app.to_owned()));
            let answer = click(State(bed.collector.clone()), path, request).await;
            answer.into_response().status()
        };
        assert_eq!(status("app-x", "c").await, StatusCode::OK);
        assert_eq!(status("app-y", "c").await, StatusCode::BAD_REQUEST);
        assert_eq!(status("app-x", "d").await, StatusCode::BAD_REQUEST);
    }

    /// curl sends `application/x-www-form-urlencoded` unless `-H` names another type.
    #[tokio::test]
    async fn json_needs_its_media_type() {
        let bed = Bed::new("");
        let post = async |media_type: &'static str, body: &'static str| {
            let request = Request::post("/v1.0/s2s/click/app/android/app-x");
            let request = request.header(header::CONTENT_TYPE, media_type);
            let request = request.body(Body::from(body)).unwrap();
            let path = Path(("android".to_owned(), "app-x".to_owned()));
            let answer = click(State(bed.collector.clone()), path, request).await;
            answer.into_response().status()
        };
        let form = "application/x-www-form-urlencoded";
        let json = " {\"af_media_source\":\"c\",\"af_campaign_id\":7,\"af_click_id\":\"c-1\"}";
        assert_eq!(post("application/json; charset=utf-8", json).await, StatusCode::OK);
        for other in [form, "text/plain", ""] {
            assert_eq!(post(other, json).await, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{other}");
        }
        let parameters = "af_media_source=c&af_campaign_id=7&af_click_id=c-1";
        assert_eq!(post(form, parameters).await, StatusCode::OK);
    }

    #[test]
    fn members_of_a_body_are_parameters() {
        let body =
            r#"{"af_ad":null,"af_adset":"a&b","af_campaign_id":7,"af_lookback_window":null}"#;
        let fields = serde_json::from_str(body).unwrap();
        assert_eq!(query(&fields), "af_adset=a%26b&af_campaign_id=7");
    }
}
