//! Clients that send too much, too little, or nothing.

use std::io::{Read, Write};
use std::net::TcpStream;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, advance};

use super::*;
use crate::tests::fixture::{Answer, Bed};

/// A connection to routes that respond at once or never.
fn open() -> DuplexStream {
    open_until(std::future::pending())
}

fn open_until(stop: impl Future<Output = ()> + Send + 'static) -> DuplexStream {
    let routes = Router::new()
        .route("/now", get(async || "now"))
        .route("/never", get(async || std::future::pending::<String>().await));
    let (client, server) = duplex(1 << 10);
    tokio::spawn(connection(server, routes, stop));
    client
}

/// Reads until the connection ends; returns the text and how long it took.
async fn until_end(client: &mut DuplexStream) -> (String, Duration) {
    let (start, mut received) = (Instant::now(), Vec::new());
    client.read_to_end(&mut received).await.unwrap();
    (String::from_utf8_lossy(&received).into_owned(), start.elapsed())
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
    let at_once = || std::future::ready(());
    for (head, longest) in [("", Duration::ZERO), ("GET /now HTTP/1.1\r\n", IDLE_STOPPING_MAX)] {
        let mut client = open_until(at_once());
        client.write_all(head.as_bytes()).await.unwrap();
        let (received, after) = until_end(&mut client).await;
        assert!(received.is_empty() && after <= longest, "{head}: {received} after {after:?}");
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut client = open_until(async { drop(stopped.await) });
    client.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    advance(Duration::from_secs(1)).await;
    drop(stop);
    assert!(tokio::time::timeout(100 * IDLE_MAX, until_end(&mut client)).await.is_err());
}

/// Checks the status with which a raw request is answered.
#[track_caller]
fn check_status(bed: &Bed, request: &str, status: u16) {
    let mut stream = TcpStream::connect(bed.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server need not read an oversized request to its end.
    let _ = stream.write_all(request.as_bytes());
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    assert_eq!(Answer::parse(&received).status, status, "{}", &request[..request.len().min(80)]);
}

#[test]
fn oversized_requests_are_rejected_with_their_status() {
    let bed = Bed::new(vec![]);
    let end = "Host: a\r\nConnection: close\r\n\r\n";
    let address = |bytes: usize| {
        let path = "/v1/apps?x=";
        format!("GET {path}{} HTTP/1.1\r\n{end}", "y".repeat(bytes - path.len()))
    };
    check_status(&bed, &address(65_534), 400);
    check_status(&bed, &address(65_535), 414);
    // `end` adds two headers to `headers`.
    let many =
        |headers: usize| format!("GET /v1/apps HTTP/1.1\r\n{}{end}", "X: y\r\n".repeat(headers));
    check_status(&bed, &many(HEADERS_MAX - 2), 200);
    check_status(&bed, &many(HEADERS_MAX - 1), 431);
    let large =
        |bytes: usize| format!("GET /v1/apps HTTP/1.1\r\nX: {}\r\n{end}", "y".repeat(bytes));
    check_status(&bed, &large(HEAD_BYTES_MAX - 1_000), 200);
    check_status(&bed, &large(HEAD_BYTES_MAX), 431);
    check_status(&bed, "nonsense\r\n\r\n", 400);
}

#[test]
fn request_bodies_are_not_awaited() {
    let bed = Bed::new(vec![]);
    for more in [
        "Content-Length: 1000000000000",
        "Content-Length: 5\r\nExpect: 100-continue",
        "Transfer-Encoding: chunked",
    ] {
        let mut stream = bed.open(&format!("GET /v1/apps HTTP/1.1\r\n{more}"));
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert_eq!(Answer::parse(&received).status, 200, "{more}");
    }
}

#[test]
fn a_silent_connection_does_not_delay_shutdown() {
    let mut bed = Bed::new(vec![]);
    let mut silent = TcpStream::connect(bed.address).unwrap();
    let mut begun = TcpStream::connect(bed.address).unwrap();
    begun.write_all(b"GET /v1/apps HTTP/1.1\r\n").unwrap();
    // Both are accepted by then.
    assert_eq!(bed.get("/v1/apps").status, 200);
    bed.stop();
    bed.join();
    assert!(matches!(silent.read(&mut [0; 1]), Ok(0) | Err(_)));
}

#[test]
fn connections_over_the_limit_wait() {
    let bed = Bed::new(vec![]);
    let open = || TcpStream::connect(bed.address).unwrap();
    let mut first = open();
    let mut rest: Vec<_> = (1..CONNECTIONS_MAX).map(|_| open()).collect();
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /v1/apps HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    };
    let mut waiting = open();
    ask(&mut waiting);
    waiting.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(waiting.read(&mut [0; 1]).is_err(), "no connection has been closed yet");
    ask(&mut first);
    first.read_to_end(&mut Vec::new()).unwrap();
    waiting.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    waiting.read_exact(&mut [0; 1]).unwrap();
    rest.clear();
}
