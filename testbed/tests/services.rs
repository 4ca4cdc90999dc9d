//! The test bed itself: the real programs start, and keep what they are given.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use adtrail_testbed::http;
use adtrail_testbed::kafka::{Kafka, Message};
use adtrail_testbed::prometheus::{Prometheus, check_metrics};

#[test]
fn kafka_keeps_what_librdkafka_and_kcat_produce() {
    let kafka = Kafka::shared();
    kafka.create_topic("bed.kept", 2, &[("retention.ms", "-1")]);
    let full = Message {
        partition: Some(1),
        headers: vec![("h".into(), b"\x01\xff".to_vec())],
        ..Message::new("k", "by librdkafka").at(1_510_000_000_000)
    };
    let tombstone = Message { partition: Some(1), ..Message::default() };
    kafka.produce("bed.kept", [full.clone(), tombstone]);
    kafka.kcat(&["-P", "-t", "bed.kept", "-p", "0", "-K", "|"], b"k|by kcat\n");

    let records = kafka.consume_all("bed.kept");
    let shown: Vec<_> = records
        .iter()
        .map(|r| (r.partition, r.offset, r.key.as_deref(), r.value.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            (0, 0, Some(&b"k"[..]), Some(&b"by kcat"[..])),
            (1, 0, Some(&b"k"[..]), Some(&b"by librdkafka"[..])),
            (1, 1, None, None),
        ]
    );
    assert_eq!(records[1].headers, full.headers);
    assert_eq!(records[1].time_ms, full.time_ms);
}

#[test]
fn prometheus_scrapes_and_promtool_judges() {
    let nobody = format!("127.0.0.1:{}", adtrail_testbed::free_port());
    let prometheus = Prometheus::start(&[&nobody]);
    assert_eq!(prometheus.value(&format!("up{{instance=\"{nobody}\"}}")), 0.0);
    // Of itself, once it has scraped itself.
    assert_eq!(prometheus.value("up == 1"), 1.0);
    assert!(prometheus.query("no_such_metric").is_empty());

    assert_eq!(
        check_metrics("# HELP a_total What it counts.\n# TYPE a_total counter\na_total 1\n"),
        ""
    );
    assert!(check_metrics("# TYPE a counter\na 1\n").contains("_total"));
}

#[test]
fn a_reply_cut_short_is_told_from_a_whole_one() {
    #[track_caller]
    fn check(sent: &'static str, body: &str, is_whole: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(sent.as_bytes()).unwrap();
        });
        let reply = http::get(&address, "/").unwrap();
        server.join().unwrap();
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
}

#[test]
fn trailers_follow_the_body() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let reply =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAdtrail-Rows: 7\r\n\r\n";
        stream.write_all(reply.as_bytes()).unwrap();
    });
    let reply = http::get(&address, "/").unwrap();
    server.join().unwrap();
    assert_eq!(reply.trailer("adtrail-rows"), Some("7"));
}
