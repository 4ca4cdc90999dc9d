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
use crate::dialect::link::LinkKind;
use crate::dialect::pairs::Pairs;
use crate::dialect::read::{Reading, Report, Touch};
use crate::dialect::{Dialect, Presence};
use crate::event::Pending;
use crate::metrics::Labels;
use crate::notes::{Notes, UsedLink};
use crate::refusal::Refusal;
use crate::state::App;

const FORM: &str = "application/x-www-form-urlencoded";

pub(crate) async fn click(
    State(collector): State<Collector>,
    Path(path): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    report(&collector, LinkKind::Click, path, request).await
}

pub(crate) async fn impression(
    State(collector): State<Collector>,
    Path(path): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    report(&collector, LinkKind::Impression, path, request).await
}

/// Answers with the text that the network expects once Kafka has acknowledged the event. Never redirects.
async fn report(
    collector: &Collector,
    kind: LinkKind,
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

    let mut received = collector.receive(Labels { kind: kind.name(), channel }, &app.key);
    let signature = collector.check_signature(channel, &uri, !form.is_empty());
    let arrived_ms = Timestamp::now().as_millisecond();
    let report = Report { kind, app: &app.key, pairs: &pairs, arrived_ms };
    let Reading { presence, spreadid, touch } = dialect.read(report);
    for parameter in dialect.names_with(&presence, Presence::Placeholder) {
        collector.metrics().unexpanded(channel, parameter);
    }
    received.notes.link = UsedLink::Report { kind, spreadid };
    received.notes.set_report(dialect, presence, &pairs, signature);
    let touch = match touch {
        Ok(touch) => touch,
        Err(bad) => {
            received.refused(Refusal::from(&bad));
            return Err(Problem::bad_parameter(&bad));
        }
    };
    let pending = submit(collector, channel, app, touch, &mut received.notes);
    let pending = pending.map_err(|refusal| as_sent(dialect, refusal));
    let acknowledged = received.acknowledged(pending).await;
    acknowledged.map_err(|refusal| Problem::refused(&refusal))?;
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((content_type, dialect.answer.to_string()).into_response())
}

fn submit(
    collector: &Collector,
    channel: &str,
    app: &App,
    mut touch: Touch,
    notes: &mut Notes,
) -> Result<Pending, Refusal> {
    collector.add_params(&mut touch.event, touch.spreadid, channel, notes.signature);
    let event = serde_json::Value::Object(touch.event).to_string();
    notes.set_event(&event);
    if !collector.is_campaign_of(touch.spreadid, app, channel) {
        let detail = "spreadid: expected a campaign of this app and channel; the settings have it for another one";
        return Err(Refusal::bad_value("spreadid", detail));
    }
    collector.submit(event, TopicKind::Clicks, app)
}

