//! The limits of reads bound the memory of a decision and change nothing else.

use std::sync::{Arc, Mutex, PoisonError};

use adtrail_store::memory::Memory;
use attribution::explain::collect::{explain, explain_with_limits};
use attribution::explain::explanation::Verdict;
use attribution::explain::timeline::timeline;
use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::Fact;
use attribution::facts::keys::{FactKey, MatchKeys};
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{FactWrite, Facts as _, Ledger as _};
use attribution::rules::policy::Policy;
use attribution::worker::limits::ReadLimits;
use attribution::worker::{Batch, BatchReport, Worker};
use proptest::prelude::*;
use proptest::test_runner::Config;
use support::cells::{HookedClient, Model, ledger};
use support::facts::{
    A, D, DAY, Draft, HOUR, MINUTE, SECOND, a_plus, activation, click, effect, identified,
};
use support::random::{self, Facts, Rules};
use support::row_text::{RowText, row_texts};
use support::rules::{OTHER_CHANNEL, X, rules, rules_with};
use support::run::{LedgerUnderTest, assert_same_rows, worker_after};

use crate::support;

fn limits(bytes: usize, entries: usize) -> ReadLimits {
    ReadLimits { bytes, entries, ..ReadLimits::default() }
}

/// Returns the rows, and the maximum size of the touches that were loaded at the same time.
fn rows(
    policy: &Arc<Policy>,
    batches: Vec<Vec<Fact>>,
    limits: ReadLimits,
) -> (Vec<RowText>, usize) {
    let mut worker = Worker::with_limits(Memory::default(), Arc::clone(policy), limits);
    let mut touch_bytes_max = 0;
    for facts in batches {
        let report = worker.process(Batch { facts, ..Batch::default() }).expect("memory works");
        touch_bytes_max = touch_bytes_max.max(report.touch_bytes_max);
    }
    (worker.ledger().row_texts(), touch_bytes_max)
}

/// Returns the rows of a shared store.
fn shared_rows(policy: &Arc<Policy>, batches: &[Vec<Fact>], limits: ReadLimits) -> Vec<RowText> {
    let model = Arc::new(Mutex::new(Model::default()));
    let client = HookedClient::new(&model, Box::new(|| Ok(())));
    let mut worker = Worker::with_limits(ledger(client), Arc::clone(policy), limits);
    for facts in batches.iter().cloned() {
        worker.process(Batch { facts, ..Batch::default() }).expect("memory works");
    }
    drop(worker);
    let model = model.lock().unwrap_or_else(PoisonError::into_inner);
    row_texts(&model.rows())
}

#[track_caller]
fn check_same(policy: &Arc<Policy>, batches: &[Vec<Fact>]) {
    let (expected, _) = rows(policy, batches.to_vec(), ReadLimits::default());
    for (bytes, entries) in [(1, 1), (1_500, 1 << 20), (10_000, 100)] {
        let (found, _) = rows(policy, batches.to_vec(), limits(bytes, entries));
        assert_same_rows(&found, &expected, &format!("{bytes} bytes, {entries} entries"));
    }
}

proptest! {
    #![proptest_config(Config { cases: 100, failure_persistence: None, ..Config::default() })]

    #[test]
    fn small_limits_change_no_row(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
    ) {
        check_same(&policy, std::slice::from_ref(&facts));
        let one_by_one: Vec<_> = facts.iter().rev().map(|fact| vec![fact.clone()]).collect();
        check_same(&policy, &one_by_one);
    }

    #[test]
    fn small_limits_change_no_row_of_a_shared_store(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
    ) {
        let batches: Vec<_> = facts.rchunks(7).map(<[Fact]>::to_vec).collect();
        let expected = shared_rows(&policy, &batches, ReadLimits::default());
        for bytes in [1, 1_500, 10_000] {
            let found = shared_rows(&policy, &batches, limits(bytes, 1 << 20));
            assert_same_rows(&found, &expected, &format!("{bytes} bytes"));
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 4, failure_persistence: None, ..Config::default() })]

    #[test]
    fn small_limits_change_no_row_of_a_flood(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::floods(),
    ) {
        let (expected, _) = rows(&policy, vec![facts.clone()], ReadLimits::default());
        let (found, _) = rows(&policy, vec![facts], limits(20_000, 1_000));
        assert_same_rows(&found, &expected, "20,000 bytes");
    }
}

