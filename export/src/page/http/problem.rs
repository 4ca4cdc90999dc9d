//! Renders problems as pages, for browsers.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use minijinja::context;

use super::respond::page;
use crate::http::access::session;
use crate::http::problem::Problem;
use crate::http::state::ExportState;
use crate::page::layout::Shell;
use crate::page::sign_in;

/// Replaces problems by pages if the client is a browser that opens a URL.
pub(crate) async fn into_page(
    State(state): State<ExportState>,
    request: Request,
    next: Next,
) -> Response {
    if !reads_pages(request.headers()) {
        return next.run(request).await;
    }
    let headers = request.headers().clone();
    let target = sign_in::next(request.method(), request.uri(), &headers);
    let response = next.run(request).await;
    let problem = response.extensions().get::<Problem>().cloned();
    let Some(problem) = problem else { return response };
    let (title, detail) = (problem.title(), problem.detail());
    let status = response.status();
    let page = if status == StatusCode::UNAUTHORIZED {
        let is_first =
            !headers.contains_key(header::AUTHORIZATION) && !session::has_cookie(&headers);
        let message = (!is_first).then_some(detail);
        sign_in::form(status, message, &target, &headers)
    } else {
        let shell = Shell::for_problem(&state, &headers, title);
        page(status, "problem.html", &shell, context! { title, detail, status => status.as_u16() })
    };
    let Ok(page) = page else { return response };
    let (mut parts, _) = response.into_parts();
    let (page_parts, body) = page.into_parts();
    // They describe the replaced body, which may be compressed.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.extend(page_parts.headers);
    Response::from_parts(parts, body)
}

/// Checks whether the client prefers HTML to JSON.
pub(crate) fn reads_pages(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let accepted: Vec<_> = accepted.flat_map(|accept| accept.split(',')).map(quality).collect();
    let quality_of = |names: &[&str]| {
        let found = accepted.iter().filter(|(media_type, _)| {
            names.iter().any(|name| media_type.eq_ignore_ascii_case(name))
        });
        found.map(|(_, quality)| *quality).fold(0.0, f32::max)
    };
    let page = quality_of(&["text/html"]);
    page > 0.0 && page >= quality_of(&["application/json", "application/problem+json"])
}

/// Returns a media type and its quality value, from 0 to 1.
fn quality(accepted: &str) -> (&str, f32) {
    let mut parts = accepted.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| {
        let (name, weight) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| weight.trim().parse().unwrap_or(0.0))
    });
    (media_type, weight.unwrap_or(1.0))
}
