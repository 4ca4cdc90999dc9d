//! Compares the export with ClickHouse, DuckDB and PostgreSQL: all systems write the rows of one of ten apps to a
//! file, with the same 30 columns and the same bytes. Then measures the export over HTTP, small exports and the time
//! to the first byte.
//!
//! `ADTRAIL_BENCH_ROWS` sets the number of rows (10,000,000), a tenth of which is exported; `ADTRAIL_BENCH_ROUNDS` the
//! number of rounds, in which the systems take turns (5).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "support/stored.rs"]
mod stored;
mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use adtrail as _;
use config::Config;
use export::{Access, ExportQuery, ExportState, Format};
use store::embedded::Embedded;
use store::reader::Reader;
use tokio::net::TcpListener;

use stored::fill;
use support::{APP, APP_KEY, count, cpu_seconds};

const APPS: u32 = 10;
const FIELDS: &str = "event_type,event_name,event_time,app,pid,event_id,status,install_type,\
    spreadid,campaign,channel,match_type,touch_type,touch_time,click_id,activation_id,\
    activation_time,contributor1_spreadid,contributor1_channel,contributor1_touch_type,\
    contributor1_touch_time,contributor1_match_type,oaid,ip,ua,device_model,os,os_version,revenue,\
    currency";
/// Number of small exports, sent one after the other on one connection.
const SMALL_EXPORTS: usize = 500;
const PEERS: [&str; 3] = ["clickhouse", "duckdb", "postgresql"];

fn main() {
    println!("{}", testbed::machine());
    let total = count("ADTRAIL_BENCH_ROWS", 10_000_000);
    let rounds = count("ADTRAIL_BENCH_ROUNDS", 5);
    install();
    let folder = tempfile::tempdir().expect("the folder is created");
    let config = settings(folder.path());
    let mut store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    fill(&mut store, total, |number| 1 + (number % u64::from(APPS)) as u32);
    let bench = Bench { reader: store.reader(), config, folder: folder.path().to_owned() };
    let rows = folder.path().join("rows.csv");
    bench.write_all(&rows);
    let mut peers: Vec<Peer> = PEERS.map(|name| Peer::load(name, folder.path(), &rows)).into();
    std::fs::remove_file(&rows).expect("the rows are a file");

    println!("{} of {total} rows, 30 columns, to a file", total / APPS as usize);
    let ours = bench.file("adtrail.csv");
    let mut results = Results::new();
    for _ in 0..rounds {
        results.add("adtrail", bench.export(&ours));
        results.add("adtrail, by HTTP", bench.curl(&ours));
        for peer in &mut peers {
            results.add(peer.name, peer.export());
            assert!(is_same(&ours, &peer.out), "{} writes different bytes", peer.name);
        }
    }
    results.print(total as f64 / f64::from(APPS));
    bench.http();
}

/// Installs the dependencies of the peers if they are missing.
fn install() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new(root.join("scripts/install")).arg("--peers").status();
    assert!(status.expect("the install script runs").success(), "the peers cannot be installed");
}

/// Returns settings with ten apps, each with one campaign.
fn settings(folder: &Path) -> Config {
    let others = (2..=APPS).map(|pid| {
        format!(
            "[[apps]]\npid = {pid}\nkey = \"app-{pid}\"\n[[campaigns]]\nspreadid = {}\npid = {pid}\n\
             channel = \"channel-1\"\nname = \"Spring\"\n",
            pid + 6
        )
    });
    let text: String = std::iter::once(APP.to_owned()).chain(others).collect();
    let mut config = config::parse(&text).expect("the settings are valid");
    config.store = config.store.keeping_all(folder.join("store"));
    config
}

struct Bench {
    reader: Reader,
    config: Config,
    folder: PathBuf,
}

impl Bench {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn query() -> ExportQuery {
        let range = [("from", "2026-01-01"), ("to", "2030-01-01"), ("fields", FIELDS)];
        ExportQuery::parse(Format::Csv, range).expect("the query is valid")
    }

