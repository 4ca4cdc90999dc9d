//! Two workers of one store: one is stopped at every step in turn, and the other does all of its
//! work in between.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use adtrail_store::StoreError;
use adtrail_store::memory::Memory;
use attribution::facts::event::Fact;
use attribution::worker::{Admitted, Batch, Worker};
use support::cells::{Between, Does, Late, Model, Step, Stepped, Turns, Visitor, ledger};
use support::facts::{A, DAY, Draft, HOUR, MINUTE, a_and, activation, click, effect, identified};
use support::race::{Side, left_by, race, race_from};
use support::rules::{rules, rules_with};
use support::run::{Shelf, fed, same};
use support::show::{Shown, show_all};

use crate::support;

/// What the one worker does in batches, and what comes in between.
#[track_caller]
fn check<const N: usize>(batches: [Vec<Draft>; N], between: Vec<Draft>) -> Late {
    let left: Vec<Vec<Fact>> = batches.into_iter().map(identified).collect();
    let right = vec![identified(between)];
    let all = [left.concat(), right.concat()].concat();
    let messages = all.len();
    let events: BTreeSet<_> = all.iter().map(|fact| (fact.family(), fact.id())).collect();
    let events = events.len();
    let expected = fed(Memory::default(), &rules(), vec![all]).ledger().shown();
    let mut lost = Late::default();
    let mut stop = 0;
    loop {
        let mut turns = vec![Side::Left; stop];
        turns.resize(stop + 10_000, Side::Right);
        let outcome = race(&rules(), [left.clone(), right.clone()], &turns);
        same(&outcome.rows, &expected, &format!("stopped after {stop} steps"));
        let Admitted { accepted, redelivered, .. } = outcome.admitted;
        assert_eq!((accepted, redelivered), (events as u64, (messages - events) as u64));
        lost.facts += outcome.late.facts;
        lost.decisions += outcome.late.decisions;
        if stop > outcome.steps {
            return lost;
        }
        stop += 1;
    }
}

#[test]
fn a_late_click_and_an_effect() {
    check(
        [vec![activation("a", A)], vec![click("c1", a_and(-HOUR))]],
        vec![effect("e", a_and(MINUTE))],
    );
}

#[test]
fn an_effect_and_a_late_click() {
    // The effect's worker has read the activation as it was.
    let lost = check(
        [vec![activation("a", A)], vec![effect("e", a_and(MINUTE))]],
        vec![click("c1", a_and(-HOUR))],
    );
    assert!(lost.decisions > 0, "{lost:?}");
}

#[test]
fn an_activation_and_its_effect() {
    check([vec![activation("a", A)]], vec![effect("e", a_and(MINUTE))]);
    check([vec![effect("e", a_and(MINUTE))]], vec![activation("a", A)]);
}

#[test]
fn two_late_clicks() {
    let c1 = || vec![click("c1", a_and(-2 * HOUR))];
    let c2 = || vec![click("c2", a_and(-HOUR))];
    let there = || vec![activation("a", A), effect("e", a_and(MINUTE))];
    let lost = check([there(), c1()], c2());
    assert!(lost.decisions > 0, "{lost:?}");
    check([there(), c2()], c1());
}

#[test]
fn a_click_and_the_earlier_message_that_is_the_click() {
    // Two messages of one click; the earlier is out of its window, so that nothing changes.
    let lost = check(
        [
            vec![activation("a", A), effect("e", a_and(MINUTE))],
            vec![click("c1", a_and(-HOUR)), click("c2", a_and(HOUR))],
        ],
        vec![click("c1", a_and(-8 * DAY))],
    );
    assert!(lost.facts > 0, "{lost:?}");
}

