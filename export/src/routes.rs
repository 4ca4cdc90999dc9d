//! What the users' listener answers.

use std::sync::Arc;

use attribution::event::EventTime;
use attribution::policy::{AppPolicy, Policy};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use store::scan::Reader;
use tokio::sync::Semaphore;

use crate::ExportError;
use crate::brought;
use crate::catalogue;
use crate::download::{self, Scan, Started};
use crate::metrics::Metrics;
use crate::page;
use crate::parameter::AFTER;
use crate::problem::{self, Problem};
use crate::query::{ExportQuery, Format};
use crate::summary;
use crate::timeline;
use crate::zone::{TimeWriter, Zone};

/// Scans at one time, each with a thread of its own; far below the number of threads that the
/// runtime has for them.
pub(crate) const SCANS_MAX: usize = 64;

pub(crate) const RANGE_FROM: HeaderName = HeaderName::from_static("adtrail-range-from");
pub(crate) const RANGE_TO: HeaderName = HeaderName::from_static("adtrail-range-to");

/// What answers need; cheap to clone.
#[derive(Clone)]
pub struct ExportState {
    pub(crate) reader: Reader,
    pub(crate) policy: Arc<Policy>,
    metrics: Arc<Metrics>,
    pub(crate) scans: Arc<Semaphore>,
}

impl ExportState {
    /// Registers the metrics with the recorder that is installed.
    pub fn new(reader: Reader, policy: Arc<Policy>) -> Self {
        let metrics = Arc::new(Metrics::new());
        Self { reader, policy, metrics, scans: Arc::new(Semaphore::new(SCANS_MAX)) }
    }
}

/// All routes of the users' listener.
pub fn router(state: ExportState) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/v1/apps", get(apps))
        .route("/v1/apps/{app}/events.csv", get(events_csv))
        .route("/v1/apps/{app}/events.ndjson", get(events_ndjson))
        .route("/v1/apps/{app}/summary", get(summary::json))
        .route("/v1/apps/{app}/summary.csv", get(summary::csv))
        .route("/v1/apps/{app}/campaigns", get(catalogue::campaigns))
        .route("/v1/apps/{app}/campaigns/{spreadid}/devices", get(brought::devices))
        .route("/v1/apps/{app}/devices/{kind}/{value}", get(timeline::device))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::not_found)
        .layer(middleware::from_fn_with_state(Arc::clone(&state.metrics), count))
        .with_state(state)
}

async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    metrics.answered(response.status());
    response
}

async fn index(State(state): State<ExportState>) -> Response {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, page::html(&sorted(&state.policy), today)).into_response()
}

/// An app as listed.
#[derive(Serialize)]
struct AppEntry<'a> {
    key: &'a str,
    pid: u32,
    name: &'a str,
}

async fn apps(State(state): State<ExportState>, uri: Uri) -> Result<Response, Problem> {
    if let Some((parameter, _)) = parameters(&uri)?.into_iter().next() {
        let parameter = parameter.into();
        return Err(ExportError::UnknownParameter { parameter, known: &[] }.into());
    }
    let apps = sorted(&state.policy);
    let entries: Vec<_> = apps
        .iter()
        .map(|app| AppEntry { key: &app.key, pid: app.pid.0, name: &app.name })
        .collect();
    Ok(Json(entries).into_response())
}

pub(crate) type AppPath = Result<Path<String>, PathRejection>;

async fn events_csv(
    state: State<ExportState>,
    app: AppPath,
    request: Request,
) -> Result<Response, Problem> {
    events(state, app, request, Format::Csv).await
}

async fn events_ndjson(
    state: State<ExportState>,
    app: AppPath,
    request: Request,
) -> Result<Response, Problem> {
    events(state, app, request, Format::Ndjson).await
}

async fn events(
    State(state): State<ExportState>,
    app: AppPath,
    request: Request,
    format: Format,
) -> Result<Response, Problem> {
    let Path(app_key) = app.map_err(|_| Problem::path_not_found(request.uri().path()))?;
    let app = state.policy.app_by_key(&app_key);
    let app = app.ok_or(ExportError::UnknownApp(app_key.into()))?;
    let parameters = parameters(request.uri())?;
    let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let query = ExportQuery::parse(format, pairs)?;
    query.check(app, &state.policy)?;
    if request.version() < Version::HTTP_11 {
        return Err(Problem::http_version());
    }
    let mut headers = headers(app, &query);
    if request.method() == Method::HEAD {
        return Ok((headers, download::unread()).into_response());
    }
    let permit = Arc::clone(&state.scans).try_acquire_owned();
    let scan = Scan {
        permit: permit.map_err(|_| ExportError::Busy { scans_max: SCANS_MAX })?,
        reader: state.reader.clone(),
        policy: Arc::clone(&state.policy),
        pid: app.pid,
        query,
        metrics: Arc::clone(&state.metrics),
    };
    let Started { next, body } = download::start(scan).await?;
    headers
        .extend(next.and_then(|cursor| next_page(request.uri(), &parameters, &cursor.to_string())));
    Ok((headers, body).into_response())
}

/// Where the next page is: the same address, after another row.
pub(crate) fn next_page(
    uri: &Uri,
    parameters: &[(String, String)],
    cursor: &str,
) -> Option<(HeaderName, HeaderValue)> {
    let same = parameters.iter().filter(|(name, _)| name != AFTER);
    let same = same.map(|(name, value)| (name.as_str(), value.as_str()));
    let query = serde_urlencoded::to_string(same.chain([(AFTER, cursor)]).collect::<Vec<_>>());
    let link = format!("<{}?{}>; rel=\"next\"", uri.path(), query.ok()?);
    Some((header::LINK, HeaderValue::try_from(link).ok()?))
}

/// Names and values of the query, decoded.
pub(crate) fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
    let Query(parameters) = Query::try_from_uri(uri).map_err(|_| Problem::bad_query())?;
    Ok(parameters)
}

fn headers(app: &AppPolicy, query: &ExportQuery) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let media_type = match query.format {
        Format::Csv => "text/csv; charset=utf-8; header=present",
        Format::Ndjson => "application/x-ndjson",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let file_name = query.file_name(&app.key);
    // All of these are of safe characters, so each is a header's value.
    let texts = [
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{file_name}\"")),
        (RANGE_FROM, in_utc(query.from)),
        (RANGE_TO, in_utc(query.to)),
    ];
    headers.extend(
        texts
            .into_iter()
            .filter_map(|(name, text)| Some((name, HeaderValue::try_from(text).ok()?))),
    );
    headers
}

pub(crate) fn in_utc(time: EventTime) -> String {
    let mut text = Vec::new();
    TimeWriter::new(&Zone::utc()).write(time, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn sorted(policy: &Policy) -> Vec<&AppPolicy> {
    let mut apps: Vec<_> = policy.apps().collect();
    apps.sort_by_key(|app| app.pid);
    apps
}
