//! The page of a token's exports: the outcome of each, and links that repeat it.

use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;
use serde::Serialize;

use super::export_form::state::Choice;
use super::export_form::view::describe;
use super::format;
use super::http::request::PageRequest;
use super::http::respond::{self, value};
use crate::Zone;
use crate::download::registry::{Export, id_text};
use crate::download::state::State as DownloadState;
use crate::http::problem::Problem;
use crate::query::parameter::{EXPORT_ID, FROM, TIMEZONE, TO};

/// Maximum number of exports on the page.
const LINES_MAX: usize = 100;

#[derive(Debug, Serialize)]
struct Line {
    id: String,
    app: String,
    /// From and to, as requested.
    range: String,
    zone: String,
    summary: Vec<String>,
    file: String,
    state: &'static str,
    /// Such as `Aborted after 1,204 rows`.
    outcome: String,
    size: String,
    sha256: Option<String>,
    started: String,
    /// The URL of the same file; `None` if it is too long to be kept.
    again: Option<String>,
    /// The URL of the form with this export, if it can express it.
    form: Option<String>,
}

pub(crate) async fn exports(page_request: PageRequest) -> Result<Response, Problem> {
    let PageRequest { state, caller, .. } = &page_request;
    let is_readable = |export: &Export| {
        let app = state.policy.app_by_key(&export.app);
        app.is_some_and(|app| caller.can_read(app.pid))
    };
    let found = state.exports.latest(caller.name(), LINES_MAX, is_readable);
    let lines: Vec<Line> = found.iter().map(line).collect();
    let shell = page_request.shell("History", "/exports");
    respond::page(StatusCode::OK, "history.html", &shell, context! { lines, max => LINES_MAX })
}

fn line(export: &Export) -> Line {
    let (path, query) = export.request.split_once('?').unwrap_or((&export.request, ""));
    let pairs = query.split('&').filter_map(|pair| Some((pair, parse(pair)?)));
    let pairs = pairs.filter(|(_, (name, _))| name != EXPORT_ID);
    let (same, params): (Vec<_>, Vec<_>) = pairs.unzip();
    let choice = Choice::of_request(&export.app, &export.request);
    let choice = choice.filter(|_| !export.is_request_cut);
    let zone = params.iter().find(|(name, _)| name == TIMEZONE);
    let zone = zone.and_then(|(_, name)| Zone::parse(name).ok()).unwrap_or_else(Zone::utc);
    Line {
        id: id_text(export.id),
        app: export.app.to_string(),
        range: format!("{} – {}", value(&params, FROM), value(&params, TO)),
        zone: zone.name().to_owned(),
        summary: choice.as_ref().map_or_else(|| describe_request(path, &params), describe),
        file: export.file.to_string(),
        state: export.state.name(),
        outcome: outcome(export),
        size: format::size(export.bytes),
        sha256: export.sha256.clone(),
        // To the second; the API has the milliseconds.
        started: export.started.get(..19).unwrap_or_default().replace('T', " "),
        again: (!export.is_request_cut).then(|| format!("{path}?{}", same.join("&"))),
        form: choice.map(|choice| choice.address()),
    }
}

/// Decodes a parameter of a query.
fn parse(pair: &str) -> Option<(String, String)> {
    serde_urlencoded::from_str::<Vec<_>>(pair).ok()?.pop()
}

/// Describes a request that the form cannot express: the last segment of the path that is not a version, and the
/// other parameters.
fn describe_request(path: &str, params: &[(String, String)]) -> Vec<String> {
    let name = path.trim_end_matches("/v5").rsplit('/').next().unwrap_or_default();
    let more = params.iter().filter(|(name, _)| ![FROM, TO, TIMEZONE].contains(&&**name));
    let more = more.map(|(name, value)| format!("{name}: {value}"));
    [name.to_owned()].into_iter().chain(more).collect()
}

fn outcome(export: &Export) -> String {
    let rows = format::rows(export.rows);
    match export.state {
        DownloadState::Running => format!("Running, {rows} so far"),
        DownloadState::Complete => format!("Complete, {rows}"),
        // The page shows the reason next to it.
        DownloadState::Aborted | DownloadState::Failed => format!("Aborted after {rows}"),
    }
}
