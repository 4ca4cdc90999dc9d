//! Error responses of the Pull API: JSON with `error` and `message`.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CACHE_CONTROL, HeaderMap, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::http::problem::Problem;
use crate::page;

/// Prefix of the paths of the Pull API.
const PATH_PREFIX: &str = "/api/";

/// Rewrites problems of the Pull API into the form that its clients parse. Browsers, which get there by the page's
/// list of exports, get pages.
pub async fn rewrite_problems(request: Request, next: Next) -> Response {
    let is_pull_api =
        request.uri().path().starts_with(PATH_PREFIX) && !page::reads_pages(request.headers());
    let mut response = next.run(request).await;
    if !is_pull_api {
        return response;
    }
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    let status = match response.status() {
        // Clients handle 429 with `Retry-After`, but not 503.
        StatusCode::SERVICE_UNAVAILABLE => StatusCode::TOO_MANY_REQUESTS,
        status => status,
    };
    let body = json!({
        "error": problem.detail(),
        "message": problem.detail(),
        "status": status.as_u16(),
        "type": problem.kind(),
    });
    let mut headers = HeaderMap::new();
    for name in [RETRY_AFTER, WWW_AUTHENTICATE, ALLOW, CACHE_CONTROL] {
        headers.extend(response.headers_mut().remove(&name).map(|value| (name, value)));
    }
    (status, headers, Json(body)).into_response()
}
