//! Section 6: what an effect inherits, and from which activation.

use adtrail_store::memory::Memory;
use attribution::rules::policy::ReinstallEffects;

use super::support::facts::{
    A, DAY, Draft, HOUR, MINUTE, SECOND, When as _, a_and, activation, click, effect, identified,
    impression, millis,
};
use super::support::rules::{rules, rules_with};
use super::support::run::{Shelf, fed, rows_however};
use super::{check, check_with};

/// What the effect `e` carries.
#[track_caller]
fn carries(facts: impl IntoIterator<Item = Draft>, expected: &str) {
    let rows = rows_however(&rules(), &identified(facts));
    let row = rows.iter().find(|row| row.short.starts_with("e: ")).expect("a row of e");
    assert_eq!(row.short, format!("e: {expected}"));
}

#[test]
fn an_effect_carries_all_of_the_credit_of_its_activation() {
    let facts = [
        impression("i2", a_and(-2 * HOUR)),
        click("c1", a_and(-HOUR)),
        activation("a", A),
        effect("e", a_and(DAY)),
    ];
    let rows = [
        "a: install attributed c1 (click by oaid) + 2 (impression by oaid)",
        "e: install attributed c1 (click by oaid) of a + 2 (impression by oaid)",
    ];
    check(facts, &rows);
}

#[test]
fn the_effect_of_an_organic_install_is_organic() {
    carries([activation("a", A), effect("e", a_and(1))], "install organic of a");
}

#[test]
fn case_37_an_effect_may_come_before_its_activation() {
    // The order reversed is part of every case; here it is also the order given.
    let facts = [effect("e", a_and(1)), activation("a", A), click("c1", a_and(-HOUR))];
    carries(facts, "install attributed c1 (click by oaid) of a");
}

#[test]
fn case_38_an_effect_without_an_activation_is_an_orphan() {
    carries([effect("e", A)], "orphan");
    carries([effect("e", A), activation("a", A).only("oaid", "another")], "orphan");
    carries([effect("e", A), activation("a", A).of_app_y()], "orphan");
}

#[test]
fn effects_match_by_device_id_alone() {
    let there = |draft: Draft| draft.anyone().ip("203.0.113.9").ua("agent");
    carries([there(activation("a", A)), there(effect("e", a_and(1)))], "orphan");
    let hashed = effect("e", a_and(1)).only("imei_md5", "8d3ebd3654fb46a2832296669cf1b536");
    let facts = [activation("a", A).and("imei", "868049039501257"), hashed];
    carries(facts, "install organic of a");
}

#[test]
fn cases_39_and_40_an_effect_may_be_5_min_before_its_activation() {
    let at = |ms| [activation("a", A), effect("e", a_and(ms))];
    carries(at(-4 * MINUTE), "install organic of a");
    carries(at(-5 * MINUTE), "install organic of a");
    carries(at(-5 * MINUTE - 1), "orphan");
    carries(at(-6 * MINUTE), "orphan");
}

#[test]
fn an_effect_is_at_most_400_d_after_its_activation() {
    let at = |ms| [activation("a", A), effect("e", a_and(ms))];
    carries(at(400 * DAY), "install organic of a");
    carries(at(400 * DAY + 1), "orphan");
}

#[test]
fn both_spans_are_settings() {
    let narrow = || {
        rules_with(|app| {
            app.clock_skew_ms = 0;
            app.effect_window_ms = 1_000;
        })
    };
    let at = |ms| [activation("a", A), effect("e", a_and(ms))];
    let carried = "e: install organic of a";
    check_with(narrow(), at(0), &["a: install organic", carried]);
    check_with(narrow(), at(-1), &["e: orphan", "a: install organic"]);
    check_with(narrow(), at(1_000), &["a: install organic", carried]);
    check_with(narrow(), at(1_001), &["a: install organic", "e: orphan"]);
}

#[test]
fn the_latest_activation_is_in_force() {
    let facts = |ms| {
        let retargeting = click("c1", a_and(DAY - HOUR)).retargeting();
        [activation("a", A), retargeting, activation("b", a_and(DAY)), effect("e", a_and(ms))]
    };
    carries(facts(DAY - 5 * MINUTE - 1), "install organic of a");
    carries(facts(DAY - 5 * MINUTE), "reinstall attributed c1 (click by oaid) of b");
    carries(facts(DAY), "reinstall attributed c1 (click by oaid) of b");
}