/// Returns large clicks, most of which cannot be credited, because their own lookback is over.
fn large_clicks(time_of: impl Fn(i64) -> i64) -> Vec<Draft> {
    let site = "s".repeat(4_000);
    let click = |number: i64| {
        let click = click(&format!("f{number:04}"), a_plus(time_of(number))).campaign(7);
        click.lookback(1).site(&site)
    };
    (0..2_000).map(click).collect()
}

/// Checks that a decision over more than 8 MB of clicks loads little at the same time.
#[track_caller]
fn check_loaded(policy: &Arc<Policy>, clicks: Vec<Draft>, expected: &str) {
    const BYTES: usize = 64 << 10;
    let batches = || [clicks.clone(), vec![activation("a", A)]].map(identified).to_vec();
    let (found, loaded) = rows(policy, batches(), limits(BYTES, 1 << 20));
    assert_eq!(found.iter().map(|row| &*row.short).collect::<Vec<_>>(), [expected]);
    assert!((BYTES..8 * BYTES).contains(&loaded), "{loaded} bytes");
    let (whole, _) = rows(policy, batches(), ReadLimits::default());
    assert_same_rows(&found, &whole, "the same rows with the default limits");
}

#[test]
fn large_clicks_that_settle_nothing_are_not_kept() {
    let organic = "a: install organic";
    let off = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    check_loaded(&off, large_clicks(|number| -MINUTE - number), organic);
    let counting = rules_with(|app| app.fraud.clicks_per_device_max = 50);
    check_loaded(&counting, large_clicks(|number| -MINUTE - number * SECOND), organic);
    check_loaded(&counting, large_clicks(|_| -HOUR), organic);
}

/// The clicks of one moment fill many reads; all of them count against the one that could be credited.
#[test]
fn clicks_that_are_not_kept_still_count() {
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 50);
    let credited = |campaign| click("c", a_plus(-30 * MINUTE)).campaign(campaign);
    let clicks = |campaign| [large_clicks(|_| -HOUR), vec![credited(campaign)]].concat();
    check_loaded(&policy, clicks(7), "a: install organic");
    check_loaded(&policy, clicks(OTHER_CHANNEL), "a: install attributed c (click by oaid)");
    let exactly = |max| {
        let policy = rules_with(|app| app.fraud.clicks_per_device_max = max);
        let facts = identified(clicks(7).into_iter().chain([activation("a", A)]));
        rows(&policy, vec![facts], limits(64 << 10, 1 << 20)).0[0].short.clone()
    };
    assert_eq!(exactly(2_000), "a: install organic", "2,001 clicks in 24 hours");
    assert_eq!(exactly(2_001), "a: install attributed c (click by oaid)");
}

/// The number of [`large_activations`].
const ACTIVATIONS: i64 = 200;

/// Returns activations of one device, an hour apart, which have 1.6 MB.
fn large_activations() -> Vec<Draft> {
    let text = "p".repeat(8_000);
    let activation = |number: i64| activation(&format!("a{number:03}"), a_plus(number * HOUR));
    (0..ACTIVATIONS).map(|number| activation(number).prop("p", &text)).collect()
}

#[track_caller]
fn check_held(last: Vec<Draft>) -> (BatchReport, Vec<RowText>) {
    check_held_after(&large_activations(), &last)
}

/// Processes facts in small batches, then `last`. Checks that the last batch holds a small part of the activations at
/// the same time. Returns its report, and all rows.
#[track_caller]
fn check_held_after(before: &[Draft], last: &[Draft]) -> (BatchReport, Vec<RowText>) {
    const BYTES: usize = 64 << 10;
    let run = |limits| {
        let mut worker = Worker::with_limits(Memory::default(), rules(), limits);
        let mut process = |drafts: &[Draft]| {
            let facts = identified(drafts.to_vec());
            worker.process(Batch { facts, ..Batch::default() }).expect("memory works")
        };
        for drafts in before.chunks(4) {
            process(drafts);
        }
        let report = process(last);
        (report, worker.ledger().row_texts())
    };
    let (report, found) = run(limits(BYTES, 1 << 20));
    let (whole_report, whole) = run(ReadLimits::default());
    assert_same_rows(&found, &whole, "the same rows with the default limits");
    let (held, all) = (report.activation_bytes_max, whole_report.activation_bytes_max);
    assert!(held < 8 * BYTES && all > 16 * BYTES, "{held} bytes of {all}");
    (report, found)
}

