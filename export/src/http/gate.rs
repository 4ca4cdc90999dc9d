//! Authenticates every request before its handler runs. A path that names an app that the caller may not read is
//! answered as if the app did not exist.

use axum::RequestExt;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use jiff::Timestamp;

use super::access::Caller;
use super::problem::Problem;
use super::state::ExportState;
use crate::ExportError;

/// The path parameter that is the key of an app.
const APP: &str = "app";

/// Adds the [`Caller`] to the request's extensions.
pub(crate) async fn pass(
    State(state): State<ExportState>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let caller = check(&state, &mut request).await?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

async fn check(state: &ExportState, request: &mut Request) -> Result<Caller, Problem> {
    let caller = state.access.admit(request.method(), request.headers(), Timestamp::now());
    let caller = caller.map_err(|refusal| state.refuse(refusal))?.clone();
    let parameters = match request.extract_parts::<RawPathParams>().await {
        Ok(parameters) => parameters,
        Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) => {
            return Err(Problem::path_not_found(request.uri().path()));
        }
        // No route has this path, for any caller.
        Err(_) => return Ok(caller),
    };
    for (_, key) in parameters.iter().filter(|(name, _)| *name == APP) {
        let app = state.policy.app_by_key(key);
        if !app.is_some_and(|app| caller.can_read(app.pid)) {
            app.into_iter().for_each(|_| state.metrics.refused("app"));
            return Err(ExportError::UnknownApp(key.into()).into());
        }
    }
    Ok(caller)
}
