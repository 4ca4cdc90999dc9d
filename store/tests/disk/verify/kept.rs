//! Damages of what a store says of itself: nobody opens it then, and nothing is served by it.

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::layout::key::RowKey;
use adtrail_store::maintenance::verify::Problem;
use attribution::facts::event::Pid;
use attribution::ledger::Facts as _;

use super::bed::{Bed, Case, DAYS, Raw};
use super::support::facts::{DAY, a_and};
use super::support::rules::X;

/// The damage is named as itself and as nothing else, nobody opens the store, and a repair brings
/// all rows back.
fn check(name: &str, problem: Problem, damage: impl FnOnce(&Raw)) -> Bed {
    let _case = Case::new(name);
    let bed = Bed::new();
    bed.damage(damage);
    let opened = Embedded::open(&bed.settings, &bed.policy).map(drop);
    assert!(opened.is_err_and(|error| is_refusal(problem, &error)));
    let opened = open_for_reading(&bed.settings).map(drop);
    assert!(opened.is_err_and(|error| is_refusal(problem, &error)));
    let report = bed.verify();
    let found: Vec<_> = report.found.keys().copied().collect();
    assert_eq!(found, [problem], "{:?}", report.examples);
    let repaired = bed.repair();
    assert!(repaired.is_repaired(), "{:?}", repaired.examples);
    bed.check_whole();
    bed.check_export();
    drop(bed.open());
    if testbed::length(false, true) {
        bed.check_goes_on();
    }
    bed
}

/// A time of the future may be a wrong clock's.
fn is_refusal(problem: Problem, error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt { .. } => true,
        StoreError::AheadOfClock { .. } => matches!(problem, Problem::ConsumedUntilWrong),
        _ => false,
    }
}

fn app_name() -> Vec<u8> {
    [&b"app/"[..], &X.0.to_be_bytes()].concat()
}

/// Base u16 · fanout u8 · greatest fanout u8 · rows before are gone u64.
fn alter_app(change: impl FnOnce(&mut Vec<u8>)) -> impl FnOnce(&Raw) {
    move |raw| {
        let mut value = raw.get("meta", &app_name());
        change(&mut value);
        raw.put("meta", &app_name(), &value);
    }
}

#[test]
fn what_can_not_be_true_of_a_store_keeps_it_closed_until_it_is_repaired() {
    what_is_kept_of_an_app();
    rows_that_are_said_to_have_gone();
    how_far_state_has_expired();
    the_time_up_to_which_all_is_consumed();
    check("the totals are empty", Problem::TotalsDiffer, |raw| raw.put("meta", b"totals", b""));
    a_row_beyond_the_partitions_keeps_nobody_out();
}

fn what_is_kept_of_an_app() {
    let problem = Problem::AppUnreadable;
    // There are 2^3 partitions.
    for bits in testbed::length(&[4_u8][..], &[4, 6, 15][..]) {
        let name = format!("an app is spread over 2^{bits} partitions");
        check(&name, problem, alter_app(|app| app[3] = *bits));
    }
    check("an app begins in no partition", problem, alter_app(|app| app[1] = 8));
    check("an app is spread further than ever", problem, alter_app(|app| app[2] = 3));
    check("a time of an app is impossible", problem, alter_app(|app| app[4] = 0x10));
    check("an unknown app", problem, |raw| raw.put("meta", b"app/zzzz", &[0xff; 12]));
    let bed = check("an unknown app, cut", problem, |raw| raw.put("meta", b"app/zzzz", b"short"));
    // One is as good as all: each is whole by now.
    bed.check_goes_on();
}

fn rows_that_are_said_to_have_gone() {
    for days in testbed::length(&[1_i64, 60][..], &[1, 20, 60][..]) {
        let name = format!("the rows of {days} days are said to have gone");
        let damage = alter_app(|app| {
            let first = a_and(days * DAY).millis();
            app[4..12].copy_from_slice(&first.to_be_bytes());
        });
        check(&name, Problem::AppAhead, damage);
    }
}

/// Nothing is held then of what had expired by settings of before.
fn how_far_state_has_expired() {
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
    check("what is held reaches far ahead", problem, altered(42));
    check("what is held reaches beyond all times", problem, altered(40));
    check("how far state has expired is cut", problem, |raw| raw.put("meta", &name, b"short"));
    let unknown = b"expiring/zzzzz";
    check("state of an unknown app", problem, |raw| raw.put("meta", unknown, &[0; 80]));
}

fn the_time_up_to_which_all_is_consumed() {
    let problem = Problem::ConsumedUntilWrong;
    let name = b"consumed_until";
    // A century ahead, and beyond all times.
    for at in testbed::length(&[2_usize][..], &[2, 0][..]) {
        let bed = check(&format!("byte {at} of the time is altered"), problem, |raw| {
            let mut value = raw.get("meta", name);
            value[*at] |= 4;
            raw.put("meta", name, &value);
        });
        let until = bed.open().consumed_until().expect("a time");
        assert!(until > a_and((DAYS - 2) * DAY) && until <= a_and(DAYS * DAY), "{until:?}");
    }
    for value in testbed::length(&["abc"][..], &["abc", ""][..]) {
        check(&format!("the time is {value:?}"), problem, |raw| {
            raw.put("meta", name, value.as_bytes());
        });
    }
}

/// It has no fact, so it stays; what is kept of its app must not be what nobody opens.
fn a_row_beyond_the_partitions_keeps_nobody_out() {
    let _case = Case::new("a row beyond the partitions");
    let bed = Bed::new();
    bed.damage(|raw| {
        let (key, value) = raw.entries("events").swap_remove(0);
        let mut key = RowKey::decode(&key).expect("a key");
        (key.partition, key.pid) = (60_000, Pid(999));
        raw.put("events", &key.encode(), &value);
    });
    assert!(!bed.repair().is_repaired());
    drop(bed.open());
    bed.check_export();
}
