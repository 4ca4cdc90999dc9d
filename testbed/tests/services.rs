//! Tests of the test bed itself.
#![cfg(test)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use adtrail_testbed::http;
use adtrail_testbed::prometheus::{Prometheus, check_metrics};

#[test]
fn prometheus_scrapes_and_promtool_checks_metrics() {
    let address = format!("127.0.0.1:{}", adtrail_testbed::free_port());
    let prometheus = Prometheus::start(&[&address]);
    assert_eq!(prometheus.value(&format!("up{{instance=\"{address}\"}}")), 0.0);
    // Prometheus scrapes itself as well.
    assert_eq!(prometheus.value("up == 1"), 1.0);
    assert!(prometheus.query("no_such_metric").is_empty());

    assert_eq!(
        check_metrics("# HELP a_total What it counts.\n# TYPE a_total counter\na_total 1\n"),
        ""
    );
    assert!(check_metrics("# TYPE a counter\na 1\n").contains("_total"));
}

/// Returns the reply of a server that sends exactly these bytes.
fn reply_of(sent: &'static str) -> http::Reply {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
    });
    let reply = http::get(&address, "/").unwrap();
    server.join().unwrap();
    reply
}

#[test]
fn truncated_replies_are_detected_and_trailers_are_read() {
    #[track_caller]
    fn check(sent: &'static str, body: &str, is_whole: bool) {
        let reply = reply_of(sent);
        assert_eq!((reply.text().as_str(), reply.is_whole), (body, is_whole), "{sent:?}");
    }
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "ab", true);
    check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "ab", false);
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = |rest: &str| -> &'static str { format!("{CHUNKED}{rest}").leak() };
    check(chunked("2\r\nab\r\n0\r\n\r\n"), "ab", true);
    check(chunked("2\r\nab\r\n0\r\nAdtrail-Rows: 1\r\n\r\n"), "ab", true);
    check(chunked("2\r\nab\r\n0\r\nAdtrail-Rows: 1\r\n"), "ab", false);
    check(chunked("2\r\nab\r\n"), "ab", false);
    check(chunked("3\r\nab"), "ab", false);
    let reply = reply_of(chunked("0\r\nAdtrail-Rows: 7\r\n\r\n"));
    assert_eq!(reply.trailer("adtrail-rows"), Some("7"));
}
