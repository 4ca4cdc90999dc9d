//! Clients without a token that try to take the memory or the connections of the service.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use testbed::adtrail::Adtrail;
use testbed::http2::{
    CONTINUATION, DATA, DEFAULT_WINDOW, END_STREAM, FIELD, HEADERS, field, fields, frame, frames,
    get, headers, preface, window_update,
};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{DEADLINE, http, run_ok};

/// Connections of each kind.
const CONNECTIONS: usize = 40;
/// Requests of a connection that exceeds the limit of 16.
const STREAMS: u32 = 200;
/// What all of them together may take, in MiB. Without limits, the fields of endless requests alone take about 900.
const GROWTH_MIB_MAX: u64 = 128;

/// Fields of [`FIELD`] that fill the limit of 80 KiB.
const FIELDS: usize = 1_700;

/// An unfinished form over HTTP/1.
const UNFINISHED_SIGN_IN: &[u8] =
    b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n\
    Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nnext=";
/// Connections that a listener serves at a time.
const LISTENER_CONNECTIONS: usize = 512;

/// `POST /sign-in` from our own page in HPACK, with more fields.
fn sign_in(more: usize) -> Vec<u8> {
    let from_own_page = field("sec-fetch-site", "same-origin");
    [fields("POST", "/sign-in", "localhost"), from_own_page, vec![FIELD; more]].concat()
}

/// Opens a connection that sends these bytes and then nothing.
fn open(adtrail: &Adtrail, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(&adtrail.export).unwrap();
    // The service need not read all of it.
    let _ = stream.write_all(bytes);
    stream
}

fn http2(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let start = preface(DEFAULT_WINDOW);
    [start].into_iter().chain(frames).collect::<Vec<_>>().concat()
}

/// Starts a service that waits at its end for as long as anything is in progress. A connection that is waited for would
/// keep the process.
fn start(name: &str, settings: &[(&str, &str)]) -> (Site, Adtrail) {
    start_with(name, "", settings)
}

/// Like [`start`], with more tables of the settings.
fn start_with(name: &str, tables: &str, settings: &[(&str, &str)]) -> (Site, Adtrail) {
    let site = Site::new(Kafka::shared(), name, 1, &format!("{ONE_CAMPAIGN}{tables}"));
    let site = site.set("run.shutdown_deadline", "1h");
    let site = settings.iter().fold(site, |site, (key, value)| site.set(key, value));
    let adtrail = site.start();
    (site, adtrail)
}

fn check_answered(adtrail: &Adtrail) {
    assert_eq!(adtrail.get("/v1/apps").unwrap().status, 200);
}

#[test]
fn requests_that_do_not_end_take_little_memory_and_do_not_delay_a_stop() {
    let (_site, adtrail) = start("hostile", &[("export.connections_per_client_max", "512")]);
    check_answered(&adtrail);
    let streams = |count: u32| (0..count).map(|n| 2 * n + 1);
    let unfinished_block = http2([
        frame(HEADERS, 0, 1, &sign_in(FIELDS)),
        frame(CONTINUATION, 0, 1, &[FIELD; FIELDS]),
        frame(CONTINUATION, 0, 1, &[FIELD; FIELDS]),
    ]);
    let with_fields =
        |count, fields| http2(streams(count).map(|n| headers(n, 0, &sign_in(fields))));
    let (many_fields, endless) = (with_fields(16, FIELDS), with_fields(STREAMS, FIELDS));
    let unfinished_forms = with_fields(16, 90);
    let unfinished_head =
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "y".repeat(79 << 10)).into_bytes();
    let attacks = [unfinished_block, many_fields, endless, unfinished_forms, unfinished_head];
    let mut connections = Vec::new();
    let growth_mib = adtrail.growth_mib(|| {
        for bytes in &attacks {
            connections.extend((0..CONNECTIONS).map(|_| open(&adtrail, bytes)));
            check_answered(&adtrail);
        }
        (0..10).for_each(|_| check_answered(&adtrail));
    });
    assert!(growth_mib < GROWTH_MIB_MAX, "{growth_mib} MiB");
    adtrail.stop();
    drop(connections);
}

