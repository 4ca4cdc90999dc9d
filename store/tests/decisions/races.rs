//! Two workers on one store: the first is paused at each step in turn, and the second does all of its work meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use adtrail_store::StoreError;
use adtrail_store::memory::Memory;
use attribution::facts::event::Fact;
use attribution::worker::{Batch, MessageCounts, Worker};
use support::cells::{
    BeforeStep, Conflicts, HookedClient, Model, Operation, Step, StepClient, SteppedCells, ledger,
};
use support::facts::{A, DAY, Draft, HOUR, MINUTE, a_plus, activation, click, effect, identified};
use support::race::{Side, model_after, race, race_from};
use support::row_text::{RowText, row_texts};
use support::rules::{rules, rules_with};
use support::run::{LedgerUnderTest, assert_same_rows, worker_after};

use crate::support;

/// One worker processes `batches`; another processes `meanwhile` while the first is paused. Checks the rows for each
/// step at which it can be paused, and returns the sum of the conflicts.
#[track_caller]
fn check<const N: usize>(batches: [Vec<Draft>; N], meanwhile: Vec<Draft>) -> Conflicts {
    let left: Vec<Vec<Fact>> = batches.into_iter().map(identified).collect();
    let right = vec![identified(meanwhile)];
    let all = [left.concat(), right.concat()].concat();
    let messages = all.len();
    let events: BTreeSet<_> = all.iter().map(|fact| (fact.id_space() as u8, fact.id())).collect();
    let events = events.len();
    let expected = worker_after(Memory::default(), &rules(), vec![all]).ledger().row_texts();
    let mut conflicts = Conflicts::default();
    let mut pause_at = 0;
    loop {
        let mut turns = vec![Side::Left; pause_at];
        turns.resize(pause_at + 10_000, Side::Right);
        let outcome = race(&rules(), [left.clone(), right.clone()], &turns);
        assert_same_rows(&outcome.rows, &expected, &format!("paused after {pause_at} steps"));
        let MessageCounts { accepted, redelivered, .. } = outcome.counts;
        assert_eq!((accepted, redelivered), (events as u64, (messages - events) as u64));
        conflicts.facts += outcome.conflicts.facts;
        conflicts.decisions += outcome.conflicts.decisions;
        if pause_at > outcome.steps {
            return conflicts;
        }
        pause_at += 1;
    }
}

#[test]
fn a_late_click_can_race_with_an_effect() {
    check(
        [vec![activation("a", A)], vec![click("c1", a_plus(-HOUR))]],
        vec![effect("e", a_plus(MINUTE))],
    );
}

#[test]
fn an_effect_can_race_with_a_late_click() {
    // The effect's worker has read the activation before its correction.
    let conflicts = check(
        [vec![activation("a", A)], vec![effect("e", a_plus(MINUTE))]],
        vec![click("c1", a_plus(-HOUR))],
    );
    assert!(conflicts.decisions > 0, "{conflicts:?}");
}

#[test]
fn an_activation_can_race_with_its_effect() {
    check([vec![activation("a", A)]], vec![effect("e", a_plus(MINUTE))]);
    check([vec![effect("e", a_plus(MINUTE))]], vec![activation("a", A)]);
}

#[test]
fn two_late_clicks_can_race() {
    let c1 = || vec![click("c1", a_plus(-2 * HOUR))];
    let c2 = || vec![click("c2", a_plus(-HOUR))];
    let existing = || vec![activation("a", A), effect("e", a_plus(MINUTE))];
    let conflicts = check([existing(), c1()], c2());
    assert!(conflicts.decisions > 0, "{conflicts:?}");
    check([existing(), c2()], c1());
}

#[test]
fn a_click_can_race_with_its_earlier_message() {
    // Two messages of one click; the earlier is out of its window, so nothing is credited.
    let conflicts = check(
        [
            vec![activation("a", A), effect("e", a_plus(MINUTE))],
            vec![click("c1", a_plus(-HOUR)), click("c2", a_plus(HOUR))],
        ],
        vec![click("c1", a_plus(-8 * DAY))],
    );
    assert!(conflicts.facts > 0, "{conflicts:?}");
}

