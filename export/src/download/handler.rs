//! Handlers of export requests: they check a request and respond with a stream.

use std::sync::Arc;

use attribution::facts::event::EventTime;
use attribution::rules::policy::AppPolicy;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use listener::LongResponse;

use super::audit::ExportRequest;
use super::registry::ChosenId;
use super::stream::{self, Scan, Started};
use crate::format::time::writer::in_utc;
use crate::http::access::Caller;
use crate::http::audit::{AuditedRequest, Route};
use crate::http::extract::{Segments, next_page, no_parameters, parameters};
use crate::http::problem::Problem;
use crate::http::respond;
use crate::http::state::ExportState;
use crate::query::cursor::Cursor;
use crate::query::parameter::pairs;
use crate::query::{ExportQuery, Format};
use crate::{Echo, ExportError};

const EXPORT_ID: HeaderName = HeaderName::from_static("adtrail-export-id");

const COMPLETE_UNTIL: HeaderName = HeaderName::from_static("adtrail-complete-until");

/// Exports as CSV or NDJSON, by the extension of the path.
pub(crate) async fn events(
    state: State<ExportState>,
    caller: Extension<Caller>,
    Segments(key): Segments<String>,
    request: Request,
) -> Result<Response, Problem> {
    let is_csv = request.uri().path().ends_with(Format::Csv.name());
    let format = if is_csv { Format::Csv } else { Format::Ndjson };
    export(state, caller, key, request, |params| ExportQuery::parse(format, params)).await
}

/// Responds with the rows of an app that the parameters select.
pub(crate) async fn export(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    key: String,
    request: Request,
    parse: impl FnOnce(Vec<(&str, &str)>) -> Result<ExportQuery, ExportError>,
) -> Result<Response, Problem> {
    let app = respond::app(&state, key)?;
    let (uri, is_head) = (request.uri().clone(), request.method() == Method::HEAD);
    let mut parameters = parameters(&uri)?;
    let chosen = ChosenId::take(&mut parameters)?;
    let query = parse(pairs(&parameters).collect())?;
    query.check(app, &state.policy)?;
    if request.version() < Version::HTTP_11 {
        return Err(Problem::http_version());
    }
    let mut headers = headers(app, &query, (state.complete_until)());
    // `HEAD` needs to read rows only to find the end of a page, which takes as long as for `GET`.
    if is_head && (query.limit.is_none() || query.report.is_some()) {
        return Ok((headers, stream::unread()).into_response());
    }
    let route = Route::of(&request);
    let (token, route) = (caller.name(), route.name());
    let permits = state.start_download(&caller, &AuditedRequest { token, app: &app.key, route })?;
    let next = |cursor: Option<Cursor>| {
        let (name, link) = next_page(&uri, &parameters, &cursor?.to_string())?;
        Some((name, HeaderValue::try_from(link).ok()?))
    };
    let export_request = ExportRequest::new(caller.name(), &app.key, &query);
    let file_name = query.file_name(app);
    let scan = Scan {
        permits,
        reader: state.reader.clone(),
        policy: Arc::clone(&state.policy),
        pid: app.pid,
        query,
        metrics: Arc::clone(&state.metrics),
        cpu_slots: state.cpu_slots.clone(),
    };
    if is_head {
        headers.extend(next(stream::page_end(scan).await?));
        return Ok((headers, stream::unread()).into_response());
    }
    let running = state.exports.start(
        &state.metrics,
        export_request,
        chosen,
        uri.path_and_query().map_or("", |address| address.as_str()),
        &file_name,
    )?;
    let running = running.traced(&request);
    headers.extend(HeaderValue::try_from(running.id()).map(|id| (EXPORT_ID, id)));
    headers.insert(header::TRAILER, HeaderValue::from_static("adtrail-rows, adtrail-sha256"));
    let Started { next: cursor, body } = stream::start(scan, running).await?;
    headers.extend(next(cursor));
    Ok((Extension(LongResponse), headers, body).into_response())
}

/// Returns the state of an export.
pub(crate) async fn exported(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    Segments(id): Segments<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    no_parameters(&uri)?;
    let is_readable =
        |app: &str| state.policy.app_by_key(app).is_some_and(|app| caller.can_read(app.pid));
    let export = state.exports.find(&id).filter(|export| is_readable(&export.app));
    let export = export.ok_or(ExportError::UnknownExport(Echo::from(&*id)))?;
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(export)).into_response())
}

fn headers(app: &AppPolicy, query: &ExportQuery, complete_until: Option<EventTime>) -> HeaderMap {
    let media_type = match query.format {
        Format::Csv => "text/csv; charset=utf-8; header=present",
        Format::Ndjson => "application/x-ndjson",
    };
    let file = (header::CONTENT_DISPOSITION, query.content_disposition("", app));
    let complete_until = complete_until.map(|until| (COMPLETE_UNTIL, in_utc(until)));
    let texts = respond::range(query).into_iter().chain([file]).chain(complete_until);
    respond::headers(media_type, texts)
}