    /// Writes the rows of all apps in key order, with a sequence number in the first column.
    fn write_all(&self, path: &Path) {
        let mut file = BufWriter::new(File::create(path).expect("the file is created"));
        let apps: Vec<_> = self.config.policy.apps().collect();
        let mut number = 0_u64;
        export::write_rows(&self.reader, &apps, &Self::query(), &self.config.policy, |chunk| {
            for line in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
                let head = if number == 0 { "seq".to_owned() } else { number.to_string() };
                number += 1;
                file.write_all(&[head.as_bytes(), b",", line].concat())
                    .expect("the file can be written");
            }
            ControlFlow::Continue(())
        })
        .expect("the export succeeds");
        file.flush().expect("the file can be written");
    }

    /// Exports one app to a file, in this process, as the peers do.
    fn export(&self, path: &Path) -> Turn {
        let app = self.config.policy.app_by_key(APP_KEY).expect("the app is configured");
        remove(path);
        let (wall, cpu) = (Instant::now(), cpu_seconds(std::process::id()));
        let mut file = File::create(path).expect("the file is created");
        export::write_rows(&self.reader, &[app], &Self::query(), &self.config.policy, |chunk| {
            file.write_all(&chunk.bytes).expect("the file can be written");
            ControlFlow::Continue(())
        })
        .expect("the export succeeds");
        drop(file);
        let cpu = cpu_seconds(std::process::id()) - cpu;
        Turn { wall: wall.elapsed().as_secs_f64(), cpu }
    }

    /// Exports the same rows over HTTP. The CPU time of the client is not counted.
    fn curl(&self, path: &Path) -> Turn {
        let before = Self::bytes_of(path);
        remove(path);
        let turn = self.serve(|address| {
            let (wall, cpu) = (Instant::now(), cpu_seconds(std::process::id()));
            let out = ["-o", path.to_str().expect("the path is valid UTF-8")];
            curl(&out, &Self::url(address, APP_KEY, "2030-01-01", ""));
            let cpu = cpu_seconds(std::process::id()) - cpu;
            Turn { wall: wall.elapsed().as_secs_f64(), cpu }
        });
        assert!(before == Self::bytes_of(path), "the download has different bytes");
        turn
    }

    fn bytes_of(path: &Path) -> Vec<u8> {
        std::fs::read(path).expect("the file can be read")
    }

    fn url(address: &str, app: &str, to: &str, more: &str) -> String {
        let fields = FIELDS;
        format!(
            "http://{address}/v1/apps/{app}/events.csv?from=2026-01-01&to={to}&fields={fields}{more}"
        )
    }

    /// Calls `run` with the address of a running export server.
    fn serve<T>(&self, run: impl FnOnce(&str) -> T) -> T {
        let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
        let state = ExportState::new(
            self.reader.clone(),
            Arc::clone(&self.config.policy),
            Access::new(&[], 16),
            Arc::new(|| None),
        );
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("the listener has an address").to_string();
        runtime.spawn(export::serve(
            listener,
            state,
            self.config.export_clients.clone(),
            std::future::pending(),
        ));
        let result = run(&address);
        runtime.shutdown_background();
        result
    }

    /// Measures small exports one after the other, and the time to the first byte of small and large ones.
    fn http(&self) {
        let timed = "%{time_total} %{time_starttransfer}\n";
        let null = ["-o", "/dev/null", "-w", timed];
        self.serve(|address| {
            let small = Self::url(address, APP_KEY, "2026-03-01T00:02:40", "");
            // A URL glob of curl: repeats the request on one connection.
            let many = format!("{small}&limit=[100001-{}]", 100_000 + SMALL_EXPORTS);
            let body = curl(&[], &small);
            let lines = body.lines().count() - 1;
            let mut times = times(&curl(&null, &many));
            times.sort_by(f64::total_cmp);
            let at = |percent: usize| 1e3 * times[(times.len() - 1) * percent / 100];
            println!(
                "an export of {lines} rows by HTTP, {SMALL_EXPORTS} on one connection: p50 {:.2} ms, \
                 p99 {:.2}",
                at(50),
                at(99)
            );
            for (name, to) in [("1 day", "2026-03-01"), ("all", "2030-01-01")] {
                let mut first: Vec<f64> = (0..11)
                    .map(|_| {
                        let times = curl(&null, &Self::url(address, APP_KEY, to, ""));
                        let first = times.split_whitespace().nth(1).and_then(|text| text.parse().ok());
                        first.expect("curl prints the time")
                    })
                    .collect();
                first.sort_by(f64::total_cmp);
                println!("first byte of {name}: p50 {:.1} ms, maximum {:.1}", 1e3 * first[5], 1e3 * first[10]);
            }
        });
    }
}

