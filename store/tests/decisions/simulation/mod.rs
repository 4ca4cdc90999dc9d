//! Simulates a broker, a consumer group of workers, a store, and failures of all of them, all drawn from one seed. The
//! rows must always be those of one worker that processed each message once, in order.
//!
//! A failing seed is printed with the command that repeats it; CONTRIBUTING.md explains how to run many seeds.

mod broker;
mod crashing_ledger;
mod faulty_client;
mod invariants;
mod member;
mod plan;
mod scheduler;
mod shared;
mod single_worker;
mod stats;
mod world;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fastrand::Rng;
use invariants::CheckResult;
use plan::{Kind, Plan};
use stats::{Stats, Trace};

/// The default number of seeds.
const SEEDS: u64 = 300;

struct Run {
    plan: Plan,
    result: CheckResult,
    stats: Stats,
    hash: u64,
}

/// Runs one seed, and prints every step if `is_printed`.
fn simulate(seed: u64, is_printed: bool) -> Run {
    let mut rng = Rng::with_seed(seed);
    let (plan, broker) = Plan::new(seed, &mut rng);
    let trace = Trace::new(is_printed);
    let (result, mut stats, trace) = match plan.kind {
        Kind::Single | Kind::Expiring => single_worker::run(&plan, broker, rng, trace),
        Kind::Shared { workers } => shared::run(&plan, workers, broker, rng, trace),
    };
    stats.add("messages produced", plan.messages as u64);
    Run { hash: trace.hash(), plan, result, stats }
}

fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs all seeds of the range on all CPUs. Returns statistics, a hash of all runs, and the failures.
fn simulate_all(seeds: Range<u64>) -> (Stats, u64, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new((Stats::default(), 0u64, Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let run = simulate(seed, false);
            let mut found = found.lock().expect("the lock is not poisoned");
            found.0.add_all(&run.stats);
            found.1 = found.1.wrapping_add(run.hash);
            if let Err(problem) = &run.result {
                found.2.push(describe_failure(&run.plan, problem));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner().expect("the lock is not poisoned")
}

fn describe_failure(plan: &Plan, problem: &str) -> String {
    let Plan { seed, kind, rules, facts, odds, .. } = plan;
    format!(
        "seed {seed}: {kind:?}, rules {rules:?}, {} facts, {odds:?}\n{problem}\nrepeat \
         with: ADTRAIL_SIM_SEED={seed} scripts/test --profile long --no-capture simulation::rows_are",
        facts.len()
    )
}

#[test]
fn rows_are_those_of_one_worker_despite_all_failures() {
    if let Some(seed) = env_number("ADTRAIL_SIM_SEED") {
        let run = simulate(seed, true);
        for fact in &run.plan.facts {
            eprintln!("{fact:?}");
        }
        eprintln!("{}", run.stats);
        if let Err(problem) = &run.result {
            panic!("{}", describe_failure(&run.plan, problem));
        }
        return;
    }
    let first = env_number("ADTRAIL_SIM_FROM").unwrap_or(0);
    let count = env_number("ADTRAIL_SIM_SEEDS").unwrap_or(SEEDS);
    let start = Instant::now();
    let (stats, hash, failures) = simulate_all(first..first.saturating_add(count));
    let seconds = start.elapsed().as_secs_f64();
    let failed = failures.len();
    eprintln!("{count} seeds from {first} in {seconds:.1} s, {failed} failed, hash {hash:016x}");
    eprintln!("{stats}");
    let shown: Vec<_> = failures.iter().take(20).map(String::as_str).collect();
    assert!(failed == 0, "{failed} seeds failed\n{}", shown.join("\n\n"));
    if count >= SEEDS {
        let missing: Vec<_> =
            EXPECTED_EVENTS.iter().filter(|event| stats.count_of(event) == 0).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}

/// Events that must occur within a few hundred seeds.
const EXPECTED_EVENTS: &[&str] = &[
    "batches in pages",
    "batches finished after losing a partition",
    "conflicting puts of decisions",
    "conflicting puts of facts",
    "crashes",
    "crashes before a commit",
    "crashes between pages",
    "crashes between two writes of a batch",
    "groups deleted",
    "partitions added",
    "pauses",
    "positions refused",
    "positions rewound",
    "positions set back by a former owner",
    "power failures",
    "responses lost",
    "sessions expired",
];

#[test]
fn the_same_seed_gives_the_same_run() {
    let hashes = |seeds: Range<u64>| -> Vec<(u64, Stats)> {
        seeds.map(|seed| simulate(seed, false)).map(|run| (run.hash, run.stats)).collect()
    };
    let runs = hashes(0..30);
    assert_eq!(runs, hashes(0..30));
    let mut distinct: Vec<u64> = runs.iter().map(|(hash, _)| *hash).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), runs.len(), "two seeds lead to the same run");
}