/// Names the parameter of the URL instead of the field of the event, which the sender has never seen.
fn as_sent(dialect: &Dialect, refusal: Refusal) -> Refusal {
    let parameter = refusal.field.as_deref().and_then(|field| dialect.parameter_of(field));
    match parameter {
        Some(parameter) => refusal.with_parameter(parameter),
        None => refusal,
    }
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

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::test_bed::Bed;

    /// Reports a click of `app-x` and the channel `c`.
    async fn report_click(bed: &Bed, request: Request<Body>) -> Result<Response, Problem> {
        let path = Path(("app-x".to_owned(), "c".to_owned()));
        click(State(bed.collector.clone()), path, request).await
    }

    fn last_line(bed: &Bed) -> Value {
        bed.lines.lock().pop().unwrap()
    }

    /// The campaign may later be one of a channel that enforces signatures.
    #[tokio::test]
    async fn a_touch_of_an_unknown_campaign_has_its_channel_and_no_valid_signature() {
        let bed = Bed::new("");
        let params = async |spreadid: u32| {
            let uri = format!("/click/app-x/c?spreadid={spreadid}&click_id=c-{spreadid}");
            report_click(&bed, Request::get(uri).body(Body::empty()).unwrap()).await.unwrap();
            let params = last_line(&bed)["event"]["params"].clone();
            (params["signature"].clone(), params["reported_channel"].clone())
        };
        assert_eq!(params(7).await, (Value::Null, Value::Null));
        assert_eq!(params(8).await, ("missing".into(), "c".into()));
    }

    #[tokio::test]
    async fn a_campaign_is_of_its_app_and_channel() {
        let bed = Bed::new("");
        let code = async |app: &str, channel: &str| {
            let uri = format!("/click/{app}/{channel}?spreadid=7&click_id=c-1");
            let request = Request::get(uri).body(Body::empty()).unwrap();
            let path = Path((app.to_owned(), channel.to_owned()));
            let answer = click(State(bed.collector.clone()), path, request).await;
            let line = last_line(&bed);
            (answer.into_response().status(), json!([line["code"], line["field"]]))
        };
        let refused = (StatusCode::BAD_REQUEST, json!(["bad_value", "spreadid"]));
        assert_eq!(code("app-x", "c").await, (StatusCode::OK, json!([null, null])));
        assert_eq!(code("app-y", "c").await, refused);
        assert_eq!(code("app-x", "d").await, refused);
    }

    /// A report needs no token.
    #[tokio::test]
    async fn an_unknown_app_does_not_blame_a_token() {
        let bed = Bed::new("");
        let request = Request::get("/click/app-z/c?spreadid=7").body(Body::empty()).unwrap();
        let path = Path(("app-z".to_owned(), "c".to_owned()));
        let answer = click(State(bed.collector.clone()), path, request).await;
        let problem = format!("{:?}", answer.unwrap_err());
        assert!(problem.contains("\"the app is not in the settings\""), "{problem}");
    }

    #[tokio::test]
    async fn an_unusable_parameter_has_its_name_in_the_url() {
        let channel = "[[channels]]\nid = \"w\"\ndialect = \"weibo\"\n";
        let bed = Bed::new(channel);
        let check = async |query: &str, parameter: &str, detail: &str| {
            let uri = format!("/click/app-x/w?spreadid=8&imp=1&{query}");
            let request = Request::get(uri).body(Body::empty()).unwrap();
            let path = Path(("app-x".to_owned(), "w".to_owned()));
            let answer = click(State(bed.collector.clone()), path, request).await;
            assert_eq!(answer.into_response().status(), StatusCode::BAD_REQUEST);
            let line = last_line(&bed);
            assert_eq!(line["field"], parameter);
            let found = line["detail"].as_str().unwrap();
            assert!(found.starts_with(detail), "{found}");
        };
        check("clicktime=1000", "clicktime", "clicktime is before 2008").await;
        let long = "x".repeat(2_049);
        check(&format!("androidid_md5={long}"), "androidid_md5", "androidid_md5 is ").await;
        check(&format!("devicetype={long}"), "devicetype", "devicetype is ").await;
        check("purpose=x", "purpose", "purpose is ").await;
    }

    #[tokio::test]
    async fn a_report_may_be_a_form() {
        let bed = Bed::new("");
        let post = async |media_type: &str| {
            let request = Request::post("/click/app-x/c?spreadid=7");
            let request = request.header(header::CONTENT_TYPE, media_type);
            let request = request.body(Body::from("click_id=c-1")).unwrap();
            report_click(&bed, request).await.into_response().status()
        };
        for form in [FORM, "Application/X-WWW-Form-URLencoded; charset=utf-8"] {
            assert_eq!(post(form).await, StatusCode::OK, "{form}");
            assert_eq!(last_line(&bed)["event"]["click_id"], "c-1", "{form}");
        }
        for other in ["application/json", "text/plain", ""] {
            assert_eq!(post(other).await, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{other}");
        }
        assert!(bed.lines.lock().is_empty());
    }
}
