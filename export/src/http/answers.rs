//! Limits how many answers of a caller are in memory at a time: those that are built from events or settings before
//! they are sent. An answer counts until its last byte was sent, so that a client that reads slowly cannot collect
//! them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use listener::Stopping;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument;

use super::access::{ANSWERS_PER_TOKEN_MAX, Caller};
use super::problem::Problem;
use crate::ExportError;

/// The time that a request waits for earlier ones of its caller.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Runs the handler as soon as the caller has fewer than [`ANSWERS_PER_TOKEN_MAX`] answers in memory.
pub(crate) async fn limit(
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let permit = in_time(stopping(&request), caller.start_answer()).await;
    let permit = permit.ok_or(ExportError::BusyToken { answers_max: ANSWERS_PER_TOKEN_MAX })?;
    counted(permit, request, next).await
}

/// The answers to all clients of a listener without authentication that may be in memory at a time.
#[derive(Clone)]
pub(crate) struct OfAll {
    answers: Arc<Semaphore>,
    answers_max: usize,
}

impl OfAll {
    pub fn new(answers_max: usize) -> Self {
        Self { answers: Arc::new(Semaphore::new(answers_max)), answers_max }
    }
}

/// Like [`limit`], for all clients together.
pub(crate) async fn limit_all(
    State(OfAll { answers, answers_max }): State<OfAll>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    // The semaphore is never closed.
    let permit = async { answers.acquire_owned().await.ok() };
    let permit = in_time(stopping(&request), permit).await;
    let permit = permit.ok_or(ExportError::BusyAnswers { answers_max })?;
    counted(permit, request, next).await
}

/// Waits for a permit, but not while the service stops: earlier answers of the client would delay the stop.
async fn in_time<T>(
    stopping: Option<Stopping>,
    permit: impl Future<Output = Option<T>>,
) -> Option<T> {
    let stopped = async {
        match stopping {
            Some(stopping) => stopping.wait().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        permit = permit => permit,
        () = stopped => None,
        () = tokio::time::sleep(WAIT_MAX) => None,
    }
}

fn stopping(request: &Request) -> Option<Stopping> {
    request.extensions().get().cloned()
}

/// Runs the handler to its end even if the client leaves, because a thread that reads for it goes on. Otherwise a
/// client could start any number of answers by leaving.
async fn counted(
    permit: OwnedSemaphorePermit,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let answer = async move {
        let response = next.run(request).await;
        response.map(|body| Body::new(Counted { body, _permit: permit }))
    };
    tokio::spawn(answer.in_current_span()).await.map_err(|_| ExportError::BrokenOff.into())
}

/// A body that counts until it is dropped.
struct Counted {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use axum::Router;
    use axum::body::to_bytes;
    use axum::http::{HeaderMap, Uri};
    use axum::middleware::{from_fn, from_fn_with_state};
    use axum::routing::get;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tokio::sync::watch;
    use tokio::time::{Instant, timeout};
    use tracing::{Metadata, Span};

    use super::*;
    use crate::Access;

    fn answering() -> Router {
        Router::new().route("/", get(async || "answer"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_until_an_answer_of_its_caller_was_sent() {
        let caller = Access::new(&[], 1).known(&HeaderMap::new()).unwrap();
        let router = answering().layer(from_fn(limit)).layer(Extension(caller));
        check_limit(router, "/", ANSWERS_PER_TOKEN_MAX).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_caller_waits_until_an_answer_to_any_was_sent() {
        let router = answering().layer(from_fn_with_state(OfAll::new(3), limit_all));
        check_limit(router, "/", 3).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_until_its_handler_ends_although_the_client_has_left() {
        let (finish, finished) = watch::channel(false);
        let handler = move || {
            let mut finished = finished.clone();
            async move {
                let _ = finished.wait_for(|finished| *finished).await;
                "answer"
            }
        };
        let router = Router::new().route("/", get(handler));
        let router = router.layer(from_fn_with_state(OfAll::new(2), limit_all));
        let service = TowerToHyperService::new(router);
        let ask = || service.call(Request::new(Body::empty()));
        for _ in 0..2 {
            assert!(timeout(WAIT_MAX / 2, ask()).await.is_err());
        }
        assert_eq!(ask().await.unwrap().status(), 503);
        finish.send_replace(true);
        assert_eq!(ask().await.unwrap().status(), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_while_the_service_stops() {
        let router = answering().layer(from_fn_with_state(OfAll::new(1), limit_all));
        let service = TowerToHyperService::new(router);
        let (stop, stopping) = watch::channel(false);
        let ask = || {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(Stopping(stopping.clone()));
            service.call(request)
        };
        let unsent = ask().await.unwrap();
        let (start, waiting) = (Instant::now(), tokio::spawn(ask()));
        tokio::time::sleep(WAIT_MAX / 4).await;
        stop.send_replace(true);
        assert_eq!(waiting.await.unwrap().unwrap().status(), 503);
        assert_eq!(start.elapsed(), WAIT_MAX / 4);
        drop(unsent);
        assert_eq!(ask().await.unwrap().status(), 200);
    }

    /// So that its log lines have the id of the request.
    #[tokio::test]
    async fn a_handler_runs_in_the_span_of_its_request() {
        let _logs = tracing::subscriber::set_default(tracing_subscriber::registry());
        let route = get(async || Span::current().metadata().map_or("none", Metadata::name));
        let router = Router::new().route("/", route);
        let router = router.layer(from_fn_with_state(OfAll::new(1), limit_all));
        let asked = TowerToHyperService::new(router).call(Request::new(Body::empty()));
        let answer = asked.instrument(tracing::error_span!("request")).await.unwrap();
        assert_eq!(to_bytes(answer.into_body(), 100).await.unwrap(), "request");
    }

    /// Checks that a request waits while as many answers as allowed are unsent.
    pub(crate) async fn check_limit(router: Router, path: &'static str, answers_max: usize) {
        let service = TowerToHyperService::new(router);
        let ask = || {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static(path);
            service.call(request)
        };
        let mut unsent = Vec::new();
        for _ in 0..answers_max {
            unsent.push(ask().await.unwrap());
        }
        assert!(unsent.iter().all(|answer| answer.status() == 200));
        let start = Instant::now();
        assert_eq!(ask().await.unwrap().status(), 503);
        assert_eq!(start.elapsed(), WAIT_MAX);
        unsent.pop();
        assert_eq!(ask().await.unwrap().status(), 200);
        assert_eq!(start.elapsed(), WAIT_MAX);
    }
}