#[test]
fn an_activation_and_the_earlier_message_that_is_the_activation() {
    // The effect is of the device that only the later message names.
    let lost = check(
        [
            vec![effect("e", a_and(MINUTE)).only("imei", "1")],
            vec![activation("a", A).only("imei", "1")],
        ],
        vec![activation("a", a_and(-1)).only("imei", "2")],
    );
    assert!(lost.facts > 0 && lost.decisions > 0, "{lost:?}");
}

#[test]
fn messages_of_one_time_of_which_the_least_is_of_the_first_ones_device() {
    // The worker of the second stands still when it is the fact already, while another takes the third.
    let message = |campaign, imei: &str| {
        vec![click("c1", a_and(-HOUR)).campaign(campaign).only("imei", imei)]
    };
    let lost = check(
        [message(3, "1"), message(2, "2"), vec![activation("a", A).only("imei", "1")]],
        message(1, "1"),
    );
    assert!(lost.facts > 0, "{lost:?}");
}

#[test]
fn an_effect_and_the_earlier_message_that_is_the_effect() {
    check(
        [vec![activation("a", A)], vec![effect("e", a_and(MINUTE))]],
        vec![effect("e", a_and(-HOUR))],
    );
}

#[test]
fn two_activations_of_one_device() {
    let (a, b) = (|| vec![activation("a", A)], || vec![activation("b", a_and(1))]);
    check([a()], b());
    check([b()], a());
    check([vec![effect("e", a_and(MINUTE))], b()], a());
}

#[test]
fn an_install_and_the_effect_of_its_reinstall() {
    let there = vec![
        activation("a", A).only("imei", "1"),
        activation("b", a_and(DAY)).only("imei", "1").and("oaid", "x"),
    ];
    check(
        [there, vec![click("c1", a_and(-HOUR)).only("imei", "1")]],
        vec![effect("e", a_and(2 * DAY)).only("oaid", "x")],
    );
}

/// What a process leaves undone that ends after any number of steps is done when its batch comes
/// again.
#[track_caller]
fn check_again(there: Vec<Draft>, batch: Vec<Draft>) {
    let (there, facts) = (identified(there), identified(batch));
    let all = [there.clone(), facts.clone()].concat();
    let expected = fed(Memory::default(), &rules(), vec![all]).ledger().shown();
    for steps in 0.. {
        let store = Arc::new(Mutex::new(left_by(&rules(), vec![there.clone()])));
        let mut left = steps;
        let ends = move || {
            left -= 1;
            if left < 0 { Err(ended()) } else { Ok(()) }
        };
        let has_ended = take(&store, Box::new(ends), &facts).is_err();
        take(&store, Box::new(|| Ok(())), &facts).expect("the process goes on");
        same(&shown(&store), &expected, &format!("ended after {steps} steps"));
        if !has_ended {
            assert!(steps > 3, "nothing was left undone");
            return;
        }
    }
}

/// Gives a batch to a worker of its own.
fn take(store: &Arc<Mutex<Model>>, between: Between, facts: &[Fact]) -> Result<(), StoreError> {
    let batch = Batch { facts: facts.to_vec(), ..Batch::default() };
    Worker::new(ledger(Visitor::new(store, between)), rules()).process(batch).map(|_| ())
}

fn shown(store: &Mutex<Model>) -> Vec<Shown> {
    show_all(&store.lock().expect("no panic").rows())
}

#[test]
fn what_was_replaced_before_a_crash_is_not_forgotten() {
    let there = vec![
        click("c1", a_and(-HOUR)).only("imei", "1"),
        activation("a", A).only("imei", "1").and("oaid", "x"),
        activation("b", a_and(DAY)).only("imei", "1"),
        effect("e", a_and(MINUTE)).only("oaid", "x"),
    ];
    // Both are the same ones, as they were said to be earlier, and of other devices.
    check_again(there.clone(), vec![click("c1", a_and(-2 * HOUR)).only("imei", "2")]);
    check_again(there, vec![activation("a", a_and(-MINUTE)).only("imei", "2")]);
}

