//! Section 2: installs, reinstalls and duplicates.

use adtrail_store::memory::Memory;

use super::support::facts::{
    A, DAY, Draft, MINUTE, SECOND, When, a_and, activation, click, identified, millis,
};
use super::support::rules::{rules, rules_with};
use super::support::run::{Shelf, fed, rows_however};
use super::{check, check_with};

const INSTALL: &str = "01-01T00:00";

/// The class of an activation on D that many milliseconds after one on D.
#[track_caller]
fn second(after_ms: i64, expected: &str) {
    chain(&[0, after_ms], &["install organic", expected]);
}

/// The classes of activations of one device, that many milliseconds after the first.
#[track_caller]
fn chain(after_ms: &[i64], expected: &[&str]) {
    let facts = after_ms.iter().enumerate().map(|(place, ms)| {
        activation(&format!("a{place}"), millis(INSTALL.time().millis() as i64 + ms))
    });
    let expected: Vec<_> =
        expected.iter().enumerate().map(|(place, class)| format!("a{place}: {class}")).collect();
    check(facts, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

const REINSTALL: &str = "reinstall unattributed";
const DUPLICATE: &str = "duplicate duplicate";

#[test]
fn closer_than_60_s_is_a_duplicate() {
    second(0, DUPLICATE);
    second(1, DUPLICATE);
    second(MINUTE - 1, DUPLICATE);
    second(MINUTE, REINSTALL);
}

#[test]
fn case_31_exactly_90_d_is_a_reinstall() {
    second(90 * DAY, REINSTALL);
    second(90 * DAY + 1, "install organic");
}

#[test]
fn duplicates_are_measured_from_what_is_no_duplicate() {
    chain(
        &[0, 59 * SECOND, 60 * SECOND, 119 * SECOND, 120 * SECOND],
        &["install organic", DUPLICATE, REINSTALL, DUPLICATE, REINSTALL],
    );
}

#[test]
fn the_90_d_are_measured_from_the_last_install() {
    chain(
        &[0, 80 * DAY, 90 * DAY + 1, 91 * DAY, 180 * DAY + 1, 180 * DAY + 2 + MINUTE],
        &["install organic", REINSTALL, "install organic", REINSTALL, REINSTALL, "install organic"],
    );
}

#[test]
fn at_one_time_the_lesser_id_comes_first() {
    let facts = [activation("b", A), activation("a", A), activation("c", A)];
    let mut found: Vec<_> = rows(facts);
    found.sort();
    assert_eq!(found, ["a: install organic", "b: duplicate duplicate", "c: duplicate duplicate"]);
}

fn rows(facts: impl IntoIterator<Item = Draft>) -> Vec<String> {
    let rows = rows_however(&rules(), &identified(facts));
    rows.into_iter().map(|row| row.short).collect()
}

#[test]
fn sharing_is_direct_and_not_transitive() {
    // b shares with a and with c; c and a do not know each other.
    let facts = [
        activation("a", a_and(0)).only("imei", "1"),
        activation("b", a_and(DAY)).only("imei", "1").and("oaid", "x"),
        activation("c", a_and(2 * DAY)).only("oaid", "x"),
    ];
    // In c's own set, b is an install, so c is a reinstall after it.
    let expected = ["a: install organic", "b: reinstall unattributed", "c: reinstall unattributed"];
    check(facts, &expected);
}

#[test]
fn in_its_own_set_another_may_have_another_class() {
    // In b's set a comes first, so that b is a duplicate. In c's set b comes first: an install,
    // of which c is a duplicate, although a is long ago.
    let facts = [
        activation("a", a_and(0)).only("imei", "1"),
        activation("b", a_and(30 * SECOND)).only("imei", "1").and("oaid", "x"),
        activation("c", a_and(80 * SECOND)).only("oaid", "x"),
    ];
    check(facts, &["a: install organic", "b: duplicate duplicate", "c: duplicate duplicate"]);
}

#[test]
fn without_a_device_id_each_is_an_install_of_its_own() {
    let there = |id, ms| activation(id, a_and(ms)).anyone().ip("203.0.113.9").ua("u");
    check([there("a", 0), there("b", 1)], &["a: install organic", "b: install organic"]);
}

#[test]
fn apps_are_apart() {
    let facts = [activation("a", A), activation("b", a_and(1)).of_app_y()];
    check(facts, &["a: install organic", "b: install organic"]);
}

#[test]
fn a_duplicate_is_credited_to_nobody() {
    let facts =
        [click("c1", "03-10T10:00"), activation("a", A), activation("b", a_and(30 * SECOND))];
    check(facts, &["a: install attributed c1 (click by oaid)", "b: duplicate duplicate"]);
}

#[test]
fn both_spans_are_settings() {
    let quick = || {
        rules_with(|app| {
            app.duplicate_within_ms = 10;
            app.reattribution_window_ms = 1_000;
        })
    };
    let facts = |ms| [activation("a", A), activation("b", a_and(ms))];
    check_with(quick(), facts(9), &["a: install organic", "b: duplicate duplicate"]);
    check_with(quick(), facts(10), &["a: install organic", "b: reinstall unattributed"]);
    check_with(quick(), facts(1_000), &["a: install organic", "b: reinstall unattributed"]);
    check_with(quick(), facts(1_001), &["a: install organic", "b: install organic"]);
    let off = rules_with(|app| app.duplicate_within_ms = 0);
    check_with(off, facts(0), &["a: install organic", "b: reinstall unattributed"]);
}

#[test]
fn case_30_a_reinstall_is_not_credited_to_a_ua_click() {
    let facts = [
        activation("a", "01-01T00:00"),
        click("c1", "03-30T00:00"),
        activation("b", "03-31T00:00"),
    ];
    check(facts, &["a: install organic", "b: reinstall unattributed"]);
}

#[test]
fn case_33_a_reinstall_is_credited_to_a_retargeting_click() {
    let facts = [
        activation("a", "01-01T00:00"),
        click("c1", "03-30T00:00").retargeting(),
        activation("b", "03-31T00:00"),
    ];
    check(facts, &["a: install organic", "b: reinstall attributed c1 (click by oaid)"]);
}

#[test]
fn case_32_a_new_install_is_credited_to_a_ua_click() {
    let again = millis(INSTALL.time().millis() as i64 + 90 * DAY + 1);
    let facts =
        [activation("a", INSTALL), click("c1", again.minus(DAY as u64)), activation("b", again)];
    check(facts, &["a: install organic", "b: install attributed c1 (click by oaid)"]);
}

#[test]
fn an_install_considers_retargeting_too() {
    let facts = [click("c1", "03-10T10:00").retargeting(), activation("a", A)];
    check(facts, &["a: install attributed c1 (click by oaid)"]);
}

#[test]
fn a_reinstall_names_no_ua_touch_among_its_contributors() {
    let facts = [
        activation("a", "03-01T00:00"),
        click("c1", "03-10T09:00"),
        click("c2", "03-10T10:00").retargeting(),
        click("c3", "03-10T11:00"),
        activation("b", A),
    ];
    check(facts, &["a: install organic", "b: reinstall attributed c2 (click by oaid)"]);
}

#[test]
fn classes_reach_back_over_many_pages_of_activations() {
    // One install and 300 reinstalls, then 90 days after the install a new one.
    let reinstall = |n: i64| activation(&format!("r{n:03}"), a_and(-80 * DAY + n * 2 * MINUTE));
    let facts: Vec<_> = (0..300)
        .map(reinstall)
        .chain([activation("first", a_and(-85 * DAY)), activation("last", a_and(5 * DAY + 1))])
        .collect();
    let worker = fed(Memory::default(), &rules(), vec![identified(facts)]);
    let short: Vec<_> = worker.ledger().shown().into_iter().map(|row| row.short).collect();
    assert_eq!(short.first().map(String::as_str), Some("first: install organic"));
    assert_eq!(short.last().map(String::as_str), Some("last: install organic"));
    assert_eq!(short.iter().filter(|row| row.contains("reinstall unattributed")).count(), 300);
}
