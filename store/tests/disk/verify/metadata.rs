//! A store with damaged metadata cannot be opened until it is repaired, so nothing is served from it.

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::layout::key::RowKey;
use adtrail_store::maintenance::verify::Problem;
use attribution::facts::event::Pid;
use attribution::ledger::Facts as _;

use super::fixture::{Case, DAYS, Fixture, Raw};
use super::support::facts::{DAY, a_plus};
use super::support::rules::X;

/// Checks that the damage is found as exactly this problem, that the store cannot be opened, and that a repair restores
/// all rows.
fn check(name: &str, problem: Problem, damage: impl FnOnce(&Raw)) -> Fixture {
    let _case = Case::new(name);
    let fixture = Fixture::new();
    fixture.damage(damage);
    let opened = Embedded::open(&fixture.settings, &fixture.policy).map(drop);
    assert!(opened.is_err_and(|error| is_refusal(problem, &error)));
    let opened = open_for_reading(&fixture.settings).map(drop);
    assert!(opened.is_err_and(|error| is_refusal(problem, &error)));
    let report = fixture.verify();
    let found: Vec<_> = report.found.keys().copied().collect();
    assert_eq!(found, [problem], "{:?}", report.examples);
    let repaired = fixture.repair();
    assert!(repaired.is_repaired(), "{:?}", repaired.examples);
    fixture.check_whole();
    fixture.check_export();
    drop(fixture.open());
    if testbed::length(false, true) {
        fixture.check_usable();
    }
    fixture
}

/// Checks whether `error` is the expected one. A time in the future can also be due to a wrong clock.
fn is_refusal(problem: Problem, error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt { .. } => true,
        StoreError::AheadOfClock { .. } => matches!(problem, Problem::ConsumedUntilWrong),
        _ => false,
    }
}

fn app_entry_name() -> Vec<u8> {
    [&b"app/"[..], &X.0.to_be_bytes()].concat()
}

/// Changes the app's entry: first partition u16, fanout u8, greatest fanout u8, expiry time of its rows u64.
fn alter_app(change: impl FnOnce(&mut Vec<u8>)) -> impl FnOnce(&Raw) {
    move |raw| {
        let mut value = raw.get("meta", &app_entry_name());
        change(&mut value);
        raw.put("meta", &app_entry_name(), &value);
    }
}

#[test]
fn damaged_metadata_prevents_opening_until_repaired() {
    damaged_app_entries();
    rows_marked_as_expired();
    damaged_expiry_floors();
    damaged_consumed_until();
    check("the totals are empty", Problem::TotalsDiffer, |raw| raw.put("meta", b"totals", b""));
    a_row_beyond_the_partitions_does_not_prevent_opening();
}

#[test]
fn a_damaged_list_of_unfinished_effects_prevents_opening() {
    let fixture = Fixture::new();
    fixture.damage(|raw| raw.put("meta", b"unfinished", b"x"));
    let opened = Embedded::open(&fixture.settings, &fixture.policy).map(drop);
    assert!(opened.is_err_and(|error| matches!(error, StoreError::Corrupt { .. })));
    let report = fixture.verify();
    let found: Vec<_> = report.found.keys().copied().collect();
    assert_eq!(found, [Problem::UnfinishedUnreadable], "{:?}", report.examples);
    assert!(!fixture.repair().is_repaired(), "nothing says which effects were left");
}

fn damaged_app_entries() {
    let problem = Problem::AppUnreadable;
    // The store has 2^3 partitions.
    for bits in testbed::length(&[4_u8][..], &[4, 6, 15][..]) {
        let name = format!("an app has a fanout of 2^{bits}");
        check(&name, problem, alter_app(|app| app[3] = *bits));
    }
    check("the first partition of an app does not exist", problem, alter_app(|app| app[1] = 8));
    check(
        "the fanout of an app is above its greatest fanout",
        problem,
        alter_app(|app| app[2] = 3),
    );
    check("the expiry time of an app is out of range", problem, alter_app(|app| app[4] = 0x10));
    check("an unknown app", problem, |raw| raw.put("meta", b"app/zzzz", &[0xff; 12]));
    let fixture =
        check("an unknown app, cut", problem, |raw| raw.put("meta", b"app/zzzz", b"short"));
    // The store is intact after every case, so one of them is enough.
    fixture.check_usable();
}

fn rows_marked_as_expired() {
    for days in testbed::length(&[1_i64, 60][..], &[1, 20, 60][..]) {
        let name = format!("the rows of {days} days are marked as expired");
        let damage = alter_app(|app| {
            let expired_before = a_plus(days * DAY).millis();
            app[4..12].copy_from_slice(&expired_before.to_be_bytes());
        });
        check(&name, Problem::AppAhead, damage);
    }
}

/// Without the floor, state that expired under earlier settings would reappear.
fn damaged_expiry_floors() {
    let problem = Problem::AppUnreadable;
    let name = [&b"expiring/"[..], &X.0.to_be_bytes()].concat();
    let altered = |at: usize| {
        let name = name.clone();
        move |raw: &Raw| {
            let mut value = raw.get("meta", &name);
            value[at] = 0x10;
            raw.put("meta", &name, &value);
        }
    };
    check("the expiry floor is far in the future", problem, altered(42));
    check("the expiry floor is out of range", problem, altered(40));
    check("the expiry floor is cut", problem, |raw| raw.put("meta", &name, b"short"));
    let unknown = b"expiring/zzzzz";
    check("an expiry floor of an unknown app", problem, |raw| raw.put("meta", unknown, &[0; 80]));
}

fn damaged_consumed_until() {
    let problem = Problem::ConsumedUntilWrong;
    let name = b"consumed_until";
    // A century ahead, and out of range.
    for at in testbed::length(&[2_usize][..], &[2, 0][..]) {
        let fixture = check(&format!("byte {at} of the time is altered"), problem, |raw| {
            let mut value = raw.get("meta", name);
            value[*at] |= 4;
            raw.put("meta", name, &value);
        });
        let until = fixture.open().consumed_until().expect("the store has a low watermark");
        assert!(until > a_plus((DAYS - 2) * DAY) && until <= a_plus(DAYS * DAY), "{until:?}");
    }
    for value in testbed::length(&["abc"][..], &["abc", ""][..]) {
        check(&format!("the time is {value:?}"), problem, |raw| {
            raw.put("meta", name, value.as_bytes());
        });
    }
}

/// The row has no fact, so it stays. The repair must not write an app entry with which the store cannot be opened.
fn a_row_beyond_the_partitions_does_not_prevent_opening() {
    let _case = Case::new("a row beyond the partitions");
    let fixture = Fixture::new();
    fixture.damage(|raw| {
        let (key, value) = raw.entries("events").swap_remove(0);
        let mut key = RowKey::decode(&key).expect("a valid row key");
        (key.partition, key.pid) = (60_000, Pid(999));
        raw.put("events", &key.encode(), &value);
    });
    assert!(!fixture.repair().is_repaired());
    drop(fixture.open());
    fixture.check_export();
}
