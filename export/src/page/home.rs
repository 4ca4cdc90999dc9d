//! The start page: a form, a preview of the export, and its download.

use std::time::Instant;

use attribution::facts::event::EventTime;
use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::export_form::curl_command::curl;
use super::export_form::state::{Choice, ExportRequest};
use super::export_form::view::{Form, describe};
use super::format;
use super::http::request::PageRequest;
use super::http::respond::{self, redirect};
use super::preview::Preview;
use super::preview::chart::{Chart, chart};
use super::preview::estimate::{Estimate, estimate};
use crate::download::audit::{self, ExportOutcome};
use crate::download::state::State as DownloadState;
use crate::explain::span;
use crate::format::time::writer::{TimeWriter, now};
use crate::http::problem::Problem;
use crate::http::respond::read;
use crate::query::parameter::EXPORT_ID;

const TITLE: &str = "Export";
/// Characters that are escaped in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The expected download.
#[derive(Debug, Serialize)]
struct Expected {
    app: String,
    days: String,
    zone: String,
    summary: Vec<String>,
    rows: u64,
    rows_text: String,
    size: String,
    is_size_exact: bool,
    complete: Option<Complete>,
    chart: Option<Chart>,
    preview: Preview,
    has_others: bool,
    curl: String,
    has_token: bool,
    address: String,
}

/// How far the rows are complete.
#[derive(Debug, Serialize)]
struct Complete {
    until: String,
    /// Set if `until` is before the end of the range.
    is_before_end: bool,
    /// How far back late events can change rows, if that is limited.
    horizon: Option<String>,
}

pub(crate) async fn home(page_request: PageRequest) -> Result<Response, Problem> {
    let choice = Choice::new(&page_request.params);
    let (apps, policy, now) = (page_request.apps(), &page_request.state.policy, now());
    let shell = page_request.shell(TITLE, "/");
    if apps.is_empty() {
        return respond::page(StatusCode::OK, "export.html", &shell, context! { form => () });
    }
    let (expected, wrong) = match choice.export_request(&apps, policy, now) {
        Ok(export) => (Some(expect(&page_request, &choice, export).await?), vec![]),
        Err(wrong) => (None, wrong),
    };
    let status = if wrong.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let form = Form::new(&choice, &apps, policy, wrong, now);
    respond::page(status, "export.html", &shell, context! { form, expected })
}

/// Handles the download button: redirects to the file, or shows the form with its errors.
pub(crate) async fn download(page_request: PageRequest) -> Result<Response, Problem> {
    let choice = Choice::new(&page_request.params);
    let (apps, policy, now) = (page_request.apps(), &page_request.state.policy, now());
    match choice.export_request(&apps, policy, now) {
        Ok(export) => {
            let id = page_request.value(EXPORT_ID);
            let id = if id.is_empty() { String::new() } else { format!("&{EXPORT_ID}={id}") };
            redirect(&format!("{}{id}", target(&export)))
        }
        Err(wrong) if !apps.is_empty() => {
            let form = Form::new(&choice, &apps, policy, wrong, now);
            let shell = page_request.shell(TITLE, "/");
            respond::page(StatusCode::BAD_REQUEST, "export.html", &shell, context! { form })
        }
        Err(_) => redirect("/"),
    }
}

/// Returns the URL of the file.
fn target(export: &ExportRequest<'_>) -> String {
    let key = utf8_percent_encode(&export.app.key, SEGMENT);
    let query = serde_urlencoded::to_string(&export.parameters).unwrap_or_default();
    format!("/v1/apps/{key}/events.{}?{query}", export.query.format.name())
}

async fn expect(
    page_request: &PageRequest,
    choice: &Choice,
    export: ExportRequest<'_>,
) -> Result<Expected, Problem> {
    let PageRequest { state, caller, headers, .. } = page_request;
    let address = target(&export);
    let (app, query) = (export.app, export.query);
    let (pid, export_query) = (app.pid, query.clone());
    let previewed = audit::ExportRequest::preview(caller.name(), &app.key, &query);
    let estimated: Estimate = read(state, app, move |reader, policy| {
        let app = policy.app(pid).ok_or(crate::ExportError::BrokenOff)?;
        let since = Instant::now();
        let estimated = estimate(reader, app, &export_query, policy);
        let state = if estimated.is_ok() { DownloadState::Complete } else { DownloadState::Failed };
        let (rows, bytes) = estimated.as_ref().map_or((0, 0), Estimate::read);
        let (request, duration) = (&previewed, since.elapsed());
        audit::write(&ExportOutcome { request, rows, bytes, state, duration });
        estimated
    })
    .await?;
    let mut times = TimeWriter::new(&query.zone);
    let end = EventTime::default().plus(query.to.millis().saturating_sub(1));
    let (first, last) = (times.day(query.from).0, times.day(end.max(query.from)).0);
    let until = (state.complete_until)();
    let (bytes, is_size_exact) = estimated.bytes();
    let has_token = !state.access.is_open();
    Ok(Expected {
        app: app.name.to_string(),
        days: format::days(format::day(first), format::day(last)),
        zone: query.zone.name().into(),
        summary: describe(choice),
        rows: estimated.rows,
        rows_text: format::rows(estimated.rows),
        size: format::size(bytes),
        is_size_exact,
        complete: until.map(|until| Complete {
            until: format::date_time(until, &query.zone),
            is_before_end: until < query.to,
            horizon: app.correction_horizon_ms.map(span),
        }),
        chart: estimated.days.as_ref().and_then(|counts| chart(counts, first, last)),
        preview: estimated.preview,
        has_others: estimated.has_others,
        curl: curl(headers, &address, &query.ascii_file_name(app), has_token),
        has_token,
        address,
    })
}
