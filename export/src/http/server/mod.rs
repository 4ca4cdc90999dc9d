//! Serves connections, each on its own, with limits on what a client may send before it gets a response and on how
//! long it may take.
//!
//! `axum::serve` has no such limits and would wait forever for a request that does not come.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// Connections of one listener; further clients wait to be accepted. The process needs file descriptors for other
/// things, too.
pub const CONNECTIONS_MAX: usize = if cfg!(test) { 64 } else { 512 };
/// A connection without a request for this long is closed, whether it is silent, kept alive, or in the middle of a
/// request that does not end.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// The same while the service stops.
const IDLE_STOPPING_MAX: Duration = Duration::from_secs(1);
/// Request line and headers together. A URL has at most 65,534 bytes, enough for ten thousand campaigns.
const HEAD_BYTES_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 100;
/// The wait after an error of `accept` that is not of a single connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// Serves until `shutdown`, then until all requests received by then are answered.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stop, stopping) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&connections).acquire_owned().await;
            (accept(&listener).await, permit)
        };
        let (stream, permit) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut shutdown => break,
        };
        let (router, mut stopping) = (router.clone(), stopping.clone());
        tokio::spawn(async move {
            let stop = async { drop(stopping.changed().await) };
            connection(stream, router, stop).await;
            drop((stopping, permit));
        });
    }
    drop((listener, stopping));
    stop.send_replace(());
    stop.closed().await;
}

async fn accept(listener: &TcpListener) -> tokio::net::TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // The last bytes of a response should not wait for an acknowledgement. If the socket lacks the
                // option, they do.
                drop(stream.set_nodelay(true));
                return stream;
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Serves one client until it closes the connection or is idle for too long; after `stop`, it answers only requests
/// that were already received.
async fn connection(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    stop: impl Future<Output = ()>,
) {
    let (count, requests) = watch::channel(0);
    let count = Arc::new(count);
    let routes = TowerToHyperService::new(router.into_service::<Incoming>());
    let service = service_fn(move |request| {
        let (answer, ongoing) = (routes.call(request), Ongoing::new(&count));
        async move { Ok::<_, Infallible>(answer.await?.map(|body| Counted { body, _ongoing: ongoing })) }
    });
    let builder = builder();
    let mut served = pin!(builder.serve_connection(TokioIo::new(io), service));
    tokio::select! {
        // Errors of a connection concern only its client.
        _ = served.as_mut() => return,
        () = idle(requests.clone(), IDLE_MAX) => return,
        () = stop => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = served => {}
        () = idle(requests, IDLE_STOPPING_MAX) => {}
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    builder.http2().max_header_list_size(HEAD_BYTES_MAX as u32);
    builder
}

/// Completes once there has been no request for `longest`.
async fn idle(mut requests: watch::Receiver<usize>, longest: Duration) {
    loop {
        let is_none = *requests.borrow_and_update() == 0;
        let changed = tokio::select! {
            () = tokio::time::sleep(longest), if is_none => return,
            changed = requests.changed() => changed,
        };
        // No more requests can come, and the connection ends by itself.
        if changed.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Counts a request from its last header to the end of the response body.
struct Ongoing(Arc<watch::Sender<usize>>);

impl Ongoing {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|requests| *requests += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.0.send_modify(|requests| *requests -= 1);
    }
}

/// A response body that keeps its request counted until it is dropped.
struct Counted {
    body: Body,
    _ongoing: Ongoing,
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
mod tests;
