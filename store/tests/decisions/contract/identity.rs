//! Facts: of all messages with one id, the one with the least time and content is the fact.

use std::collections::BTreeSet;

use adtrail_store::memory::Memory;
use attribution::facts::device_ids::{DeviceIds, hex};
use attribution::facts::event::{EventTime, Fact, Family};
use attribution::facts::match_keys::{activation_index, by_id, touch_index};
use attribution::ledger::Facts;
use attribution::ledger::index::Scan;
use attribution::worker::{MessageCounts, Worker};
use md5::{Digest, Md5};

use super::support::facts::{
    A, D, DAY, Draft, HOUR, MINUTE, a_plus, activation, click, effect, identified, impression,
};
use super::support::rules::rules;
use super::support::run::{LedgerUnderTest, process, rows_in_any_order};
use super::{check, check_credit};

#[test]
fn case_27_the_same_click_id_three_times_is_one_touch_at_its_earliest_time() {
    let clicks = ["03-08T12:00", "03-05T12:00", "03-09T12:00"].map(|time| click("c1", time));
    let facts = clicks.into_iter().chain([activation("a", A)]);
    let facts: Vec<_> = facts.collect();
    check(facts.clone(), &["a: install attributed c1 (click by oaid)"]);
    let rows = rows_in_any_order(&rules(), &identified(facts));
    let time = format!("click c1 @{}", a_plus(-5 * DAY).millis());
    assert!(rows[0].decision.contains(&time), "{}", rows[0].decision);
}

#[test]
fn case_28_clicks_without_an_id_at_three_times_are_three_touches() {
    let clicks = ["03-05T12:00", "03-08T12:00", "03-09T12:00"];
    let facts: Vec<_> =
        clicks.map(|time| click("", time)).into_iter().chain([activation("a", A)]).collect();
    let rows = rows_in_any_order(&rules(), &identified(facts));
    assert!(rows[0].short.ends_with("(click by oaid) + 7 (click by oaid) + 7 (click by oaid)"));
}

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

#[test]
fn an_earlier_touch_with_the_same_id_replaces_the_later() {
    // The earlier one is out of its window, so nothing is credited.
    check_credit(
        [click("c1", "03-09T12:00"), click("c1", "03-01T12:00"), activation("a", A)],
        "organic",
    );
}

#[test]
fn an_earlier_touch_of_another_device_replaces_the_later() {
    let other = click("c1", "03-08T12:00").only("oaid", "another");
    let facts = [click("c1", "03-09T12:00"), other, activation("a", A)];
    check_credit(facts.clone(), "organic");
    let b = activation("b", A).only("oaid", "another");
    let facts = facts.into_iter().chain([b]);
    let mut rows: Vec<_> =
        rows_in_any_order(&rules(), &identified(facts)).into_iter().map(|row| row.short).collect();
    rows.sort();
    assert_eq!(rows, ["a: install organic", "b: install attributed c1 (click by oaid)"]);
}

#[test]
fn of_simultaneous_touches_the_one_with_the_least_content_is_the_fact() {
    // "click" is less than "impression", so the click is the fact.
    let impression = impression("x", "03-10T10:00").campaign(1);
    let click = click("x", "03-10T10:00").campaign(2);
    check([impression, click, activation("a", A)], &["a: install attributed x (click by oaid)"]);
}

