//! Decisions on the activations of a device that has many are committed page by page. A crash in between leaves no
//! trace.

use std::sync::{Arc, Mutex};

use adtrail_store::memory::Memory;
use attribution::facts::event::{Fact, Family};
use attribution::facts::match_keys::fact_key;
use attribution::ledger::Ledger as _;
use attribution::rules::row::EventType;
use attribution::worker::limits::ReadLimits;
use attribution::worker::{BatchReport, Recomputed, Worker, recompute_with_later_activations};
use support::cells::{HookedClient, Model, ledger};
use support::crashing_on_commit::CrashingOnCommit;
use support::facts::{Draft, HOUR, MINUTE, a_plus, activation, click, effect, identified};
use support::folders::temp_folder;
use support::row_text::row_texts;
use support::rules::{X, rules};
use support::run::{LedgerUnderTest as _, assert_same_rows, open, position, worker_after};

use super::effect_pages::{BYTES, BYTES_MAX, limits, process, rows_at_once, verified};
use crate::support;

const ACTIVATIONS: i64 = 200;

/// Returns an install that is credited to a click, reinstalls an hour apart, and an effect of each. Together they have
/// 0.8 MB.
fn history() -> Vec<Fact> {
    let text = "p".repeat(4_000);
    let events = |number: i64| {
        let activation = activation(&format!("a{number:03}"), a_plus(number * HOUR));
        let effect = effect(&format!("e{number:03}"), a_plus(number * HOUR + MINUTE));
        [activation.prop("p", &text), effect]
    };
    identified((0..ACTIVATIONS).flat_map(events).chain([click("c1", a_plus(-2 * HOUR))]))
}

/// Returns an earlier activation, which takes the place of the install.
fn early() -> Vec<Fact> {
    identified([activation("early", a_plus(-HOUR))])
}

#[track_caller]
fn check_pages(report: &BatchReport) {
    let bytes = report.decision_bytes_max;
    assert!((BYTES..BYTES_MAX).contains(&bytes), "{bytes} bytes in one commit");
    let written = report.rows_written.values().sum::<u64>();
    assert!(written > ACTIVATIONS as u64, "{written} rows");
}

#[test]
fn a_commit_has_a_page_of_activations() {
    let mut worker = Worker::with_limits(Memory::default(), rules(), limits());
    let own = process(&mut worker, history(), &[]).expect("memory works");
    assert!(own.decision_bytes_max > BYTES_MAX, "those of a batch are decided in its commit");
    check_pages(&process(&mut worker, early(), &[]).expect("memory works"));
    assert!(worker.ledger().unfinished().is_empty());
    let expected = rows_at_once(vec![history(), early()]);
    assert!(expected.iter().any(|row| row.short.starts_with("a000: reinstall")));
    assert_same_rows(&worker.ledger().row_texts(), &expected, "in pages");
}

#[test]
fn a_commit_of_a_shared_store_has_a_page_of_activations() {
    let model = Arc::new(Mutex::new(Model::default()));
    let client = HookedClient::new(&model, Box::new(|| Ok(())));
    let mut worker = Worker::with_limits(ledger(client), rules(), limits());
    process(&mut worker, history(), &[]).expect("memory works");
    check_pages(&process(&mut worker, early(), &[]).expect("memory works"));
    drop(worker);
    let rows = row_texts(&model.lock().expect("the lock is not poisoned").rows());
    assert_same_rows(&rows, &rows_at_once(vec![history(), early()]), "in pages");
}

/// Checks that a process that crashes before the first commit after this number of decisions leaves the rest to the
/// next one, which first completes them and then reads the activation again, with others.
#[track_caller]
fn check_crash(decisions: usize, others: &[Draft]) {
    let (policy, dir, after_early) = (rules(), temp_folder(), [position("activations", 0, 1)]);
    let mut worker = worker_after(open(dir.path(), &policy), &policy, vec![history()]);
    let crashing = CrashingOnCommit { ledger: worker.ledger_mut(), crashes_after: Some(decisions) };
    let mut crashing = Worker::with_limits(crashing, Arc::clone(&policy), limits());
    process(&mut crashing, early(), &after_early).expect_err("the process crashes");
    drop(crashing);
    drop(worker);

    let report = verified(dir.path(), &policy);
    assert!(report.is_whole() && report.unfinished_effects > 0, "{report:?}");

    let mut store = open(dir.path(), &policy);
    assert!(!store.unfinished().is_empty());
    assert!(store.positions().expect("the store works").is_empty(), "the position has advanced");
    let mut worker = Worker::with_limits(store, Arc::clone(&policy), limits());
    let redelivered = [early(), identified(others.to_vec())].concat();
    let report = process(&mut worker, redelivered, &after_early).expect("the store works");
    assert_eq!(report.counts(Family::Activation).redelivered, 1);
    assert!(report.decision_bytes_max < BYTES_MAX, "{} bytes", report.decision_bytes_max);
    assert!(worker.ledger().unfinished().is_empty());
    assert_eq!(worker.ledger_mut().positions().expect("the store works"), after_early);
    let all = vec![history(), early(), identified(others.to_vec())];
    assert_same_rows(&worker.ledger().row_texts(), &rows_at_once(all), "after the redelivery");

    drop(worker);
    let report = verified(dir.path(), &policy);
    assert!(report.is_whole() && report.unfinished_effects == 0, "{report:?}");
}

#[test]
fn a_crash_between_pages_of_activations_leaves_no_trace() {
    check_crash(1, &[]);
    check_crash(100, &[click("c2", a_plus(-90 * MINUTE))]);
    check_crash(150, &[activation("earlier", a_plus(-3 * HOUR))]);
}

#[test]
fn recomputed_activations_are_passed_on_in_pages() {
    let policy = rules();
    let mut worker = worker_after(Memory::default(), &policy, vec![history()]);
    let crashing = CrashingOnCommit { ledger: worker.ledger_mut(), crashes_after: Some(0) };
    let mut crashing = Worker::new(crashing, Arc::clone(&policy));
    process(&mut crashing, early(), &[]).expect_err("the process crashes, after it has recorded");
    drop(crashing);
    let undecided = [fact_key(EventType::Activation, X, "early")];
    let mut recomputed = |limits| {
        let mut pages: Vec<Vec<Recomputed>> = Vec::new();
        let memory = worker.ledger_mut();
        let result =
            recompute_with_later_activations(memory, &policy, &undecided, limits, |page| {
                pages.push(page);
                Ok(())
            });
        result.expect("memory works");
        pages
    };
    let (pages, whole) = (recomputed(limits()), recomputed(ReadLimits::default()));
    let bytes = |page: &[Recomputed]| -> usize {
        page.iter().map(|it| it.write.record.bytes() + it.write.row.bytes()).sum()
    };
    assert!(pages.iter().all(|page| bytes(page) < BYTES_MAX));
    assert!(whole.len() == 1 && bytes(&whole[0]) > BYTES_MAX);
    let rows = |pages: Vec<Vec<Recomputed>>| {
        let mut rows: Vec<_> =
            pages.into_iter().flatten().map(|it| (it.write.key, it.write.row)).collect();
        rows.sort_by_key(|(key, _)| *key);
        rows
    };
    let (pages, whole) = (rows(pages), rows(whole));
    assert_eq!(pages.len() as i64, ACTIVATIONS + 1);
    assert_eq!(pages, whole);
}
