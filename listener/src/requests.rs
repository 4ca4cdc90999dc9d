//! The requests of a connection that are in progress.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, Request};
use tokio::sync::watch;
use tokio::time::Instant;

use super::turns::Place;

/// What HTTP/2 adds to the size of each field.
const FIELD_BYTES: usize = 32;

/// Requests from their last header to the end of the response body.
#[derive(Debug, Default)]
pub(super) struct Requests {
    ongoing: usize,
    /// When the last request ended.
    ended_at: Option<Instant>,
    /// Requests without a response yet that were received before the service stopped.
    unanswered: usize,
    long_responses: usize,
    /// A [`super::LongResponse`] is in progress, or the last response was one, of which the connection may have unsent
    /// bytes.
    has_long_response: bool,
    /// Size of the heads of requests without a response yet. Afterwards heads are no longer in memory.
    pub head_bytes: usize,
}

impl Requests {
    /// Returns since when there has been no request, counted from `start`; `None` while there is one.
    pub fn none_since(&self, start: Instant) -> Option<Instant> {
        (self.ongoing == 0).then(|| self.ended_at.map_or(start, |ended_at| ended_at.max(start)))
    }

    /// Checks whether a stop waits for the connection.
    pub fn are_awaited(&self) -> bool {
        self.unanswered > 0 || self.has_long_response
    }
}

/// Counts a request until it is dropped.
pub(super) struct Ongoing {
    requests: Arc<watch::Sender<Requests>>,
    is_unanswered: bool,
    is_long: bool,
    head_bytes: usize,
    /// `None` without a body, and once there is a response: afterwards the body is no longer in memory.
    place: Option<Place>,
}

impl Ongoing {
    pub fn new(
        requests: &Arc<watch::Sender<Requests>>,
        head_bytes: usize,
        place: Option<Place>,
        is_stopping: bool,
    ) -> Self {
        requests.send_modify(|requests| {
            requests.ongoing += 1;
            requests.unanswered += usize::from(!is_stopping);
            requests.head_bytes += head_bytes;
        });
        let (requests, is_unanswered) = (Arc::clone(requests), !is_stopping);
        Self { requests, is_unanswered, is_long: false, head_bytes, place }
    }

    /// The response is ready.
    pub fn answered(&mut self, is_long: bool) {
        let was_unanswered = std::mem::take(&mut self.is_unanswered);
        let head_bytes = std::mem::take(&mut self.head_bytes);
        self.is_long = is_long;
        self.place = None;
        self.requests.send_modify(|requests| {
            requests.unanswered -= usize::from(was_unanswered);
            requests.head_bytes -= head_bytes;
            requests.long_responses += usize::from(is_long);
            requests.has_long_response = requests.long_responses > 0;
        });
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        let Self { requests, is_unanswered, is_long, head_bytes, .. } = self;
        requests.send_modify(|requests| {
            requests.ongoing -= 1;
            requests.ended_at = Some(Instant::now());
            requests.unanswered -= usize::from(*is_unanswered);
            requests.head_bytes -= *head_bytes;
            requests.long_responses -= usize::from(*is_long);
        });
    }
}

/// Returns the size of a request's target and headers.
pub(super) fn head_bytes<T>(request: &Request<T>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + FIELD_BYTES
    };
    target + request.headers().iter().map(field).sum::<usize>()
}