#[test]
fn an_activation_can_race_with_its_earlier_message() {
    // The effect's device is only in the later message.
    let conflicts = check(
        [
            vec![effect("e", a_plus(MINUTE)).only("imei", "1")],
            vec![activation("a", A).only("imei", "1")],
        ],
        vec![activation("a", a_plus(-1)).only("imei", "2")],
    );
    assert!(conflicts.facts > 0 && conflicts.decisions > 0, "{conflicts:?}");
}

#[test]
fn simultaneous_messages_can_race_if_the_first_and_the_least_have_the_same_device() {
    // The worker of the second message is paused after recording it, while the other worker processes the third.
    let message = |campaign, imei: &str| {
        vec![click("c1", a_plus(-HOUR)).campaign(campaign).only("imei", imei)]
    };
    let conflicts = check(
        [message(3, "1"), message(2, "2"), vec![activation("a", A).only("imei", "1")]],
        message(1, "1"),
    );
    assert!(conflicts.facts > 0, "{conflicts:?}");
}

#[test]
fn an_effect_can_race_with_its_earlier_message() {
    check(
        [vec![activation("a", A)], vec![effect("e", a_plus(MINUTE))]],
        vec![effect("e", a_plus(-HOUR))],
    );
}

#[test]
fn two_activations_of_one_device_can_race() {
    let (a, b) = (|| vec![activation("a", A)], || vec![activation("b", a_plus(1))]);
    check([a()], b());
    check([b()], a());
    check([vec![effect("e", a_plus(MINUTE))], b()], a());
}

#[test]
fn an_install_can_race_with_the_effect_of_its_reinstall() {
    let existing = vec![
        activation("a", A).only("imei", "1"),
        activation("b", a_plus(DAY)).only("imei", "1").and("oaid", "x"),
    ];
    check(
        [existing, vec![click("c1", a_plus(-HOUR)).only("imei", "1")]],
        vec![effect("e", a_plus(2 * DAY)).only("oaid", "x")],
    );
}

/// Lets a process crash after each possible number of steps. Checks that the rows are complete once its batch is
/// redelivered.
#[track_caller]
fn check_redelivery(existing: Vec<Draft>, batch: Vec<Draft>) {
    let (existing, facts) = (identified(existing), identified(batch));
    let all = [existing.clone(), facts.clone()].concat();
    let expected = worker_after(Memory::default(), &rules(), vec![all]).ledger().row_texts();
    for steps in 0.. {
        let store = Arc::new(Mutex::new(model_after(&rules(), vec![existing.clone()])));
        let has_crashed = process(&store, crash_after(steps), &facts).is_err();
        process(&store, Box::new(|| Ok(())), &facts).expect("the process works");
        assert_same_rows(&rows_of(&store), &expected, &format!("crashed after {steps} steps"));
        if !has_crashed {
            assert!(steps > 3, "the process took too few steps");
            return;
        }
    }
}

/// Processes a batch with a new worker.
fn process(
    store: &Arc<Mutex<Model>>,
    before_step: BeforeStep,
    facts: &[Fact],
) -> Result<(), StoreError> {
    let batch = Batch { facts: facts.to_vec(), ..Batch::default() };
    let client = HookedClient::new(store, before_step);
    Worker::new(ledger(client), rules()).process(batch).map(|_| ())
}

fn rows_of(store: &Mutex<Model>) -> Vec<RowText> {
    row_texts(&store.lock().expect("the lock is not poisoned").rows())
}

#[test]
fn facts_replaced_before_a_crash_change_decisions_on_redelivery() {
    let existing = vec![
        click("c1", a_plus(-HOUR)).only("imei", "1"),
        activation("a", A).only("imei", "1").and("oaid", "x"),
        activation("b", a_plus(DAY)).only("imei", "1"),
        effect("e", a_plus(MINUTE)).only("oaid", "x"),
    ];
    // Earlier messages of the click and of the activation, with another device.
    check_redelivery(existing.clone(), vec![click("c1", a_plus(-2 * HOUR)).only("imei", "2")]);
    check_redelivery(existing, vec![activation("a", a_plus(-MINUTE)).only("imei", "2")]);
}