#[test]
fn facts_that_were_recorded_before_a_crash_are_decided_on_when_they_come_again() {
    check_again(vec![], vec![click("c1", a_and(-HOUR)), activation("a", A), effect("e", A)]);
}

#[test]
fn effects_of_an_activation_of_another_class_are_decided_on_when_it_comes_again() {
    let there = vec![
        click("c1", a_and(-HOUR)).only("imei", "1"),
        click("c2", a_and(-2 * HOUR)).only("imei", "1").retargeting(),
        activation("b", A).only("imei", "1").and("oaid", "x"),
        effect("e", a_and(MINUTE)).only("oaid", "x"),
    ];
    check_again(there, vec![activation("a", a_and(-DAY)).only("imei", "1")]);
}

#[test]
fn effects_of_a_late_click_are_decided_on_when_it_comes_again() {
    let there = [
        activation("a", A).only("imei", "1").and("oaid", "x"),
        effect("e", a_and(MINUTE)).only("oaid", "x"),
        activation("b", a_and(DAY)).only("imei", "1").and("caid", "y"),
        effect("f", a_and(DAY + MINUTE)).only("caid", "y"),
    ];
    for hours in 1..5 {
        let older = (2..7).map(|number| click(&format!("c{number}"), a_and(-number * HOUR)));
        let older = older.map(|click| click.only("imei", "1"));
        let there = there.iter().cloned().chain(older).collect();
        let late = click("c1", a_and(-hours * HOUR - MINUTE)).only("imei", "1");
        check_again(there, vec![late.clone(), activation("z", A).only("imei", "2")]);
    }
}

/// A process that has lost its partitions and does not know it has the batch, too, at any step of their new owner, and
/// ends after any number of its own. The owner leaves nothing undone: the batch does not come again.
#[track_caller]
fn check_beside_one_that_ends(there: Vec<Draft>, batch: Vec<Draft>) {
    let (there, facts) = (identified(there), identified(batch));
    let all = [there.clone(), facts.clone()].concat();
    let expected = fed(Memory::default(), &rules(), vec![all]).ledger().shown();
    let model = left_by(&rules(), vec![there]);
    for steps in 1.. {
        let (mut stop, mut is_whole) = (0, true);
        loop {
            let store = Arc::new(Mutex::new(model.clone()));
            let come = Arc::new(AtomicUsize::new(0));
            let whole = Arc::new(AtomicBool::new(false));
            let comes = {
                let (store, facts, come, whole) =
                    (Arc::clone(&store), facts.clone(), Arc::clone(&come), Arc::clone(&whole));
                move || {
                    if come.fetch_add(1, Ordering::Relaxed) == stop {
                        let mut left = steps;
                        let ends = move || {
                            left -= 1;
                            if left < 0 { Err(ended()) } else { Ok(()) }
                        };
                        whole
                            .store(take(&store, Box::new(ends), &facts).is_ok(), Ordering::Relaxed);
                    }
                    Ok(())
                }
            };
            take(&store, Box::new(comes), &facts).expect("the owner goes on");
            let how = format!("beside one that ended after {steps} steps, at step {stop}");
            same(&shown(&store), &expected, &how);
            if come.load(Ordering::Relaxed) <= stop {
                break;
            }
            is_whole &= whole.load(Ordering::Relaxed);
            stop += 1;
        }
        assert!(stop > 3, "nothing was in between");
        if is_whole {
            return;
        }
    }
}

fn ended() -> StoreError {
    StoreError::Corrupt { what: "it ends".into() }
}

#[test]
fn what_another_decides_and_does_not_show_is_shown_by_who_has_it_too() {
    let there = || vec![activation("a", A), effect("e", a_and(MINUTE))];
    check_beside_one_that_ends(vec![], vec![effect("e", A), effect("f", a_and(MINUTE))]);
    check_beside_one_that_ends(vec![], vec![activation("a", A), effect("e", a_and(MINUTE))]);
    check_beside_one_that_ends(there(), vec![click("c1", a_and(-HOUR))]);
    check_beside_one_that_ends(there(), vec![activation("b", a_and(-DAY))]);
}

