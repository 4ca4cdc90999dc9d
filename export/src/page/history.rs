//! The exports that somebody has made: what became of each, and the way to make it again.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use minijinja::context;
use serde::Serialize;

use super::answer::{self, value};
use super::choice::Choice;
use super::form::told;
use super::shell::Shell;
use super::words;
use crate::access::Caller;
use crate::exports::{Export, State as Fate, id_text};
use crate::parameter::TIMEZONE;
use crate::problem::Problem;
use crate::routes::{ExportState, parameters};

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
    again: String,
}

pub(crate) async fn exports(
    State(state): State<ExportState>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let given = parameters(&uri)?;
    let of_caller = |export: &Export| {
        let app = state.policy.app_by_key(&export.app);
        *export.token == *caller.name() && app.is_some_and(|app| caller.sees(app.pid))
    };
    let found = state.exports.latest(SHOWN_MAX, of_caller);
    let lines: Vec<Line> = found.iter().map(line).collect();
    let same = (value(&given, "app"), value(&given, TIMEZONE));
    let shell = Shell::new("History", "/exports", same, (&caller, &headers));
    answer::page(StatusCode::OK, "history.html", &shell, context! { lines, max => SHOWN_MAX })
}

fn line(export: &Export) -> Line {
    let choice = Choice::of_request(&export.app, &export.request);
    Line {
        id: id_text(export.id),
        app: export.app.to_string(),
        range: format!("{} – {}", choice.from, choice.to),
        zone: choice.timezone.clone(),
        told: told(&choice),
        file: export.file.to_string(),
        state: export.state.name(),
        outcome: outcome(export),
        size: words::size(export.bytes),
        sha256: export.sha256.clone(),
        // To the second; the rest is in the API.
        started: export.started.get(..19).unwrap_or_default().replace('T', " "),
        again: choice.address(),
    }
}

fn outcome(export: &Export) -> String {
    let rows = words::rows(export.rows);
    match export.state {
        Fate::Running => format!("Running, {rows} so far"),
        Fate::Complete => format!("Complete, {rows}"),
        // Why is told beside it.
        Fate::Aborted | Fate::Failed => format!("Aborted after {rows}"),
    }
}
