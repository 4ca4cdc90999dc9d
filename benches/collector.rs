//! Measures the collector: wrk reports clicks of Ocean Engine to the release binary in front of a real Kafka, and by
//! turns to an axum handler, in a process of its own, that reads the same parameters and answers without Kafka. Prints
//! clicks per CPU-second of both and their ratio, then latency and memory at half of the maximum rate. Fails if a click
//! that was answered with 200 is not in the topic.
//!
//! `ADTRAIL_BENCH_ROUNDS` sets the number of turns of each (5), and `ADTRAIL_BENCH_SECONDS` how long the half rate
//! lasts (60).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "support/clicks.rs"]
mod clicks;
mod support;

use std::env;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

// The crate sets the global allocator; without this line it would not be linked.
use adtrail as _;
use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use clicks::{Answers, CONNECTIONS, Load, Server};
use percent_encoding::percent_decode_str;
use support::{APP_KEY, count, memory_mib, version_of, wait_until_idle};
use testbed::adtrail::binary;
use testbed::free_port;
use testbed::kafka::Kafka;
use testbed::site::Site;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const PARTITIONS: i32 = 4;
const TURN: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(3);
/// The argument with which this program is the handler.
const SERVE: &str = "serve";

fn main() {
    if env::args().any(|arg| arg == SERVE) {
        return serve();
    }
    let rounds = count("ADTRAIL_BENCH_ROUNDS", 5).max(1);
    let half_rate_lasts = Duration::from_secs(count("ADTRAIL_BENCH_SECONDS", 60).max(10) as u64);
    println!("{}", testbed::machine());
    println!("{}, Apache Kafka {}", version_of(&binary()), Kafka::version());
    let kafka = Kafka::start_to_measure();
    let port = free_port();
    let site = Site::new(&kafka, "bench", PARTITIONS, &settings(port));
    let adtrail = site.start_role("collect");
    let address = format!("127.0.0.1:{port}");
    let collector = Server { name: "adtrail collect", address, pid: adtrail.pid() };
    let process = HandlerProcess::start();
    let (address, pid) = (process.address.clone(), process.child.id());
    let handler = Server { name: "axum handler", address, pid };
    let load = Load::new();
    println!("clicks with a path of {} bytes, {CONNECTIONS} connections", load.path.len());

    load.probe(&collector);
    load.probe(&handler);
    let mut answers = Answers { acknowledged: 1, ..Answers::default() };
    answers += load.turn(&collector, "warm-up", WARM_UP).answers;
    load.turn(&handler, "warm-up", WARM_UP);
    let maximum = by_turns(&load, &collector, &handler, rounds, &mut answers);
    wait_until_idle(&adtrail);
    let written = || kafka.written(&site.topics.clicks) as u64;
    let before = written();
    answers.check(before);

    let rate = maximum / 2.0;
    println!("\nhalf of the maximum rate: {rate:.0} clicks/s (target: p99 below 50 ms)");
    let answers = thread::scope(|scope| {
        scope.spawn(|| print_memory(&collector, half_rate_lasts));
        load.at_rate(&collector, rate, half_rate_lasts)
    });
    answers.check(written() - before);
    load.at_rate(&handler, rate, TURN);
    adtrail.stop();
}

/// Settings with limits that are counted, but never reached.
fn settings(port: u16) -> String {
    format!(
        r#"
[collect]
listen = "127.0.0.1:{port}"
connections_per_client_max = 1024
requests_per_address_max = 1000000
events_per_app_max = 1000000

[[apps]]
pid = 1
key = "{APP_KEY}"

[[channels]]
id = "oceanengine"

[[campaigns]]
spreadid = 7
pid = 1
channel = "oceanengine"
name = "Spring"
"#
    )
}

/// Runs both servers in each round, and prints the ratio of each pair. Returns the median of the collector's clicks per
/// second, and adds its answers to `answers`.
fn by_turns(
    load: &Load,
    collector: &Server,
    handler: &Server,
    rounds: usize,
    answers: &mut Answers,
) -> f64 {
    println!(
        "{:<16} {:>9} {:>8} {:>18} {:>8} {:>8}",
        "", "clicks/s", "CPU s", "clicks/CPU-second", "refused", "RSS MiB"
    );
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let run = format!("round-{round}");
        let turn = |server: &Server| {
            let turn = load.turn(server, &run, TURN);
            turn.print(server);
            turn
        };
        // Each is the first one in half of the rounds, because the machine may become slower or faster.
        let (ours, theirs) = if round % 2 == 1 {
            let ours = turn(collector);
            (ours, turn(handler))
        } else {
            let theirs = turn(handler);
            (turn(collector), theirs)
        };
        let ratio = ours.per_cpu_second() / theirs.per_cpu_second();
        println!("pair {round}: {} / {} {ratio:.3}", collector.name, handler.name);
        rates.push(ours.per_second());
        ratios.push(ratio);
        *answers += ours.answers;
    }
    println!("median of {rounds} pairs: {:.3} (target: at least 0.35)", median(ratios));
    median(rates)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the resident memory at the start, after each tenth of the time, and at the end.
fn print_memory(server: &Server, lasts: Duration) {
    let started = Instant::now();
    println!("{:>8} {:>8} {:>8}", "wall s", "RSS MiB", "peak MiB");
    for tenth in 0..=10 {
        sleep((lasts * tenth / 10).saturating_sub(started.elapsed()));
        let (resident, peak) = memory_mib(server.pid);
        println!("{:>8.0} {resident:>8} {peak:>8}", started.elapsed().as_secs_f64());
    }
}

/// The process of the handler. Dropping it kills the process.
struct HandlerProcess {
    child: Child,
    address: String,
}

impl HandlerProcess {
    fn start() -> Self {
        let program = env::current_exe().expect("the executable has a path");
        let mut child = Command::new(program)
            .arg(SERVE)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut address = String::new();
        BufReader::new(stdout).read_line(&mut address).expect("the handler prints its address");
        Self { child, address: address.trim_end().to_owned() }
    }
}

impl Drop for HandlerProcess {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints an address, and serves the handler there.
fn serve() {
    let runtime = Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        println!("{}", listener.local_addr().expect("the listener has an address"));
        let router = Router::new().route("/click/{app}/{channel}", get(answer));
        axum::serve(listener, router).await.expect("the handler serves");
    });
}

/// Decodes all parameters, as the collector does, and answers as soon as it has them.
async fn answer(path: Path<(String, String)>, uri: Uri) -> Result<&'static str, StatusCode> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let decode = |value| percent_decode_str(value).decode_utf8_lossy().into_owned();
    let parameters: Vec<(&str, String)> =
        pairs.map(|(name, value)| (name, decode(value))).collect();
    let is_click = parameters.iter().any(|(name, id)| *name == "request_id" && !id.is_empty());
    // Otherwise the compiler might leave out what is not used.
    drop(black_box((path, parameters)));
    if is_click { Ok("ok") } else { Err(StatusCode::BAD_REQUEST) }
}