/// A process that stands still while another does all of its work, goes on and ends soon: it writes
/// nothing from what is outdated. Its batch, when it comes again, changes nothing.
#[track_caller]
fn check_late_end(there: Vec<Draft>, batch: Vec<Draft>, between: Vec<Draft>) {
    let rules = || rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let [there, left, right] = [there, batch, between].map(identified);
    let all = [&there[..], &left, &right].concat();
    let expected = fed(Memory::default(), &rules(), vec![all]).ledger().shown();
    let model = left_by(&rules(), vec![there]);
    for records in 1..4 {
        let mut stop = 0;
        loop {
            let mut turns = vec![Side::Left; stop];
            turns.resize(stop + 10_000, Side::Right);
            let batches = [vec![left.clone()], vec![right.clone()]];
            let from = (model.clone(), Some(records));
            let outcome = race_from(from, &rules(), batches, &turns);
            let how = format!("stopped after {stop} steps, ended after {records} homes");
            if outcome.is_whole {
                same(&outcome.rows, &expected, &how);
            }
            let store = Arc::new(Mutex::new(outcome.model));
            take(&store, Box::new(|| Ok(())), &left).expect("the process goes on");
            same(&shown(&store), &expected, &how);
            if stop > outcome.steps {
                break;
            }
            stop += 1;
        }
    }
}

#[test]
fn a_late_effect_of_a_click_that_newer_ones_outdo_is_not_written() {
    let there = vec![
        activation("a", A).only("imei", "1").and("oaid", "x"),
        effect("e", a_and(MINUTE)).only("oaid", "x"),
    ];
    let clicks = |numbers: std::ops::Range<i64>| {
        numbers
            .map(|number| {
                click(&format!("c{number}"), a_and(number * MINUTE - HOUR)).only("imei", "1")
            })
            .collect()
    };
    check_late_end(there, clicks(1..2), clicks(2..6));
}

#[test]
fn a_late_effect_of_a_reinstall_that_is_credited_meanwhile_is_not_written() {
    // Too late to be credited with the click itself.
    let late = |ms| a_and(8 * DAY + ms);
    let there = vec![
        activation("a", A).only("imei", "1"),
        activation("b", late(0)).only("imei", "1").and("oaid", "x"),
        effect("e", late(MINUTE)).only("oaid", "x"),
    ];
    let credited = vec![click("c2", late(-HOUR)).only("oaid", "x").retargeting()];
    check_late_end(there, vec![click("c1", a_and(-HOUR)).only("imei", "1")], credited);
}

/// A cluster that does what it is asked for and does not tell it of conditional puts.
struct Untold {
    model: Model,
    is_in_doubt: bool,
}

impl Turns for Untold {
    fn step<T>(
        &mut self,
        step: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError> {
        let is_told = step.does != Does::PutsWhere;
        self.is_in_doubt |= !is_told;
        Ok((act(&mut self.model), is_told))
    }

    fn settled(&mut self) {
        self.is_in_doubt = false;
    }
}

#[test]
fn what_was_done_and_not_told_is_in_doubt_no_longer_than_its_batch() {
    let untold = Untold { model: Model::default(), is_in_doubt: false };
    let mut worker = Worker::new(ledger(untold), rules());
    let batches =
        [vec![click("c1", a_and(-HOUR))], vec![activation("a", A), effect("e", a_and(MINUTE))]];
    for drafts in batches {
        let batch = Batch { facts: identified(drafts), ..Batch::default() };
        worker.process(batch).expect("memory does not fail");
        assert!(!worker.ledger().cells().0.is_in_doubt);
    }
    let Stepped(Untold { model, .. }) = worker.ledger().cells();
    assert_eq!(model.rows().len(), 2);
}
