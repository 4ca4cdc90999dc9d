//! Decisions on the effects of a device that has many are committed page by page. A crash in between leaves no trace.

use std::path::Path;
use std::sync::{Arc, Mutex};

use adtrail_store::StoreError;
use adtrail_store::maintenance::copy_store::Source;
use adtrail_store::maintenance::verify::{Options, Report, verify};
use adtrail_store::memory::Memory;
use attribution::facts::event::{Fact, Family};
use attribution::ledger::{Ledger, Position, Progress};
use attribution::rules::policy::Policy;
use attribution::worker::limits::ReadLimits;
use attribution::worker::{Batch, BatchReport, Worker};
use support::cells::{HookedClient, Model, ledger};
use support::crashing_on_commit::CrashingOnCommit;
use support::facts::{
    A, Draft, HOUR, MINUTE, SECOND, a_plus, activation, click, effect, identified,
};
use support::folders::temp_folder;
use support::row_text::{RowText, row_texts};
use support::rules::rules;
use support::run::{
    LedgerUnderTest as _, assert_same_rows, open, position, settings, worker_after,
};

use crate::support;

pub const BYTES: usize = 64 << 10;
/// What the chunk of effects after which the decisions are committed may add: the limit is that of its facts, and a
/// decision takes a few times the memory of its fact.
pub const BYTES_MAX: usize = 8 * BYTES;

pub fn limits() -> ReadLimits {
    ReadLimits { bytes: BYTES, ..ReadLimits::default() }
}

/// Returns an organic install and its effects.
fn history(effects: i64) -> Vec<Fact> {
    let effect = |number: i64| {
        effect(&format!("e{number:05}"), a_plus(MINUTE + number * SECOND)).prop("level", "1")
    };
    identified((0..effects).map(effect).chain([activation("a", A)]))
}

/// Returns the click that gets the credit of the install.
fn late_click() -> Vec<Fact> {
    identified([click("c1", a_plus(-HOUR))])
}

pub fn process<L: Ledger<Error = StoreError>>(
    worker: &mut Worker<L>,
    facts: Vec<Fact>,
    positions: &[Position],
) -> Result<BatchReport, StoreError> {
    let progress = Progress { positions: positions.to_vec(), ..Progress::default() };
    worker.process(Batch { facts, progress })
}

pub fn rows_at_once(batches: Vec<Vec<Fact>>) -> Vec<RowText> {
    worker_after(Memory::default(), &rules(), batches).ledger().row_texts()
}

/// Checks the report on the late click.
#[track_caller]
fn check_pages(report: &BatchReport, events: u64) {
    let bytes = report.decision_bytes_max;
    assert!((BYTES..BYTES_MAX).contains(&bytes), "{bytes} bytes in one commit");
    assert_eq!(report.rows_written.values().sum::<u64>(), events);
}

#[test]
fn a_commit_has_a_page_of_effects() {
    let mut worker = Worker::with_limits(Memory::default(), rules(), limits());
    let own = process(&mut worker, history(10_000), &[]).expect("memory works");
    assert!(own.decision_bytes_max > BYTES_MAX, "the effects of a batch are decided in its commit");
    let report = process(&mut worker, late_click(), &[]).expect("memory works");
    check_pages(&report, 10_001);
    assert!(worker.ledger().unfinished().is_empty());
    let expected = rows_at_once(vec![history(10_000), late_click()]);
    assert!(expected.iter().all(|row| row.short.contains(" attributed ")));
    assert_same_rows(&worker.ledger().row_texts(), &expected, "in pages");
}

#[test]
fn a_commit_of_a_shared_store_has_a_page_of_effects() {
    let model = Arc::new(Mutex::new(Model::default()));
    let client = HookedClient::new(&model, Box::new(|| Ok(())));
    let mut worker = Worker::with_limits(ledger(client), rules(), limits());
    for batch in [history(1_000), late_click()] {
        check_pages(&process(&mut worker, batch, &[]).expect("memory works"), 1_001);
    }
    drop(worker);
    let rows = row_texts(&model.lock().expect("the lock is not poisoned").rows());
    assert_same_rows(&rows, &rows_at_once(vec![history(1_000), late_click()]), "in pages");
}