#[test]
fn of_activations_at_one_time_the_greater_id_is_in_force() {
    // They share no id with each other, so that none is a duplicate.
    let facts = [
        activation("a", A).only("imei", "1"),
        activation("b", A).only("oaid", "x"),
        effect("e", a_and(1)).only("imei", "1").and("oaid", "x"),
    ];
    carries(facts, "install organic of b");
}

#[test]
fn a_duplicate_is_never_in_force() {
    let facts = [activation("a", A), activation("b", a_and(30 * SECOND)), effect("e", a_and(DAY))];
    carries(facts, "install organic of a");
}

#[test]
fn an_unattributed_reinstall_hands_on_the_credit_of_its_install() {
    let facts = [
        impression("i2", a_and(-2 * HOUR)),
        click("c1", a_and(-HOUR)),
        activation("a", A),
        activation("b", a_and(DAY)),
        effect("e", a_and(2 * DAY)),
    ];
    let original = "reinstall attributed c1 (click by oaid) of b + 2 (impression by oaid)";
    carries(facts.clone(), original);
    let organic = rules_with(|app| app.reinstall_effects = ReinstallEffects::Organic);
    let rows = [
        "a: install attributed c1 (click by oaid) + 2 (impression by oaid)",
        "b: reinstall unattributed",
        "e: reinstall organic of b",
    ];
    check_with(organic, facts, &rows);
}

#[test]
fn an_unattributed_reinstall_after_an_organic_install_hands_on_organic() {
    let facts = [activation("a", A), activation("b", a_and(DAY)), effect("e", a_and(2 * DAY))];
    carries(facts, "reinstall organic of b");
}

#[test]
fn of_several_installs_the_last_is_the_original() {
    let facts = [
        click("c1", a_and(-HOUR)),
        activation("a", A),
        click("c2", a_and(90 * DAY)),
        activation("b", a_and(91 * DAY)),
        activation("c", a_and(92 * DAY)),
        effect("e", a_and(93 * DAY)),
    ];
    carries(facts, "reinstall attributed c2 (click by oaid) of c");
}

#[test]
fn an_attributed_reinstall_hands_on_its_own_credit() {
    let facts = [
        click("c1", a_and(-HOUR)),
        activation("a", A),
        click("c2", a_and(DAY - HOUR)).retargeting(),
        activation("b", a_and(DAY)),
        effect("e", a_and(2 * DAY)),
    ];
    carries(facts, "reinstall attributed c2 (click by oaid) of b");
}

#[test]
fn an_effect_keeps_its_own_columns() {
    let facts = [
        activation("a", A),
        effect("e", a_and(1)).revenue("9.990", "CNY").prop("level", "3").ip("203.0.113.9"),
    ];
    let rows = rows_however(&rules(), &identified(facts));
    for own in ["9.990", "CNY", r#"{\"level\":\"3\"}"#, "203.0.113.9", "purchase"] {
        assert!(rows[1].whole.contains(own), "{own}: {}", rows[1].whole);
    }
}

#[test]
fn effects_reach_back_over_many_pages_of_activations() {
    // 300 reinstalls follow the effect within its clock skew's reach or later; it is the
    // install before them all that counts, 300 duplicates behind it.
    let duplicate = |n: i64| activation(&format!("d{n:03}"), a_and(n));
    let later = |n: i64| activation(&format!("r{n:03}"), a_and(HOUR + n * 2 * MINUTE));
    let facts = (1..300)
        .map(duplicate)
        .chain((0..300).map(later))
        .chain([activation("a", A), effect("e", a_and(MINUTE))]);
    let worker = fed(Memory::default(), &rules(), vec![identified(facts)]);
    let rows = worker.ledger().shown();
    let row = rows.iter().find(|row| row.short.starts_with("e: "));
    assert_eq!(row.map(|row| &*row.short), Some("e: install organic of a"));
}

#[test]
fn of_pages_of_activations_at_one_time_the_last_by_id_is_in_force() {
    let policy = rules_with(|app| app.duplicate_within_ms = 0);
    let facts = (100..300).map(|n| activation(&format!("a{n}"), A)).chain([effect("e", A)]);
    let worker = fed(Memory::default(), &policy, vec![identified(facts)]);
    let rows = worker.ledger().shown();
    let row = rows.iter().find(|row| row.short.starts_with("e: "));
    assert_eq!(row.map(|row| &*row.short), Some("e: reinstall organic of a299"));
}

