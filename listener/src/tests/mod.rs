//! Clients that send too much, too little, or nothing, or take nothing.

mod http2;

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance};

use super::body::REQUEST_BODY_MAX;
use super::*;

const HEAD_BYTES_MAX: usize = 80 << 10;
const LIMITS: Limits = Limits { connections_max: 64, head_bytes_max: HEAD_BYTES_MAX };
/// The address of the client.
const CLIENT: ClientAddress = ClientAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));

/// Bytes of the responses at `/large` and `/download`.
const LARGE_BYTES: usize = 400 << 10;

/// The time until `/late` responds.
const LATE: Duration = Duration::from_secs(4);

/// A connection to routes that respond at once, late, never or at a stop, with much, or to a form.
fn open() -> DuplexStream {
    open_until(running()).0
}

/// The signal of a service that does not stop.
fn running() -> watch::Receiver<bool> {
    watch::channel(false).1
}

fn open_until(stopping: watch::Receiver<bool>) -> (DuplexStream, JoinHandle<()>) {
    open_with(Arc::new(|_| ()), stopping)
}

fn open_with(
    on_refusal: OnRefusal,
    stopping: watch::Receiver<bool>,
) -> (DuplexStream, JoinHandle<()>) {
    let routes = Router::new()
        .route("/now", get(async || "now"))
        .route("/late", get(late))
        .route("/never", get(async || std::future::pending::<String>().await))
        .route("/stopping", get(until_stop))
        .route("/large", get(async || Body::new(Large::default())))
        .route("/download", get(async || (Extension(LongResponse), Body::new(Large::default()))))
        .route("/form", post(form))
        .route("/upload", post(upload))
        .route("/address", get(address));
    let (_, routers) = watch::channel(routes);
    let (client, server) = duplex(1 << 10);
    (client, tokio::spawn(connection(server, CLIENT, routers, LIMITS, on_refusal, stopping)))
}

async fn address(Extension(ClientAddress(address)): Extension<ClientAddress>) -> String {
    address.to_string()
}

/// A body of [`LARGE_BYTES`] in two frames.
#[derive(Default)]
struct Large(usize);

impl HttpBody for Large {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const FRAME_BYTES: usize = LARGE_BYTES / 2;
        self.0 += FRAME_BYTES;
        let frame = || Ok(Frame::data(Bytes::from_static(&[b'y'; FRAME_BYTES])));
        Poll::Ready((self.0 <= LARGE_BYTES).then(frame))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(LARGE_BYTES.saturating_sub(self.0) as u64)
    }
}

async fn late() -> &'static str {
    tokio::time::sleep(LATE).await;
    "late"
}

async fn until_stop(Extension(stopping): Extension<Stopping>) -> &'static str {
    stopping.wait().await;
    "stopping"
}

async fn form(request: Request) -> &'static str {
    match axum::body::to_bytes(request.into_body(), 100).await {
        Ok(_) => "whole",
        Err(error) if is_unfinished(&error) => "unfinished",
        Err(_) => "failed",
    }
}

/// Answers late, with the body in memory.
async fn upload(request: Request) -> String {
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await;
    tokio::time::sleep(LATE).await;
    body.map_or_else(|error| error.to_string(), |body| format!("{} bytes;", body.len()))
}

/// Reads until the connection ends; returns the bytes and how long it took.
async fn bytes_until_end(client: &mut DuplexStream) -> (Vec<u8>, Duration) {
    let (start, mut received) = (Instant::now(), Vec::new());
    client.read_to_end(&mut received).await.unwrap();
    (received, start.elapsed())
}

/// Reads until the connection ends; returns the text and how long it took.
async fn until_end(client: &mut DuplexStream) -> (String, Duration) {
    let (received, after) = bytes_until_end(client).await;
    (String::from_utf8_lossy(&received).into_owned(), after)
}

