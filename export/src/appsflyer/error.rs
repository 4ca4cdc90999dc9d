//! What the Pull API's clients are told of what went wrong: JSON with `error` and `message`.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CACHE_CONTROL, HeaderMap, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::http::problem::Problem;
use crate::page;

/// What addresses of AppsFlyer begin with, and none of ours.
const BEGINNING: &str = "/api/";

/// Has problems at addresses of AppsFlyer told as its clients read them. Those who read pages, whom the
/// page's history leads there, get pages.
pub async fn in_its_form(request: Request, next: Next) -> Response {
    let is_its =
        request.uri().path().starts_with(BEGINNING) && !page::reads_pages(request.headers());
    let mut response = next.run(request).await;
    if !is_its {
        return response;
    }
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    let status = match response.status() {
        // They know of too many requests, and when to come again.
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
