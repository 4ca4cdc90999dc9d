//! Measures callbacks. First the load of the bench `pipeline` by turns without an endpoint and with a webhook that wants
//! every activation and effect, into empty stores: its receiver refuses everything, so that callbacks are decided and
//! stored, but stay pending. Prints the ratio of CPU-seconds, and memory beside the number of pending callbacks: all of
//! it, what the store has of it in blocks and write buffers, and the rest. Then both are started again on their stores:
//! prints memory without an endpoint, and, as the receiver accepts the callbacks now, deliveries per second and per
//! CPU-second of the adtrail process.
//!
//! `ADTRAIL_BENCH_EVENTS` sets the number of events (5,000,000; a million effects are in 35,000,000),
//! `ADTRAIL_BENCH_ROUNDS` the number of turns of each (3), `ADTRAIL_BENCH_SECONDS` how long delivery lasts at most (60).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "support/produce.rs"]
mod produce;
mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

// The crate sets the global allocator; without this line it would not be linked.
use adtrail as _;
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use produce::produce;
use support::{
    APP, Events, count, cpu_seconds, has_read_all, memory_mib, version_of, wait_until_idle,
};
use testbed::adtrail::{Adtrail, binary, sum};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::Family;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const PARTITIONS: i32 = 4;
/// Older events are not sent: they are 10 ms apart, and the greatest `max_age` is five days.
const EVENTS_MAX: usize = 40_000_000;
/// `settle` of the settings.
const SETTLE: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Set once the receiver accepts callbacks.
static IS_ACCEPTING: AtomicBool = AtomicBool::new(false);
/// How many callbacks the receiver has accepted.
static ACCEPTED: AtomicU64 = AtomicU64::new(0);

fn main() {
    let total = count("ADTRAIL_BENCH_EVENTS", 5_000_000);
    assert!(total <= EVENTS_MAX, "ADTRAIL_BENCH_EVENTS: at most {EVENTS_MAX}");
    println!("{}", testbed::machine());
    println!("{}, Apache Kafka {}", version_of(&binary()), Kafka::version());
    let runtime = Runtime::new().expect("the runtime starts");
    let port = serve(&runtime);
    let kafka = Kafka::start_to_measure();
    let without = Site::new(&kafka, "bench", PARTITIONS, APP).set("store.retention", "400d");
    let mut callbacks = 0;
    let events = Events::until_now(total)
        .take(total)
        .inspect(|(family, _)| callbacks += u64::from(*family != Family::Touch));
    let (bytes, seconds) = produce(&kafka.brokers(), without.topics.all(), events);
    println!(
        "{total} events of {} bytes on average, with {callbacks} callbacks, produced in {seconds:.0} s",
        bytes / total as u64
    );
    let mut with = without.beside();
    with.change(&settings(port));
    let [without, pending] = by_turns(without, with, total, callbacks);
    println!(
        "\nwaiting for {SETTLE:?}, after which all callbacks are due: restarted without an endpoint"
    );
    let started = Instant::now();
    let adtrail = without.start();
    while started.elapsed() < SETTLE {
        sleep(SETTLE / 6);
        line("none", &adtrail, 0.0, started);
    }
    adtrail.stop();
    IS_ACCEPTING.store(true, Relaxed);
    deliver(&pending, Duration::from_secs(count("ADTRAIL_BENCH_SECONDS", 60).max(1) as u64));
}

/// Serves the receiver of the webhook. Returns its port.
fn serve(runtime: &Runtime) -> u16 {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let port = listener.local_addr().expect("the listener has an address").port();
    let router = Router::new().route("/hook", post(answer));
    runtime.spawn(async move { axum::serve(listener, router).await });
    port
}

/// Reads the body, so that the connection is kept.
async fn answer(_body: Bytes) -> StatusCode {
    if !IS_ACCEPTING.load(Relaxed) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    ACCEPTED.fetch_add(1, Relaxed);
    StatusCode::OK
}

/// Settings with the webhook, and with the greatest limits.
fn settings(port: u16) -> String {
    let settle = SETTLE.as_secs();
    format!(
        r#"{APP}
[callbacks]
settle = "{settle}s"
max_age = "5d"
allow_loopback = ["localhost"]

[[callbacks.endpoint]]
name = "hook"
preset = "webhook"
url = "http://localhost:{port}/hook"
kinds = ["activation.attributed", "effect.attributed"]
requests_per_second_max = 10000
in_flight_max = 256
credentials.secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"#
    )
}

