//! Measures the attribution engine alone, over the in-memory ledger, in facts per CPU-second.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

mod support;

// The crate sets the global allocator; without this line it would not be linked.
use adtrail as _;
use attribution::worker::{Batch, Worker};
use store::memory::Memory;

use support::{APP, Events, count, memory_mib};

const BATCH: usize = 5_000;

fn main() {
    println!("{}", testbed::machine());
    let total = count("ADTRAIL_BENCH_FACTS", 2_000_000);
    let config = config::parse(APP).expect("the settings are valid");
    let mut events = Events::default();
    let mut worker = Worker::new(Memory::default(), config.policy.clone());
    let (mut seconds, mut done) = (0.0, 0);
    println!(
        "engine over the in-memory ledger, batches of {BATCH}: CPU-seconds of attribution only"
    );
    println!("{:>12} {:>14} {:>18} {:>10}", "facts", "CPU-seconds", "facts/CPU-second", "RSS MiB");
    let mut next_line = total / 4;
    while done < total {
        let facts: Vec<_> = events
            .by_ref()
            .take(BATCH)
            .map(|(_, json)| {
                ingest::decode::decode(json.as_bytes(), None, &config.policy)
                    .expect("the event is valid")
            })
            .collect();
        done += facts.len();
        let before = cpu_nanos();
        worker
            .process(Batch { facts, ..Batch::default() })
            .expect("the in-memory ledger does not fail");
        seconds += (cpu_nanos() - before) as f64 / 1e9;
        if done >= next_line {
            let pid = std::process::id();
            println!(
                "{done:>12} {seconds:>14.2} {:>18.0} {:>10}",
                done as f64 / seconds,
                memory_mib(pid).0
            );
            next_line += total / 4;
        }
    }
    assert!(worker.ledger().rows().count() > 0, "rows were written");
}

/// Returns the CPU time of this thread so far.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0)
}