#[test]
fn unfinished_sign_ins_of_one_client_leave_connections_to_others() {
    let (_site, adtrail) = start("hostile.one", &[]);
    let unfinished: Vec<_> =
        (0..LISTENER_CONNECTIONS).map(|_| open(&adtrail, UNFINISHED_SIGN_IN)).collect();
    let of_connections = "reason=\"connections\"";
    adtrail.await_metric("adtrail_export_refused_total", of_connections, |refused| refused > 0.0);
    // Another address of this machine. The limit ends a hang.
    let mut other = Command::new("curl");
    other.args(["--silent", "--fail", "--max-time", "120", "--interface", "127.0.0.2"]);
    let apps = run_ok(other.arg(format!("http://{}/v1/apps", adtrail.export)), b"");
    assert!(String::from_utf8_lossy(&apps).contains("app-x"));
    adtrail.stop();
    drop(unfinished);
}

/// Takes ten seconds, the time in which a form must arrive.
#[test]
fn unfinished_sign_ins_on_all_connections_are_cut_off() {
    let (_site, adtrail) = start("hostile.all", &[("export.connections_per_client_max", "512")]);
    let mut unfinished = Vec::new();
    let growth_mib = adtrail.growth_mib(|| {
        let connections = (0..LISTENER_CONNECTIONS).map(|_| open(&adtrail, UNFINISHED_SIGN_IN));
        unfinished.extend(connections);
        check_answered(&adtrail);
    });
    assert!(growth_mib < GROWTH_MIB_MAX, "{growth_mib} MiB");
    // More, which are open when the service stops.
    let connections = (0..LISTENER_CONNECTIONS / 2).map(|_| open(&adtrail, UNFINISHED_SIGN_IN));
    unfinished.extend(connections);
    check_answered(&adtrail);
    adtrail.stop();
    drop(unfinished);
}

/// Remembered completely, the addresses would take 180 MB.
#[test]
fn long_addresses_of_exports_are_not_remembered() {
    const EXPORTS: usize = 3_000;
    const ADDRESS_BYTES: usize = 60_000;
    const GROWTH_MIB_MAX: u64 = 64;
    let (_site, adtrail) = start("hostile.addresses", &[]);
    let range = "from=2025-03-10&to=2025-03-10";
    let name = "x".repeat(ADDRESS_BYTES);
    let address = format!("/v1/apps/app-x/events.csv?{range}&event_name={name}");
    let export = || {
        let reply = adtrail.get(&address).unwrap();
        assert!(reply.status == 200 && reply.is_whole, "{}", reply.status);
        reply.header("adtrail-export-id").unwrap().to_owned()
    };
    // The first requests fill buffers that are kept.
    (0..100).for_each(|_| drop(export()));
    let growth_mib = adtrail.growth_mib(|| (0..EXPORTS).for_each(|_| drop(export())));
    assert!(growth_mib < GROWTH_MIB_MAX, "{growth_mib} MiB");
    let known = adtrail.get(&format!("/v1/exports/{}", export())).unwrap();
    assert!(known.status == 200 && known.body.len() < 4_096, "{}", known.text());
    adtrail.stop();
}

/// Waits until this many requests of a connection have a response, and reads no bodies: the client has no window.
fn await_answers(stream: &mut TcpStream, count: usize) {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 4 << 10]);
    while frames(&received).iter().filter(|frame| frame.kind == HEADERS).count() < count {
        let bytes = stream.read(&mut buffer).unwrap();
        assert_ne!(bytes, 0, "the connection was closed");
        received.extend_from_slice(&buffer[..bytes]);
    }
}

