//! What the users' listener answers.

use std::sync::Arc;

use attribution::event::EventTime;
use attribution::policy::{AppPolicy, Policy};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use serde::Serialize;
use store::scan::Reader;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

use crate::ExportError;
use crate::access::{Access, Caller, Gate};
use crate::appsflyer;
use crate::audit::Asked;
use crate::brought;
use crate::catalogue;
use crate::cursor::Cursor;
use crate::download::{self, Scan, Started};
use crate::explain;
use crate::exports::{ChosenId, Exports};
use crate::metrics::Metrics;
use crate::openapi;
use crate::page;
use crate::parameter::{self, AFTER};
use crate::problem::{self, Problem};
use crate::query::{ExportQuery, Format};
use crate::summary;
use crate::timeline;
use crate::turns::Turns;
use crate::zone::in_utc;

/// Scans at one time, each with a thread of its own; far below the number of threads that the
/// runtime has for them.
pub(crate) const SCANS_MAX: usize = 64;

pub(crate) const RANGE_FROM: HeaderName = HeaderName::from_static("adtrail-range-from");
pub(crate) const RANGE_TO: HeaderName = HeaderName::from_static("adtrail-range-to");
const EXPORT_ID: HeaderName = HeaderName::from_static("adtrail-export-id");
const COMPLETE_UNTIL: HeaderName = HeaderName::from_static("adtrail-complete-until");

/// What answers need; cheap to clone.
#[derive(Clone)]
pub struct ExportState {
    pub(crate) reader: Reader,
    pub(crate) policy: Arc<Policy>,
    metrics: Arc<Metrics>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) lookups: Arc<page::Lookups>,
    pub(crate) complete_until: CompleteUntil,
    pub(crate) access: Arc<Access>,
    pub(crate) scans: Arc<Semaphore>,
    turns: Turns,
}

/// Up to when all that Kafka received is in the store, if that is known.
pub type CompleteUntil = Arc<dyn Fn() -> Option<EventTime> + Send + Sync>;

impl ExportState {
    /// Registers the metrics with the recorder that is installed.
    pub fn new(
        reader: Reader,
        policy: Arc<Policy>,
        access: Access,
        complete_until: CompleteUntil,
    ) -> Self {
        Self {
            reader,
            policy,
            metrics: Arc::new(Metrics::new()),
            exports: Arc::default(),
            lookups: Arc::default(),
            access: Arc::new(access),
            complete_until,
            scans: Arc::new(Semaphore::new(SCANS_MAX)),
            turns: Turns::new(),
        }
    }

    /// A place among the caller's downloads and one among all, until both are dropped.
    fn start_download(&self, caller: &Caller) -> Result<[OwnedSemaphorePermit; 2], Problem> {
        let own = caller.start_download().map_err(|refusal| self.gate().refuse(refusal))?;
        let of_all = Arc::clone(&self.scans).try_acquire_owned();
        Ok([own, of_all.map_err(|_| ExportError::Busy { scans_max: SCANS_MAX })?])
    }

