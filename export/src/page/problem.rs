//! Problems as pages, for those who read pages.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use minijinja::context;

use super::layout::Shell;
use super::respond::page;
use super::sign_in;
use crate::http::access::session;
use crate::http::problem::Problem;
use crate::http::state::ExportState;

/// Problems as pages for those who read pages: browsers, when an address is opened in them.
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
            !headers.contains_key(header::AUTHORIZATION) && session::token(&headers).is_none();
        let message = (!is_first).then_some(detail);
        sign_in::asked(status, message, &target, &headers)
    } else {
        let shell = Shell::of_nobody(&state, &headers, title);
        page(status, "problem.html", &shell, context! { title, detail, status => status.as_u16() })
    };
    let Ok(page) = page else { return response };
    let (mut parts, _) = response.into_parts();
    let (of_page, body) = page.into_parts();
    // Of the body that the page takes the place of, which may be compressed.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.extend(of_page.headers);
    Response::from_parts(parts, body)
}

pub(crate) fn reads_pages(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let accepted: Vec<_> = accepted.flat_map(|accept| accept.split(',')).map(quality).collect();
    let of = |wanted: &[&str]| {
        let found = accepted.iter().filter(|(media_type, _)| {
            wanted.iter().any(|wanted| media_type.eq_ignore_ascii_case(wanted))
        });
        found.map(|(_, quality)| *quality).fold(0.0, f32::max)
    };
    let page = of(&["text/html"]);
    page > 0.0 && page >= of(&["application/json", "application/problem+json"])
}

/// A media type, and how much it is wanted, from 0 to 1.
fn quality(accepted: &str) -> (&str, f32) {
    let mut parts = accepted.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| {
        let (name, weight) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| weight.trim().parse().unwrap_or(0.0))
    });
    (media_type, weight.unwrap_or(1.0))
}