#[test]
fn an_activation_behind_a_page_of_duplicates_comes_before_an_older_one_by_another_id() {
    let duplicates = (1..40).map(|n| activation(&format!("d{n}"), a_and(n)));
    let older = activation("b", a_and(-HOUR)).only("imei", "1");
    let effect = effect("e", a_and(MINUTE)).and("imei", "1");
    carries(duplicates.chain([older, activation("a", A), effect]), "install organic of a");
}

#[test]
fn many_pages_of_effects_follow_their_activation() {
    let effects = (0..600).map(|n| effect(&format!("e{n:03}"), a_and(n % 7)));
    let batches = [effects.collect(), vec![activation("a", A)], vec![click("c1", a_and(-HOUR))]];
    let batches = batches.map(identified).into();
    let worker = fed(Memory::default(), &rules(), batches);
    let rows = worker.ledger().shown();
    assert_eq!(rows.len(), 601);
    assert!(rows.iter().all(|row| row.short.contains(": install attributed c1 (click by oaid)")));
}

#[test]
fn the_first_and_the_last_times_that_there_are() {
    let first = millis(0);
    let last = attribution::facts::event::EventTime::MAX.minus(1);
    let facts = [
        click("c1", first),
        activation("a", millis(20_000)),
        effect("e", first),
        activation("y", last),
        effect("z", last),
    ];
    let rows = [
        "e: install attributed c1 (click by oaid) of a",
        "a: install attributed c1 (click by oaid)",
        "z: install organic of y",
        "y: install organic",
    ];
    let mut found: Vec<_> =
        rows_however(&rules(), &identified(facts)).into_iter().map(|row| row.short).collect();
    found.sort();
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    assert_eq!(found, rows);
}

/// What the rows of `a`, `again` and the effect `e` tell of touch and activation, in any order.
#[track_caller]
fn check_told(facts: impl IntoIterator<Item = Draft>, expected: &[(&str, &str)]) {
    let rows = rows_however(&rules(), &identified(facts));
    for (id, details) in expected {
        let of = format!("{id}: ");
        let row = rows.iter().find(|row| row.short.starts_with(&of)).expect("a row");
        assert_eq!(row.details, *details, "{}", row.short);
    }
}

#[test]
fn rows_tell_of_the_touch_and_the_activation() {
    let begun = A.time().millis() - 5_000;
    let install = activation("a", A).install_begin(a_and(-5_000)).prop("store", "huawei");
    let touch = || click("c1", a_and(-HOUR)).prop("sub1", "x").prop("sub5", "y, z");
    let effect = || effect("e", a_and(DAY));
    let told = format!("ua|604800000|s-1|x||||y, z|{begun}|huawei|");
    let facts = [touch().site("s-1"), install.clone(), effect()];
    check_told(facts, &[("a", &told), ("e", &told)]);
    // The windows of other touches, its own, and what is found by place.
    let own = [touch().retargeting().lookback(2 * DAY), install.clone(), effect()];
    let told = format!("retargeting|172800000||x||||y, z|{begun}|huawei|");
    check_told(own, &[("a", &told), ("e", &told)]);
    let seen = [impression("i1", a_and(-HOUR)), activation("a", A), effect()];
    check_told(seen, &[("a", "ua|86400000|||||||||"), ("e", "ua|86400000|||||||||")]);
    check_told([install, effect()], &[("e", &format!("||||||||{begun}|huawei|"))]);
    check_told([effect()], &[("e", "||||||||||")]);
    // Of one click that comes twice the least content is the fact.
    let twice = [touch().site("b"), activation("a", A), touch().site("a"), effect()];
    check_told(twice, &[("e", "ua|604800000|a|x||||y, z|||")]);
}

#[test]
fn an_effect_tells_whose_credit_it_carries() {
    let facts = [
        click("c1", a_and(-HOUR)).retargeting(),
        activation("a", A),
        activation("again", a_and(30 * DAY)),
        effect("e", a_and(31 * DAY)),
    ];
    let of_a = "retargeting|604800000|||||||||a";
    let expected = [("a", "retargeting|604800000|||||||||"), ("again", "||||||||||"), ("e", of_a)];
    check_told(facts.clone(), &expected);
    let credited = click("c2", a_and(29 * DAY)).retargeting();
    let own = "retargeting|604800000|||||||||";
    check_told(facts.into_iter().chain([credited]), &[("again", own), ("e", own)]);
}
