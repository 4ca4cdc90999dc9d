//! Section 2: installs, reinstalls and duplicates.

use adtrail_store::memory::Memory;

use super::support::facts::{
    A, DAY, Draft, MINUTE, SECOND, When, a_plus, activation, click, identified, millis,
};
use super::support::rules::{rules, rules_with};
use super::support::run::{LedgerUnderTest, rows_in_any_order, worker_after};
use super::{check, check_with};

const INSTALL: &str = "01-01T00:00";

/// Checks the class of an activation on device D, `after_ms` after an install on the same device.
#[track_caller]
fn check_second(after_ms: i64, expected: &str) {
    check_classes(&[0, after_ms], &["install organic", expected]);
}

/// Checks the classes of one device's activations; `after_ms` are their times relative to the first.
#[track_caller]
fn check_classes(after_ms: &[i64], expected: &[&str]) {
    let facts = after_ms.iter().enumerate().map(|(index, ms)| {
        activation(&format!("a{index}"), millis(INSTALL.time().millis() as i64 + ms))
    });
    let expected: Vec<_> =
        expected.iter().enumerate().map(|(index, class)| format!("a{index}: {class}")).collect();
    check(facts, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

const REINSTALL: &str = "reinstall unattributed";
const DUPLICATE: &str = "duplicate duplicate";

#[test]
fn within_60_s_an_activation_is_a_duplicate() {
    check_second(0, DUPLICATE);
    check_second(1, DUPLICATE);
    check_second(MINUTE - 1, DUPLICATE);
    check_second(MINUTE, REINSTALL);
}

#[test]
fn case_31_after_exactly_90_d_an_activation_is_a_reinstall() {
    check_second(90 * DAY, REINSTALL);
    check_second(90 * DAY + 1, "install organic");
}

#[test]
fn the_duplicate_window_starts_at_the_last_non_duplicate() {
    check_classes(
        &[0, 59 * SECOND, 60 * SECOND, 119 * SECOND, 120 * SECOND],
        &["install organic", DUPLICATE, REINSTALL, DUPLICATE, REINSTALL],
    );
}

#[test]
fn the_reattribution_window_starts_at_the_last_install() {
    check_classes(
        &[0, 80 * DAY, 90 * DAY + 1, 91 * DAY, 180 * DAY + 1, 180 * DAY + 2 + MINUTE],
        &["install organic", REINSTALL, "install organic", REINSTALL, REINSTALL, "install organic"],
    );
}

#[test]
fn activations_at_equal_times_are_ordered_by_id() {
    let facts = [activation("b", A), activation("a", A), activation("c", A)];
    let mut found: Vec<_> = rows(facts);
    found.sort();
    assert_eq!(found, ["a: install organic", "b: duplicate duplicate", "c: duplicate duplicate"]);
}

fn rows(facts: impl IntoIterator<Item = Draft>) -> Vec<String> {
    let rows = rows_in_any_order(&rules(), &identified(facts));
    rows.into_iter().map(|row| row.short).collect()
}

#[test]
fn chains_require_a_directly_shared_id() {
    // b shares one id with a and another with c; a and c share none.
    let facts = [
        activation("a", a_plus(0)).only("imei", "1"),
        activation("b", a_plus(DAY)).only("imei", "1").and("oaid", "x"),
        activation("c", a_plus(2 * DAY)).only("oaid", "x"),
    ];
    // In c's chain, b is an install, so c is its reinstall.
    let expected = ["a: install organic", "b: reinstall unattributed", "c: reinstall unattributed"];
    check(facts, &expected);
}

#[test]
fn an_activation_can_have_different_classes_in_different_chains() {
    // In its chain with a, b is a duplicate. In c's chain, b comes first and is an install, so c is a duplicate of b,
    // although more than 60 s have passed since a.
    let facts = [
        activation("a", a_plus(0)).only("imei", "1"),
        activation("b", a_plus(30 * SECOND)).only("imei", "1").and("oaid", "x"),
        activation("c", a_plus(80 * SECOND)).only("oaid", "x"),
    ];
    check(facts, &["a: install organic", "b: duplicate duplicate", "c: duplicate duplicate"]);
}

#[test]
fn activations_without_device_id_are_separate_installs() {
    let same_ip_ua = |id, ms| activation(id, a_plus(ms)).without_ids().ip("203.0.113.9").ua("u");
    check([same_ip_ua("a", 0), same_ip_ua("b", 1)], &["a: install organic", "b: install organic"]);
}

#[test]
fn apps_do_not_affect_each_other() {
    let facts = [activation("a", A), activation("b", a_plus(1)).of_app_y()];
    check(facts, &["a: install organic", "b: install organic"]);
}

#[test]
fn a_duplicate_gets_no_credit() {
    let facts =
        [click("c1", "03-10T10:00"), activation("a", A), activation("b", a_plus(30 * SECOND))];
    check(facts, &["a: install attributed c1 (click by oaid)", "b: duplicate duplicate"]);
}

#[test]
fn the_duplicate_and_reattribution_windows_are_configurable() {
    let short = || {
        rules_with(|app| {
            app.duplicate_within_ms = 10;
            app.reattribution_window_ms = 1_000;
        })
    };
    let facts = |ms| [activation("a", A), activation("b", a_plus(ms))];
    check_with(short(), facts(9), &["a: install organic", "b: duplicate duplicate"]);
    check_with(short(), facts(10), &["a: install organic", "b: reinstall unattributed"]);
    check_with(short(), facts(1_000), &["a: install organic", "b: reinstall unattributed"]);
    check_with(short(), facts(1_001), &["a: install organic", "b: install organic"]);
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
fn an_install_can_be_credited_to_retargeting() {
    let facts = [click("c1", "03-10T10:00").retargeting(), activation("a", A)];
    check(facts, &["a: install attributed c1 (click by oaid)"]);
}

#[test]
fn a_reinstall_has_no_ua_contributors() {
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
fn a_chain_of_many_pages_is_classified() {
    // One install and 300 reinstalls, then a new install 90 days after the first.
    let reinstall = |n: i64| activation(&format!("r{n:03}"), a_plus(-80 * DAY + n * 2 * MINUTE));
    let facts: Vec<_> = (0..300)
        .map(reinstall)
        .chain([activation("first", a_plus(-85 * DAY)), activation("last", a_plus(5 * DAY + 1))])
        .collect();
    let worker = worker_after(Memory::default(), &rules(), vec![identified(facts)]);
    let short: Vec<_> = worker.ledger().row_texts().into_iter().map(|row| row.short).collect();
    assert_eq!(short.first().map(String::as_str), Some("first: install organic"));
    assert_eq!(short.last().map(String::as_str), Some("last: install organic"));
    assert_eq!(short.iter().filter(|row| row.contains("reinstall unattributed")).count(), 300);
}
