//! The worker in a simulated world: a broker, a group of workers, a store, and whatever can go
//! wrong between them, all of it drawn from one number. Whatever happens, the rows are those of
//! one worker that was given each message once, in order.
//!
//! A seed that fails is told with the command that runs it again; CONTRIBUTING.md says how to run
//! many.

mod alone;
mod broker;
mod judge;
mod member;
mod mortal;
mod plan;
mod seat;
mod shared;
mod table;
mod tally;
mod world;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fastrand::Rng;
use judge::Verdict;
use plan::{Kind, Plan};
use tally::{Tally, Trace};
/// Seeds that are run if nobody asks for others.
const SEEDS: u64 = 300;

struct Run {
    plan: Plan,
    verdict: Verdict,
    tally: Tally,
    hash: u64,
}

/// Runs what a seed stands for. It is told step by step if asked for.
fn simulate(seed: u64, is_told: bool) -> Run {
    let mut rng = Rng::with_seed(seed);
    let (plan, broker) = Plan::new(seed, &mut rng);
    let trace = Trace::new(is_told);
    let (verdict, mut tally, trace) = match plan.kind {
        Kind::Alone | Kind::Expiring => alone::run(&plan, broker, rng, trace),
        Kind::Shared { workers } => shared::run(&plan, workers, broker, rng, trace),
    };
    tally.add("messages produced", plan.messages as u64);
    Run { hash: trace.hash(), plan, verdict, tally }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// All seeds of the range, on every processor. Tells their hash and those that fail.
fn simulate_all(seeds: Range<u64>) -> (Tally, u64, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new((Tally::default(), 0u64, Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let run = simulate(seed, false);
            let mut found = found.lock().expect("nobody panics with it");
            found.0.add_all(&run.tally);
            found.1 = found.1.wrapping_add(run.hash);
            if let Err(what) = &run.verdict {
                found.2.push(failure(&run.plan, what));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner().expect("nobody panics with it")
}

fn failure(plan: &Plan, what: &str) -> String {
    let Plan { seed, kind, rules, facts, odds, .. } = plan;
    format!(
        "seed {seed}: {kind:?}, rules {rules:?}, {} facts, {odds:?}\n{what}\nagain: \
         ADTRAIL_SIM_SEED={seed} scripts/test --profile long --no-capture simulation::whatever",
        facts.len()
    )
}

#[test]
fn whatever_happens_the_rows_are_those_of_one_worker() {
    if let Some(seed) = number("ADTRAIL_SIM_SEED") {
        let run = simulate(seed, true);
        for fact in &run.plan.facts {
            eprintln!("{fact:?}");
        }
        eprintln!("{}", run.tally);
        if let Err(what) = &run.verdict {
            panic!("{}", failure(&run.plan, what));
        }
        return;
    }
    let first = number("ADTRAIL_SIM_FROM").unwrap_or(0);
    let count = number("ADTRAIL_SIM_SEEDS").unwrap_or(SEEDS);
    let start = Instant::now();
    let (tally, hash, failures) = simulate_all(first..first.saturating_add(count));
    let seconds = start.elapsed().as_secs_f64();
    let failed = failures.len();
    eprintln!("{count} seeds from {first} in {seconds:.1} s, {failed} failed, hash {hash:016x}");
    eprintln!("{tally}");
    let shown: Vec<_> = failures.iter().take(20).map(String::as_str).collect();
    assert!(failed == 0, "{failed} seeds fail\n{}", shown.join("\n\n"));
    if count >= SEEDS {
        let missing: Vec<_> = TROUBLES.iter().filter(|what| tally.of(what) == 0).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}

/// What a few hundred seeds bring about.
const TROUBLES: &[&str] = &[
    "answers lost",
    "batches finished by whoever was no owner any more",
    "deaths",
    "deaths before a commit",
    "deaths between two writes of a batch",
    "decisions that came too late",
    "facts that came too late",
    "groups deleted",
    "members given up",
    "partitions added",
    "pauses",
    "positions refused",
    "positions rewound",
    "positions set back by whoever was late",
    "power failures",
];

#[test]
fn a_seed_is_the_same_every_time() {
    let hashes = |seeds: Range<u64>| -> Vec<(u64, Tally)> {
        seeds.map(|seed| simulate(seed, false)).map(|run| (run.hash, run.tally)).collect()
    };
    let once = hashes(0..30);
    assert_eq!(once, hashes(0..30));
    let mut distinct: Vec<u64> = once.iter().map(|(hash, _)| *hash).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), once.len(), "each seed is a run of its own");
}
