//! Serves connections, each on its own, with limits on what a client may send before it gets a response and on how
//! long it may take.
//!
//! `axum::serve` has no such limits and would wait forever for a request that does not come. This crate knows nothing
//! of adtrail: routes, authentication and metrics are the callers'. Start with [`serve`]; `clients` counts connections
//! per client, `requests` the requests of a connection, `turns` limits their bodies, `stall` finds clients that take
//! nothing, `socket` and `body` observe the bytes, `request_id` names requests in logs.

mod body;
mod clients;
mod request_id;
mod requests;
mod socket;
mod stall;
mod turns;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody as _;
use axum::http::{Request, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, Span};

pub use body::is_unfinished;
use body::{RequestBody, ResponseBody};
use clients::OnRefusal;
pub use clients::{Clients, Refused, client_network};
use request_id::REQUEST_ID;
pub use request_id::RequestId;
use requests::{Ongoing, Requests, head_bytes};
use socket::Socket;
pub use stall::STALLED_MAX;
use stall::{STALLED_STOPPING_MAX, StreamTasks, Untaken};
use turns::Turns;

/// The limits that differ between listeners.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections of the listener; further clients wait to be accepted.
    pub connections_max: usize,
    /// Request line and headers together, at least 8 KiB; with HTTP/2, decoded and with 32 bytes for each field.
    pub head_bytes_max: usize,
}

/// A request extension: the address of the client at the other end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// A request extension: whether the service stops.
#[derive(Debug, Clone)]
pub struct Stopping(pub watch::Receiver<bool>);

impl Stopping {
    /// Completes once the service stops.
    pub async fn wait(self) {
        stopped(self.0).await;
    }
}

/// A response extension: the response may take long to be sent. A connection with such a response stays open while the
/// service stops, as long as its client takes something.
#[derive(Debug, Clone, Copy)]
pub struct LongResponse;

/// A connection without a request for this long is closed, whether it is silent, kept alive, or in the middle of a
/// request that does not end.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// The same while the service stops.
const IDLE_STOPPING_MAX: Duration = Duration::from_secs(1);
/// The time in which a client must take responses while the service stops, except [`LongResponse`]s.
const ANSWERS_STOPPING_MAX: Duration = Duration::from_secs(5);
const HEADERS_MAX: usize = 100;
/// The heads of all concurrent requests of an HTTP/2 connection. One request alone is never refused for this reason.
const HEADS_BYTES_MAX: usize = 256 << 10;
/// Concurrent requests of one HTTP/2 connection.
const STREAMS_MAX: u32 = 16;
/// What a client may send of one request body before the handler reads it. Forms are smaller.
const REQUEST_WINDOW_BYTES: u32 = 16 << 10;
/// The same of all request bodies of an HTTP/2 connection. Bodies that wait for their turn must not keep the one whose
/// turn it is from being sent.
const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX * REQUEST_WINDOW_BYTES;
/// What is kept of one HTTP/2 response until the socket takes it.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The wait after an error of `accept` that is not of a single connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// Serves until `shutdown`, then until all requests received by then are answered. Each request is answered by the
/// router that is the current one when it arrives.
pub async fn serve(
    listener: TcpListener,
    routers: watch::Receiver<Router>,
    clients: Clients,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let connections = Arc::new(Semaphore::new(limits.connections_max));
    let (stop, stopping) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&connections).acquire_owned().await;
            (accept(&listener).await, permit)
        };
        let ((stream, address), permit) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut shutdown => break,
        };
        // Closes the connection of a client that has too many.
        let Some(admitted) = clients.admit(address.ip()) else { continue };
        let (routers, stopping) = (routers.clone(), stopping.clone());
        let on_refusal = Arc::clone(&clients.on_refusal);
        tokio::spawn(async move {
            let client = ClientAddress(address.ip().to_canonical());
            connection(stream, client, routers, limits, on_refusal, stopping).await;
            drop((admitted, permit));
        });
    }
    drop((listener, stopping));
    stop.send_replace(true);
    stop.closed().await;
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // The last bytes of a response should not wait for an acknowledgement. If the socket lacks the
                // option, they do.
                drop(stream.set_nodelay(true));
                return (stream, address);
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