/// Returns how long it takes until the server has ended a connection.
async fn ended(served: JoinHandle<()>) -> Duration {
    let start = Instant::now();
    served.await.unwrap();
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_is_disconnected() {
    const HTTP2: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let heads = [
        "",
        "G",
        "GET /now HTTP/1.1\r\n",
        "GET /now HTTP/1.1\r\nHost: a\r\nX: ",
        "PRI * HTTP",
        HTTP2,
    ];
    for head in heads {
        let mut client = open();
        client.write_all(head.as_bytes()).await.unwrap();
        let (received, after) = until_end(&mut client).await;
        assert!(!received.starts_with("HTTP/1.1"), "{head}: {received}");
        assert_eq!(after, IDLE_MAX, "{head}");
    }
}

/// Each byte is in time, the whole request is not.
#[tokio::test(start_paused = true)]
async fn a_slowly_trickling_request_is_cut_off() {
    let mut client = open();
    let start = Instant::now();
    client.write_all(b"GET /now HTTP/1.1\r\n").await.unwrap();
    while client.write_all(b"X: y\r\n").await.is_ok() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(start.elapsed() <= IDLE_MAX + Duration::from_secs(1));
    }
    assert!(start.elapsed() >= IDLE_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_kept_alive_connection_is_closed_after_an_idle_time() {
    let mut client = open();
    for _ in 0..3 {
        client.write_all(b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"now") {
            received.push(client.read_u8().await.unwrap());
        }
        advance(IDLE_MAX - Duration::from_millis(1)).await;
    }
    let (received, after) = until_end(&mut client).await;
    assert_eq!((&*received, after), ("", Duration::from_millis(1)));
}

#[tokio::test(start_paused = true)]
async fn a_response_may_take_long() {
    let mut client = open();
    client.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let end = tokio::time::timeout(100 * IDLE_MAX, until_end(&mut client)).await;
    assert!(end.is_err(), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_responses_but_not_for_requests() {
    for (head, longest) in [("", Duration::ZERO), ("GET /now HTTP/1.1\r\n", IDLE_STOPPING_MAX)] {
        let (mut client, _served) = open_until(watch::channel(true).1);
        client.write_all(head.as_bytes()).await.unwrap();
        let (received, after) = until_end(&mut client).await;
        assert!(received.is_empty() && after <= longest, "{head}: {received} after {after:?}");
    }
    let (stop, stopping) = watch::channel(false);
    let (mut client, _served) = open_until(stopping);
    client.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    advance(Duration::from_secs(1)).await;
    stop.send_replace(true);
    assert!(tokio::time::timeout(100 * IDLE_MAX, until_end(&mut client)).await.is_err());
}

/// The handler gets an error if the form comes too slowly, or if the service stops.
#[tokio::test(start_paused = true)]
async fn a_request_body_must_arrive_in_time() {
    const HEAD: &[u8] = b"POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let (stop, stopping) = watch::channel(false);
    for (body, text, longest) in [
        (&b"12345"[..], "whole", Duration::ZERO),
        (&b"1234"[..], "unfinished", REQUEST_BODY_MAX),
        (&b""[..], "unfinished", REQUEST_BODY_MAX),
    ] {
        let (mut client, _served) = open_until(stopping.clone());
        client.write_all(&[HEAD, body].concat()).await.unwrap();
        let start = Instant::now();
        let mut received = Vec::new();
        while !received.ends_with(text.as_bytes()) {
            received.push(client.read_u8().await.unwrap());
        }
        assert_eq!(start.elapsed(), longest, "{text}");
    }
    let (mut client, served) = open_until(stopping);
    client.write_all(HEAD).await.unwrap();
    advance(Duration::from_secs(1)).await;
    stop.send_replace(true);
    assert!(ended(served).await <= IDLE_STOPPING_MAX);
    assert!(until_end(&mut client).await.0.ends_with("unfinished"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_disconnected() {
    let request = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let (mut client, served) = open_until(running());
    client.write_all(request).await.unwrap();
    assert_eq!(ended(served).await, STALLED_MAX);

    let (stop, stopping) = watch::channel(false);
    let (mut client, served) = open_until(stopping);
    client.write_all(request).await.unwrap();
    advance(STALLED_MAX / 2).await;
    stop.send_replace(true);
    assert_eq!(ended(served).await, STALLED_STOPPING_MAX);
}

/// The client takes something every second, for far longer than an answer may take.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_slow_downloads_but_not_for_slow_answers() {
    for (path, is_cut_off) in [("/large", true), ("/download", false)] {
        let (stop, stopping) = watch::channel(false);
        let (mut client, served) = open_until(stopping);
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        let (start, mut received, mut buffer) = (Instant::now(), Vec::new(), [0; 1 << 10]);
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let bytes = client.read(&mut buffer).await.unwrap();
            if bytes == 0 {
                break;
            }
            received.extend_from_slice(&buffer[..bytes]);
        }
        let is_whole = received.ends_with("y".repeat(LARGE_BYTES).as_bytes());
        assert_eq!(is_whole, !is_cut_off, "{path}: {} bytes", received.len());
        assert_eq!(start.elapsed() <= 2 * ANSWERS_STOPPING_MAX, is_cut_off, "{path}");
        served.await.unwrap();
    }
}

/// Each pause is longer than the idle time, and the rest of the body is in the buffer of the connection in the end.
#[tokio::test(start_paused = true)]
async fn a_slow_download_is_not_cut_off() {
    let (mut client, _served) = open_until(running());
    let request = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write_all(request).await.unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 900]);
    loop {
        tokio::time::sleep(2 * IDLE_MAX).await;
        let bytes = client.read(&mut buffer).await.unwrap();
        if bytes == 0 {
            break;
        }
        received.extend_from_slice(&buffer[..bytes]);
    }
    assert!(received.ends_with("y".repeat(LARGE_BYTES).as_bytes()), "{} bytes", received.len());
}

/// Returns what is noted of a client that sends this.
async fn refused(sent: &[u8]) -> Vec<Refused> {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&noted);
    let (mut client, served) =
        open_with(Arc::new(move |refused| note.lock().push(refused)), running());
    // Fails if the server ends the connection before.
    let _ = client.write_all(sent).await;
    let _ = client.read_to_end(&mut Vec::new()).await;
    served.await.unwrap();
    noted.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn requests_that_no_handler_sees_are_noted() {
    let request = |head: &str| format!("GET /now HTTP/1.1\r\nHost: a\r\n{head}\r\n");
    assert!(refused(request("").as_bytes()).await.is_empty());
    assert!(refused(b"").await.is_empty());
    assert_eq!(refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await, [Refused::Syntax]);
    assert_eq!(refused(request("no header\r\n").as_bytes()).await, [Refused::Syntax]);
    let large = format!("X: {}\r\n", "y".repeat(HEAD_BYTES_MAX));
    assert_eq!(refused(request(&large).as_bytes()).await, [Refused::Head]);
    let many = "X: y\r\n".repeat(HEADERS_MAX + 1);
    assert_eq!(refused(request(&many).as_bytes()).await, [Refused::Head]);
}

#[tokio::test(start_paused = true)]
async fn a_request_carries_the_address_of_its_client() {
    let mut client = open();
    let request = b"GET /address HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write_all(request).await.unwrap();
    assert!(until_end(&mut client).await.0.ends_with("\r\n\r\n127.0.0.1"));
}
