//! The first page: choose, see what it would be, download.

use std::time::Instant;

use attribution::facts::event::EventTime;
use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::export_form::curl_command::curl;
use super::export_form::state::{Choice, ExportRequest};
use super::export_form::view::{Form, told};
use super::format;
use super::preview::Preview;
use super::preview::chart::{Chart, chart};
use super::preview::estimate::{Look, look};
use super::request::PageRequest;
use super::respond::{self, redirect};
use crate::download::audit::{self, ExportOutcome};
use crate::download::state::State as Fate;
use crate::explain::span;
use crate::format::time_zone::{TimeWriter, now};
use crate::http::problem::Problem;
use crate::http::respond::read;
use crate::query::parameter::EXPORT_ID;

const TITLE: &str = "Export";
/// What is escaped in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What would be downloaded.
#[derive(Debug, Serialize)]
struct Expected {
    app: String,
    days: String,
    zone: String,
    told: Vec<String>,
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

/// Up to when all is in.
#[derive(Debug, Serialize)]
struct Complete {
    until: String,
    /// Whether that is before the range ends.
    is_before_end: bool,
    /// How far back what comes late corrects rows, where that has a bound.
    horizon: Option<String>,
}

pub(crate) async fn home(asked: PageRequest) -> Result<Response, Problem> {
    let choice = Choice::new(&asked.given);
    let (apps, policy, now) = (asked.apps(), &asked.state.policy, now());
    let shell = asked.shell(TITLE, "/");
    if apps.is_empty() {
        return respond::page(StatusCode::OK, "export.html", &shell, context! { form => () });
    }
    let (expected, wrong) = match choice.wish(&apps, policy, now) {
        Ok(wish) => (Some(expect(&asked, &choice, wish).await?), vec![]),
        Err(wrong) => (None, wrong),
    };
    let status = if wrong.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let form = Form::new(&choice, (&apps, policy), wrong, now);
    respond::page(status, "export.html", &shell, context! { form, expected })
}

/// The button: to the file that the form asks for, or back to what is wrong with it.
pub(crate) async fn download(asked: PageRequest) -> Result<Response, Problem> {
    let choice = Choice::new(&asked.given);
    let (apps, policy, now) = (asked.apps(), &asked.state.policy, now());
    match choice.wish(&apps, policy, now) {
        Ok(wish) => {
            let id = asked.value(EXPORT_ID);
            let id = if id.is_empty() { String::new() } else { format!("&{EXPORT_ID}={id}") };
            redirect(&format!("{}{id}", target(&wish)))
        }
        Err(wrong) if !apps.is_empty() => {
            let form = Form::new(&choice, (&apps, policy), wrong, now);
            let shell = asked.shell(TITLE, "/");
            respond::page(StatusCode::BAD_REQUEST, "export.html", &shell, context! { form })
        }
        Err(_) => redirect("/"),
    }
}

/// The address of the file.
fn target(wish: &ExportRequest<'_>) -> String {
    let key = utf8_percent_encode(&wish.app.key, SEGMENT);
    let query = serde_urlencoded::to_string(&wish.parameters).unwrap_or_default();
    format!("/v1/apps/{key}/events.{}?{query}", wish.query.format.name())
}

async fn expect(
    asked: &PageRequest,
    choice: &Choice,
    wish: ExportRequest<'_>,
) -> Result<Expected, Problem> {
    let PageRequest { state, caller, headers, .. } = asked;
    let address = target(&wish);
    let (app, query) = (wish.app, wish.query);
    let (pid, wanted) = (app.pid, query.clone());
    let previewed = audit::ExportRequest::preview(caller.name(), &app.key, &query);
    let seen: Look = read(state, app, move |reader, policy| {
        let app = policy.app(pid).ok_or(crate::ExportError::BrokenOff)?;
        let since = Instant::now();
        let seen = look(reader, app, &wanted, policy);
        let state = if seen.is_ok() { Fate::Complete } else { Fate::Failed };
        let (rows, bytes) = seen.as_ref().map_or((0, 0), Look::read);
        let (request, duration) = (&previewed, since.elapsed());
        audit::write(&ExportOutcome { request, rows, bytes, state, duration });
        seen
    })
    .await?;
    let mut times = TimeWriter::new(&query.zone);
    let last = EventTime::default().plus(query.to.millis().saturating_sub(1));
    let days = (times.day(query.from).0, times.day(last.max(query.from)).0);
    let until = (state.complete_until)();
    let (bytes, is_size_exact) = seen.bytes();
    let has_token = !state.access.is_open();
    Ok(Expected {
        app: app.name.to_string(),
        days: format::days(format::day(days.0), format::day(days.1)),
        zone: query.zone.name().into(),
        told: told(choice),
        rows: seen.rows,
        rows_text: format::rows(seen.rows),
        size: format::size(bytes),
        is_size_exact,
        complete: until.map(|until| Complete {
            until: format::moment(until, &query.zone),
            is_before_end: until < query.to,
            horizon: app.correction_horizon_ms.map(span),
        }),
        chart: seen.days.as_ref().and_then(|counts| chart(counts, days)),
        preview: seen.preview,
        has_others: seen.has_others,
        curl: curl(headers, &address, &query.file_name(&app.key), has_token),
        has_token,
        address,
    })
}
