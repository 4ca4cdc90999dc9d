//! Signing in with a token, which begins a session, and signing out, which ends it.

use std::borrow::Cow;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use jiff::Timestamp;
use minijinja::context;

use super::http::respond::{self, redirect, value};
use super::layout::Shell;
use crate::http::access::session;
use crate::http::audit::{self, AuditedRequest, NONE, Route};
use crate::http::extract::parameters;
use crate::http::problem::Problem;
use crate::http::refusal::{Denial, Refusal};
use crate::http::state::ExportState;
use crate::query::parameter::EXPORT_ID;

/// The pages to which signing in may redirect.
const PATHS: [&str; 7] =
    ["/", "/download", "/exports", "/activations", "/devices", "/links", "/callbacks"];
const TOKEN: &str = "token";
const NEXT: &str = "next";
const DOWNLOAD: &str = "/download";
/// Maximum length of an address that signing in redirects to. It is in pages that are answered without a token.
const NEXT_BYTES_MAX: usize = 2_048;

/// Returns the page to which signing in redirects: the requested page, or the start page if its address is too long.
/// A file is not a page, and a posted form is not kept: they lead to the page that requested them.
pub(super) fn next(method: &Method, uri: &Uri, headers: &HeaderMap) -> String {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let address = uri.path_and_query().map_or("/", |address| address.as_str());
    let target: Cow<'_, str> = match uri.path() {
        DOWNLOAD => {
            let mut params = parameters(uri).unwrap_or_default();
            // The download has not begun; the next one has its own id.
            params.retain(|(name, _)| name != EXPORT_ID);
            format!("/?{}", serde_urlencoded::to_string(params).unwrap_or_default()).into()
        }
        path if is_read && PATHS.contains(&path) => address.into(),
        path => {
            let requested = if is_read { address } else { path };
            session::own_referer(headers).unwrap_or(requested).into()
        }
    };
    here(&target).to_owned()
}

/// Responds with the form. `next` is a safe path.
pub(super) fn form(
    status: StatusCode,
    message: Option<&str>,
    next: &str,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let is_plain = session::scheme(headers) == "http";
    let page = context! { message, next, is_plain };
    respond::page(status, "sign-in.html", &Shell::bare("Sign in"), page)
}

pub(crate) async fn page(headers: HeaderMap) -> Result<Response, Problem> {
    form(StatusCode::OK, None, "/", &headers)
}

pub(crate) async fn sign_in(
    State(state): State<ExportState>,
    request: Request,
) -> Result<Response, Problem> {
    let (headers, route) = (request.headers().clone(), Route::of(&request));
    let params = respond::form(&state, NONE, request).await?;
    let next = here(value(&params, NEXT));
    if state.access.is_open() {
        return redirect(next);
    }
    let now = Timestamp::now();
    match state.access.admit_token(value(&params, TOKEN), now) {
        Ok(caller) => {
            state.access.end_sessions(&headers);
            let id = state.access.begin_session(caller, now).map_err(|error| {
                tracing::error!(%error, "the system's random number generator failed");
                Problem::page()
            })?;
            audit::signed_in(caller.name());
            with_cookie(redirect(next)?, session::begin(&id, &headers))
        }
        Err(Denial { refusal, token }) => {
            let refused = AuditedRequest { token, app: NONE, route: route.name() };
            state.refused(refusal.reason(), StatusCode::UNAUTHORIZED, &refused);
            let message = match refusal {
                Refusal::Malformed => {
                    "this is not a complete token; it begins with adt_ and has no spaces".into()
                }
                refusal => refusal.to_string(),
            };
            form(StatusCode::UNAUTHORIZED, Some(&message), next, &headers)
        }
    }
}

pub(crate) async fn sign_out(
    State(state): State<ExportState>,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    respond::form(&state, NONE, request).await?;
    state.access.end_sessions(&headers);
    with_cookie(redirect("/")?, session::end(&headers))
}

fn with_cookie(mut response: Response, cookie: Option<HeaderValue>) -> Result<Response, Problem> {
    let cookie = cookie.ok_or_else(Problem::bad_form)?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Returns the target if it is a safe path of this service, else the start page.
fn here(target: &str) -> &str {
    let is_path = target.starts_with('/') && !target[1..].starts_with(['/', '\\']);
    let is_safe = target.bytes().all(|byte| byte.is_ascii_graphic());
    let is_form = target.starts_with("/sign-");
    let is_short = target.len() <= NEXT_BYTES_MAX;
    if is_path && is_safe && is_short && !is_form { target } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_on_this_service() {
        let longest = format!("/?{}", "a".repeat(NEXT_BYTES_MAX - 2));
        assert_eq!(here(&format!("{longest}a")), "/");
        for target in ["/", "/exports", "/?app=a%20b&from=2026-03-10", &longest] {
            assert_eq!(here(target), target);
        }
        for target in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb", "/sign-in"]
        {
            assert_eq!(here(target), "/");
        }
    }
}
