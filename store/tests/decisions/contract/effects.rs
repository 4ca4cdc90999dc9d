//! Section 6: what an effect inherits, and from which activation.

use adtrail_store::memory::Memory;
use attribution::rules::policy::ReinstallEffects;

use super::support::facts::{
    A, DAY, Draft, HOUR, MINUTE, SECOND, When as _, a_plus, activation, click, effect, identified,
    impression, millis,
};
use super::support::rules::{rules, rules_with};
use super::support::run::{LedgerUnderTest, rows_in_any_order, worker_after};
use super::{check, check_with};

/// Checks the class and credit that the effect `e` inherits.
#[track_caller]
fn check_inherited(facts: impl IntoIterator<Item = Draft>, expected: &str) {
    let rows = rows_in_any_order(&rules(), &identified(facts));
    let row = rows.iter().find(|row| row.short.starts_with("e: ")).expect("e has a row");
    assert_eq!(row.short, format!("e: {expected}"));
}

#[test]
fn an_effect_inherits_the_whole_credit_of_its_activation() {
    let facts = [
        impression("i2", a_plus(-2 * HOUR)),
        click("c1", a_plus(-HOUR)),
        activation("a", A),
        effect("e", a_plus(DAY)),
    ];
    let rows = [
        "a: install attributed c1 (click by oaid) + 2 (impression by oaid)",
        "e: install attributed c1 (click by oaid) of a + 2 (impression by oaid)",
    ];
    check(facts, &rows);
}

#[test]
fn the_effect_of_an_organic_install_is_organic() {
    check_inherited([activation("a", A), effect("e", a_plus(1))], "install organic of a");
}

#[test]
fn case_37_an_effect_may_arrive_before_its_activation() {
    // Every case also runs in reversed order; here the given order has the effect first.
    let facts = [effect("e", a_plus(1)), activation("a", A), click("c1", a_plus(-HOUR))];
    check_inherited(facts, "install attributed c1 (click by oaid) of a");
}

#[test]
fn case_38_an_effect_without_an_activation_is_an_orphan() {
    check_inherited([effect("e", A)], "orphan");
    check_inherited([effect("e", A), activation("a", A).only("oaid", "another")], "orphan");
    check_inherited([effect("e", A), activation("a", A).of_app_y()], "orphan");
}

#[test]
fn effects_match_only_by_device_id() {
    let same_ip_ua = |draft: Draft| draft.without_ids().ip("203.0.113.9").ua("agent");
    check_inherited([same_ip_ua(activation("a", A)), same_ip_ua(effect("e", a_plus(1)))], "orphan");
    let hashed = effect("e", a_plus(1)).only("imei_md5", "8d3ebd3654fb46a2832296669cf1b536");
    let facts = [activation("a", A).and("imei", "868049039501257"), hashed];
    check_inherited(facts, "install organic of a");
}

#[test]
fn cases_39_and_40_an_effect_may_be_5_min_before_its_activation() {
    let at = |ms| [activation("a", A), effect("e", a_plus(ms))];
    check_inherited(at(-4 * MINUTE), "install organic of a");
    check_inherited(at(-5 * MINUTE), "install organic of a");
    check_inherited(at(-5 * MINUTE - 1), "orphan");
    check_inherited(at(-6 * MINUTE), "orphan");
}

#[test]
fn an_effect_may_be_400_d_after_its_activation() {
    let at = |ms| [activation("a", A), effect("e", a_plus(ms))];
    check_inherited(at(400 * DAY), "install organic of a");
    check_inherited(at(400 * DAY + 1), "orphan");
}

#[test]
fn the_clock_skew_and_effect_window_are_configurable() {
    let narrow = || {
        rules_with(|app| {
            app.clock_skew_ms = 0;
            app.effect_window_ms = 1_000;
        })
    };
    let at = |ms| [activation("a", A), effect("e", a_plus(ms))];
    let inherited = "e: install organic of a";
    check_with(narrow(), at(0), &["a: install organic", inherited]);
    check_with(narrow(), at(-1), &["e: orphan", "a: install organic"]);
    check_with(narrow(), at(1_000), &["a: install organic", inherited]);
    check_with(narrow(), at(1_001), &["a: install organic", "e: orphan"]);
}