#[test]
fn facts_recorded_before_a_crash_get_decisions_on_redelivery() {
    check_redelivery(vec![], vec![click("c1", a_plus(-HOUR)), activation("a", A), effect("e", A)]);
}

#[test]
fn effects_of_a_changed_class_get_new_decisions_on_redelivery() {
    let existing = vec![
        click("c1", a_plus(-HOUR)).only("imei", "1"),
        click("c2", a_plus(-2 * HOUR)).only("imei", "1").retargeting(),
        activation("b", A).only("imei", "1").and("oaid", "x"),
        effect("e", a_plus(MINUTE)).only("oaid", "x"),
    ];
    check_redelivery(existing, vec![activation("a", a_plus(-DAY)).only("imei", "1")]);
}

#[test]
fn effects_of_a_late_click_get_new_decisions_on_redelivery() {
    let existing = [
        activation("a", A).only("imei", "1").and("oaid", "x"),
        effect("e", a_plus(MINUTE)).only("oaid", "x"),
        activation("b", a_plus(DAY)).only("imei", "1").and("caid", "y"),
        effect("f", a_plus(DAY + MINUTE)).only("caid", "y"),
    ];
    for hours in 1..5 {
        let older = (2..7).map(|number| click(&format!("c{number}"), a_plus(-number * HOUR)));
        let older = older.map(|click| click.only("imei", "1"));
        let existing = existing.iter().cloned().chain(older).collect();
        let late = click("c1", a_plus(-hours * HOUR - MINUTE)).only("imei", "1");
        check_redelivery(existing, vec![late.clone(), activation("z", A).only("imei", "2")]);
    }
}

/// A process that has lost its partitions without noticing processes the same batch as their new owner, starting at any
/// of the owner's steps, and crashes after any number of its own. Checks that the owner completes the rows, because the
/// batch is not redelivered.
#[track_caller]
fn check_beside_crashing_process(existing: Vec<Draft>, batch: Vec<Draft>) {
    let (existing, facts) = (identified(existing), identified(batch));
    let all = [existing.clone(), facts.clone()].concat();
    let expected = worker_after(Memory::default(), &rules(), vec![all]).ledger().row_texts();
    let model = model_after(&rules(), vec![existing]);
    for steps in 1.. {
        let (mut start_at, mut always_completed) = (0, true);
        loop {
            let store = Arc::new(Mutex::new(model.clone()));
            let steps_done = Arc::new(AtomicUsize::new(0));
            let has_completed = Arc::new(AtomicBool::new(false));
            let before_step = {
                let (store, facts) = (Arc::clone(&store), facts.clone());
                let (steps_done, has_completed) =
                    (Arc::clone(&steps_done), Arc::clone(&has_completed));
                move || {
                    if steps_done.fetch_add(1, Ordering::Relaxed) == start_at {
                        let outcome = process(&store, crash_after(steps), &facts);
                        has_completed.store(outcome.is_ok(), Ordering::Relaxed);
                    }
                    Ok(())
                }
            };
            process(&store, Box::new(before_step), &facts).expect("the owner works");
            let context =
                format!("beside a process that crashed after {steps} steps, at step {start_at}");
            assert_same_rows(&rows_of(&store), &expected, &context);
            if steps_done.load(Ordering::Relaxed) <= start_at {
                break;
            }
            always_completed &= has_completed.load(Ordering::Relaxed);
            start_at += 1;
        }
        assert!(start_at > 3, "the owner took too few steps");
        if always_completed {
            return;
        }
    }
}

/// Crashes the process after `steps` steps.
fn crash_after(steps: i32) -> BeforeStep {
    let mut remaining = steps;
    Box::new(move || {
        remaining -= 1;
        match remaining < 0 {
            true => Err(StoreError::Corrupt { what: "the process crashes here".into() }),
            false => Ok(()),
        }
    })
}

#[test]
fn rows_that_a_crashed_process_did_not_write_are_written_by_the_owner() {
    let existing = || vec![activation("a", A), effect("e", a_plus(MINUTE))];
    check_beside_crashing_process(vec![], vec![effect("e", A), effect("f", a_plus(MINUTE))]);
    check_beside_crashing_process(vec![], vec![activation("a", A), effect("e", a_plus(MINUTE))]);
    check_beside_crashing_process(existing(), vec![click("c1", a_plus(-HOUR))]);
    check_beside_crashing_process(existing(), vec![activation("b", a_plus(-DAY))]);
}