/// Returns the number of index entries under all keys of the drafts.
fn entries(worker: &mut Worker<Memory>, drafts: &[Draft]) -> usize {
    let index = |fact: &Fact| match fact {
        Fact::Touch(touch) => touch_index(touch, &DeviceIds::new(&touch.ids), true),
        Fact::Activation(activation) => {
            activation_index(activation, &DeviceIds::new(&activation.ids), true)
        }
        Fact::Effect(effect) => DeviceIds::new(&effect.ids).iter().map(by_id).collect(),
    };
    let facts = identified(drafts.to_vec());
    let keys = facts.iter().flat_map(|fact| index(fact).into_iter().map(move |key| (fact, key)));
    let keys: BTreeSet<_> = keys.map(|(fact, key)| (fact.family(), key, fact.pid())).collect();
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
    // One entry by device id and one by IP and user agent.
    check(with_ip_ua(click("c1", A)), with_ip_ua(click("c1", a_plus(-1))), 2);
    let c1_elsewhere = with_ip_ua(click("c1", A)).only("oaid", "0-another");
    check(with_ip_ua(click("c1", A)), c1_elsewhere, 2);
    check(with_ip_ua(activation("a", A)), with_ip_ua(activation("a", a_plus(-1))), 2);
    let a_elsewhere = with_ip_ua(activation("a", A)).only("oaid", "0-another");
    check(with_ip_ua(activation("a", A)), a_elsewhere, 2);
    check(effect("e", A), effect("e", a_plus(-1)), 1);
    check(effect("e", A), effect("e", A).only("oaid", "0-another"), 1);
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
fn an_earlier_activation_with_the_same_id_replaces_the_later() {
    let facts = [click("c1", "03-09T12:00"), activation("a", A), activation("a", "03-09T11:00")];
    check(facts, &["a: install organic"]);
}

#[test]
fn a_replaced_activation_is_removed_from_its_device() {
    let facts = [
        activation("a", A),
        activation("b", a_plus(HOUR)),
        effect("e", a_plus(2 * HOUR)),
        effect("f", a_plus(30 * MINUTE)),
        activation("a", a_plus(-1)).only("oaid", "another"),
    ];
    let rows = ["a: install organic", "f: orphan", "b: install organic", "e: install organic of b"];
    check(facts, &rows);
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

#[test]
fn an_earlier_effect_with_the_same_id_replaces_the_later() {
    let facts = [
        activation("a", A),
        effect("e", a_plus(HOUR)).name("late"),
        effect("e", a_plus(-HOUR)).name("early"),
    ];
    check(facts, &["e: orphan", "a: install organic"]);
}

#[test]
fn an_activation_and_an_effect_may_have_the_same_id() {
    check(
        [activation("same", A), effect("same", a_plus(1)), click("same", a_plus(-HOUR))],
        &[
            "same: install attributed same (click by oaid)",
            "same: install attributed same (click by oaid)",
        ],
    );
}

#[test]
fn one_id_in_two_apps_is_two_events() {
    let facts = [activation("a", A), activation("a", a_plus(HOUR)).of_app_y()];
    check(facts, &["a: install organic", "a: install organic"]);
}

#[test]
fn ids_are_hashes_of_the_content_in_the_contracts_order() {
    let touch =
        click("", a_plus(0)).ip("203.0.113.9").ua("agent").model("X1").lookback(5).site("s");
    let text = format!(
        "click\u{1f}app-x\u{1f}\u{1f}7\u{1f}1773144000000\u{1f}ua\u{1f}5\u{1f}\u{1f}\u{1f}\
         203.0.113.9\u{1f}agent\u{1f}X1\u{1f}android\u{1f}14\u{1f}\u{1f}s\u{1f}\u{1f}\u{1f}\
         android_id=x\u{1e}oaid={D}\u{1f}k=v\u{1e}l=w\u{1f}"
    );
    check_id(touch.and("android_id", "x").prop("l", "w").prop("k", "v"), &text);

    let activation = activation("", a_plus(0)).install_begin(a_plus(-1)).click_id("c");
    let text = format!(
        "activation\u{1f}app-x\u{1f}\u{1f}\u{1f}1773144000000\u{1f}\u{1f}\u{1f}1773143999999\
         \u{1f}c\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}oaid={D}\u{1f}\u{1f}"
    );
    check_id(activation, &text);

    let effect = effect("", a_plus(0)).revenue("9.990", "CNY").prop("level", "3").without_ids();
    let text = "effect\u{1f}app-x\u{1f}purchase\u{1f}\u{1f}1773144000000\u{1f}\u{1f}\u{1f}\u{1f}\
                \u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}9.990\u{1f}CNY\u{1f}\u{1f}\u{1f}\
                level=3";
    check_id(effect, text);
}

/// Checks that the fact's id is the MD5 of `content`.
#[track_caller]
fn check_id(draft: Draft, content: &str) {
    let fact = identified([draft]).remove(0);
    assert_eq!(fact.id(), format!("#{}", hex(&Md5::digest(content))));
}
