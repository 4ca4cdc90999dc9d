//! All routes of the data listener.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

use super::answers;
use super::gate;
use super::hosts::{self, Hosts};
use super::problem;
use crate::api::{campaign_devices, catalogue, explain, summary, timeline};
use crate::appsflyer;
use crate::download::handler::{events, exported};
use crate::http::respond;
use crate::http::state::ExportState;
use crate::metrics::Metrics;
use crate::openapi;
use crate::page;

type Route = fn() -> MethodRouter<ExportState>;

/// Routes of the API, for the router and for the test that calls all of them with another app's token. For a path
/// with `{app}`, the gate has checked that the caller may read the app.
pub(crate) const ROUTES: &[(&str, Route)] = &[
    ("/v1/apps", || limited(get(catalogue::apps))),
    ("/v1/apps/{app}/events.csv", || compressed(get(events))),
    ("/v1/apps/{app}/events.ndjson", || compressed(get(events))),
    ("/v1/apps/{app}/summary", || limited(get(summary::summary))),
    ("/v1/apps/{app}/summary.csv", || limited(get(summary::summary))),
    ("/v1/apps/{app}/campaigns", || limited(get(catalogue::campaigns))),
    ("/v1/apps/{app}/campaigns/{spreadid}/devices", || limited(get(campaign_devices::devices))),
    ("/v1/apps/{app}/devices/{kind}/{value}", || limited(get(timeline::device))),
    ("/v1/apps/{app}/activations/{event_id}/explain", || limited(get(explain::activation))),
    ("/v1/exports/{id}", || get(exported)),
    ("/api/raw-data/export/app/{app}/{report}/v5", || compressed(get(appsflyer::raw_data))),
];

/// Pages, behind the same gate.
pub(crate) const PAGES: &[(&str, Route)] = &[
    ("/", || compressed(limited(get(page::home)))),
    ("/download", || limited(get(page::download))),
    ("/exports", || compressed(limited(get(page::exports)))),
    ("/activations", || compressed(limited(get(page::activation)))),
    ("/devices", || compressed(limited(get(page::devices).post(page::device)))),
    ("/links", || compressed(limited(get(page::links)))),
    ("/callbacks", || compressed(limited(get(page::callbacks)))),
];

/// Routes without data, which need no token.
pub(crate) const OPEN_ROUTES: &[(&str, Route)] = &[("/openapi.json", || get(openapi::description))];

/// Pages that are served before a user has signed in.
pub(crate) const OPEN_PAGES: &[(&str, Route)] = &[
    ("/assets/{name}", || get(page::asset)),
    ("/sign-in", || get(page::sign_in).post(page::signed_in)),
    ("/sign-out", || post(page::sign_out)),
];

/// Compresses responses. It runs in the tasks of the connections, not on the threads that scan.
fn compressed(route: MethodRouter<ExportState>) -> MethodRouter<ExportState> {
    route.layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
}

/// Limits the answers of a caller that are in memory. Downloads have their own limits. What is small whatever the
/// request and the events, such as an error or the state of an export, needs none.
fn limited(route: MethodRouter<ExportState>) -> MethodRouter<ExportState> {
    route.layer(middleware::from_fn(answers::limit))
}

/// All routes of the data listener, reached by one of these names.
pub(crate) fn router(state: ExportState, hosts: Hosts) -> Router {
    let metrics = Arc::clone(&state.metrics);
    let routes_of = |routes: &[(&str, Route)]| {
        let routes =
            routes.iter().fold(Router::new(), |all, (path, route)| all.route(path, route()));
        routes.method_not_allowed_fallback(problem::method_not_allowed).with_state(state.clone())
    };
    let closed = routes_of(ROUTES).merge(routes_of(PAGES)).fallback(problem::not_found);
    closed
        .layer(middleware::from_fn_with_state(state.clone(), gate::pass))
        .merge(routes_of(OPEN_ROUTES))
        .merge(routes_of(OPEN_PAGES))
        .layer(middleware::from_fn(appsflyer::rewrite_problems))
        .layer(middleware::from_fn_with_state(state.clone(), page::into_page))
        // A refusal must not become a page, which shows names of apps.
        .layer(middleware::from_fn_with_state((state, hosts), hosts::pass))
        .layer(middleware::from_fn_with_state(metrics, count))
        .layer(middleware::map_response(respond::nosniff))
}

async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    metrics.answered(response.status());
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{HeaderMap, StatusCode};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tokio::runtime;

    use super::*;
    use crate::http::access::ANSWERS_PER_TOKEN_MAX;
    use crate::tests::fixture::Bed;

    /// Their answers are small, or downloads, which have their own limits.
    const UNLIMITED: [&str; 4] = [
        "/v1/apps/{app}/events.csv",
        "/v1/apps/{app}/events.ndjson",
        "/v1/exports/{id}",
        "/api/raw-data/export/app/{app}/{report}/v5",
    ];

    /// Requests get no answer while as many of their caller as are allowed are in memory.
    #[test]
    fn answers_from_memory_are_limited() {
        let bed = Bed::new(vec![]);
        let caller = bed.state.access.known(&HeaderMap::new()).unwrap();
        let service = TowerToHyperService::new(router(bed.state.clone(), Hosts::any()));
        let is_limited = |(route, _): &&(&str, Route)| !UNLIMITED.contains(route);
        let limited: Vec<_> = ROUTES.iter().chain(PAGES).filter(is_limited).collect();
        assert_eq!(limited.len() + UNLIMITED.len(), ROUTES.len() + PAGES.len());
        let paused = runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        paused.unwrap().block_on(async {
            let mut answers = Vec::new();
            for _ in 0..ANSWERS_PER_TOKEN_MAX {
                answers.push(caller.start_answer().await.unwrap());
            }
            for (route, _) in limited {
                let target = route.replace("{app}", "app-x").replace(['{', '}'], "");
                let mut request = Request::new(Body::empty());
                *request.uri_mut() = target.parse().unwrap();
                let answer = service.call(request).await.unwrap();
                assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{route}");
            }
        });
    }
}
