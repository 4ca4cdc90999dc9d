//! Clients without a token that try to take the memory or the connections of the service.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use testbed::adtrail::Adtrail;
use testbed::http2::{
    CONTINUATION, DEFAULT_WINDOW, FIELD, HEADERS, field, fields, frame, headers, preface,
};
use testbed::kafka::Kafka;
use testbed::run_ok;
use testbed::site::{ONE_CAMPAIGN, Site};

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
    let site = Site::new(Kafka::shared(), name, 1, ONE_CAMPAIGN).set("run.shutdown_deadline", "1h");
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
