//! Runs all cases and returns the outcome of each.

use std::thread;

use attribution::facts::printable::printable;

use super::assertions;
use super::case::Case;
use super::engine::Engine;
use super::order::Order;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub name: String,
    /// The differences, with the orders in which they were found.
    pub failure: Option<String>,
}

/// Runs every case in every order, several cases in parallel. The outcomes are sorted by name.
pub(crate) fn run_all(cases: &[Case], engine: &Engine) -> Vec<Outcome> {
    // More threads than cores, because opening a store and starting a process mostly wait.
    let threads = (4 * thread::available_parallelism().map_or(2, usize::from)).min(cases.len());
    let mut outcomes: Vec<_> = thread::scope(|scope| {
        let start = |first| {
            let cases = cases.iter().skip(first).step_by(threads);
            scope.spawn(move || cases.map(|case| run(case, engine)).collect::<Vec<_>>())
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        // A panic ends the process.
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    outcomes.sort_by(|a, b| a.name.cmp(&b.name));
    outcomes
}

fn run(case: &Case, engine: &Engine) -> Outcome {
    let mut first_csv: Option<Vec<u8>> = None;
    // Each failure with the orders in which it was found.
    let mut failures: Vec<(String, Vec<&str>)> = Vec::new();
    for (order, rows) in engine.runs(case) {
        let failure = match rows {
            Err(failure) => Some(failure),
            Ok(csv) => {
                let differences = assertions::differences(case, &csv);
                let first_csv: &Vec<u8> = first_csv.get_or_insert_with(|| csv.clone());
                if differences.is_empty() {
                    assertions::first_difference(first_csv, &csv)
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
    let texts = failures.iter().map(|(failure, orders)| match orders.len() {
        count if count == Order::ALL.len() => failure.clone(),
        _ => format!("[{}] {failure}", orders.join(", ")),
    });
    let text = texts.collect::<Vec<_>>().join("; ").replace('\n', " ");
    // The output of an engine may contain control characters.
    let failure = (!failures.is_empty()).then(|| printable(&text).into_owned());
    Outcome { name: case.name.clone(), failure }
}
