//! Damages of what a store says of itself: nobody opens it then, and nothing is served by it.

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::key::RowKey;
use adtrail_store::verify::Problem;
use attribution::event::Pid;
use attribution::ledger::Facts as _;

use super::bed::{Bed, DAYS, Raw};
use super::support::facts::{DAY, a_and};
use super::support::rules::X;

/// The damage is named as itself and as nothing else, nobody opens the store, and a repair brings
/// all rows back.
#[track_caller]
fn check(problem: Problem, damage: impl FnOnce(&Raw)) -> Bed {
    let bed = Bed::new();
    let before = bed.export();
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
    let after = bed.verify();
    assert!(after.is_whole(), "{:?}", after.examples);
    assert!(before == bed.export(), "the export is another one");
    drop(bed.open());
    assert!(before == bed.export(), "the export is another one");
    assert!(bed.verify().is_whole());
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

fn name() -> Vec<u8> {
    [&b"app/"[..], &X.0.to_be_bytes()].concat()
}

/// Base u16 · fan u8 · greatest fan u8 · rows before are gone u64.
fn alter_app(change: impl FnOnce(&mut Vec<u8>)) -> impl FnOnce(&Raw) {
    move |raw| {
        let mut value = raw.get("meta", &name());
        change(&mut value);
        raw.put("meta", &name(), &value);
    }
}

#[test]
fn an_app_is_spread_over_more_partitions_than_there_are() {
    for bits in [4, 6, 15] {
        check(Problem::AppUnreadable, alter_app(|app| app[3] = bits));
    }
}

#[test]
fn an_app_begins_or_is_spread_where_it_can_not() {
    check(Problem::AppUnreadable, alter_app(|app| app[1] = 8));
    check(Problem::AppUnreadable, alter_app(|app| app[2] = 3));
    check(Problem::AppUnreadable, alter_app(|app| app[4] = 0x10));
}

#[test]
fn rows_are_said_to_have_gone_that_are_there() {
    let to = |later_ms: i64| {
        alter_app(move |app| {
            let first = a_and(later_ms).millis();
            app[4..12].copy_from_slice(&first.to_be_bytes());
        })
    };
    check(Problem::AppAhead, to(DAY));
    check(Problem::AppAhead, to(20 * DAY));
    check(Problem::AppAhead, to(60 * DAY));
}

#[test]
fn an_app_that_there_is_not() {
    check(Problem::AppUnreadable, |raw| raw.put("meta", b"app/zzzz", &[0xff; 12]));
    check(Problem::AppUnreadable, |raw| raw.put("meta", b"app/zzzz", b"short"));
}

/// Nothing is held then of what had expired by settings of before.
#[test]
fn how_far_state_has_expired_can_not_be() {
    let name = [&b"expiring/"[..], &X.0.to_be_bytes()].concat();
    let altered = |at: usize| {
        let name = name.clone();
        move |raw: &Raw| {
            let mut value = raw.get("meta", &name);
            value[at] = 0x10;
            raw.put("meta", &name, &value);
        }
    };
    // A time that is held.
    check(Problem::AppUnreadable, altered(42));
    check(Problem::AppUnreadable, altered(40));
    check(Problem::AppUnreadable, |raw| raw.put("meta", &name, b"short"));
    check(Problem::AppUnreadable, |raw| raw.put("meta", b"expiring/zzzzz", &[0; 80]));
}

/// It has no fact, so it stays; what is kept of its app must not be what nobody opens.
#[test]
fn a_row_beyond_the_partitions_keeps_nobody_out() {
    let bed = Bed::new();
    let before = bed.export();
    bed.damage(|raw| {
        let (key, value) = raw.entries("events").swap_remove(0);
        let mut key = RowKey::decode(&key).expect("a key");
        (key.partition, key.pid) = (60_000, Pid(999));
        raw.put("events", &key.encode(), &value);
    });
    assert!(!bed.repair().is_repaired());
    drop(bed.open());
    assert!(before == bed.export(), "the export is another one");
}

#[test]
fn all_is_consumed_up_to_a_time_that_can_not_be() {
    let name = b"consumed_until";
    let altered = |at: usize| {
        move |raw: &Raw| {
            let mut value = raw.get("meta", name);
            value[at] |= 4;
            raw.put("meta", name, &value);
        }
    };
    for damage in [altered(0), altered(2)] {
        let bed = check(Problem::ConsumedUntilWrong, damage);
        let until = bed.open().consumed_until().expect("a time");
        assert!(until > a_and((DAYS - 2) * DAY) && until <= a_and(DAYS * DAY), "{until:?}");
    }
    check(Problem::ConsumedUntilWrong, |raw| raw.put("meta", name, b"abc"));
    check(Problem::ConsumedUntilWrong, |raw| raw.put("meta", name, b""));
}
