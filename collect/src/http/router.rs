//! All routes.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};

use listener::ClientAddress;

use super::client::client_address;
use super::problem::Problem;
use super::{appsflyer, events, go, problem, report};
use crate::Collector;
use crate::echo::request_line;

/// Maximum length of a URL, of which networks allow this much.
const URL_BYTES_MAX: usize = 10 << 10;

pub(crate) fn router(collector: Collector) -> Router {
    Router::new()
        .route("/click/{app}/{channel}", reports().get(report::click).post(report::click))
        .route(
            "/impression/{app}/{channel}",
            reports().get(report::impression).post(report::impression),
        )
        .route("/go/{link}", get(go::go))
        .route("/activation/{app}", post(events::activation))
        .route("/effect/{app}", post(events::effect))
        .route(
            "/v1.0/s2s/click/app/{platform}/{app}",
            reports().get(appsflyer::click).post(appsflyer::click),
        )
        .route(
            "/v1.0/s2s/impression/app/{platform}/{app}",
            reports().get(appsflyer::impression).post(appsflyer::impression),
        )
        .route("/inappevent/{app}", post(appsflyer::in_app_event))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::not_found)
        .layer(middleware::from_fn_with_state(collector.clone(), pass))
        .with_state(collector)
}

/// Returns a router for reports, without handlers yet. With `get` alone, `HEAD` would report, too.
fn reports() -> MethodRouter<Collector> {
    MethodRouter::new().head(problem::no_head)
}

/// Refuses long URLs and too many requests of an address, but for persons, who are redirected. Counts and shows refused
/// requests, and keeps responses out of caches.
async fn pass(State(collector): State<Collector>, mut request: Request, next: Next) -> Response {
    let length = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let echo = collector.echo();
    let shown = echo.map(|echo| (echo, format!("{} {}", request.method(), request.uri())));
    let mut response = if length > URL_BYTES_MAX {
        Problem::url_too_long(URL_BYTES_MAX).into_response()
    } else if is_admitted(&collector, &request) {
        next.run(request).await
    } else if request.uri().path().starts_with("/go/") {
        request.extensions_mut().insert(go::BeyondRate);
        next.run(request).await
    } else {
        Problem::too_many_requests().into_response()
    };
    if let Some(reason) = response.extensions().get::<problem::Reason>() {
        collector.metrics().refused_request(reason.name);
        if let Some((echo, request)) = shown {
            echo(&request_line(&request, reason.name, &reason.detail));
        }
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn is_admitted(collector: &Collector, request: &Request) -> bool {
    // Every request has an address.
    request.extensions().get::<ClientAddress>().is_none_or(|ClientAddress(peer)| {
        let is_trusted = |address| collector.is_trusted_proxy(address);
        collector.admits(client_address(*peer, request.headers(), is_trusted))
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::test_bed::{Bed, Server};

    #[tokio::test]
    async fn responses_stay_out_of_caches() {
        let bed = Bed::new("");
        let server = Server::start(&bed.collector).await;
        let check = async |path: &str, status: u16| {
            let mut client = server.connect("127.0.0.1").await;
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
            for header in ["cache-control: no-store", "x-content-type-options: nosniff"] {
                assert!(answer.lines().any(|line| line == header), "{path}: {answer}");
            }
        };
        check("/click/app-x/c?spreadid=7&click_id=c-1", 200).await;
        check("/go/l", 302).await;
        check("/click/app-x/c?spreadid=7", 400).await;
        check("/nothing", 404).await;
        check("/activation/app-x", 405).await;
        check(&format!("/{}", "y".repeat(URL_BYTES_MAX)), 414).await;
    }

    #[tokio::test]
    async fn clients_of_a_trusted_proxy_have_a_rate_each() {
        let settings = "requests_per_address_max = 1\ntrusted_proxies = [\"10.0.0.1\"]";
        let bed = Bed::new(settings);
        let admits = |client: u32| {
            let proxy = ClientAddress("10.0.0.1".parse().unwrap());
            let request = Request::get("/nothing").extension(proxy);
            let request = request.header("x-forwarded-for", format!("203.0.113.{client}"));
            is_admitted(&bed.collector, &request.body(Body::empty()).unwrap())
        };
        assert!((0..100).all(admits));
    }
}
