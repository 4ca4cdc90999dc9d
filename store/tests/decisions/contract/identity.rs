//! Facts: of all messages with one id, the least is the fact.

use std::collections::BTreeSet;

use adtrail_store::memory::Memory;
use attribution::facts::device_ids::{DeviceIds, hex};
use attribution::facts::event::{EventTime, Fact, Family};
use attribution::facts::match_keys::{activation_index, by_id, touch_index};
use attribution::ledger::Facts;
use attribution::ledger::index::Scan;
use attribution::worker::{Admitted, Worker};
use md5::{Digest, Md5};

use super::support::facts::{
    A, D, DAY, Draft, HOUR, MINUTE, a_and, activation, click, effect, identified, impression,
};
use super::support::rules::rules;
use super::support::run::{Shelf, give, rows_however};
use super::{check, credit};

#[test]
fn case_27_the_same_click_id_three_times_is_one_touch_at_its_earliest_time() {
    let clicks = ["03-08T12:00", "03-05T12:00", "03-09T12:00"].map(|time| click("c1", time));
    let facts = clicks.into_iter().chain([activation("a", A)]);
    let facts: Vec<_> = facts.collect();
    check(facts.clone(), &["a: install attributed c1 (click by oaid)"]);
    let rows = rows_however(&rules(), &identified(facts));
    let time = format!("click c1 @{}", a_and(-5 * DAY).millis());
    assert!(rows[0].decision.contains(&time), "{}", rows[0].decision);
}

#[test]
fn case_28_clicks_without_an_id_at_three_times_are_three_touches() {
    let clicks = ["03-05T12:00", "03-08T12:00", "03-09T12:00"];
    let facts: Vec<_> =
        clicks.map(|time| click("", time)).into_iter().chain([activation("a", A)]).collect();
    let rows = rows_however(&rules(), &identified(facts));
    assert!(rows[0].short.ends_with("(click by oaid) + 7 (click by oaid) + 7 (click by oaid)"));
}

#[test]
fn case_29_the_same_activation_delivered_twice_is_one_row_and_counted() {
    let facts = identified([activation("a", A), activation("a", A)]);
    for batches in [vec![facts.clone()], facts.iter().map(|fact| vec![fact.clone()]).collect()] {
        let mut worker = Worker::new(Memory::default(), rules());
        let reports: Vec<_> = batches.into_iter().map(|facts| give(&mut worker, facts)).collect();
        assert_eq!(worker.ledger().shown().len(), 1);
        let count = |of: fn(&Admitted) -> u64| {
            reports.iter().map(|report| of(&report.admitted(Family::Activation))).sum::<u64>()
        };
        assert_eq!(count(|admitted| admitted.accepted), 1);
        assert_eq!(count(|admitted| admitted.redelivered), 1);
        assert_eq!(count(|admitted| admitted.conflicting), 0);
    }
}

/// The lesser and the greater, whichever comes first, in one batch or in two.
#[test]
fn two_events_of_one_id_are_counted() {
    let two = identified([activation("a", A), activation("a", A).only("oaid", "another")]);
    let [one, other] = two.try_into().unwrap();
    for facts in [[one.clone(), other.clone()], [other, one]] {
        for batches in [vec![facts.to_vec()], facts.iter().map(|one| vec![one.clone()]).collect()] {
            let mut worker = Worker::new(Memory::default(), rules());
            let reports = batches.into_iter().map(|facts| give(&mut worker, facts));
            let admitted: Vec<_> = reports.map(|report| report.activations).collect();
            assert_eq!(admitted.iter().map(|one| one.conflicting).sum::<u64>(), 1);
            assert_eq!(admitted.iter().map(|one| one.redelivered).sum::<u64>(), 1);
        }
    }
}

#[test]
fn an_earlier_touch_with_the_same_id_takes_the_place_of_the_later() {
    // The earlier one is out of its window, so that nothing is credited.
    credit([click("c1", "03-09T12:00"), click("c1", "03-01T12:00"), activation("a", A)], "organic");
}

#[test]
fn an_earlier_touch_of_another_device_takes_the_place_of_the_later() {
    let other = click("c1", "03-08T12:00").only("oaid", "another");
    let facts = [click("c1", "03-09T12:00"), other, activation("a", A)];
    credit(facts.clone(), "organic");
    let there = activation("b", A).only("oaid", "another");
    let facts = facts.into_iter().chain([there]);
    let mut rows: Vec<_> =
        rows_however(&rules(), &identified(facts)).into_iter().map(|row| row.short).collect();
    rows.sort();
    assert_eq!(rows, ["a: install organic", "b: install attributed c1 (click by oaid)"]);
}

#[test]
fn of_touches_at_one_time_the_lesser_content_is_the_fact() {
    // `click` is less than `impression`, so the campaign is that of the click.
    let impression = impression("x", "03-10T10:00").campaign(1);
    let click = click("x", "03-10T10:00").campaign(2);
    check([impression, click, activation("a", A)], &["a: install attributed x (click by oaid)"]);
}

