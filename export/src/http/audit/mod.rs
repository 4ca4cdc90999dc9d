//! The audit log of short answers and of refusals: who read what of which app, and who was refused. A download or a
//! preview writes its own line when it ends (`download::audit`). Lines name routes, not paths, which contain ids of
//! devices and clicks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::http::StatusCode;
use axum::response::Response;
use parking_lot::Mutex;

/// Stands for a missing token or app.
pub(crate) const NONE: &str = "none";

/// Lines of refusals with the same reason in a [`PERIOD`]; others are only counted.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// Routes with an app that write no line here: campaigns are from the settings, and downloads write their own.
const UNAUDITED: [&str; 4] = [
    "/v1/apps/{app}/campaigns",
    "/v1/apps/{app}/events.csv",
    "/v1/apps/{app}/events.ndjson",
    "/api/raw-data/export/app/{app}/{report}/v5",
];

/// The route of a request: its path with names in the place of values.
#[derive(Debug)]
pub(crate) struct Route(Option<MatchedPath>);

/// A request as the audit log names it. Nothing in it is chosen by the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditedRequest<'a> {
    /// The id of a configured token, or [`NONE`].
    pub token: &'a str,
    /// The key of a configured app, or [`NONE`].
    pub app: &'a str,
    pub route: &'a str,
}

/// A response extension by which a page names the app of which it looked something up.
#[derive(Debug, Clone)]
pub(crate) struct LookedUp(pub Box<str>);

/// Limits the lines of refusals, so that nobody can fill the log.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<&'static str, Period>>);

#[derive(Debug)]
struct Period {
    since: Instant,
    lines: u32,
    /// Refusals without a line since the last line.
    suppressed: u64,
}

impl Route {
    pub fn of(request: &Request) -> Self {
        Self(request.extensions().get().cloned())
    }

    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("other", MatchedPath::as_str)
    }
}

/// Writes the line of an answered request, before the answer is sent. `app` is the app in the path, `bytes` the length
/// of the body if it is known.
pub(crate) fn answered(
    token: &str,
    app: Option<&str>,
    route: &Route,
    response: &Response,
    bytes: Option<u64>,
    duration: Duration,
) {
    let looked_up = response.extensions().get::<LookedUp>().map(|LookedUp(app)| &**app);
    let in_path = app.filter(|_| !UNAUDITED.contains(&route.name()));
    let Some(app) = looked_up.or(in_path) else { return };
    tracing::info!(
        target: "adtrail::audit",
        token,
        app,
        route = route.name(),
        status = response.status().as_u16(),
        bytes,
        seconds = duration.as_secs_f64(),
        "a request was answered"
    );
}

/// Writes the line of a sign-in.
pub(crate) fn signed_in(token: &str) {
    tracing::info!(target: "adtrail::audit", token, "a session has begun");
}

impl Refusals {
    /// Writes the line of a refused request, unless there were too many.
    pub fn write(
        &self,
        reason: &'static str,
        status: StatusCode,
        AuditedRequest { token, app, route }: &AuditedRequest<'_>,
    ) {
        let Some(suppressed) = self.next_line(reason, Instant::now()) else { return };
        tracing::info!(
            target: "adtrail::audit",
            token,
            app,
            route,
            status = status.as_u16(),
            reason,
            suppressed,
            "a request was refused"
        );
    }

    /// Returns the number of refusals without a line since the last line, or `None` if this one gets none either.
    fn next_line(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut periods = self.0.lock();
        let new = Period { since: now, lines: 0, suppressed: 0 };
        let period = periods.entry(reason).or_insert(new);
        if now.saturating_duration_since(period.since) >= PERIOD {
            (period.since, period.lines) = (now, 0);
        }
        if period.lines == LINES_MAX {
            period.suppressed += 1;
            return None;
        }
        period.lines += 1;
        Some(std::mem::take(&mut period.suppressed))
    }
}

#[cfg(test)]
mod tests;
