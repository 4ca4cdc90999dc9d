//! Clients that send too much, too little, or nothing.

use std::io::{Read, Write};
use std::net::TcpStream;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, advance};

use super::*;
use crate::tests::bed::{Answer, Bed};

/// A connection to routes that answer at once, or never.
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

/// What is said until the connection ends, and after how long that is.
async fn until_end(client: &mut DuplexStream) -> (String, Duration) {
    let (start, mut said) = (Instant::now(), Vec::new());
    client.read_to_end(&mut said).await.unwrap();
    (String::from_utf8_lossy(&said).into_owned(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_nothing_is_let_go() {
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
        let (said, after) = until_end(&mut client).await;
        assert!(!said.starts_with("HTTP/1.1"), "{head}: {said}");
        assert_eq!(after, IDLE_MAX, "{head}");
    }
}

/// Each byte is in time, the whole is not.
#[tokio::test(start_paused = true)]
async fn a_request_that_comes_bit_by_bit_is_not_waited_for() {
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
async fn one_that_is_kept_open_ends_some_time_after_its_last_answer() {
    let mut client = open();
    for _ in 0..3 {
        client.write_all(b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"now") {
            said.push(client.read_u8().await.unwrap());
        }
        advance(IDLE_MAX - Duration::from_millis(1)).await;
    }
    let (said, after) = until_end(&mut client).await;
    assert_eq!((&*said, after), ("", Duration::from_millis(1)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_its_time() {
    let mut client = open();
    client.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let end = tokio::time::timeout(100 * IDLE_MAX, until_end(&mut client)).await;
    assert!(end.is_err(), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_answers_and_not_for_requests() {
    let at_once = || std::future::ready(());
    for (head, longest) in [("", Duration::ZERO), ("GET /now HTTP/1.1\r\n", IDLE_STOPPING_MAX)] {
        let mut client = open_until(at_once());
        client.write_all(head.as_bytes()).await.unwrap();
        let (said, after) = until_end(&mut client).await;
        assert!(said.is_empty() && after <= longest, "{head}: {said} after {after:?}");
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut client = open_until(async { drop(stopped.await) });
    client.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    advance(Duration::from_secs(1)).await;
    drop(stop);
    assert!(tokio::time::timeout(100 * IDLE_MAX, until_end(&mut client)).await.is_err());
}

/// The status that the bytes of a request are answered with.
#[track_caller]
fn check_status(bed: &Bed, request: &str, status: u16) {
    let mut stream = TcpStream::connect(bed.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // What is too much need not be read to its end.
    let _ = stream.write_all(request.as_bytes());
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert_eq!(Answer::parse(&said).status, status, "{}", &request[..request.len().min(80)]);
}

#[test]
fn what_is_too_large_is_told() {
    let bed = Bed::new(vec![]);
    let end = "Host: a\r\nConnection: close\r\n\r\n";
    let address = |bytes: usize| {
        let path = "/v1/apps?x=";
        format!("GET {path}{} HTTP/1.1\r\n{end}", "y".repeat(bytes - path.len()))
    };
    check_status(&bed, &address(65_534), 400);
    check_status(&bed, &address(65_535), 414);
    // Of two that are not in `headers`.
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
fn a_body_is_not_waited_for() {
    let bed = Bed::new(vec![]);
    for more in [
        "Content-Length: 1000000000000",
        "Content-Length: 5\r\nExpect: 100-continue",
        "Transfer-Encoding: chunked",
    ] {
        let mut stream = bed.open(&format!("GET /v1/apps HTTP/1.1\r\n{more}"));
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert_eq!(Answer::parse(&said).status, 200, "{more}");
    }
}

#[test]
fn a_silent_connection_does_not_hold_up_the_end() {
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
fn more_connections_than_there_may_be_wait() {
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
    assert!(waiting.read(&mut [0; 1]).is_err(), "nobody has left yet");
    ask(&mut first);
    first.read_to_end(&mut Vec::new()).unwrap();
    waiting.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    waiting.read_exact(&mut [0; 1]).unwrap();
    rest.clear();
}