/// A process is paused while another does all of its work, then resumes and soon crashes. Checks that it writes nothing
/// outdated, and that its redelivered batch leads to the expected rows.
#[track_caller]
fn check_crash_after_pause(existing: Vec<Draft>, batch: Vec<Draft>, meanwhile: Vec<Draft>) {
    let rules = || rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let [existing, left, right] = [existing, batch, meanwhile].map(identified);
    let all = [&existing[..], &left, &right].concat();
    let expected = worker_after(Memory::default(), &rules(), vec![all]).ledger().row_texts();
    let model = model_after(&rules(), vec![existing]);
    for records in 1..4 {
        let mut pause_at = 0;
        loop {
            let mut turns = vec![Side::Left; pause_at];
            turns.resize(pause_at + 10_000, Side::Right);
            let batches = [vec![left.clone()], vec![right.clone()]];
            let from = (model.clone(), Some(records));
            let outcome = race_from(from, &rules(), batches, &turns);
            let context = format!("paused after {pause_at} steps, crashed after {records} records");
            if outcome.is_complete {
                assert_same_rows(&outcome.rows, &expected, &context);
            }
            let store = Arc::new(Mutex::new(outcome.model));
            process(&store, Box::new(|| Ok(())), &left).expect("the process works");
            assert_same_rows(&rows_of(&store), &expected, &context);
            if pause_at > outcome.steps {
                break;
            }
            pause_at += 1;
        }
    }
}

#[test]
fn an_outdated_decision_is_not_written_after_newer_clicks() {
    let existing = vec![
        activation("a", A).only("imei", "1").and("oaid", "x"),
        effect("e", a_plus(MINUTE)).only("oaid", "x"),
    ];
    let clicks = |numbers: std::ops::Range<i64>| {
        numbers
            .map(|number| {
                click(&format!("c{number}"), a_plus(number * MINUTE - HOUR)).only("imei", "1")
            })
            .collect()
    };
    check_crash_after_pause(existing, clicks(1..2), clicks(2..6));
}

#[test]
fn an_outdated_decision_is_not_written_after_the_reinstall_is_credited() {
    // The reinstall is too late to be credited to the click itself.
    let late = |ms| a_plus(8 * DAY + ms);
    let existing = vec![
        activation("a", A).only("imei", "1"),
        activation("b", late(0)).only("imei", "1").and("oaid", "x"),
        effect("e", late(MINUTE)).only("oaid", "x"),
    ];
    let credited = vec![click("c2", late(-HOUR)).only("oaid", "x").retargeting()];
    check_crash_after_pause(existing, vec![click("c1", a_plus(-HOUR)).only("imei", "1")], credited);
}

/// A client whose conditional puts are executed, but whose responses are lost.
struct LossyClient {
    model: Model,
    /// True while the worker does not know the outcome of a put.
    is_uncertain: bool,
}

impl StepClient for LossyClient {
    fn step<T>(
        &mut self,
        step: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError> {
        let has_response = step.operation != Operation::PutWhere;
        self.is_uncertain |= !has_response;
        Ok((act(&mut self.model), has_response))
    }

    fn batch_complete(&mut self) {
        self.is_uncertain = false;
    }
}

#[test]
fn lost_responses_are_resolved_within_their_batch() {
    let client = LossyClient { model: Model::default(), is_uncertain: false };
    let mut worker = Worker::new(ledger(client), rules());
    let batches =
        [vec![click("c1", a_plus(-HOUR))], vec![activation("a", A), effect("e", a_plus(MINUTE))]];
    for drafts in batches {
        let batch = Batch { facts: identified(drafts), ..Batch::default() };
        worker.process(batch).expect("memory does not fail");
        assert!(!worker.ledger().cells().0.is_uncertain);
    }
    let SteppedCells(LossyClient { model, .. }) = worker.ledger().cells();
    assert_eq!(model.rows().len(), 2);
}