#[test]
fn an_effect_inherits_from_the_latest_activation() {
    let facts = |ms| {
        let retargeting = click("c1", a_plus(DAY - HOUR)).retargeting();
        [activation("a", A), retargeting, activation("b", a_plus(DAY)), effect("e", a_plus(ms))]
    };
    check_inherited(facts(DAY - 5 * MINUTE - 1), "install organic of a");
    check_inherited(facts(DAY - 5 * MINUTE), "reinstall attributed c1 (click by oaid) of b");
    check_inherited(facts(DAY), "reinstall attributed c1 (click by oaid) of b");
}

#[test]
fn at_equal_times_an_effect_inherits_from_the_greater_id() {
    // The activations share no id, so neither is a duplicate.
    let facts = [
        activation("a", A).only("imei", "1"),
        activation("b", A).only("oaid", "x"),
        effect("e", a_plus(1)).only("imei", "1").and("oaid", "x"),
    ];
    check_inherited(facts, "install organic of b");
}

#[test]
fn an_effect_never_inherits_from_a_duplicate() {
    let facts =
        [activation("a", A), activation("b", a_plus(30 * SECOND)), effect("e", a_plus(DAY))];
    check_inherited(facts, "install organic of a");
}

#[test]
fn an_unattributed_reinstall_passes_on_the_credit_of_its_install() {
    let facts = [
        impression("i2", a_plus(-2 * HOUR)),
        click("c1", a_plus(-HOUR)),
        activation("a", A),
        activation("b", a_plus(DAY)),
        effect("e", a_plus(2 * DAY)),
    ];
    let original = "reinstall attributed c1 (click by oaid) of b + 2 (impression by oaid)";
    check_inherited(facts.clone(), original);
    let organic = rules_with(|app| app.reinstall_effects = ReinstallEffects::Organic);
    let rows = [
        "a: install attributed c1 (click by oaid) + 2 (impression by oaid)",
        "b: reinstall unattributed",
        "e: reinstall organic of b",
    ];
    check_with(organic, facts, &rows);
}

#[test]
fn an_unattributed_reinstall_of_an_organic_install_passes_on_organic() {
    let facts = [activation("a", A), activation("b", a_plus(DAY)), effect("e", a_plus(2 * DAY))];
    check_inherited(facts, "reinstall organic of b");
}

#[test]
fn the_original_install_is_the_last_of_several() {
    let facts = [
        click("c1", a_plus(-HOUR)),
        activation("a", A),
        click("c2", a_plus(90 * DAY)),
        activation("b", a_plus(91 * DAY)),
        activation("c", a_plus(92 * DAY)),
        effect("e", a_plus(93 * DAY)),
    ];
    check_inherited(facts, "reinstall attributed c2 (click by oaid) of c");
}

#[test]
fn an_attributed_reinstall_passes_on_its_own_credit() {
    let facts = [
        click("c1", a_plus(-HOUR)),
        activation("a", A),
        click("c2", a_plus(DAY - HOUR)).retargeting(),
        activation("b", a_plus(DAY)),
        effect("e", a_plus(2 * DAY)),
    ];
    check_inherited(facts, "reinstall attributed c2 (click by oaid) of b");
}

#[test]
fn an_effect_keeps_its_own_columns() {
    let facts = [
        activation("a", A),
        effect("e", a_plus(1)).revenue("9.990", "CNY").prop("level", "3").ip("203.0.113.9"),
    ];
    let rows = rows_in_any_order(&rules(), &identified(facts));
    for value in ["9.990", "CNY", r#"{\"level\":\"3\"}"#, "203.0.113.9", "purchase"] {
        assert!(rows[1].whole.contains(value), "{value}: {}", rows[1].whole);
    }
}

#[test]
fn an_effect_finds_its_activation_behind_many_pages() {
    // The effect belongs to the install: 299 duplicates follow the install, and 300 later activations follow the
    // effect.
    let duplicate = |n: i64| activation(&format!("d{n:03}"), a_plus(n));
    let later = |n: i64| activation(&format!("r{n:03}"), a_plus(HOUR + n * 2 * MINUTE));
    let facts = (1..300)
        .map(duplicate)
        .chain((0..300).map(later))
        .chain([activation("a", A), effect("e", a_plus(MINUTE))]);
    let worker = worker_after(Memory::default(), &rules(), vec![identified(facts)]);
    let rows = worker.ledger().row_texts();
    let row = rows.iter().find(|row| row.short.starts_with("e: "));
    assert_eq!(row.map(|row| &*row.short), Some("e: install organic of a"));
}

