//! Writes and lookups of touches in a store that keeps growing.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adtrail_store::embedded::Embedded;
use attribution::facts::event::Fact;
use attribution::ledger::{Position, Progress};
use attribution::worker::{Batch, Worker};
use config::Config;

use crate::BATCH;
use crate::MIB;
use crate::crash;
use crate::disk_bytes;
use crate::facts;
use crate::lookups;
use crate::percentiles;
use crate::settings;
use crate::settle;
use crate::support::{cpu_seconds, memory_mib};
use crate::timed::TimedLedger;
use crate::write_amplification;

/// Small enough for the blocks to stay in the cache.
const LOOKUPS: u64 = 2_000;
const COLD_LOOKUPS: u64 = 1_000;

pub fn run(path: &Path, total: usize) {
    let config = settings(path);
    let store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    println!("{total} clicks of {} devices, batches of {BATCH}", facts::devices(total as u64));
    println!(
        "p50-p99: time of a commit in the store; then microseconds to the newest touch, to its index"
    );
    println!(
        "entry alone, to learn that a device has none, and for a read of 4 KiB of the same files without"
    );
    println!("the store");
    println!(
        "{:>10} {:>9} {:>9} {:>15} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "clicks",
        "clicks/s",
        "CPU us",
        "p50-p99 ms",
        "touch p50",
        "index p50",
        "index p99",
        "first p50",
        "miss p50",
        "4 KiB p50",
        "on disk B",
        "written x",
        "RSS MiB"
    );
    let mut worker = Worker::new(
        TimedLedger::new(store, &config.policy, config.store.partitions),
        config.policy.clone(),
    );
    let mut written = 0;
    for checkpoint in checkpoints(total) {
        line(&mut worker, &config, (written, checkpoint), total);
        written = checkpoint;
    }
    let (now, peak) = memory_mib(std::process::id());
    println!("RSS {now} MiB, peak {peak} MiB");
    drop(worker);
    let cold = |mut times: Vec<f64>| percentiles(&mut times, [0.5, 0.99]);
    let [p50, p99] = cold(lookups::cold(&config, total as u64, COLD_LOOKUPS));
    let [raw_p50, raw_p99] = cold(lookups::raw(path, COLD_LOOKUPS, true));
    println!(
        "newest touch with its blocks on disk: p50 {p50:.0} us, p99 {p99:.0}; 4 KiB of the same files \
         without the store: p50 {raw_p50:.0} us, p99 {raw_p99:.0}"
    );
    crash::run(&config, total);
    println!();
}

/// Returns the click counts at which lookups are measured.
fn checkpoints(total: usize) -> [usize; 4] {
    [total / 50, total / 5, total / 2, total].map(|count| count.next_multiple_of(BATCH))
}

/// Writes the clicks between two checkpoints, measures lookups and prints a line.
fn line(
    worker: &mut Worker<TimedLedger>,
    config: &Config,
    (from, to): (usize, usize),
    total: usize,
) {
    let pid = std::process::id();
    let (started, cpu) = (Instant::now(), cpu_seconds(pid));
    let mut commits = Vec::new();
    for first in (from..to).step_by(BATCH) {
        let before = worker.ledger().writing.wall;
        worker.process(batch(first as u64, total as u64)).expect("the commit succeeds");
        commits.push((worker.ledger().writing.wall - before) * 1e3);
    }
    let wall = started.elapsed().as_secs_f64();
    let stats = settle(&worker.ledger().store);
    let cpu = cpu_seconds(pid) - cpu;
    let count = (to - from) as f64;
    let mut reader = worker.ledger().store.reader();
    let [mut cached, mut first] =
        lookups::warm(&mut reader, config, (to as u64, total as u64), LOOKUPS);
    let mut misses = lookups::misses(&mut reader, total as u64, LOOKUPS);
    let mut raw = lookups::raw(&config.store.path, LOOKUPS, false);
    let [index, index_p99] = percentiles(&mut cached.0, [0.5, 0.99]);
    let [touch] = percentiles(&mut cached.1, [0.5]);
    let [first] = percentiles(&mut first.1, [0.5]);
    let [miss] = percentiles(&mut misses, [0.5]);
    let [commit_p50, commit_p99] = percentiles(&mut commits, [0.5, 0.99]);
    println!(
        "{to:>10} {:>9.0} {:>9.2} {:>15} {touch:>9.1} {index:>9.1} {index_p99:>9.1} {first:>9.1} {miss:>9.1} {:>9.1} {:>9.0} {:>9.1} {:>8}",
        count / wall,
        cpu / count * 1e6,
        format!("{commit_p50:.1}-{commit_p99:.1}"),
        percentiles(&mut raw, [0.5])[0],
        disk_bytes(&stats) as f64 / to as f64,
        write_amplification(&stats),
        memory_mib(pid).0,
    );
    let cache = stats.cache_bytes as f64 / MIB;
    assert!(cache <= stats.cache_capacity_bytes as f64 / MIB * 1.25, "{cache} MiB in the cache");
}

/// Returns a batch of clicks from number `first` of `total`, with the position after it.
pub fn batch(first: u64, total: u64) -> Batch {
    let numbers = first..first + BATCH as u64;
    let next_offset = numbers.end as i64;
    let facts = numbers.map(|number| Fact::Touch(facts::click(number, total))).collect();
    let position =
        Position { topic: Arc::from("clicks"), partition: 0, next_offset, known: None, last: None };
    Batch { facts, progress: Progress { positions: vec![position], consumed_until: None } }
}