    pub(crate) fn gate(&self) -> Gate {
        Gate {
            access: Arc::clone(&self.access),
            policy: Arc::clone(&self.policy),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

type Route = fn() -> MethodRouter<ExportState>;

/// Every path with what answers there, for the router and for the test that goes through all of
/// them with another app's token. Where `{app}` is in a path, the gate has looked at it.
pub(crate) const ROUTES: &[(&str, Route)] = &[
    ("/v1/apps", || get(apps)),
    ("/v1/apps/{app}/events.csv", || compressed(get(events_csv))),
    ("/v1/apps/{app}/events.ndjson", || compressed(get(events_ndjson))),
    ("/v1/apps/{app}/summary", || get(summary::json)),
    ("/v1/apps/{app}/summary.csv", || get(summary::csv)),
    ("/v1/apps/{app}/campaigns", || get(catalogue::campaigns)),
    ("/v1/apps/{app}/campaigns/{spreadid}/devices", || get(brought::devices)),
    ("/v1/apps/{app}/devices/{kind}/{value}", || get(timeline::device)),
    ("/v1/apps/{app}/activations/{event_id}/explain", || get(explain::activation)),
    ("/v1/exports/{id}", || get(exported)),
    ("/api/raw-data/export/app/{app}/{report}/v5", || compressed(get(appsflyer::raw_data))),
];

/// What people see, behind the same gate.
pub(crate) const PAGES: &[(&str, Route)] = &[
    ("/", || compressed(get(page::home))),
    ("/download", || get(page::download)),
    ("/exports", || compressed(get(page::exports))),
    ("/activations", || compressed(get(page::activation))),
    ("/devices", || compressed(get(page::devices).post(page::device))),
];

/// What has no data and is answered without a token, too.
pub(crate) const OPEN_ROUTES: &[(&str, Route)] = &[("/openapi.json", || get(openapi::description))];

/// What people see before it is known who they are.
const OPEN_PAGES: &[(&str, Route)] = &[
    ("/assets/{name}", || get(page::asset)),
    ("/sign-in", || get(page::sign_in).post(page::signed_in)),
    ("/sign-out", || post(page::sign_out)),
];

/// By the tasks of connections, beside the threads that scan.
fn compressed(route: MethodRouter<ExportState>) -> MethodRouter<ExportState> {
    route.layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
}

/// All routes of the users' listener.
pub fn router(state: ExportState) -> Router {
    let (gate, metrics) = (state.gate(), Arc::clone(&state.metrics));
    let routes_of = |routes: &[(&str, Route)]| {
        let routes =
            routes.iter().fold(Router::new(), |all, (path, route)| all.route(path, route()));
        routes.method_not_allowed_fallback(problem::method_not_allowed).with_state(state.clone())
    };
    let closed = routes_of(ROUTES).merge(routes_of(PAGES)).fallback(problem::not_found);
    gate.before(closed)
        .merge(routes_of(OPEN_ROUTES))
        .merge(routes_of(OPEN_PAGES))
        .layer(middleware::from_fn(appsflyer::in_its_form))
        .layer(middleware::from_fn_with_state(state, page::tell))
        .layer(middleware::from_fn_with_state(metrics, count))
}

async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    metrics.answered(response.status());
    response
}

/// An app as listed.
#[derive(Serialize)]
struct AppEntry<'a> {
    key: &'a str,
    pid: u32,
    name: &'a str,
}

async fn apps(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    no_parameters(&uri)?;
    let apps = caller.apps(&state.policy);
    let entries: Vec<_> = apps
        .iter()
        .map(|app| AppEntry { key: &app.key, pid: app.pid.0, name: &app.name })
        .collect();
    Ok(Json(entries).into_response())
}

pub(crate) type AppPath = Result<Path<String>, PathRejection>;

async fn events_csv(
    state: State<ExportState>,
    caller: Extension<Caller>,
    app: AppPath,
    request: Request,
) -> Result<Response, Problem> {
    events(state, caller, app, request, Format::Csv).await
}

async fn events_ndjson(
    state: State<ExportState>,
    caller: Extension<Caller>,
    app: AppPath,
    request: Request,
) -> Result<Response, Problem> {
    events(state, caller, app, request, Format::Ndjson).await
}

async fn events(
    state: State<ExportState>,
    caller: Extension<Caller>,
    app: AppPath,
    request: Request,
    format: Format,
) -> Result<Response, Problem> {
    let Path(app_key) = app.map_err(|_| Problem::path_not_found(request.uri().path()))?;
    export(state, caller, app_key, request, |given| ExportQuery::parse(format, given)).await
}

/// Answers with the rows of an app that the parameters ask for.
pub(crate) async fn export(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    app_key: String,
    request: Request,
    parse: impl FnOnce(Vec<(&str, &str)>) -> Result<ExportQuery, ExportError>,
) -> Result<Response, Problem> {
    let app = state.policy.app_by_key(&app_key);
    let app = app.ok_or(ExportError::UnknownApp(app_key.into()))?;
    let (uri, is_head) = (request.uri().clone(), request.method() == Method::HEAD);
    let mut parameters = parameters(&uri)?;
    let chosen = ChosenId::take(&mut parameters)?;
    let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let query = parse(pairs.collect())?;
    query.check(app, &state.policy)?;
    if request.version() < Version::HTTP_11 {
        return Err(Problem::http_version());
    }
    let mut headers = headers(app, &query, (state.complete_until)());
    // Only where a page ends has to be read for headers, and by `HEAD` as dearly as by `GET`.
    if is_head && (query.limit.is_none() || query.report.is_some()) {
        return Ok((headers, download::unread()).into_response());
    }
    let permits = state.start_download(&caller)?;
    let next = |cursor: Option<Cursor>| {
        let cursor = cursor.map(|cursor| cursor.to_string());
        cursor.and_then(|cursor| next_page(&uri, &parameters, &cursor))
    };
    let asked = Asked::new(caller.name(), &app.key, &query);
    let file_name = query.file_name(&app.key);
    let scan = Scan {
        permits,
        reader: state.reader.clone(),
        policy: Arc::clone(&state.policy),
        pid: app.pid,
        query,
        metrics: Arc::clone(&state.metrics),
        turns: state.turns.clone(),
    };
    if is_head {
        headers.extend(next(download::page_end(scan).await?));
        return Ok((headers, download::unread()).into_response());
    }
    let running = state.exports.start(
        &state.metrics,
        asked,
        chosen,
        uri.path_and_query().map_or("", |address| address.as_str()),
        &file_name,
    )?;
    headers.extend(HeaderValue::try_from(running.id()).map(|id| (EXPORT_ID, id)));
    headers.insert(header::TRAILER, HeaderValue::from_static("adtrail-rows, adtrail-sha256"));
    let Started { next: cursor, body } = download::start(scan, running).await?;
    headers.extend(next(cursor));
    Ok((headers, body).into_response())
}

async fn exported(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    let Path(id) = id.map_err(|_| Problem::path_not_found(uri.path()))?;
    no_parameters(&uri)?;
    let is_seen = |app: &str| state.policy.app_by_key(app).is_some_and(|app| caller.sees(app.pid));
    let export = state.exports.find(&id).filter(|export| is_seen(&export.app));
    let export = export.ok_or(ExportError::UnknownExport(id.into()))?;
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(export)).into_response())
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
///
/// # Errors
/// One is no text in UTF-8.
pub(crate) fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
    parameter::decoded(uri.query().unwrap_or_default().as_bytes())
        .map_err(|name| name.map_or_else(Problem::bad_query, |name| Problem::no_text(&name)))
}

/// # Errors
/// There is one.
pub(crate) fn no_parameters(uri: &Uri) -> Result<(), Problem> {
    parameters(uri)?.into_iter().next().map_or(Ok(()), |(parameter, _)| {
        Err(ExportError::UnknownParameter { parameter: parameter.into(), known: &[] }.into())
    })
}

fn headers(app: &AppPolicy, query: &ExportQuery, complete_until: Option<EventTime>) -> HeaderMap {
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
            .chain(complete_until.map(|until| (COMPLETE_UNTIL, in_utc(until))))
            .filter_map(|(name, text)| Some((name, HeaderValue::try_from(text).ok()?))),
    );
    headers
}
