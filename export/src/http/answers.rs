//! Limits how many answers of a caller are in memory at a time: those that are built from events or settings before they
//! are sent.
//! An answer counts until its last byte was sent, so that a client that reads slowly cannot collect them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

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
    let permit = tokio::time::timeout(WAIT_MAX, caller.start_answer()).await.ok().flatten();
    let permit = permit.ok_or(ExportError::BusyToken { answers_max: ANSWERS_PER_TOKEN_MAX })?;
    Ok(next.run(request).await.map(|body| Body::new(Counted { body, _permit: permit })))
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
mod tests {
    use axum::Router;
    use axum::http::HeaderMap;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tokio::time::Instant;

    use super::*;
    use crate::Access;

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_until_an_answer_of_its_caller_was_sent() {
        let caller = Access::new(&[], 1).known(&HeaderMap::new()).unwrap();
        let router = Router::new().route("/", get(async || "answer"));
        let router = router.layer(from_fn(limit)).layer(Extension(caller));
        let service = TowerToHyperService::new(router);
        let ask = || service.call(Request::new(Body::empty()));
        let mut unsent = Vec::new();
        for _ in 0..ANSWERS_PER_TOKEN_MAX {
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
