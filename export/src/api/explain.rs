//! Explanations over HTTP: the same JSON as the command `adtrail explain`.

use attribution::explain::collect;
use attribution::explain::explanation::Explanation;
use attribution::rules::policy::{AppPolicy, Policy};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use crate::explain::json;
use crate::http::extract::{Segments, no_parameters};
use crate::http::problem::Problem;
use crate::http::respond;
use crate::http::state::ExportState;
use crate::{Echo, ExportError};

pub(crate) async fn activation(
    State(state): State<ExportState>,
    Segments((key, id)): Segments<(String, String)>,
    uri: Uri,
) -> Result<Response, Problem> {
    let app = respond::app(&state, key)?;
    no_parameters(&uri)?;
    let document = explained(&state, app, &id, json).await?;
    let document = document.ok_or(ExportError::UnknownActivation(Echo::from(&*id)))?;
    Ok(respond::json(&document))
}

/// Explains an activation of the app and renders it on the reading thread. Returns `None` if no activation has this
/// id.
pub(crate) async fn explained<T: Send + 'static>(
    state: &ExportState,
    app: &AppPolicy,
    id: &str,
    render: impl FnOnce(&Explanation, &Policy) -> T + Send + 'static,
) -> Result<Option<T>, ExportError> {
    let (pid, id) = (app.pid, id.to_owned());
    respond::read(state, app, move |reader, policy| {
        let explanation = collect::explain(&mut reader.clone(), policy, pid, &id)?;
        Ok(explanation.map(|explanation| render(&explanation, policy)))
    })
    .await
}