#[test]
fn a_late_activation_is_classified_without_holding_all_others() {
    let (report, rows) = check_held(vec![activation("late", a_plus(SECOND))]);
    assert_eq!(report.activations.accepted, 1);
    let classes = |class: &str| rows.iter().filter(|row| row.short.contains(class)).count() as i64;
    assert!(rows.iter().any(|row| row.short.starts_with("late: duplicate")));
    assert_eq!((classes(": install"), classes(": reinstall")), (1, ACTIVATIONS - 1));
}

#[test]
fn a_click_does_not_load_all_activations_that_it_can_change() {
    // The click is not for reinstalls.
    let (_, rows) = check_held(vec![click("c7", a_plus(-30 * MINUTE))]);
    assert_eq!(rows[0].short, "a000: install attributed c7 (click by oaid)");
}

/// Each decision has four tokens, and the last click changes all decisions.
#[test]
fn callback_tokens_of_decisions_count_as_held() {
    let token = "t".repeat(8_000);
    let click = |number: i64| {
        let click = click(&format!("c{number}"), a_plus(number * MINUTE - HOUR)).retargeting();
        click.lookback(60 * DAY).prop("callback", &token)
    };
    let activation = |number: i64| activation(&format!("a{number:03}"), a_plus(number * HOUR));
    let before: Vec<_> = (1..5).map(click).chain((0..ACTIVATIONS).map(activation)).collect();
    let (_, rows) = check_held_after(&before, &[click(5)]);
    assert_eq!(rows.len(), ACTIVATIONS as usize);
    for row in rows {
        assert!(row.short.contains(" attributed c5 (click by oaid) + 4 "), "{}", row.short);
        assert_eq!(row.ads, [&*format!(" {{callback={token}}}"); 4]);
    }
}

#[test]
fn effects_do_not_load_all_activations_of_their_device() {
    let effect = |number: i64| effect(&format!("e{number:03}"), a_plus(number * HOUR + MINUTE));
    let (report, rows) = check_held((0..ACTIVATIONS).map(effect).collect());
    assert_eq!(report.effects.accepted, ACTIVATIONS as u64);
    for number in 0..ACTIVATIONS {
        let (id, activation) = (format!("e{number:03}: "), format!(" of a{number:03}"));
        let row = rows.iter().find(|row| row.short.starts_with(&id));
        assert!(row.is_some_and(|row| row.short.ends_with(&activation)), "{row:?}");
    }
}

#[test]
fn activations_with_known_ids_are_looked_up_in_parts() {
    let again = |ms| -> Vec<Draft> {
        let again = |number| activation(&format!("a{number:03}"), a_plus(number * HOUR + ms));
        (0..ACTIVATIONS).map(again).collect()
    };
    let counts = |(report, _): (BatchReport, _)| report.activations;
    let later = counts(check_held(again(SECOND)));
    assert_eq!((later.accepted, later.conflicting), (0, ACTIVATIONS as u64));
    let earlier = counts(check_held(again(-SECOND)));
    assert_eq!((earlier.accepted, earlier.conflicting), (0, ACTIVATIONS as u64));
}

#[test]
fn a_forgotten_record_is_read_again_before_it_is_replaced() {
    let model = Arc::new(Mutex::new(Model::default()));
    let mut ledger = ledger(HookedClient::new(&model, Box::new(|| Ok(()))));
    let fact = Fact::from(activation("a", A));
    let key = attribution::facts::match_keys::fact_key(fact.id_space(), fact.pid(), fact.id());
    let mut conflicts = |must_forget: bool, must_look_up: bool| {
        if must_forget {
            ledger.forget(&key);
        }
        if must_look_up {
            let found = ledger.lookup_up_to(&[key], 1).expect("memory works");
            assert_eq!(found, [Lookup::Found(fact.clone().into())]);
        }
        let record = FactRecord::from(fact.clone());
        let write = FactWrite {
            key,
            received_md5: record.device_ids().received_md5(),
            record,
            index: MatchKeys::new(),
            bucket_markers: Vec::new(),
            stale: Vec::new(),
            superseded: None,
        };
        ledger.record(vec![write]).expect("memory works").len()
    };
    assert_eq!(conflicts(false, false), 0, "a new record");
    assert_eq!(conflicts(false, false), 0, "it is known");
    assert_eq!(conflicts(true, false), 1);
    assert_eq!(conflicts(true, true), 0);
}

