//! Bodies of requests, which must come in time, and of responses, which keep their request counted until they are sent.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::http::Version;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::watch;
use tracing::Span;

use super::requests::Ongoing;
use super::turns::{Place, SMALL_BODY_BYTES};
use super::{stall, stopped};

/// The time for a whole request body, from the last header, and again from the turn of a large one.
pub(super) const REQUEST_BODY_MAX: Duration = Duration::from_secs(10);
/// HTTP/2 bodies are sent in pieces of this size, so that a response that is one large buffer shows how much of it the
/// client has taken.
const PIECE_BYTES: usize = 16 << 10;

/// Why a request body ends early: it did not arrive in time, or not before the service stopped.
#[derive(Debug, thiserror::Error)]
#[error("the request body did not arrive in time")]
struct Unfinished;

/// Checks whether a request body failed because it did not arrive in time.
pub fn is_unfinished(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<Unfinished>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A future in a field.
type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A request body that fails if its client takes too long to send it, or if the service stops while it waits. What
/// exceeds a small body waits until no other request of the connection with a large one is unanswered.
pub(super) struct RequestBody {
    body: Incoming,
    read_bytes: usize,
    /// `None` for an empty body.
    place: Option<Place>,
    /// Completes with the turn, or with false if the service stops.
    turn: Option<Waiting<bool>>,
    /// `None` for an empty body, and once it has completed.
    cut_off: Option<Waiting<()>>,
    stopping: watch::Receiver<bool>,
}

impl RequestBody {
    pub fn new(body: Incoming, place: Option<Place>, stopping: watch::Receiver<bool>) -> Self {
        let cut_off = place.is_some().then(|| cut_off(stopping.clone()));
        Self { body, read_bytes: 0, place, turn: None, cut_off, stopping }
    }
}

fn cut_off(stopping: watch::Receiver<bool>) -> Waiting<()> {
    Box::pin(async move {
        tokio::select! {
            () = tokio::time::sleep(REQUEST_BODY_MAX) => {}
            () = stopped(stopping) => {}
        }
    })
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let is_large = this.read_bytes >= SMALL_BODY_BYTES && !this.body.is_end_stream();
        if let Some(place) = this.place.as_ref().filter(|place| is_large && !place.has_turn()) {
            let wait = || place.clone().take_turn(this.stopping.clone());
            let turn = this.turn.get_or_insert_with(|| Box::pin(wait()));
            let has_turn = ready!(turn.as_mut().poll(context));
            this.turn = None;
            if !has_turn {
                return Poll::Ready(Some(Err(Unfinished.into())));
            }
            this.cut_off = Some(cut_off(this.stopping.clone()));
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            if let Some(Ok(frame)) = &frame {
                this.read_bytes += frame.data_ref().map_or(0, Bytes::len);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        if let Some(cut_off) = &mut this.cut_off {
            ready!(cut_off.as_mut().poll(context));
            this.cut_off = None;
        }
        Poll::Ready(Some(Err(Unfinished.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body that keeps its request counted until it is dropped, and shows what the client takes.
pub(super) struct ResponseBody {
    body: Body,
    /// The rest of a frame of `body`.
    rest: Bytes,
    piece_bytes: usize,
    /// The span of the request, for what `body` logs.
    span: Span,
    _ongoing: Ongoing,
}

impl ResponseBody {
    pub fn new(body: Body, version: Version, ongoing: Ongoing, span: Span) -> Self {
        let piece_bytes = if version == Version::HTTP_2 { PIECE_BYTES } else { usize::MAX };
        Self { body, rest: Bytes::new(), piece_bytes, span, _ongoing: ongoing }
    }
}

/// Drops the body in the span: one that has not ended logs that.
impl Drop for ResponseBody {
    fn drop(&mut self) {
        let _in_span = self.span.enter();
        drop(std::mem::take(&mut self.body));
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            stall::response_has_none();
            let _in_span = this.span.enter();
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(this.piece_bytes));
        stall::response_waits();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, of_body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
