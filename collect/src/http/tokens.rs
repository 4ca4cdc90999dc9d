//! Finds the app that a request may write.

use axum::http::{HeaderMap, header};
use jiff::Timestamp;

use super::problem::Problem;
use crate::Collector;
use crate::state::App;

/// The header in which clients of AppsFlyer send their key.
const AUTHENTICATION: &str = "authentication";

/// Returns the app, if the request has a token that may write its events.
pub(crate) fn writable_app<'c>(
    collector: &'c Collector,
    headers: &HeaderMap,
    key: &str,
) -> Result<&'c App, Problem> {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = value.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let token = bearer.or_else(|| headers.get(AUTHENTICATION)?.to_str().ok());
    let writer = token.and_then(|token| collector.writer(token, Timestamp::now()));
    let writer = writer.ok_or_else(Problem::unauthorized)?;
    let app = collector.app(key).filter(|app| app.may_write(writer));
    app.ok_or_else(Problem::unknown_app)
}
