//! Reports of ad networks about clicks and impressions.

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, header};
use axum::response::{IntoResponse, Response};
use ingest::TopicKind;
use jiff::Timestamp;

use super::body;
use super::problem::Problem;
use crate::Collector;
use crate::dialect::Dialect;
use crate::dialect::pairs::Pairs;
use crate::dialect::read::Report;
use crate::event::{Pending, Refusal};
use crate::metrics::Labels;
use crate::signature::Outcome;
use crate::state::App;

const FORM: &str = "application/x-www-form-urlencoded";

pub(crate) async fn click(
    State(collector): State<Collector>,
    Path(path): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    report(&collector, "click", path, request).await
}

pub(crate) async fn impression(
    State(collector): State<Collector>,
    Path(path): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    report(&collector, "impression", path, request).await
}

/// Answers with the text that the network expects once Kafka has acknowledged the event. Never redirects.
async fn report(
    collector: &Collector,
    kind: &'static str,
    (app, channel): (String, String),
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (Parts { method, uri, headers, .. }, body) = request.into_parts();
    let app = collector.app(&app).ok_or_else(Problem::unknown_app)?;
    let (channel, dialect) = collector.channel(&channel).ok_or_else(Problem::unknown_channel)?;
    let form = form(&method, &headers, body, collector).await?;
    let form = std::str::from_utf8(&form).map_err(|_| Problem::bad_body("expected UTF-8"))?;
    let query = uri.query().unwrap_or_default();
    let pairs = Pairs::parse(query, form).ok_or_else(Problem::too_many_parameters)?;

    let labels = Labels { kind, channel };
    let received = collector.receive(labels);
    let signature = collector.check_signature(channel, &uri, !form.is_empty());
    let arrived_ms = Timestamp::now().as_millisecond();
    let report = Report { kind, app: &app.key, pairs: &pairs, arrived_ms };
    let pending = match submit(collector, dialect, channel, app, report, signature) {
        Err(Unread::Parameter(problem)) => {
            received.refused("bad_parameter");
            return Err(problem);
        }
        Err(Unread::Event(refusal)) => Err(refusal),
        Ok(pending) => Ok(pending),
    };
    let acknowledged = received.acknowledged(pending).await;
    acknowledged.map_err(|refusal| Problem::refused(&refusal))?;
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((content_type, dialect.answer.to_string()).into_response())
}

/// Why a report has no event.
enum Unread {
    Parameter(Problem),
    Event(Refusal),
}

fn submit(
    collector: &Collector,
    dialect: &Dialect,
    channel: &str,
    app: &App,
    report: Report<'_>,
    signature: Option<Outcome>,
) -> Result<Pending, Unread> {
    let mut touch =
        dialect.read(report).map_err(|bad| Unread::Parameter(Problem::bad_parameter(&bad)))?;
    for parameter in &touch.unexpanded {
        collector.metrics().unexpanded(channel, parameter);
    }
    if !collector.is_campaign_of(touch.spreadid, app, channel) {
        let detail = "spreadid: expected a campaign of this app and channel; the settings have it for another one";
        return Err(Unread::Event(Refusal::bad_value("spreadid", detail)));
    }
    if let Some(outcome) = signature {
        outcome.add_to(&mut touch.event);
    }
    let event = serde_json::Value::Object(touch.event).to_string();
    collector.submit(event, TopicKind::Clicks, app).map_err(Unread::Event)
}

/// Returns the body of a POST request, which has parameters like the URL; it may be empty.
async fn form(
    method: &Method,
    headers: &HeaderMap,
    body: Body,
    collector: &Collector,
) -> Result<Bytes, Problem> {
    if method != Method::POST {
        return Ok(Bytes::new());
    }
    let form = body::read(headers, body, collector.settings().body_bytes_max).await?;
    if !form.is_empty() && body::media_type(headers) != FORM {
        return Err(Problem::media_type(FORM));
    }
    Ok(form)
}
