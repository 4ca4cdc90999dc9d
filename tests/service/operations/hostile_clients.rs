//! Clients without a token that try to take the memory or the connections of the service.

use std::io::Write;
use std::net::TcpStream;

use testbed::adtrail::Adtrail;
use testbed::kafka::Kafka;
use testbed::site::{ONE_CAMPAIGN, Site};

/// Connections of each kind; together fewer than `export.connections_per_client_max`.
const CONNECTIONS: usize = 30;
/// What all of them together may take, in MiB.
const GROWTH_MIB_MAX: u64 = 128;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// Fields of `FIELD` that fill the limit of 80 KiB.
const FIELDS: usize = 1_700;
/// HPACK's one byte for `accept-charset` without a value, 46 bytes of a header list.
const FIELD: u8 = 0x80 | 15;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `POST /sign-in` from our own page in HPACK, with more fields.
fn sign_in(more: usize) -> Vec<u8> {
    let start = b"\x83\x86\x04\x08/sign-in\x01\x09localhost\x00\x0esec-fetch-site\x0bsame-origin";
    [&start[..], &vec![FIELD; more]].concat()
}

/// Opens a connection that sends these bytes and then nothing.
fn open(adtrail: &Adtrail, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(&adtrail.export).unwrap();
    // The service need not read all of it.
    let _ = stream.write_all(bytes);
    stream
}

fn http2(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let start = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, b"")];
    start.into_iter().chain(frames).collect::<Vec<_>>().concat()
}

#[test]
fn requests_that_do_not_end_take_little_memory_and_do_not_delay_a_stop() {
    // A connection that is waited for would keep the process for as long.
    let site =
        Site::new(Kafka::shared(), "hostile", 1, ONE_CAMPAIGN).set("run.shutdown_deadline", "1h");
    let adtrail = site.start();
    assert_eq!(adtrail.get("/v1/apps").unwrap().status, 200);
    let before_kib = adtrail.status("VmRSS:");
    let streams = || (0..16).map(|n| 2 * n + 1);
    let unfinished_block = http2([
        frame(HEADERS, 0, 1, &sign_in(FIELDS)),
        frame(CONTINUATION, 0, 1, &[FIELD; FIELDS]),
        frame(CONTINUATION, 0, 1, &[FIELD; FIELDS]),
    ]);
    let many_fields = http2(streams().map(|n| frame(HEADERS, END_HEADERS, n, &sign_in(FIELDS))));
    let unfinished_forms = http2(streams().map(|n| frame(HEADERS, END_HEADERS, n, &sign_in(90))));
    let unfinished_head =
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "y".repeat(79 << 10)).into_bytes();
    let attacks = [unfinished_block, many_fields, unfinished_forms, unfinished_head];
    let open: Vec<_> = attacks
        .iter()
        .flat_map(|bytes| (0..CONNECTIONS).map(|_| open(&adtrail, bytes)).collect::<Vec<_>>())
        .collect();
    for _ in 0..10 {
        assert_eq!(adtrail.get("/v1/apps").unwrap().status, 200);
    }
    let growth_mib = adtrail.status("VmHWM:").saturating_sub(before_kib) / 1024;
    assert!(growth_mib < GROWTH_MIB_MAX, "{growth_mib} MiB");
    adtrail.stop();
    drop(open);
}
