//! What every page is answered with, and problems as pages.

use axum::body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use minijinja::context;
use serde::Serialize;

use super::shell::Shell;
use super::sign_in;
use super::templates::render;
use crate::access::session;
use crate::parameter;
use crate::problem::Problem;
use crate::routes::ExportState;

/// What a page may do: use what is here, and be sent from here to here.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Of a form that is sent.
const FORM_BYTES_MAX: usize = 8 << 10;

/// A page of a template, for nobody to keep.
pub(super) fn page(
    status: StatusCode,
    template: &str,
    shell: &Shell,
    page: impl Serialize,
) -> Result<Response, Problem> {
    let text =
        render(template, &context! { shell, page => minijinja::Value::from_serialize(page) })?;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Not `no-referrer`, with which browsers hide the origin of our own forms too.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    Ok((status, headers, text).into_response())
}

/// Problems as pages for those who read pages: browsers, when an address is opened in them.
pub(crate) async fn tell(
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

/// Names and values that one of our own forms has sent.
///
/// # Errors
/// It is of another site, too long, or no form.
pub(super) async fn form(request: Request) -> Result<Vec<(String, String)>, Problem> {
    if !session::is_same_origin(request.headers()) {
        return Err(Problem::bad_form());
    }
    let body = body::to_bytes(request.into_body(), FORM_BYTES_MAX).await;
    let body = body.map_err(|_| Problem::bad_form())?;
    parameter::decoded(&body).map_err(|_| Problem::bad_form())
}

/// The value of a name, without the spaces around it.
pub(super) fn value<'p>(parameters: &'p [(String, String)], name: &str) -> &'p str {
    let found = parameters.iter().find(|(known, _)| known == name);
    found.map_or("", |(_, value)| value.trim())
}

/// To another page.
pub(super) fn see(target: &str) -> Result<Response, Problem> {
    let location = HeaderValue::try_from(target).map_err(|_| Problem::bad_form())?;
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}