/// Runs curl and returns its standard output.
fn curl(options: &[&str], url: &str) -> String {
    let output = Command::new("curl").args(["-sS", "--fail"]).args(options).arg(url).output();
    let output = output.expect("curl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("valid UTF-8")
}

/// Returns the first number of each line.
fn times(text: &str) -> Vec<f64> {
    let first = |line: &str| line.split_whitespace().next().and_then(|word| word.parse().ok());
    text.lines().filter_map(first).collect()
}

/// Removes the file of the turn before, whose truncation would take a quarter of the time of an export.
fn remove(path: &Path) {
    if path.exists() {
        std::fs::remove_file(path).expect("the file is removed");
    }
}

fn is_same(left: &Path, right: &Path) -> bool {
    Bench::bytes_of(left) == Bench::bytes_of(right)
}

/// Another system, in a separate process, with the rows loaded.
struct Peer {
    name: &'static str,
    out: PathBuf,
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn load(name: &'static str, folder: &Path, rows: &Path) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out = folder.join(format!("{name}.csv"));
        let mut process = Command::new(testbed::cache_dir().join("peers/bin/python"))
            .arg(root.join("benches/peers/peer.py"))
            .args([name, FIELDS])
            .args([&folder.join(name), rows, &out])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the Python of the peers runs");
        let input = process.stdin.take().expect("stdin is piped");
        let output = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut peer = Self { name, out, process, input, output };
        println!("{name} {}", peer.line());
        peer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the output can be read");
        assert!(!line.is_empty(), "{} has ended", self.name);
        line.trim_end().to_owned()
    }

    fn export(&mut self) -> Turn {
        remove(&self.out);
        writeln!(self.input, "export").expect("the peer runs");
        let line = self.line();
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        let mut next = || numbers.next().expect("the peer prints two times");
        Turn { wall: next(), cpu: next() }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The peer exits on this line, or at the end of its input.
        let _ = writeln!(self.input, "end");
        let _ = self.process.wait();
    }
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    wall: f64,
    cpu: f64,
}

/// The turns of each system.
struct Results(Vec<(&'static str, Vec<Turn>)>);

impl Results {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn add(&mut self, name: &'static str, turn: Turn) {
        match self.0.iter_mut().find(|(system, _)| *system == name) {
            Some((_, turns)) => turns.push(turn),
            None => self.0.push((name, vec![turn])),
        }
    }

    /// Prints the medians of each system, and their ratio to the medians of the first system.
    fn print(&self, rows: f64) {
        let median = |turns: &[Turn], of: fn(&Turn) -> f64| {
            let mut values: Vec<f64> = turns.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!(
            "{:<18} {:>8} {:>8} {:>8} {:>14} {:>12}",
            "median of turns", "wall s", "CPU s", "rows/s", "wall / ours", "CPU / ours"
        );
        let ours = &self.0[0].1;
        let (wall_ours, cpu_ours) = (median(ours, |turn| turn.wall), median(ours, |turn| turn.cpu));
        for (name, turns) in &self.0 {
            let (wall, cpu) = (median(turns, |turn| turn.wall), median(turns, |turn| turn.cpu));
            println!(
                "{name:<18} {wall:>8.2} {cpu:>8.2} {:>8.0} {:>14.2} {:>12.2}",
                rows / wall,
                wall / wall_ours,
                cpu / cpu_ours
            );
        }
    }
}
