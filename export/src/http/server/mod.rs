//! Connections: each is served by itself, with bounds on what a client may send before it is
//! answered, and on how long it may take.
//!
//! `axum::serve` has no such bounds, and would wait for ever for a request that does not come.

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

/// Of one listener at a time; who comes then waits to be accepted. The process has files to open
/// too.
const CONNECTIONS_MAX: usize = if cfg!(test) { 64 } else { 512 };
/// A connection on which nothing is asked for so long is ended, be it silent, kept open, or within
/// a request that does not come to its end.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// The same once the service stops.
const IDLE_STOPPING_MAX: Duration = Duration::from_secs(1);
/// Of a request's line and headers together. An address has at most 65,534 bytes, which is room for
/// ten thousand campaigns.
const HEAD_BYTES_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 100;
/// After a failure to accept that is not one connection's own.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// Serves until `shutdown`, then until what is asked by then is answered.
///
/// # Errors
/// None any more, once it listens.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stop, stopping) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = async {
            // Nobody closes it.
            let place = Arc::clone(&connections).acquire_owned().await;
            (accept(&listener).await, place)
        };
        let (stream, place) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut shutdown => break,
        };
        let (router, mut stopping) = (router.clone(), stopping.clone());
        tokio::spawn(async move {
            let stop = async { drop(stopping.changed().await) };
            connection(stream, router, stop).await;
            drop((stopping, place));
        });
    }
    drop((listener, stopping));
    stop.send_replace(());
    stop.closed().await;
    Ok(())
}

async fn accept(listener: &TcpListener) -> tokio::net::TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // The last bytes of an answer should not wait for an acknowledgement; where the
                // socket does not have the option, they do.
                drop(stream.set_nodelay(true));
                return stream;
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Answers one client, until it has no more requests or asks for nothing for too long; from `stop`
/// on only what it has asked already.
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
        // What goes wrong on a connection is its client's to see.
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

/// Ends once there has been no request for so long.
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

/// A request from its last header to the end of its answer's body.
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

/// A body, as long as which its request is ongoing.
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
