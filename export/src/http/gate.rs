//! Authenticates every request before its handler runs, and writes the audit log of the answer. A path that names an
//! app that the caller may not read is answered as if the app did not exist.

use std::time::Instant;

use attribution::rules::policy::AppPolicy;
use axum::RequestExt;
use axum::body::HttpBody;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use jiff::Timestamp;

use super::access::Caller;
use super::audit::{self, AuditedRequest, NONE, Route};
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
    let (since, route, method) = (Instant::now(), Route::of(&request), request.method().clone());
    let (caller, app) = check(&state, &mut request, &route).await?;
    request.extensions_mut().insert(caller.clone());
    let response = next.run(request).await;
    let key = app.map(|app| &*app.key);
    let bytes = body_bytes(&method, &response);
    audit::answered(caller.name(), key, &route, &response, bytes, since.elapsed());
    Ok(response)
}

/// Returns the length of a body that is about to be sent. Unknown if it is compressed, or written while it is sent, and
/// of problems, which browsers get as pages.
fn body_bytes(method: &Method, response: &Response) -> Option<u64> {
    let is_problem = response.extensions().get::<Problem>().is_some();
    let exact = response.body().size_hint().exact().filter(|_| !is_problem);
    if *method == Method::HEAD { Some(0) } else { exact }
}

/// Returns the caller, and the app that the path names.
async fn check<'s>(
    state: &'s ExportState,
    request: &mut Request,
    route: &Route,
) -> Result<(Caller, Option<&'s AppPolicy>), Problem> {
    let parameters = request.extract_parts::<RawPathParams>().await;
    let key = parameters.as_ref().ok().and_then(app_key);
    let app = key.and_then(|key| state.policy.app_by_key(key));
    let app_name = app.map_or(NONE, |app| &*app.key);
    let admitted = state.access.admit(request.method(), request.headers(), Timestamp::now());
    let caller = admitted.map_err(|denial| {
        let (token, route) = (denial.token, route.name());
        state.refuse(denial.refusal, &AuditedRequest { token, app: app_name, route })
    })?;
    // Without parameters, either the route has none, or no route has this path.
    if matches!(parameters, Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) {
        return Err(Problem::path_not_found(request.uri().path()));
    }
    let Some(key) = key else { return Ok((caller.clone(), None)) };
    match app {
        Some(app) if caller.can_read(app.pid) => Ok((caller.clone(), Some(app))),
        _ => {
            let (token, route) = (caller.name(), route.name());
            let refused = AuditedRequest { token, app: app_name, route };
            state.refused("app", StatusCode::NOT_FOUND, &refused);
            Err(ExportError::UnknownApp(key.into()).into())
        }
    }
}

fn app_key(parameters: &RawPathParams) -> Option<&str> {
    parameters.iter().find(|(name, _)| *name == APP).map(|(_, key)| key)
}