/// Checks that a process that crashes before the first commit after this number of decisions leaves the rest to the
/// next one, which first completes them and then reads the click again, with others. `before` is an install with 1,000
/// effects.
#[track_caller]
fn check_crash(before: &[Fact], decisions: usize, others: &[Draft]) {
    let (policy, dir, after_click) = (rules(), temp_folder(), [position("clicks", 0, 1)]);
    let mut store = open(dir.path(), &policy);
    let mut worker = worker_after(store, &policy, vec![before.to_vec()]);
    let crashing = CrashingOnCommit { ledger: worker.ledger_mut(), crashes_after: Some(decisions) };
    let mut crashing = Worker::with_limits(crashing, Arc::clone(&policy), limits());
    process(&mut crashing, late_click(), &after_click).expect_err("the process crashes");
    drop(crashing);
    drop(worker);

    let report = verified(dir.path(), &policy);
    assert!(report.is_whole() && report.unfinished_effects > 0, "{report:?}");
    let refused = Source::open(&settings(dir.path())).err();
    assert!(matches!(refused, Some(StoreError::Unfinished { .. })), "{refused:?}");

    store = open(dir.path(), &policy);
    assert!(!store.unfinished().is_empty());
    assert!(store.positions().expect("the store works").is_empty(), "the position has advanced");
    let attributed = |row: &&RowText| row.short.contains(" attributed ");
    let corrected = store.row_texts().iter().filter(attributed).count();
    assert!((1..=1_000).contains(&corrected), "{corrected} rows");
    let mut worker = Worker::with_limits(store, Arc::clone(&policy), limits());
    let redelivered = [late_click(), identified(others.to_vec())].concat();
    let report = process(&mut worker, redelivered, &after_click).expect("the store works");
    assert_eq!(report.counts(Family::Touch).redelivered, 1);
    assert!(worker.ledger().unfinished().is_empty());
    assert_eq!(worker.ledger_mut().positions().expect("the store works"), after_click);
    let all = vec![before.to_vec(), late_click(), identified(others.to_vec())];
    assert_same_rows(&worker.ledger().row_texts(), &rows_at_once(all), "after the redelivery");

    drop(worker);
    let report = verified(dir.path(), &policy);
    assert!(report.is_whole() && report.unfinished_effects == 0, "{report:?}");
}

pub fn verified(path: &Path, policy: &Policy) -> Report {
    let options = Options { examples_max: 10, have_settings_changed: false };
    verify(&settings(path), policy, &options, &mut |_| ()).expect("the store is readable")
}

#[test]
fn a_crash_between_pages_leaves_no_trace() {
    let newer = [click("c2", a_plus(-30 * MINUTE))];
    let flood: Vec<Draft> = (0..60)
        .map(|number| click(&format!("f{number}"), a_plus(-MINUTE - number)).campaign(7))
        .collect();
    let before = history(1_000);
    check_crash(&before, 1, &[]);
    check_crash(&before, 150, &newer);
    check_crash(&before, 500, &flood);
    check_crash(&before, 800, &[]);
}

/// The searches that are left begin at the time of the last effect that was read, because others have the same time.
#[test]
fn a_crash_between_effects_of_one_moment_leaves_no_trace() {
    let effect = |number: i64| effect(&format!("e{number:05}"), a_plus(MINUTE)).prop("level", "1");
    let before = identified((0..1_000).map(effect).chain([activation("a", A)]));
    check_crash(&before, 500, &[]);
}

/// An effect with two ids is found by two searches, in different pages if one id has other effects as well.
#[test]
fn effects_that_several_pages_find_are_decided_once() {
    const GAID: &str = "cdda802e-fb9c-47ad-9866-0794d394c912";
    let only_gaid = |number: i64| {
        effect(&format!("g{number}"), a_plus(2 * HOUR + number * SECOND)).only("gaid", GAID)
    };
    let both = |number: i64| {
        effect(&format!("e{number}"), a_plus(MINUTE + number * SECOND)).and("gaid", GAID)
    };
    let drafts = (0..100).map(only_gaid).chain((0..100).map(both));
    let history = identified(drafts.chain([activation("a", A).and("gaid", GAID)]));
    let expected = rows_at_once(vec![history.clone(), late_click()]);
    let mut worker = Worker::new(Memory::default(), rules());
    process(&mut worker, history.clone(), &[]).expect("memory works");
    let report = process(&mut worker, late_click(), &[]).expect("memory works");
    assert_eq!(report.rows_written.values().sum::<u64>(), 201);
    assert_same_rows(&worker.ledger().row_texts(), &expected, "in memory");

    let model = Arc::new(Mutex::new(Model::default()));
    let client = HookedClient::new(&model, Box::new(|| Ok(())));
    let mut worker = Worker::new(ledger(client), rules());
    process(&mut worker, history, &[]).expect("memory works");
    let report = process(&mut worker, late_click(), &[]).expect("memory works");
    assert_eq!(report.rows_written.values().sum::<u64>(), 201);
    drop(worker);
    let rows = row_texts(&model.lock().expect("the lock is not poisoned").rows());
    assert_same_rows(&rows, &expected, "on a shared store");
}