#[test]
fn the_greatest_id_wins_among_many_pages_of_simultaneous_activations() {
    let policy = rules_with(|app| app.duplicate_within_ms = 0);
    let facts = (100..300).map(|n| activation(&format!("a{n}"), A)).chain([effect("e", A)]);
    let worker = worker_after(Memory::default(), &policy, vec![identified(facts)]);
    let rows = worker.ledger().row_texts();
    let row = rows.iter().find(|row| row.short.starts_with("e: "));
    assert_eq!(row.map(|row| &*row.short), Some("e: reinstall organic of a299"));
}

#[test]
fn an_activation_behind_a_page_of_duplicates_wins_over_an_older_one_with_another_id() {
    let duplicates = (1..40).map(|n| activation(&format!("d{n}"), a_plus(n)));
    let older = activation("b", a_plus(-HOUR)).only("imei", "1");
    let effect = effect("e", a_plus(MINUTE)).and("imei", "1");
    check_inherited(duplicates.chain([older, activation("a", A), effect]), "install organic of a");
}

#[test]
fn many_pages_of_effects_are_corrected_with_their_activation() {
    let effects = (0..600).map(|n| effect(&format!("e{n:03}"), a_plus(n % 7)));
    let batches = [effects.collect(), vec![activation("a", A)], vec![click("c1", a_plus(-HOUR))]];
    let batches = batches.map(identified).into();
    let worker = worker_after(Memory::default(), &rules(), batches);
    let rows = worker.ledger().row_texts();
    assert_eq!(rows.len(), 601);
    assert!(rows.iter().all(|row| row.short.contains(": install attributed c1 (click by oaid)")));
}

#[test]
fn the_earliest_and_latest_possible_times_work() {
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
        rows_in_any_order(&rules(), &identified(facts)).into_iter().map(|row| row.short).collect();
    found.sort();
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    assert_eq!(found, rows);
}

/// Checks the cells about touch and activation in the rows of these events.
#[track_caller]
fn check_details(facts: impl IntoIterator<Item = Draft>, expected: &[(&str, &str)]) {
    let rows = rows_in_any_order(&rules(), &identified(facts));
    for (id, details) in expected {
        let prefix = format!("{id}: ");
        let row =
            rows.iter().find(|row| row.short.starts_with(&prefix)).expect("the event has a row");
        assert_eq!(row.details, *details, "{}", row.short);
    }
}

#[test]
fn rows_have_details_of_touch_and_activation() {
    let begun = A.time().millis() - 5_000;
    let install = activation("a", A).install_begin(a_plus(-5_000)).prop("store", "huawei");
    let touch = || click("c1", a_plus(-HOUR)).prop("sub1", "x").prop("sub5", "y, z");
    let effect = || effect("e", a_plus(DAY));
    let details = format!("ua|604800000|s-1|x||||y, z|{begun}|huawei|");
    let facts = [touch().site("s-1"), install.clone(), effect()];
    check_details(facts, &[("a", &details), ("e", &details)]);
    // Next: a touch with its own lookback, an impression, and no touch.
    let retargeting = [touch().retargeting().lookback(2 * DAY), install.clone(), effect()];
    let details = format!("retargeting|172800000||x||||y, z|{begun}|huawei|");
    check_details(retargeting, &[("a", &details), ("e", &details)]);
    let viewed = [impression("i1", a_plus(-HOUR)), activation("a", A), effect()];
    check_details(viewed, &[("a", "ua|86400000|||||||||"), ("e", "ua|86400000|||||||||")]);
    check_details([install, effect()], &[("e", &format!("||||||||{begun}|huawei|"))]);
    check_details([effect()], &[("e", "||||||||||")]);
    // The message with the least content is the fact.
    let twice = [touch().site("b"), activation("a", A), touch().site("a"), effect()];
    check_details(twice, &[("e", "ua|604800000|a|x||||y, z|||")]);
}

#[test]
fn an_effect_names_the_activation_whose_credit_it_inherits() {
    let facts = [
        click("c1", a_plus(-HOUR)).retargeting(),
        activation("a", A),
        activation("again", a_plus(30 * DAY)),
        effect("e", a_plus(31 * DAY)),
    ];
    let of_a = "retargeting|604800000|||||||||a";
    let expected = [("a", "retargeting|604800000|||||||||"), ("again", "||||||||||"), ("e", of_a)];
    check_details(facts.clone(), &expected);
    let credited = click("c2", a_plus(29 * DAY)).retargeting();
    let of_again = "retargeting|604800000|||||||||";
    check_details(facts.into_iter().chain([credited]), &[("again", of_again), ("e", of_again)]);
}