/// Runs both in each round, and prints the ratio of each pair. Returns the last site of each.
fn by_turns(without: Site, with: Site, total: usize, callbacks: u64) -> [Site; 2] {
    println!(
        "{:<9} {:>10} {:>8} {:>8} {:>18} {:>10} {:>8} {:>8} {:>10} {:>8}",
        "endpoints",
        "events",
        "wall s",
        "CPU s",
        "events/CPU-second",
        "pending",
        "RSS MiB",
        "peak MiB",
        "store MiB",
        "rest MiB"
    );
    let rounds = count("ADTRAIL_BENCH_ROUNDS", 3).max(1);
    let (mut ratios, mut sites) = (Vec::new(), [without, with]);
    for round in 1..=rounds {
        sites = sites.map(|site| site.beside());
        let run_without = || run("none", &sites[0], total, 0);
        let run_with = || run("one", &sites[1], total, callbacks);
        // Each is the first one in half of the rounds, because the machine may become slower or faster.
        let (none, one) = if round % 2 == 1 {
            let none = run_without();
            (none, run_with())
        } else {
            let one = run_with();
            (run_without(), one)
        };
        let ratio = one.cpu / none.cpu;
        println!(
            "pair {round}: CPU with / without {ratio:.3}, {:.1} microseconds more per callback, RSS {:+} MiB, rest {:+} MiB",
            (one.cpu - none.cpu) / callbacks as f64 * 1e6,
            one.resident_mib - none.resident_mib,
            one.rest_mib - none.rest_mib
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of {rounds} pairs: {:.3} (target: at most 1.15)", ratios[rounds / 2]);
    sites
}

/// What a process has used, compactions included.
struct Usage {
    cpu: f64,
    resident_mib: i64,
    /// Without the blocks and write buffers of the store, which `store.memory` limits.
    rest_mib: i64,
}

/// Processes all events, and checks that all callbacks are stored.
fn run(endpoints: &str, site: &Site, total: usize, callbacks: u64) -> Usage {
    let started = Instant::now();
    let adtrail = site.start();
    let mut next_line = total as f64 / 5.0;
    while !has_read_all(&adtrail, total) {
        let read = adtrail.metric("adtrail_ingest_read_total").unwrap_or(0.0);
        if read >= next_line && read < total as f64 {
            line(endpoints, &adtrail, read, started);
            next_line += total as f64 / 5.0;
        }
        sleep(POLL_EVERY);
    }
    wait_until_idle(&adtrail);
    let usage = line(endpoints, &adtrail, total as f64, started);
    let made = adtrail.metric("adtrail_callbacks_made").unwrap_or(0.0);
    let (sent, pending) = sent_and_pending(&adtrail);
    assert_eq!(
        [made, sent, pending],
        [callbacks as f64, 0.0, callbacks as f64],
        "made, sent, pending"
    );
    adtrail.stop();
    usage
}

/// Prints the progress of the process.
fn line(endpoints: &str, adtrail: &Adtrail, events: f64, started: Instant) -> Usage {
    let cpu = cpu_seconds(adtrail.pid());
    let (resident_mib, peak) = memory_mib(adtrail.pid());
    let (_, pending) = sent_and_pending(adtrail);
    let store_mib = adtrail.metric("adtrail_store_cache_bytes").unwrap_or(0.0) / f64::from(1 << 20);
    let resident_mib = resident_mib as i64;
    let rest_mib = resident_mib - store_mib as i64;
    println!(
        "{endpoints:<9} {events:>10.0} {:>8.1} {cpu:>8.1} {:>18.0} {pending:>10.0} {resident_mib:>8} {peak:>8} {store_mib:>10.0} {rest_mib:>8}",
        started.elapsed().as_secs_f64(),
        events / cpu
    );
    Usage { cpu, resident_mib, rest_mib }
}

fn sent_and_pending(adtrail: &Adtrail) -> (f64, f64) {
    let metrics = adtrail.metrics();
    let of = |label| sum(&metrics, "adtrail_callbacks_by_state", label).unwrap_or(0.0);
    (of("state=\"sent\""), of("state=\"pending\""))
}

/// Sends until nothing is pending, or the time is over. Time and CPU include the start of the process.
fn deliver(site: &Site, lasts: Duration) {
    println!(
        "{:>8} {:>8} {:>10} {:>10} {:>8} {:>12} {:>8} {:>8}",
        "wall s", "CPU s", "sent", "pending", "sent/s", "sent/CPU-s", "RSS MiB", "peak MiB"
    );
    let started = Instant::now();
    let adtrail = site.start();
    let mut tenth = 1;
    loop {
        sleep(POLL_EVERY);
        let (sent, pending) = sent_and_pending(&adtrail);
        let (wall, cpu) = (started.elapsed(), cpu_seconds(adtrail.pid()));
        let is_over = pending == 0.0 || wall >= lasts;
        if is_over || wall >= lasts * tenth / 10 {
            let (resident, peak) = memory_mib(adtrail.pid());
            let wall = wall.as_secs_f64();
            println!(
                "{wall:>8.1} {cpu:>8.1} {sent:>10.0} {pending:>10.0} {:>8.0} {:>12.0} {resident:>8} {peak:>8}",
                sent / wall,
                sent / cpu
            );
            tenth += 1;
        }
        if is_over {
            let accepted = ACCEPTED.load(Relaxed);
            assert!(accepted as f64 >= sent, "{sent} are sent, but {accepted} were accepted");
            println!("target: at least 2000 per second on one core");
            break;
        }
    }
    adtrail.stop();
}
