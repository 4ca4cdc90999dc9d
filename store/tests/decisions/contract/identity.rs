//! Facts: of all messages with one id, the one with the least time and content is the fact.

use std::collections::BTreeSet;

use adtrail_store::memory::Memory;
use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::{EventTime, Fact, Family};
use attribution::facts::match_keys::{activation_index, by_id, touch_index};
use attribution::ledger::Facts;
use attribution::ledger::index::Scan;
use attribution::worker::{MessageCounts, Worker};

use super::check;
use super::support::facts::{A, Draft, a_plus, activation, click, effect, identified};
use super::support::rules::rules;
use super::support::run::{LedgerUnderTest, process, rows_in_any_order};

#[test]
fn case_29_an_activation_delivered_twice_is_one_row_and_counted_as_redelivered() {
    let facts = identified([activation("a", A), activation("a", A)]);
    for batches in [vec![facts.clone()], facts.iter().map(|fact| vec![fact.clone()]).collect()] {
        let mut worker = Worker::new(Memory::default(), rules());
        let reports: Vec<_> =
            batches.into_iter().map(|facts| process(&mut worker, facts)).collect();
        assert_eq!(worker.ledger().row_texts().len(), 1);
        let count = |field: fn(&MessageCounts) -> u64| {
            reports.iter().map(|report| field(&report.counts(Family::Activation))).sum::<u64>()
        };
        assert_eq!(count(|counts| counts.accepted), 1);
        assert_eq!(count(|counts| counts.redelivered), 1);
        assert_eq!(count(|counts| counts.conflicting), 0);
    }
}

/// The messages arrive in either order, in one batch or two.
#[test]
fn conflicting_events_with_one_id_are_counted() {
    let two = identified([activation("a", A), activation("a", A).only("oaid", "another")]);
    let [first, second] = two.try_into().unwrap();
    for facts in [[first.clone(), second.clone()], [second, first]] {
        let one_by_one = facts.iter().map(|fact| vec![fact.clone()]).collect();
        for batches in [vec![facts.to_vec()], one_by_one] {
            let mut worker = Worker::new(Memory::default(), rules());
            let reports = batches.into_iter().map(|facts| process(&mut worker, facts));
            let counts: Vec<_> = reports.map(|report| report.activations).collect();
            assert_eq!(counts.iter().map(|counts| counts.conflicting).sum::<u64>(), 1);
            assert_eq!(counts.iter().map(|counts| counts.redelivered).sum::<u64>(), 1);
        }
    }
}

/// Returns the number of index entries under all keys of the drafts.
fn entries(worker: &mut Worker<Memory>, drafts: &[Draft]) -> usize {
    let index = |fact: &Fact| match fact {
        Fact::Touch(touch) => touch_index(touch, &DeviceIds::of_touch(touch.ids()), true),
        Fact::Activation(activation) => {
            activation_index(activation, &DeviceIds::of_app_event(&activation.ids), true)
        }
        Fact::Effect(effect) => DeviceIds::of_app_event(&effect.ids).iter().map(by_id).collect(),
    };
    let facts = identified(drafts.to_vec());
    let keys = facts.iter().flat_map(|fact| index(fact).into_iter().map(move |key| (fact, key)));
    let keys: BTreeSet<_> =
        keys.map(|(fact, key)| (fact.id_space().family(), key, fact.pid())).collect();
    let scans = keys.into_iter().map(|(family, key, pid)| Scan {
        family,
        key,
        pid,
        oldest: EventTime::default(),
        newest: EventTime::MAX,
        after: None,
        limit: 1_000,
    });
    let pages = worker.ledger_mut().scan(&scans.collect::<Vec<_>>()).expect("memory does not fail");
    pages.iter().map(Vec::len).sum()
}

#[test]
fn replaced_messages_are_removed_from_the_index() {
    let with_ip_ua = |draft: Draft| draft.ip("203.0.113.9").ua("agent");
    let check = |current: Draft, replacement: Draft, expected: usize| {
        let mut worker = Worker::new(Memory::default(), rules());
        process(&mut worker, identified([current.clone()]));
        process(&mut worker, identified([replacement.clone()]));
        assert_eq!(entries(&mut worker, &[current, replacement]), expected);
    };
    // One entry by IP and user agent, and one by each form of the device id. A touch has one form; an activation or
    // an effect has four of a UUID and two of another text.
    check(with_ip_ua(click("c1", A)), with_ip_ua(click("c1", a_plus(-1))), 2);
    let c1_elsewhere = with_ip_ua(click("c1", A)).only("oaid", "0-another");
    check(with_ip_ua(click("c1", A)), c1_elsewhere, 2);
    check(with_ip_ua(activation("a", A)), with_ip_ua(activation("a", a_plus(-1))), 1 + 4);
    let a_elsewhere = with_ip_ua(activation("a", A)).only("oaid", "0-another");
    check(with_ip_ua(activation("a", A)), a_elsewhere, 1 + 2);
    check(effect("e", A), effect("e", a_plus(-1)), 4);
    check(effect("e", A), effect("e", A).only("oaid", "0-another"), 2);
}

#[test]
fn contents_that_differ_only_by_separators_are_ordered() {
    check(
        [activation("a", A).prop("k=", "v"), activation("a", A).prop("k", "=v")],
        &["a: install organic"],
    );
    check([effect("e", A).ip("u\u{1f}"), effect("e", A).ip("u").ua("\u{1f}")], &["e: orphan"]);
}

#[test]
fn lesser_content_at_the_same_time_can_change_the_device() {
    let other = activation("a", A).only("oaid", "0-another");
    let facts =
        [other, activation("a", A), effect("e", A), effect("f", A).only("oaid", "0-another")];
    let rows: Vec<_> =
        rows_in_any_order(&rules(), &identified(facts)).into_iter().map(|row| row.short).collect();
    assert!(rows.contains(&"f: install organic of a".to_owned()), "{rows:?}");
    assert!(rows.contains(&"e: orphan".to_owned()), "{rows:?}");
}
