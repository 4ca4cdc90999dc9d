//! Responses of pages, and parsing of submitted forms.

use axum::body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use listener::is_unfinished;
use minijinja::context;
use serde::Serialize;

use crate::http::access::session;
use crate::http::audit::{AuditedRequest, NONE, Route};
use crate::http::problem::Problem;
use crate::http::refusal::Refusal;
use crate::http::state::ExportState;
use crate::page::layout::Shell;
use crate::page::templates::render;
use crate::query::parameter;

/// A page may load resources only from this service, and submit forms only to it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Maximum size of a submitted form.
const FORM_BYTES_MAX: usize = 8 << 10;

/// Renders a template as a page that must not be cached.
pub(crate) fn page(
    status: StatusCode,
    template: &str,
    shell: &Shell,
    page: impl Serialize,
) -> Result<Response, Problem> {
    let mut text =
        render(template, &context! { shell, page => minijinja::Value::from_serialize(page) })?;
    // Unread pages stay in memory until their clients leave.
    text.shrink_to_fit();
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        // Not `no-referrer`: browsers would hide the origin of our own forms, too.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    Ok((status, headers, text).into_response())
}

/// Returns the names and values of a form submitted by one of our own pages. The audit log names `token`, the
/// caller's.
///
/// # Errors
/// The form is from another site, too long, malformed, or did not arrive in time.
pub(crate) async fn form(
    state: &ExportState,
    token: &str,
    request: Request,
) -> Result<Vec<(String, String)>, Problem> {
    if !session::is_same_origin(request.headers()) {
        let route = Route::of(&request);
        let refused = AuditedRequest { token, app: NONE, route: route.name() };
        return Err(state.refuse(Refusal::Origin, &refused));
    }
    let body = body::to_bytes(request.into_body(), FORM_BYTES_MAX).await;
    let body = body.map_err(|error| {
        if is_unfinished(&error) { Problem::slow_form() } else { Problem::bad_form() }
    })?;
    parameter::decoded(&body).map_err(|_| Problem::bad_form())
}

/// Returns the value of a parameter, trimmed; empty if it is missing.
pub(crate) fn value<'p>(parameters: &'p [(String, String)], name: &str) -> &'p str {
    let found = parameters.iter().find(|(known, _)| known == name);
    found.map_or("", |(_, value)| value.trim())
}

/// Redirects to another page.
pub(crate) fn redirect(target: &str) -> Result<Response, Problem> {
    let location = HeaderValue::try_from(target).map_err(|_| Problem::bad_form())?;
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}
