//! How fast rows are written and read and what that costs the client, by turns with HBase's own
//! `PerformanceEvaluation` and with a plain loop over HBase's own client: the same rows of one real HBase.
//! In the end it tells the medians as parts of the others', and whether what is promised holds.
//!
//! `HBASE_BENCH_ROWS` sets the number of rows (1,000,000), `HBASE_BENCH_ROUNDS` how often everybody has a
//! turn (3), each time in another order.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "throughput/java.rs"]
mod java;
#[path = "throughput/own.rs"]
mod own;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "throughput/verdict.rs"]
mod verdict;

use std::fs;

use hbase_client::{Client, Family, TableSpec};
use java::Java;
use support::hbase::HBase;
use verdict::{OURS, Results};

const REGIONS: u64 = 8;
const VALUE_BYTES: usize = 200;

/// Those of `PerformanceEvaluation`.
const FAMILY: &str = "info0";
const QUALIFIER: &str = "0";

const EVALUATION: &str = "PerformanceEvaluation";
const WARM: &str = "Java, warm";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Rows drawn of all there can be, so that every call goes to all regions.
    Write,
    /// Each of them once, in order.
    Scan,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Scan => "scan",
        }
    }
}

/// What one turn is about.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    what: What,
    table: &'a str,
    rows: u64,
    tasks: u64,
}

/// What a turn took.
pub struct Taken {
    seconds: f64,
    cpu_s: f64,
}

fn main() {
    let rows = count("HBASE_BENCH_ROWS", 1_000_000);
    let rounds = count("HBASE_BENCH_ROUNDS", 3).max(1);
    let hbase = HBase::start(|site, _| site.set("hbase.rpc.rows.size.threshold.reject", false));
    let java = Java::new(&hbase);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let client = hbase.client().await;
        create(&client, "all", rows).await;
        own::fill(&client.table("all").expect("a name"), rows).await;
        client.admin().flush("all").await.expect("flushed");
    });
    println!(
        "{:<6} {:>5}  {:<22} {:>9} {:>24}",
        "", "tasks", "", "rows/s", "CPU-s per million rows"
    );
    let mut results = Results::default();
    for what in [What::Write, What::Scan] {
        for tasks in [1, 2] {
            for round in 0..rounds {
                // Whoever comes first meets servers that have rested.
                let mut names = [OURS, EVALUATION, WARM];
                names.rotate_left((round % 3) as usize);
                for name in names {
                    let taken = with_table(&runtime, &hbase, what, rows, |table| {
                        let turn = Turn { what, table, rows, tasks };
                        match name {
                            OURS => runtime.block_on(own::run(&hbase, turn)),
                            EVALUATION => java.performance_evaluation(turn),
                            _ => java.plain(turn),
                        }
                    });
                    print(what, tasks, name, rows, &taken);
                    results.add(what, tasks, name, taken);
                }
            }
        }
    }
    results.print(&[EVALUATION, WARM], memory_mb());
}

/// A table of its own for what writes.
fn with_table(
    runtime: &tokio::runtime::Runtime,
    hbase: &HBase,
    what: What,
    rows: u64,
    take: impl FnOnce(&str) -> Taken,
) -> Taken {
    if what == What::Scan {
        return take("all");
    }
    let client = runtime.block_on(async {
        let client = hbase.client().await;
        create(&client, "turn", rows).await;
        client
    });
    let taken = take("turn");
    runtime.block_on(async {
        client.admin().disable("turn").await.expect("disabled");
        client.admin().delete("turn").await.expect("deleted");
    });
    taken
}

async fn create(client: &Client, name: &str, rows: u64) {
    let splits: Vec<_> = (1..REGIONS).map(|part| key(part * rows / REGIONS).into()).collect();
    let spec = TableSpec::new(name).family(Family::new(FAMILY));
    client.admin().create(&spec, &splits).await.expect("the table is made");
}

/// As `PerformanceEvaluation` names rows.
fn key(row: u64) -> Vec<u8> {
    format!("{row:026}").into_bytes()
}

fn print(what: What, tasks: u64, name: &str, rows: u64, taken: &Taken) {
    let what = what.name();
    let (per_s, cpu_s) = (rows as f64 / taken.seconds, taken.cpu_s * 1e6 / rows as f64);
    println!("{what:<6} {tasks:>5}  {name:<22} {per_s:>9.0} {cpu_s:>24.2}");
}

fn count(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// In user and system mode: of this process, and of its children that have ended.
fn cpu_s() -> (f64, f64) {
    /// Of the numbers in `/proc`.
    const TICKS_PER_S: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").expect("a line");
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |field: usize| -> f64 {
        let text = after_name.split(' ').nth(field).expect("a field");
        text.parse::<f64>().expect("a number") / TICKS_PER_S
    };
    (ticks(11) + ticks(12), ticks(13) + ticks(14))
}

/// The most that this process ever had.
fn memory_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("lines");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}
