//! Measures throughput and CPU of writing and reading rows with this crate, with HBase's own `PerformanceEvaluation`,
//! and with a plain loop over HBase's own client, on the same rows of one real HBase. Prints the medians of this
//! crate relative to those of the others, and whether the targets are met.
//!
//! `HBASE_BENCH_ROWS` sets the number of rows (1,000,000), `HBASE_BENCH_ROUNDS` the number of rounds (3), each in
//! a different order.

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

/// The family and column that `PerformanceEvaluation` uses.
const FAMILY: &str = "info0";
const QUALIFIER: &str = "0";

const EVALUATION: &str = "PerformanceEvaluation";
const WARM: &str = "Java, warm";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Writes random rows, so that every call goes to all regions.
    Write,
    /// Reads all rows in order.
    Scan,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Scan => "scan",
        }
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy)]
pub struct Measurement<'a> {
    workload: Workload,
    table: &'a str,
    rows: u64,
    tasks: u64,
}

/// The time and CPU of a measurement.
pub struct Cost {
    seconds: f64,
    cpu_s: f64,
}

fn main() {
    let rows = count("HBASE_BENCH_ROWS", 1_000_000);
    let rounds = count("HBASE_BENCH_ROUNDS", 3).max(1);
    let hbase = HBase::start(|site, _| site.set("hbase.rpc.rows.size.threshold.reject", false));
    let java = Java::new(&hbase);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the runtime starts");
    runtime.block_on(async {
        let client = hbase.client().await;
        create(&client, "all", rows).await;
        let table = client.table("all").expect("the name is valid");
        own::write(&table, 0..rows).await.expect("HBase responds");
        client.admin().flush("all").await.expect("the table is flushed");
    });
    println!(
        "{:<6} {:>5}  {:<22} {:>9} {:>24}",
        "", "tasks", "", "rows/s", "CPU-s per million rows"
    );
    let mut results = Results::default();
    for workload in [Workload::Write, Workload::Scan] {
        for tasks in [1, 2] {
            for round in 0..rounds {
                // Rotated, because the first one benefits from idle servers.
                let mut names = [OURS, EVALUATION, WARM];
                names.rotate_left((round % 3) as usize);
                for name in names {
                    let cost = with_table(&runtime, &hbase, workload, rows, |table| {
                        let measurement = Measurement { workload, table, rows, tasks };
                        match name {
                            OURS => runtime.block_on(own::measure(&hbase, measurement)),
                            EVALUATION => java.performance_evaluation(measurement),
                            _ => java.plain(measurement),
                        }
                    });
                    print(workload, tasks, name, rows, &cost);
                    results.add(workload, tasks, name, cost);
                }
            }
        }
    }
    results.print(&[EVALUATION, WARM], memory_mb());
}

/// Measures with a new table for writes, or the filled one for scans.
fn with_table(
    runtime: &tokio::runtime::Runtime,
    hbase: &HBase,
    workload: Workload,
    rows: u64,
    measure: impl FnOnce(&str) -> Cost,
) -> Cost {
    if workload == Workload::Scan {
        return measure("all");
    }
    let client = runtime.block_on(async {
        let client = hbase.client().await;
        create(&client, "run", rows).await;
        client
    });
    let cost = measure("run");
    runtime.block_on(async {
        client.admin().disable("run").await.expect("the table is disabled");
        client.admin().delete("run").await.expect("the table is deleted");
    });
    cost
}

async fn create(client: &Client, name: &str, rows: u64) {
    let splits: Vec<_> = (1..REGIONS).map(|part| key(part * rows / REGIONS).into()).collect();
    let spec = TableSpec::new(name).family(Family::new(FAMILY));
    client.admin().create(&spec, &splits).await.expect("the table is created");
}

/// Returns the row key in the format of `PerformanceEvaluation`.
fn key(row: u64) -> Vec<u8> {
    format!("{row:026}").into_bytes()
}

fn print(workload: Workload, tasks: u64, name: &str, rows: u64, cost: &Cost) {
    let workload = workload.name();
    let (per_s, cpu_s) = (rows as f64 / cost.seconds, cost.cpu_s * 1e6 / rows as f64);
    println!("{workload:<6} {tasks:>5}  {name:<22} {per_s:>9.0} {cpu_s:>24.2}");
}

fn count(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("the variable is a number"))
}

/// Returns the CPU seconds, in user and system mode, of this process and of its children that have ended.
fn cpu_s() -> (f64, f64) {
    /// The unit of CPU times in `/proc`.
    const TICKS_PER_S: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |field: usize| -> f64 {
        let text = after_name.split(' ').nth(field).expect("the field exists");
        text.parse::<f64>().expect("the field is a number") / TICKS_PER_S
    };
    (ticks(11) + ticks(12), ticks(13) + ticks(14))
}

/// Returns the peak memory of this process.
fn memory_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("VmHWM is a number") >> 10
}
