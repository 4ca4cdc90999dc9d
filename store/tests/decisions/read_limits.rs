//! The limits of reads bound the memory of a decision and change nothing else.

use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::explain::collect::{explain, explain_with_limits};
use attribution::explain::explanation::Verdict;
use attribution::explain::timeline::timeline_with_limits;
use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::Fact;
use attribution::facts::keys::FactKey;
use attribution::ledger::Facts as _;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::Policy;
use attribution::worker::limits::ReadLimits;
use attribution::worker::{Batch, Worker};
use proptest::prelude::*;
use proptest::test_runner::Config;
use support::facts::{
    A, D, DAY, Draft, HOUR, MINUTE, SECOND, a_plus, activation, click, effect, identified,
};
use support::random::{self, Facts, Rules};
use support::row_text::RowText;
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
    assert_eq!(&*small.considered[0].touch.id, "c");
    assert!(small.has_more || small.unlisted > 0);
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
        let page = timeline_with_limits(ledger, &policy, app, &ids, after, 50, limits(BYTES, 1));
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