/// Entries under all keys of the drafts, at any time.
fn entries(worker: &mut Worker<Memory>, drafts: &[Draft]) -> usize {
    let index = |fact: &Fact| match fact {
        Fact::Touch(touch) => touch_index(touch, &DeviceIds::new(&touch.ids), true),
        Fact::Activation(one) => activation_index(one, &DeviceIds::new(&one.ids), true),
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
fn what_is_replaced_is_found_no_more() {
    let there = |draft: Draft| draft.ip("203.0.113.9").ua("agent");
    let check = |standing: Draft, lesser: Draft, expected: usize| {
        let mut worker = Worker::new(Memory::default(), rules());
        give(&mut worker, identified([standing.clone()]));
        give(&mut worker, identified([lesser.clone()]));
        assert_eq!(entries(&mut worker, &[standing, lesser]), expected);
    };
    // By its device and its place.
    check(there(click("c1", A)), there(click("c1", a_and(-1))), 2);
    check(there(click("c1", A)), there(click("c1", A)).only("oaid", "0-another"), 2);
    check(there(activation("a", A)), there(activation("a", a_and(-1))), 2);
    check(there(activation("a", A)), there(activation("a", A)).only("oaid", "0-another"), 2);
    check(effect("e", A), effect("e", a_and(-1)), 1);
    check(effect("e", A), effect("e", A).only("oaid", "0-another"), 1);
}

#[test]
fn contents_that_separators_make_equal_are_still_ordered() {
    check(
        [activation("a", A).prop("k=", "v"), activation("a", A).prop("k", "=v")],
        &["a: install organic"],
    );
    check([effect("e", A).ip("u\u{1f}"), effect("e", A).ip("u").ua("\u{1f}")], &["e: orphan"]);
}

#[test]
fn an_earlier_activation_with_the_same_id_takes_the_place_of_the_later() {
    let facts = [click("c1", "03-09T12:00"), activation("a", A), activation("a", "03-09T11:00")];
    check(facts, &["a: install organic"]);
}

#[test]
fn an_activation_that_is_replaced_leaves_its_device() {
    let facts = [
        activation("a", A),
        activation("b", a_and(HOUR)),
        effect("e", a_and(2 * HOUR)),
        effect("f", a_and(30 * MINUTE)),
        activation("a", a_and(-1)).only("oaid", "another"),
    ];
    let rows = ["a: install organic", "f: orphan", "b: install organic", "e: install organic of b"];
    check(facts, &rows);
}

#[test]
fn an_activation_replaced_at_the_same_time_by_lesser_content_changes_its_device() {
    let other = activation("a", A).only("oaid", "0-another");
    let facts =
        [other, activation("a", A), effect("e", A), effect("f", A).only("oaid", "0-another")];
    let rows: Vec<_> =
        rows_however(&rules(), &identified(facts)).into_iter().map(|row| row.short).collect();
    assert!(rows.contains(&"f: install organic of a".to_owned()), "{rows:?}");
    assert!(rows.contains(&"e: orphan".to_owned()), "{rows:?}");
}

#[test]
fn an_earlier_effect_with_the_same_id_takes_the_place_of_the_later() {
    let facts = [
        activation("a", A),
        effect("e", a_and(HOUR)).name("late"),
        effect("e", a_and(-HOUR)).name("early"),
    ];
    check(facts, &["e: orphan", "a: install organic"]);
}

#[test]
fn an_activation_and_an_effect_may_have_one_id() {
    check(
        [activation("same", A), effect("same", a_and(1)), click("same", a_and(-HOUR))],
        &[
            "same: install attributed same (click by oaid)",
            "same: install attributed same (click by oaid)",
        ],
    );
}

#[test]
fn one_id_in_two_apps_is_two_events() {
    let facts = [activation("a", A), activation("a", a_and(HOUR)).of_app_y()];
    check(facts, &["a: install organic", "a: install organic"]);
}

#[test]
fn ids_are_made_of_the_content_in_the_contracts_order() {
    let touch = click("", a_and(0)).ip("203.0.113.9").ua("agent").model("X1").lookback(5).site("s");
    let text = format!(
        "click\u{1f}app-x\u{1f}\u{1f}7\u{1f}1773144000000\u{1f}ua\u{1f}5\u{1f}\u{1f}\u{1f}\
         203.0.113.9\u{1f}agent\u{1f}X1\u{1f}android\u{1f}14\u{1f}\u{1f}s\u{1f}\u{1f}\u{1f}\
         android_id=x\u{1e}oaid={D}\u{1f}k=v\u{1e}l=w\u{1f}"
    );
    made_of(touch.and("android_id", "x").prop("l", "w").prop("k", "v"), &text);

    let activation = activation("", a_and(0)).install_begin(a_and(-1)).names("c");
    let text = format!(
        "activation\u{1f}app-x\u{1f}\u{1f}\u{1f}1773144000000\u{1f}\u{1f}\u{1f}1773143999999\
         \u{1f}c\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}oaid={D}\u{1f}\u{1f}"
    );
    made_of(activation, &text);

    let effect = effect("", a_and(0)).revenue("9.990", "CNY").prop("level", "3").anyone();
    let text = "effect\u{1f}app-x\u{1f}purchase\u{1f}\u{1f}1773144000000\u{1f}\u{1f}\u{1f}\u{1f}\
                \u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}9.990\u{1f}CNY\u{1f}\u{1f}\u{1f}\
                level=3";
    made_of(effect, text);
}

/// The fact's id is the MD5 of the text.
#[track_caller]
fn made_of(draft: Draft, content: &str) {
    let fact = identified([draft]).remove(0);
    assert_eq!(fact.id(), format!("#{}", hex(&Md5::digest(content))));
}
