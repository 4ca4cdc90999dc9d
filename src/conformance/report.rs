//! All cases run, and what came of each.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use attribution::facts::printable::printable;

use super::assertions;
use super::case::Case;
use super::engine::Engine;
use super::order::Order;

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub name: String,
    /// What was wrong, and in which orders; `None` if nothing was.
    pub failure: Option<String>,
}

/// What cases and engines hold may be anything, and reaches a terminal.
fn line(told: &str) -> String {
    printable(&told.replace('\n', " ")).into_owned()
}

/// Runs every case in every order, several at once; outcomes in the order of the cases.
pub(crate) fn run_all(cases: &[Case], engine: &Engine) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::with_capacity(cases.len()));
    // More than there are cores: opening a store, or a process, is mostly waiting.
    let threads = (4 * thread::available_parallelism().map_or(2, usize::from)).min(cases.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(case, engine);
                    // A thread that panics ends the process: nobody poisons this.
                    outcomes.lock().unwrap_or_else(|held| held.into_inner()).push(outcome);
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(|held| held.into_inner());
    outcomes.sort_by(|one, other| one.name.cmp(&other.name));
    outcomes
}

fn run(case: &Case, engine: &Engine) -> Outcome {
    let mut given: Option<Vec<u8>> = None;
    // What was wrong, with the orders in which it was.
    let mut failures: Vec<(String, Vec<&str>)> = Vec::new();
    for (order, rows) in engine.runs(case) {
        let failure = match rows {
            Err(failure) => Some(failure),
            Ok(csv) => {
                let differences = assertions::differences(case, &csv);
                let given: &Vec<u8> = given.get_or_insert_with(|| csv.clone());
                if differences.is_empty() {
                    assertions::first_difference(given, &csv)
                } else {
                    Some(differences.join("; "))
                }
            }
        };
        let Some(failure) = failure else { continue };
        match failures.iter_mut().find(|(other, _)| *other == failure) {
            Some((_, orders)) => orders.push(order.name()),
            None => failures.push((failure, vec![order.name()])),
        }
    }
    let told = |(failure, orders): &(String, Vec<&str>)| match orders.len() {
        count if count == Order::ALL.len() => failure.clone(),
        _ => format!("[{}] {failure}", orders.join(", ")),
    };
    let failure =
        (!failures.is_empty()).then(|| failures.iter().map(told).collect::<Vec<_>>().join("; "));
    Outcome { name: case.name.clone(), failure: failure.map(|told| line(&told)) }
}
