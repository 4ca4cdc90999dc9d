//! Commits of events with rows, compared with RocksDB alone.

use std::path::Path;

use adtrail_store::embedded::Embedded;
use attribution::worker::{Batch, Worker};

use crate::bare::{BareDb, Kind};
use crate::timed::{Commit, TimeSpent, TimedLedger};
use crate::{
    BATCH, disk_bytes, facts, percentiles, run_seconds, settings, settle, thread_seconds,
    write_amplification,
};

/// In each round all engines write the same rows, one engine after the other.
const ROUNDS: usize = 20;
const KINDS: [Kind; 3] = [Kind::Rows, Kind::Counting, Kind::Whole];

/// Seconds of one round.
#[derive(Default, Clone, Copy)]
struct Cost {
    /// Time in the store's or engine's write calls.
    wall: f64,
    /// CPU time of all threads, until compactions have finished.
    cpu: f64,
}

pub fn run(folder: &Path, total: usize) {
    let path = folder.join("rows");
    let config = settings(&path);
    let store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    let bare = |kind: Kind| {
        BareDb::open(&folder.join(format!("{kind:?}")), &path, config.store.memory_bytes, kind)
    };
    let mut bares = KINDS.map(bare);
    let ledger = TimedLedger::new(store, &config.policy, config.store.partitions);
    let mut worker = Worker::new(ledger, config.policy.clone());
    println!(
        "{total} rows in batches of {BATCH}: rows/s of the bare engine and of the store, then CPU in"
    );
    println!(
        "microseconds per row, compactions included: bare engine, with statistics (counting), with"
    );
    println!("all data that the store writes (whole), store");
    println!(
        "{:>10} {:>8} {:>11} {:>11} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "rows", "bytes", "bare", "store", "ratio", "bare", "counting", "whole", "store"
    );
    let count = (total / ROUNDS).next_multiple_of(BATCH);
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let (store_cost, commits) = store_round(&mut worker, (round * count) as u64, count);
        let mut costs = [Cost::default(), Cost::default(), Cost::default(), store_cost];
        // The order rotates, as the position within a round can affect the result.
        for turn in 0..KINDS.len() {
            let index = (turn + round) % KINDS.len();
            costs[index] = bare_round(&mut bares[index], &commits);
        }
        line((round + 1) * count, count as f64, &commits, costs);
        rounds.push(costs);
    }
    summary(&rounds);
    let stats = settle(&worker.ledger().store);
    println!(
        "{:.0} bytes on disk per row with its event and index, {:.1} bytes written per committed byte",
        disk_bytes(&stats) as f64 / (ROUNDS * count) as f64,
        write_amplification(&stats)
    );
}

fn line(rows: usize, count: f64, commits: &[Commit], [bare, counting, whole, store]: [Cost; 4]) {
    let rows_of = commits.iter().flat_map(|commit| &commit.rows);
    let bytes: usize = rows_of.map(|(key, value)| key.len() + value.len()).sum();
    let micros = |cost: Cost| cost.cpu / count * 1e6;
    println!(
        "{rows:>10} {:>8.0} {:>11.0} {:>11.0} {:>6.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2}",
        bytes as f64 / count,
        count / bare.wall,
        count / store.wall,
        bare.wall / store.wall,
        micros(bare),
        micros(counting),
        micros(whole),
        micros(store),
    );
}

/// Prints medians of the rounds, as other programs disturb some of them.
fn summary(rounds: &[[Cost; 4]]) {
    let median = |ratio: fn(&[Cost; 4]) -> f64| {
        let mut ratios: Vec<f64> = rounds.iter().map(ratio).collect();
        percentiles(&mut ratios, [0.5])[0]
    };
    let total = |engine: usize| rounds.iter().map(|costs| costs[engine].cpu).sum::<f64>();
    println!("row rate relative to the bare engine, medians of {} rounds:", rounds.len());
    println!(
        "the store {:.2} by wall time, {:.2} by CPU, {:.2} by the CPU of all rounds; the bare engine \
         with all data that the store writes {:.2}, {:.2}, {:.2}; with statistics {:.3}, {:.3}, {:.3}",
        median(|[bare, _, _, store]| bare.wall / store.wall),
        median(|[bare, _, _, store]| bare.cpu / store.cpu),
        total(0) / total(3),
        median(|[bare, _, whole, _]| bare.wall / whole.wall),
        median(|[bare, _, whole, _]| bare.cpu / whole.cpu),
        total(0) / total(2),
        median(|[bare, counting, ..]| bare.wall / counting.wall),
        median(|[bare, counting, ..]| bare.cpu / counting.cpu),
        total(0) / total(1),
    );
}

/// Writes `count` events. Returns the cost of the store, without that of the worker, and the commits.
fn store_round(worker: &mut Worker<TimedLedger>, first: u64, count: usize) -> (Cost, Vec<Commit>) {
    worker.ledger_mut().commits = Some(Vec::new());
    let before = worker.ledger().writing;
    let background = background_seconds();
    for first in (first..first + count as u64).step_by(BATCH) {
        let facts = (first..first + BATCH as u64).map(facts::event).collect();
        worker.process(Batch { facts, ..Batch::default() }).expect("the commit succeeds");
    }
    settle(&worker.ledger().store);
    let background = background_seconds() - background;
    let cost = cost(before, worker.ledger().writing, background);
    (cost, worker.ledger_mut().commits.take().unwrap_or_default())
}

fn bare_round(bare: &mut BareDb, commits: &[Commit]) -> Cost {
    let (before, background) = (bare.writing, background_seconds());
    bare.write(commits);
    bare.settle();
    cost(before, bare.writing, background_seconds() - background)
}

fn cost(before: TimeSpent, after: TimeSpent, background: f64) -> Cost {
    Cost { wall: after.wall - before.wall, cpu: after.cpu - before.cpu + background }
}

/// Returns the CPU seconds of all threads except this one: those of the engine, which never exit.
fn background_seconds() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc is readable").flatten();
    let all: f64 = threads.map(|thread| run_seconds(&thread.path())).sum();
    all - thread_seconds()
}