#[test]
fn an_explanation_with_small_limits_has_the_same_decision() {
    let clicks = large_clicks(|number| -MINUTE - number);
    let winner = click("c", a_plus(-DAY)).campaign(8);
    let facts = identified(clicks.into_iter().chain([winner, activation("a", A)]));
    let policy = rules();
    let mut worker = worker_after(Memory::default(), &policy, vec![facts]);
    let whole = explain(worker.ledger_mut(), &policy, X, "a").expect("memory works");
    let small = explain_with_limits(worker.ledger_mut(), &policy, X, "a", limits(1 << 16, 1 << 20));
    let (whole, small) = (whole.expect("a"), small.expect("memory works").expect("a"));
    assert!(small.is_repeatable);
    assert_eq!(small.decision, whole.decision);
    assert_eq!(small.considered[0].verdict, Verdict::Won);
    assert_eq!(small.considered[0].touch.id(), "c");
    assert!(small.has_more || small.unlisted > 0);
}

/// By default all of them are listed or counted.
#[test]
fn an_explanation_lists_touches_up_to_a_number_of_bytes() {
    let clicks = large_clicks(|number| -MINUTE - number).into_iter().take(500);
    let facts = identified(clicks.chain([activation("a", A)]));
    let policy = rules();
    let mut worker = worker_after(Memory::default(), &policy, vec![facts]);
    let mut has_more = |limits| {
        let explanation = explain_with_limits(worker.ledger_mut(), &policy, X, "a", limits);
        explanation.expect("memory works").expect("a").has_more
    };
    assert!(!has_more(ReadLimits::default()));
    assert!(has_more(limits(1 << 16, 1 << 20)));
}

#[test]
fn the_pages_of_a_timeline_are_bounded_by_bytes() {
    const BYTES: usize = 20_000;
    let facts = large_clicks(|number| -MINUTE - number).into_iter().take(100);
    let facts = identified(facts.chain([activation("a", A), effect("e", a_plus(MINUTE))]));
    let policy = rules();
    let mut worker = worker_after(Memory::default(), &policy, vec![facts]);
    let app = policy.app(X).expect("the app is configured");
    let ids = DeviceIds::of_app_event(&vec![("oaid".into(), D.into())]);
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let ledger = worker.ledger_mut();
        let page = timeline(ledger, &policy, app, &ids, after, 50, limits(BYTES, 1));
        let page = page.expect("memory works");
        let bytes: usize = page.found.iter().map(|found| found.record.bytes()).sum();
        assert!(bytes < BYTES + 5_000, "{bytes} bytes: at most one touch more");
        found.extend(page.found.iter().map(|found| found.record.id().to_owned()));
        after = page.found.last().map(|last| last.entry);
        if !page.has_more {
            break;
        }
    }
    let expected = ["e".to_owned(), "a".to_owned()].into_iter();
    let expected = expected.chain((0..100).map(|number| format!("f{number:04}")));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn a_large_history_is_counted() {
    let limits = ReadLimits { bytes: 1 << 16, large_history: 500, ..ReadLimits::default() };
    let large = |count: usize| {
        let mut worker = Worker::with_limits(Memory::default(), rules(), limits);
        let clicks = large_clicks(|number| -MINUTE - number).into_iter().take(count);
        let facts = identified(clicks.chain([activation("a", A)]));
        let report = worker.process(Batch { facts, ..Batch::default() });
        report.expect("memory works").large_histories
    };
    assert_eq!((large(499), large(500)), (0, 1));
}

#[test]
fn records_are_returned_up_to_a_number_of_bytes() {
    let facts = identified(large_clicks(|number| -number).into_iter().take(200));
    let mut worker = worker_after(Memory::default(), &rules(), vec![facts.clone()]);
    let key = |fact: &Fact| {
        attribution::facts::match_keys::fact_key(fact.id_space(), fact.pid(), fact.id())
    };
    let keys: Vec<FactKey> = facts.iter().map(key).collect();
    let bytes = FactRecord::from(facts[0].clone()).bytes();
    let mut count = |bytes_max| {
        worker.ledger_mut().records_up_to(&keys, bytes_max).expect("memory works").len()
    };
    let found = [0, 1, 3 * bytes, 100 * bytes, usize::MAX].map(&mut count);
    assert_eq!(found, [1, 1, 3, 100, 200]);
}
