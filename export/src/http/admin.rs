//! The operators' listener: metrics, liveness, readiness, the last requests of the collector's links, reloads, and the
//! log level.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use listener::{Clients, Refused};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::Span;

use super::answers::{self, OfAll};
use super::extract::parameters;
use super::hosts::{self, Hosts};
use super::problem::{self, Problem};
use super::respond;
use super::server::LIMITS;

/// Connections of one client, such as Prometheus or a probe.
const CONNECTIONS_PER_CLIENT_MAX: usize = 64;

/// Copies of the metrics that may wait for clients to take them.
const METRICS_MAX: usize = 64;

/// Reloads in progress; they run one after the other.
const RELOADS_MAX: usize = 4;

/// The content of the responses; each is called on every request of its path.
#[derive(Clone)]
pub struct Admin {
    /// The metrics in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Says what is missing, in a few words, if the process is not ready.
    pub readiness: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// `None` in a process that does not collect.
    pub requests: Option<Requests>,
    /// `None` in a process that cannot reload its settings.
    pub reload: Option<Reload>,
    pub log_level: LogLevel,
}

/// Shows and changes what is logged.
#[derive(Debug, Clone, Copy)]
pub struct LogLevel {
    pub shown: fn() -> String,
    /// Takes the parameters of the request; returns what is logged from now on, or says what they should be.
    pub set: SetLogLevel,
}

/// Changes what is logged.
pub type SetLogLevel = fn(&[(String, String)]) -> Result<String, String>;

/// Reloads the settings. Both results are texts for an operator; an error says why nothing has changed. It may block.
pub type Reload = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Returns the last requests of the link that these parameters name; an error says what they should be.
pub type Requests =
    Arc<dyn Fn(&[(String, String)]) -> Result<serde_json::Value, String> + Send + Sync>;

/// Serves operators until `shutdown`, then until all responses in progress are sent. A listener on a loopback address
/// is reached by a loopback name or one of `allowed_hosts`.
pub async fn serve(
    listener: TcpListener,
    admin: Admin,
    allowed_hosts: &[Box<str>],
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let address = hosts::address(&listener);
    let hosts =
        if address.is_loopback() { Hosts::only(address, allowed_hosts) } else { Hosts::any() };
    let clients = Clients::new(CONNECTIONS_PER_CLIENT_MAX, |refused| {
        if refused == Refused::Connection {
            tracing::debug!("closed a connection to the admin listener: its client has too many");
        }
    });
    let (_, routers) = watch::channel(router(admin, hosts));
    listener::serve(listener, routers, clients, LIMITS, shutdown).await;
}

fn router(admin: Admin, hosts: Hosts) -> Router {
    let limit =
        |answers_max| middleware::from_fn_with_state(OfAll::new(answers_max), answers::limit_all);
    Router::new()
        .route("/metrics", get(metrics).layer(limit(METRICS_MAX)))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .route("/requests", get(requests))
        .route("/-/reload", post(reload).fallback(only_post).layer(limit(RELOADS_MAX)))
        .route("/-/log-level", get(log_level).put(set_log_level))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::not_found)
        .with_state(admin)
        .layer(middleware::from_fn_with_state(hosts, hosts::pass_admin))
        .layer(middleware::map_response(respond::nosniff))
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, media_type)], (admin.metrics)()).into_response()
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    match (admin.readiness)() {
        Ok(()) => (StatusCode::OK, "ready\n".into()),
        Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {missing}\n")),
    }
}

async fn requests(State(admin): State<Admin>, uri: Uri) -> Result<Response, Problem> {
    let parameters = parameters(&uri)?;
    let requests = admin.requests.ok_or_else(|| Problem::path_not_found(uri.path()))?;
    Ok(match requests(&parameters) {
        Ok(found) => respond::json(&found),
        Err(expected) => (StatusCode::NOT_FOUND, format!("{expected}\n")).into_response(),
    })
}

