//! The exports that somebody has made: what became of each, and the way to make it again.

use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;
use serde::Serialize;

use super::export_form::state::Choice;
use super::export_form::view::told;
use super::format;
use super::request::PageRequest;
use super::respond::{self, value};
use crate::download::registry::{Export, id_text};
use crate::download::state::State as Fate;
use crate::http::problem::Problem;
use crate::query::parameter::{EXPORT_ID, FROM, TIMEZONE, TO};

/// The last ones.
const SHOWN_MAX: usize = 100;

#[derive(Debug, Serialize)]
struct Line {
    id: String,
    app: String,
    /// From and to, as they were asked for.
    range: String,
    zone: String,
    told: Vec<String>,
    file: String,
    state: &'static str,
    /// `Aborted after 1,204 rows`.
    outcome: String,
    size: String,
    sha256: Option<String>,
    started: String,
    /// The address of the same file, whatever was asked for.
    again: String,
    /// The page whose form asks for it, if one can.
    form: Option<String>,
}

pub(crate) async fn exports(asked: PageRequest) -> Result<Response, Problem> {
    let PageRequest { state, caller, .. } = &asked;
    let of_caller = |export: &Export| {
        let app = state.policy.app_by_key(&export.app);
        *export.token == *caller.name() && app.is_some_and(|app| caller.can_read(app.pid))
    };
    let found = state.exports.latest(SHOWN_MAX, of_caller);
    let lines: Vec<Line> = found.iter().map(line).collect();
    let shell = asked.shell("History", "/exports");
    respond::page(StatusCode::OK, "history.html", &shell, context! { lines, max => SHOWN_MAX })
}

fn line(export: &Export) -> Line {
    let (path, query) = export.request.split_once('?').unwrap_or((&export.request, ""));
    let pairs = query.split('&').filter_map(|pair| Some((pair, parse(pair)?)));
    let pairs = pairs.filter(|(_, (name, _))| name != EXPORT_ID);
    let (same, given): (Vec<_>, Vec<_>) = pairs.unzip();
    let choice = Choice::of_request(&export.app, &export.request);
    let zone = value(&given, TIMEZONE);
    Line {
        id: id_text(export.id),
        app: export.app.to_string(),
        range: format!("{} – {}", value(&given, FROM), value(&given, TO)),
        zone: if zone.is_empty() { "UTC" } else { zone }.to_owned(),
        told: choice.as_ref().map_or_else(|| told_of_request(path, &given), told),
        file: export.file.to_string(),
        state: export.state.name(),
        outcome: outcome(export),
        size: format::size(export.bytes),
        sha256: export.sha256.clone(),
        // To the second; the rest is in the API.
        started: export.started.get(..19).unwrap_or_default().replace('T', " "),
        again: format!("{path}?{}", same.join("&")),
        form: choice.map(|choice| choice.address()),
    }
}

/// A parameter of a query.
fn parse(pair: &str) -> Option<(String, String)> {
    serde_urlencoded::from_str::<Vec<_>>(pair).ok()?.pop()
}

/// What no form asks for, as it was asked for: the last of the path that is no version, and what
/// narrows it.
fn told_of_request(path: &str, given: &[(String, String)]) -> Vec<String> {
    let name = path.trim_end_matches("/v5").rsplit('/').next().unwrap_or_default();
    let more = given.iter().filter(|(name, _)| ![FROM, TO, TIMEZONE].contains(&&**name));
    let more = more.map(|(name, value)| format!("{name}: {value}"));
    [name.to_owned()].into_iter().chain(more).collect()
}

fn outcome(export: &Export) -> String {
    let rows = format::rows(export.rows);
    match export.state {
        Fate::Running => format!("Running, {rows} so far"),
        Fate::Complete => format!("Complete, {rows}"),
        // Why is told beside it.
        Fate::Aborted | Fate::Failed => format!("Aborted after {rows}"),
    }
}