/// Serves one client until it closes the connection, is idle for too long or takes nothing for too long. When the
/// service stops, it waits only for requests that were already received.
async fn connection(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: ClientAddress,
    routers: watch::Receiver<Router>,
    limits: Limits,
    on_refusal: OnRefusal,
    stopping: watch::Receiver<bool>,
) {
    let (counted, requests) = watch::channel(Requests::default());
    let counted = Arc::new(counted);
    let (stops, turns) = (stopping.clone(), Turns::new());
    let refuse = Arc::clone(&on_refusal);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (version, head_bytes) = (request.version(), head_bytes(&request));
        let id = RequestId::new(request.headers());
        let span = id.span();
        let of_others = counted.borrow().head_bytes;
        // HTTP/1 is limited by its parser. HTTP/2 limits bytes only, and a field can take one byte of a request.
        let is_refused = request.headers().len() > HEADERS_MAX
            || (of_others > 0 && of_others + head_bytes > HEADS_BYTES_MAX);
        if is_refused {
            refuse(Refused::Head);
        }
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(id.clone());
        request.extensions_mut().insert(Stopping(stops.clone()));
        let kept_bytes = if is_refused { 0 } else { head_bytes };
        let place = (!request.body().is_end_stream()).then(|| turns.place());
        let mut ongoing = Ongoing::new(&counted, kept_bytes, place.clone(), *stops.borrow());
        let answer = (!is_refused).then(|| {
            let router = routers.borrow().clone();
            let routes = TowerToHyperService::new(router.into_service::<RequestBody>());
            routes.call(request.map(|body| RequestBody::new(body, place, stops.clone())))
        });
        let answered = async move {
            let mut response = match answer {
                Some(answer) => answer.await?,
                None => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response(),
            };
            response.headers_mut().insert(REQUEST_ID, id.into_header());
            ongoing.answered(response.extensions().get::<LongResponse>().is_some());
            Ok::<_, Infallible>(paced(response, version, ongoing))
        };
        answered.instrument(span)
    });
    let untaken = Untaken::default();
    let io = TokioIo::new(Socket::new(io, untaken.clone()));
    let builder = builder(StreamTasks::new(stopping.clone()), limits);
    let mut served = pin!(builder.serve_connection(io, service));
    tokio::select! {
        // Errors of a connection concern only its client.
        ended = served.as_mut() => {
            if let Some(refused) = ended.err().and_then(|error| refusal(&*error)) {
                on_refusal(refused);
            }
            return;
        }
        () = idle(&requests, &untaken, IDLE_MAX) => return,
        () = untaken.stalled(STALLED_MAX) => return,
        () = stopped(stopping) => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = served => {}
        () = idle(&requests, &untaken, IDLE_STOPPING_MAX) => {}
        () = untaken.stalled_from_now(STALLED_STOPPING_MAX) => {}
        () = overdue(requests.clone(), ANSWERS_STOPPING_MAX) => {}
    }
}

/// Returns what hyper has refused, if the connection has ended for that reason.
fn refusal(error: &(dyn Error + Send + Sync + 'static)) -> Option<Refused> {
    let error = error.downcast_ref::<hyper::Error>()?;
    match error.is_parse_too_large() {
        true => Some(Refused::Head),
        false => error.is_parse().then_some(Refused::Syntax),
    }
}

fn paced(response: Response, version: Version, ongoing: Ongoing) -> Response<ResponseBody> {
    response.map(|body| ResponseBody::new(body, version, ongoing, Span::current()))
}

/// Limits the memory that a client can take with requests that do not end: with HTTP/1 the head, with HTTP/2 one
/// unfinished header block and the window. h2 stops storing the fields of a block at `max_header_list_size`. It closes
/// the connection at four times that, or if the block has more CONTINUATION frames than that size needs and a quarter
/// more, for example 6 at 80 KiB. Its defaults limit resets (20 requests that were not yet accepted, 1,024 errors of
/// the client) and small DATA frames.
fn builder(streams: StreamTasks, limits: Limits) -> Builder<StreamTasks> {
    let mut builder = Builder::new(streams);
    let list_bytes_max = u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX);
    builder.http1().max_buf_size(limits.head_bytes_max).max_headers(HEADERS_MAX);
    builder
        .http2()
        .max_header_list_size(list_bytes_max)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(REQUEST_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES);
    builder
}

/// Completes once the service stops.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    let has_stopped = stopping.wait_for(|stops| *stops).await.is_ok();
    if !has_stopped {
        // The listener is gone, which does not concern its connections.
        std::future::pending::<()>().await;
    }
}

/// Completes once there has been no request, and no rest of a response that the client takes, for `longest` from now.
/// Begins and ends of requests do not wake it.
async fn idle(requests: &watch::Receiver<Requests>, untaken: &Untaken, longest: Duration) {
    let start = Instant::now();
    loop {
        let now = Instant::now();
        let none_since = requests.borrow().none_since(start);
        let since =
            none_since.zip(untaken.nothing_since()).map_or(now, |(of, taken)| of.max(taken));
        if now.duration_since(since) >= longest {
            return;
        }
        sleep_until(since + longest).await;
    }
}

/// Completes once no request is awaited, and the rest of the responses has had `longest` to be sent.
async fn overdue(mut requests: watch::Receiver<Requests>, longest: Duration) {
    let is_open = requests.wait_for(|requests| !requests.are_awaited()).await.is_ok();
    if !is_open {
        // The connection ends by itself.
        return std::future::pending().await;
    }
    tokio::time::sleep(longest).await;
}

#[cfg(test)]
mod tests;
