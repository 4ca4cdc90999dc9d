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
    app.ok_or_else(Problem::unwritable_app)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, StatusCode};
    use axum::response::IntoResponse as _;
    use config::TokenDigest;

    use super::*;
    use crate::test_bed::Bed;

    /// Returns the settings of a token, whose text is also its id.
    fn entry(token: &str, more: &str) -> String {
        let hex = TokenDigest::of(token).to_hex();
        format!("[[write_tokens]]\nid = \"{token}\"\nsha256 = \"{hex}\"\n{more}\n")
    }

    #[tokio::test]
    async fn a_token_writes_its_own_apps() {
        let settings = [
            entry("x", "apps = [\"app-x\"]"),
            entry("all", "apps = [\"*\"]"),
            entry("expired", "apps = [\"*\"]\nexpires = \"2025-03-10\""),
        ];
        let bed = Bed::new(&settings.concat());
        let check = |token: &str, app: &str, expected: Result<&str, StatusCode>| {
            let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
            let found = writable_app(&bed.collector, &headers, app);
            let found = found.map(|app| &*app.key);
            let found = found.map_err(|problem| problem.into_response().status());
            assert_eq!(found, expected, "{token} {app}");
        };
        check("x", "app-x", Ok("app-x"));
        check("x", "app-y", Err(StatusCode::NOT_FOUND));
        check("all", "app-x", Ok("app-x"));
        check("all", "app-y", Ok("app-y"));
        check("all", "app-z", Err(StatusCode::NOT_FOUND));
        check("expired", "app-x", Err(StatusCode::UNAUTHORIZED));
        check("other", "app-x", Err(StatusCode::UNAUTHORIZED));
    }

    #[tokio::test]
    async fn a_token_expires() {
        let bed = Bed::new(&entry("a", "apps = [\"*\"]\nexpires = \"2025-03-10T12:00:00Z\""));
        let check = |now: &str, is_valid: bool| {
            let writer = bed.collector.writer("a", now.parse().unwrap());
            assert_eq!(writer.is_some(), is_valid, "{now}");
        };
        check("2025-03-10T11:59:59Z", true);
        check("2025-03-10T12:00:00Z", false);
        check("2025-03-11T00:00:00Z", false);
    }
}
