//! Clients of the data listener that send too much or nothing, or take too many connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use testbed::http2::{DATA, DEFAULT_WINDOW, END_STREAM, Frame, data, frames, preface};

use super::*;
use crate::tests::fixture::{Answer, Bed};

/// The limit of `listener`.
const HEADERS_MAX: usize = 100;

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
    let end = "Host: localhost\r\nConnection: close\r\n\r\n";
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
    // hyper checks the size before it reads more, so a head may be somewhat larger.
    check_status(&bed, &large(2 * HEAD_BYTES_MAX), 431);
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
        stream
            .write_all(b"GET /v1/apps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
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

#[test]
fn one_client_cannot_take_all_connections() {
    let bed = Bed::with(vec![], |config| config.export_clients.connections_per_client_max = 2);
    let open = || {
        let stream = TcpStream::connect(bed.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let ask = |mut stream: TcpStream| {
        let request = b"GET /v1/apps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut received = Vec::new();
        // A refused connection may end in a reset.
        let _ = stream.write_all(request);
        let _ = stream.read_to_end(&mut received);
        received.starts_with(b"HTTP/1.1 200")
    };
    let (first, _second) = (open(), open());
    assert_eq!(open().read(&mut [0; 1]).unwrap(), 0);
    assert!(ask(first));
    let again = (0..3_000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        ask(open())
    });
    assert!(again);
}

#[test]
fn an_unfinished_form_does_not_delay_shutdown() {
    let mut bed = Bed::new(vec![]);
    let mut stream = TcpStream::connect(bed.address).unwrap();
    let head = "POST /sign-in HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n";
    write!(stream, "{head}Content-Length: 100\r\n\r\nnext=").unwrap();
    assert_eq!(bed.get("/v1/apps").status, 200);
    bed.stop();
    bed.join();
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    assert!(received.is_empty() || received.starts_with(b"HTTP/1.1 408"));
}

/// The names of `:authority` count like those of `Host`.
#[test]
fn other_hosts_are_refused() {
    let bed = Bed::new(vec![]);
    for (authority, refused) in [("localhost", false), ("evil.example", true)] {
        let mut stream = TcpStream::connect(bed.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = testbed::http2::get(1, "/v1/apps", authority);
        stream.write_all(&[preface(DEFAULT_WINDOW), request].concat()).unwrap();
        let (mut received, mut buffer) = (Vec::new(), [0; 1 << 10]);
        let is_end = |frame: &Frame| frame.kind == DATA && frame.flags & END_STREAM != 0;
        while !frames(&received).iter().any(is_end) {
            let bytes = stream.read(&mut buffer).unwrap();
            assert_ne!(bytes, 0, "{authority}");
            received.extend_from_slice(&buffer[..bytes]);
        }
        let text = String::from_utf8(data(&frames(&received))).unwrap();
        assert_eq!(text.contains("/problems/host-not-allowed"), refused, "{text}");
        assert_eq!(text.contains("app-x"), !refused, "{text}");
    }
}