/// If they repeated these addresses, the answers would take 370 MB.
#[test]
fn unread_answers_to_long_addresses_take_little_memory() {
    const CONNECTIONS: usize = 64;
    const STREAMS: u32 = 16;
    const ADDRESS_BYTES: usize = 65_000;
    let digest = "0".repeat(64);
    let token = format!("[[tokens]]\nid = \"partner\"\nsha256 = \"{digest}\"\napps = [\"*\"]\n");
    let (_site, adtrail) = start_with("hostile.pages", &token, &[]);
    let check_answered = || assert_eq!(adtrail.get("/openapi.json").unwrap().status, 200);
    check_answered();
    // A sign-in page, a page without a token, and the same as JSON. Each character would be escaped.
    let unknown = format!("/assets/{}", "\"".repeat(ADDRESS_BYTES));
    let attacks = [
        (format!("/?{}", "/".repeat(ADDRESS_BYTES)), "text/html"),
        (unknown.clone(), "text/html"),
        (unknown, "application/json"),
    ];
    let attacks = attacks.map(|(path, accept)| {
        let request = [fields("GET", &path, "localhost"), field("accept", accept)].concat();
        let requests = (0..STREAMS).map(|n| headers(2 * n + 1, END_STREAM, &request));
        [preface(0)].into_iter().chain(requests).collect::<Vec<_>>().concat()
    });
    let mut connections = Vec::new();
    let growth_mib = adtrail.growth_mib(|| {
        for bytes in attacks.iter().cycle().take(CONNECTIONS) {
            let mut connection = open(&adtrail, bytes);
            await_answers(&mut connection, STREAMS as usize);
            connections.push(connection);
        }
        (0..10).for_each(|_| check_answered());
    });
    assert!(growth_mib < GROWTH_MIB_MAX, "{growth_mib} MiB");
    adtrail.stop();
    drop(connections);
}

/// Bytes of a response that a slow client takes a second.
const STEP_BYTES: u32 = 256 << 10;

/// Takes a response until the connection ends, slowly as long as the service runs. Returns whether it was complete.
fn take_slowly(mut stream: TcpStream, has_ended: &AtomicBool) -> bool {
    let (mut received, mut buffer) = (Vec::new(), vec![0; STEP_BYTES as usize]);
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        received.extend_from_slice(&buffer[..bytes]);
        if !has_ended.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_secs(1));
        }
    }
    received.ends_with(b"\r\n0\r\n\r\n")
}

/// Like [`take_slowly`], for the first request of an HTTP/2 connection: opens the window step by step.
fn take_slowly_http2(mut stream: TcpStream) -> bool {
    let (mut received, mut buffer) = (Vec::new(), vec![0; STEP_BYTES as usize]);
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    loop {
        let is_open = match stream.read(&mut buffer) {
            Ok(bytes) => {
                received.extend_from_slice(&buffer[..bytes]);
                bytes > 0
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let updates = [window_update(0, STEP_BYTES), window_update(1, STEP_BYTES)].concat();
                stream.write_all(&updates).is_ok()
            }
            Err(_) => false,
        };
        if !is_open {
            let frames = frames(&received);
            return frames.iter().any(|frame| frame.kind == DATA && frame.flags & END_STREAM != 0);
        }
    }
}

/// At their speed, the clients would take more than half a minute.
#[test]
fn clients_that_take_large_answers_slowly_do_not_delay_a_stop() {
    const NAMES: usize = 25_000;
    let (site, adtrail) = start("hostile.slow", &[]);
    let effect = |n: usize| {
        let time = "2025-03-10T12:00:00Z";
        let line =
            format!(r#"{{"app":"app-x","event_id":"e-{n}","name":"{n:0256}","time":"{time}"}}"#);
        Message::new("app-x", line).at(1_741_608_000_000)
    };
    Kafka::shared().produce(&site.topics.effects, (0..NAMES).map(effect));
    adtrail.await_read(NAMES as u64);
    // 10 MB, which do not fit into the buffers of a socket.
    let by = "day,event_type,event_name,status,install_type,spreadid,campaign,channel";
    let path = format!("/v1/apps/app-x/summary?from=2025-03-10&to=2025-03-10&by={by}");
    let mut http1 = http::begin("GET", &adtrail.export, &path, &[], b"").unwrap();
    http1.read_exact(&mut [0; 1]).unwrap();
    let mut http2 = open(&adtrail, &[preface(0), get(1, &path, "localhost")].concat());
    await_answers(&mut http2, 1);
    adtrail.signal("TERM");
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let http1 = scope.spawn(|| take_slowly(http1, &has_ended));
        let http2 = scope.spawn(|| take_slowly_http2(http2));
        adtrail.check_ended(0, &[]);
        has_ended.store(true, Ordering::Relaxed);
        assert_eq!([http1.join().unwrap(), http2.join().unwrap()], [false, false]);
    });
}