async fn reload(
    State(admin): State<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<(StatusCode, String), Problem> {
    let reload = admin.reload.ok_or_else(|| Problem::path_not_found(uri.path()))?;
    if is_of_page(&headers) {
        let expected =
            "expected a request that no page has made, such as that of `adtrail reload`\n";
        return Ok((StatusCode::FORBIDDEN, expected.to_owned()));
    }
    let of_request = Span::current();
    let reloaded = spawn_blocking(move || of_request.in_scope(|| reload())).await;
    // Fails only if it panics, which ends the process.
    Ok(match reloaded.unwrap_or_else(|e| Err(e.to_string())) {
        Ok(reloaded) => (StatusCode::OK, format!("{reloaded}\n")),
        Err(problem) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{problem}\n")),
    })
}

/// Checks whether a browser sends the request for a page. CSRF: any page can make its reader's browser do so, to a name
/// of its own too, which then leads here.
fn is_of_page(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site")
}

async fn only_post() -> impl IntoResponse {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")], "expected POST\n")
}

async fn log_level(State(admin): State<Admin>) -> String {
    format!("{}\n", (admin.log_level.shown)())
}

async fn set_log_level(
    State(admin): State<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let parameters = parameters(&uri)?;
    if is_of_page(&headers) {
        let expected =
            "expected a request that no page has made, such as that of `adtrail log-level`\n";
        return Ok((StatusCode::FORBIDDEN, expected).into_response());
    }
    Ok(match (admin.log_level.set)(&parameters) {
        Ok(logged) => format!("{logged}\n").into_response(),
        Err(expected) => (StatusCode::BAD_REQUEST, format!("{expected}\n")).into_response(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::http::answers::tests::check_limit;
    use crate::tests::fixture::{self, Answer};

    /// A service that is not ready because of `missing`, and does not collect.
    fn admin(missing: Option<&str>) -> Admin {
        let missing = missing.map(str::to_owned);
        Admin {
            metrics: Arc::new(|| "adtrail_export_active 0\n".into()),
            readiness: Arc::new(move || missing.clone().map_or(Ok(()), Err)),
            requests: None,
            reload: None,
            log_level: LogLevel { shown: || "info".into(), set: |given| Err(format!("{given:?}")) },
        }
    }

    fn answers(admin: Admin, request_lines: &[&str]) -> Vec<Answer> {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, admin, &[], std::future::pending()));
        let answer = |line: &&str| {
            let (line, headers) = line.split_once("\r\n").unwrap_or((*line, "X: y"));
            fixture::ask(address, &format!("{line} HTTP/1.1\r\n{headers}"), b"")
        };
        request_lines.iter().map(answer).collect()
    }

    #[track_caller]
    fn check(missing: Option<&str>, request_line: &str, status: u16, text: &str) {
        let answer = &answers(admin(missing), &[request_line])[0];
        assert_eq!((answer.status, answer.text()), (status, text));
    }

    #[test]
    fn liveness_readiness_and_metrics_are_served() {
        check(None, "GET /livez", 200, "alive\n");
        check(None, "GET /readyz", 200, "ready\n");
        check(None, "HEAD /readyz", 200, "");
        check(Some("Kafka"), "GET /livez", 200, "alive\n");
        check(Some("Kafka"), "GET /readyz", 503, "not ready: Kafka\n");
        check(None, "GET /metrics", 200, "adtrail_export_active 0\n");
    }

    #[tokio::test(start_paused = true)]
    async fn copies_of_the_metrics_are_limited() {
        check_limit(router(admin(None), Hosts::any()), "/metrics", METRICS_MAX).await;
    }

    #[test]
    fn requests_of_a_link_are_those_of_the_collector() {
        let found = |parameters: &[(String, String)]| match parameters {
            [(name, id)] if name == "link" => Ok(json!({"requests": [id]})),
            _ => Err("expected link".to_owned()),
        };
        let collects = Admin { requests: Some(Arc::new(found)), ..admin(None) };
        let collected = answers(collects, &["GET /requests?link=a%20b", "GET /requests?x=1"]);
        assert_eq!((collected[0].status, collected[0].json()), (200, json!({"requests": ["a b"]})));
        assert_eq!((collected[1].status, collected[1].text()), (404, "expected link\n"));
        let none = answers(admin(None), &["GET /requests?link=a"]);
        assert_eq!((none[0].status, &none[0].json()["type"]), (404, &"/problems/not-found".into()));
    }

    #[test]
    fn a_reload_is_answered_with_its_outcome() {
        let reloading = |outcome: Result<&str, &str>| {
            let outcome = outcome.map(str::to_owned).map_err(str::to_owned);
            Admin { reload: Some(Arc::new(move || outcome.clone())), ..admin(None) }
        };
        let check = |admin: Admin, request: &str, status: u16, text: &str| {
            let answer = &answers(admin, &[request])[0];
            assert_eq!((answer.status, answer.text()), (status, text), "{request}");
        };
        check(reloading(Ok("reloaded")), "POST /-/reload", 200, "reloaded\n");
        check(reloading(Err("line 7: …")), "POST /-/reload", 422, "line 7: …\n");
        check(reloading(Ok("reloaded")), "GET /-/reload", 405, "expected POST\n");
        for header in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
            let request = format!("POST /-/reload\r\n{header}");
            assert_eq!(answers(reloading(Ok("reloaded")), &[&request])[0].status, 403);
        }
        assert_eq!(answers(admin(None), &["POST /-/reload"])[0].status, 404);
    }

    #[test]
    fn the_log_level_is_shown_and_set() {
        check(None, "GET /-/log-level", 200, "info\n");
        check(None, "PUT /-/log-level?level=a%3Db", 400, "[(\"level\", \"a=b\")]\n");
        let set = |given: &[(String, String)]| Ok(given[0].1.clone());
        let log_level = LogLevel { set, ..admin(None).log_level };
        let requests = [
            "PUT /-/log-level?level=debug",
            "POST /-/log-level?level=debug",
            "PUT /-/log-level?level=debug\r\nOrigin: http://evil.example",
        ];
        let answers = answers(Admin { log_level, ..admin(None) }, &requests);
        assert_eq!((answers[0].status, answers[0].text()), (200, "debug\n"));
        assert_eq!([answers[1].status, answers[2].status], [405, 403]);
    }

    #[test]
    fn other_hosts_are_refused_on_loopback() {
        let other = "GET /metrics\r\nHost: evil.example";
        let answers = answers(admin(None), &[other, "GET /metrics"]);
        assert_eq!([answers[0].status, answers[1].status], [421, 200]);
        assert_eq!(answers[0].json()["type"], "/problems/host-not-allowed");
    }

    #[test]
    fn other_requests_are_problems() {
        let answers = answers(admin(None), &["POST /metrics", "GET /v1/apps", "GET /metrics"]);
        assert_eq!([answers[0].status, answers[1].status], [405, 404]);
        let nosniff = |answer: &Answer| answer.header("x-content-type-options") == Some("nosniff");
        assert!(answers.iter().all(nosniff));
        assert_eq!(answers[0].header("content-type"), Some("application/problem+json"));
        let media_type = "text/plain; version=0.0.4; charset=utf-8";
        assert_eq!(answers[2].header("content-type"), Some(media_type));
    }
}
