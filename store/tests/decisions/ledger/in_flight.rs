//! A commit in flight: the ledger reads what it wrote, readers do not see it yet.

use adtrail_store::embedded::Embedded;
use attribution::facts::keys::MatchKey;
use attribution::ledger::record::Lookup;
use attribution::ledger::{FactWrite, Facts, Ledger, Progress};
use attribution::rules::policy::Policy;
use tempfile::TempDir;

use super::rows::decision_write;
use super::support::facts::{DAY, HOUR, MINUTE, activation, effect, millis};
use super::support::rules::{rules, rules_with};
use super::support::run::{LedgerUnderTest, on_disk, open, position};
use super::touches::{at, check_tables, tables};
use super::{
    begin_commit, commit, end_of_time, record_facts, record_of, scan, times, touch, write,
};

/// A store that writes a commit when it is waited for.
fn deferring(policy: &Policy) -> (Embedded, TempDir) {
    let (mut store, dir) = on_disk(policy);
    store.defer_writes();
    (store, dir)
}

fn wait(store: &mut Embedded) {
    store.wait_for_commit().expect("the commit succeeds");
}

fn begin_advance(store: &mut Embedded, until: i64) {
    let progress = Progress { consumed_until: Some(millis(until)), ..Progress::default() };
    store.commit(Vec::new(), &progress).expect("the commit begins");
}

#[test]
fn readers_see_a_commit_once_it_is_written() {
    let (mut store, _dir) = deferring(&rules());
    let facts = [
        touch("c", 5, &[1]),
        write(activation("a", millis(6)), &[1]),
        write(effect("e", millis(7)), &[1]),
    ];
    let keys = facts.clone().map(|fact| fact.key);
    let records = facts.clone().map(|fact| Some(fact.record));
    let found = facts.clone().map(|fact| Lookup::Found(fact.record));
    record_facts(&mut store, facts);
    begin_commit(&mut store);
    let mut reader = store.reader();
    assert_eq!(reader.records(&keys).expect("the lookup succeeds"), [None, None, None]);
    assert!(reader.scan(&[scan(1, 9, 0)]).expect("the scan succeeds")[0].is_empty());
    for _ in ["in flight", "written"] {
        assert_eq!(store.records(&keys).expect("the lookup succeeds"), records);
        assert_eq!(store.lookup(&keys).expect("the lookup succeeds"), found);
        assert_eq!(times(&mut store, scan(1, 9, 0)), [5]);
        wait(&mut store);
    }
    assert_eq!(reader.records(&keys).expect("the lookup succeeds"), records);
}

/// Records a touch in the place of an older version of it, as a worker does.
fn replace(store: &mut Embedded, write: FactWrite, older: &FactWrite) {
    let found = store.lookup(&[write.key]).expect("the lookup succeeds");
    assert_eq!(found, [Lookup::Found(older.record.clone())]);
    let stale = vec![(MatchKey(1), older.record.time())];
    record_facts(store, [FactWrite { stale, ..write }]);
}

/// One version is stored, one is in flight and one is pending.
#[test]
fn the_newest_version_of_a_touch_counts() {
    let (mut store, dir) = deferring(&rules());
    let [stored, in_flight, pending] = [7, 14, 3].map(|day| touch("c", at(day, 5), &[1]));
    record_facts(&mut store, [stored.clone(), touch("d", at(7, 6), &[1])]);
    commit(&mut store);
    replace(&mut store, in_flight.clone(), &stored);
    begin_commit(&mut store);
    let newest_first =
        |days: [i64; 2]| days.map(|day| at(day, if day == 7 { 6 } else { 5 }) as u64);
    assert_eq!(record_of(&mut store, stored.key), Some(in_flight.record.clone()));
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), newest_first([14, 7]));
    replace(&mut store, pending.clone(), &in_flight);
    for _ in ["recorded", "in flight", "written"] {
        assert_eq!(record_of(&mut store, stored.key), Some(pending.record.clone()));
        assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), newest_first([7, 3]));
        begin_commit(&mut store);
    }
    drop(store);
    let mut store = open(dir.path(), &rules());
    assert_eq!(record_of(&mut store, stored.key), Some(pending.record));
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), newest_first([7, 3]));
    drop(store);
    check_tables(dir.path());
}

#[test]
fn a_row_in_flight_is_replaced() {
    let (mut store, _dir) = deferring(&rules());
    let first = decision_write(activation("a", millis(5)), 7, None);
    let key = first.key;
    store.commit(vec![first], &Progress::default()).expect("the commit begins");
    assert!(store.row_texts().is_empty());
    let record = record_of(&mut store, key).expect("the record is in flight");
    let second = decision_write(activation("a", millis(4)), 8, record.current_row().copied());
    store.commit(vec![second], &Progress::default()).expect("the commit begins");
    let decision = |store: &Embedded| store.row_texts()[0].decision.clone();
    let first = decision(&store);
    wait(&mut store);
    assert_ne!(decision(&store), first);
    assert_eq!(store.row_texts().len(), 1);
    assert_eq!(store.status_counts().values().sum::<u64>(), 1);
}

#[test]
fn positions_and_the_low_watermark_are_those_of_the_commit_in_flight() {
    let (mut store, dir) = deferring(&rules());
    let positions = vec![position("clicks", 0, 7)];
    let progress = Progress { positions: positions.clone(), consumed_until: Some(millis(9)) };
    store.commit(Vec::new(), &progress).expect("the commit begins");
    let reader = store.reader();
    assert_eq!((store.consumed_until(), reader.consumed_until()), (Some(millis(9)), None));
    assert_eq!(store.positions().expect("the positions are readable"), positions);
    assert_eq!(reader.consumed_until(), Some(millis(9)));
    // Closing the store ends the commit.
    begin_advance(&mut store, 10);
    drop((store, reader));
    assert_eq!(open(dir.path(), &rules()).consumed_until(), Some(millis(10)));
}

/// Touches of app X are kept for 37 days and ten minutes.
#[test]
fn a_table_is_dropped_once_the_low_watermark_is_written() {
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let (mut store, dir) = deferring(&policy);
    let expired = touch("c", at(97, 0), &[1]);
    record_facts(&mut store, [expired.clone()]);
    commit(&mut store);
    begin_advance(&mut store, at(98, 0) + 37 * DAY + 10 * MINUTE + HOUR);
    assert_eq!(tables(dir.path()), ["touches-1"]);
    assert_eq!(record_of(&mut store, expired.key), None);
    // The touch arrives again, and its old place is gone when it is written.
    let found = store.lookup(&[expired.key]).expect("the lookup succeeds");
    assert_eq!(found, [Lookup::Missing]);
    let again = touch("c", at(170, 0), &[1]);
    record_facts(&mut store, [again.clone()]);
    commit(&mut store);
    assert_eq!(tables(dir.path()), ["touches-2"]);
    assert_eq!(record_of(&mut store, again.key), Some(again.record));
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), [at(170, 0) as u64]);
    drop(store);
    check_tables(dir.path());
}
