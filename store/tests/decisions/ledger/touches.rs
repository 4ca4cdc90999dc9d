//! Touches in tables by day.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::layout::key;
use adtrail_store::maintenance::copy_store::{Source, Target};
use adtrail_store::maintenance::verify::{Check, Options, Problem, repair, verify};
use attribution::facts::event::Family;
use attribution::facts::keys::MatchKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::Lookup;
use attribution::ledger::{FactWrite, Facts, Ledger, Progress};
use rocksdb::DB;
use testbed::disk::Disk;

use super::support::facts::{DAY, HOUR, MINUTE, activation, click, identified, millis};
use super::support::folders::temp_folder;
use super::support::rules::{rules, rules_with};
use super::support::run::{on_disk, open, settings, worker_after};
use super::{
    SuiteLedger, commit, end_of_time, entries, entry, record_facts, record_of, scan, times, touch,
    write,
};

suite! { with_hbase:
    a_scan_continues_in_older_days
    a_redelivered_touch_moves_to_the_day_of_its_new_time
    a_touch_is_found_by_its_id_whatever_its_day
    entries_under_one_key_may_be_far_apart
}

/// A time of day `day` of the tests.
pub fn at(day: i64, ms: i64) -> i64 {
    day * DAY + ms
}

fn a_scan_continues_in_older_days(ledger: &mut impl SuiteLedger) {
    // Days of four weeks, each with its table.
    let days = [0, 1, 7, 15, 33];
    let of = |ms: i64| days.map(|day| touch(&format!("c{day}-{ms}"), at(day, ms), &[1]));
    record_facts(ledger, of(1));
    record_facts(ledger, days.map(|day| touch(&format!("other{day}"), at(day, 1), &[2])));
    commit(ledger);
    record_facts(ledger, of(DAY - 1));
    for _ in ["recorded", "committed"] {
        let expected: Vec<_> =
            days.iter().rev().flat_map(|day| [at(*day, DAY - 1), at(*day, 1)]).collect();
        for limit in [1, 2, 3, 100] {
            let mut found: Vec<IndexEntry> = Vec::new();
            loop {
                let after = found.last().copied();
                let page = entries(ledger, Scan { after, limit, ..scan(1, end_of_time(), 0) });
                let is_last = page.len() < limit;
                found.extend(page);
                if is_last {
                    break;
                }
            }
            let found: Vec<_> = found.iter().map(|it| it.time.millis() as i64).collect();
            assert_eq!(found, expected, "pages of {limit}");
        }
        let between = times(ledger, scan(1, at(15, 1), at(1, DAY - 1)));
        assert_eq!(
            between,
            [at(15, 1), at(7, DAY - 1), at(7, 1), at(1, DAY - 1)].map(|ms| ms as u64)
        );
        assert_eq!(times(ledger, scan(1, at(14, 0), at(8, 0))), [0; 0], "days without touches");
        commit(ledger);
    }
}

fn a_redelivered_touch_moves_to_the_day_of_its_new_time(ledger: &mut impl SuiteLedger) {
    let [first, second] = [at(7, 5), at(3, 5)].map(|ms| touch("c", ms, &[1]));
    record_facts(ledger, [first.clone(), touch("d", at(7, 6), &[1])]);
    commit(ledger);
    let found = ledger.lookup(&[second.key]).expect("the lookup succeeds").remove(0);
    if !matches!(found, Lookup::Missing) {
        assert_eq!(found, Lookup::Found(first.record.clone()));
    }
    let stale = vec![(MatchKey(1), millis(at(7, 5)))];
    record_facts(ledger, [FactWrite { stale, ..second.clone() }]);
    for _ in ["recorded", "committed"] {
        assert_eq!(record_of(ledger, first.key), Some(second.record.clone()));
        let newest_first = [at(7, 6), at(3, 5)].map(|ms| ms as u64);
        assert_eq!(times(ledger, scan(1, end_of_time(), 0)), newest_first);
        commit(ledger);
    }
}

fn a_touch_is_found_by_its_id_whatever_its_day(ledger: &mut impl SuiteLedger) {
    let touches: Vec<_> = (0..30).map(|day| touch(&format!("c{day}"), at(day, 1), &[])).collect();
    record_facts(ledger, touches.clone());
    commit(ledger);
    let keys: Vec<_> = touches.iter().rev().map(|touch| touch.key).collect();
    let expected: Vec<_> = touches.iter().rev().map(|touch| Some(touch.record.clone())).collect();
    assert_eq!(ledger.records(&keys).expect("the lookup succeeds"), expected);
    assert_eq!(record_of(ledger, touch("none", 1, &[]).key), None);
}

/// There are more days than tables, so some days share one.
fn entries_under_one_key_may_be_far_apart(ledger: &mut impl SuiteLedger) {
    let days: Vec<i64> = (0..120).map(|n| n * 37 % 120 * 11).collect();
    for days in days.chunks(10) {
        let touches = days.iter().map(|day| touch(&format!("c{day}"), at(*day, 1), &[1]));
        record_facts(ledger, touches.collect::<Vec<_>>());
        commit(ledger);
    }
    let expected: Vec<_> = (0..120).rev().map(|n| at(n * 11, 1) as u64).collect();
    assert_eq!(times(ledger, scan(1, end_of_time(), 0)), expected);
}

/// Returns the names of the column families of tables of touches.
fn column_families(path: &Path) -> Vec<String> {
    let names = DB::list_cf(&rocksdb::Options::default(), path).expect("RocksDB lists the tables");
    names.into_iter().filter(|name| name.starts_with("touches-")).collect()
}

/// Returns the names of the tables of touches, without those of contents.
pub fn tables(path: &Path) -> Vec<String> {
    let names = column_families(path).into_iter();
    names.filter(|name| !name.ends_with("-contents")).collect()
}

/// Opens a closed store with RocksDB directly.
fn raw(path: &Path) -> DB {
    let options = rocksdb::Options::default();
    let names = DB::list_cf(&options, path).expect("RocksDB lists the tables");
    DB::open_cf(&options, path, names).expect("RocksDB opens")
}

fn advance(store: &mut Embedded, until: i64) {
    let progress = Progress { consumed_until: Some(millis(until)), ..Progress::default() };
    store.commit(Vec::new(), &progress).expect("the commit begins");
    store.wait_for_commit().expect("the commit succeeds");
}

/// Checks files, touches and their index. The keys of these tests are not those of their touches: `verify` reports for
/// each touch that the entry of its id is missing, and each entry as that of another touch.
#[track_caller]
pub fn check_tables(path: &Path) {
    let options = Options { examples_max: usize::MAX, have_settings_changed: false };
    let report = verify(&settings(path), &rules(), &options, &mut |_| ());
    let report = report.expect("the store can be verified");
    let is_due_to_keys =
        |problem: Problem| [Problem::EntryMissing, Problem::EntryOfAnother].contains(&problem);
    let is_of_tables =
        |problem: Problem| [Check::Files, Check::Facts, Check::Index].contains(&problem.check());
    for found in &report.examples {
        assert!(is_due_to_keys(found.problem) || !is_of_tables(found.problem), "{found:?}");
    }
    // A touch without its reference is named once more.
    let missing = report.examples.iter().filter(|it| it.problem == Problem::EntryMissing);
    let mut touches: Vec<&str> = missing.map(|found| &*found.at).collect();
    touches.sort_unstable();
    assert!(touches.windows(2).all(|pair| pair[0] != pair[1]), "no reference: {touches:?}");
}

/// The touch was recorded with probabilistic entries, which remain when a redelivery moves it to another table while
/// they are off.
#[test]
fn entries_of_a_touch_that_has_moved_to_another_table_are_stale() {
    let dir = temp_folder();
    let without_probabilistic = rules_with(|app| app.probabilistic = false);
    // Day 98 is the first of another week.
    for (policy, time) in [(rules(), at(98, 0)), (without_probabilistic.clone(), at(97, 0))] {
        let click = click("c", millis(time)).ip("203.0.113.9").ua("u");
        worker_after(open(dir.path(), &policy), &policy, vec![identified([click])]);
    }
    assert_eq!(tables(dir.path()).len(), 2);
    let options = Options { examples_max: 5, have_settings_changed: false };
    let settings = settings(dir.path());
    for check in [verify, repair, verify] {
        let report = check(&settings, &without_probabilistic, &options, &mut |_| ());
        let report = report.expect("the store can be verified");
        assert!(report.is_whole(), "{:?}", report.examples);
        assert_eq!(report.stale, 1);
    }
}

#[test]
fn the_number_of_tables_is_bounded() {
    let (mut store, dir) = on_disk(&rules());
    entries_under_one_key_may_be_far_apart(&mut store);
    assert!(tables(dir.path()).len() <= 48, "{:?}", tables(dir.path()));
    drop(store);
    let mut store = open(dir.path(), &rules());
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)).len(), 120);
}

#[test]
fn quiet_days_share_the_table_of_their_week_and_busy_days_have_their_own() {
    let (mut store, dir) = on_disk(&rules());
    let record = |store: &mut Embedded, day: i64| {
        record_facts(store, [touch(&format!("c{day}"), at(day, 0), &[1])]);
        commit(store);
        tables(dir.path()).len()
    };
    // Day 105 is the first of another week.
    let count: Vec<_> = (98..=105).map(|day| record(&mut store, day)).collect();
    assert_eq!(count, [1, 1, 1, 1, 1, 1, 1, 2]);
    let busy = (0..66_000).map(|n| touch(&format!("busy{n}"), at(105, n), &[1_000 + n as u64]));
    record_facts(&mut store, busy);
    commit(&mut store);
    let count: Vec<_> = (106..109).map(|day| record(&mut store, day)).collect();
    assert_eq!(count, [3, 4, 5]);
    drop(store);
    // The number of touches is still known.
    let mut store = open(dir.path(), &rules());
    assert_eq!(record(&mut store, 110), 6);
    let newest_first: Vec<_> =
        [110].into_iter().chain((98..109).rev()).map(|day| at(day, 0) as u64).collect();
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), newest_first);
    check_tables(dir.path());
}

/// A campaign of app X has windows of 30 days, so its touches are kept for 37 days and ten minutes.
#[test]
fn the_table_of_a_day_is_dropped_once_its_last_touch_has_expired() {
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let (mut store, dir) = on_disk(&policy);
    // Day 98 is the first of another week.
    let last = touch("last", at(98, -1), &[1]);
    let long = write(click("long", millis(at(98, 0))).lookback(60 * DAY), &[1]);
    record_facts(&mut store, [last.clone(), touch("first", at(97, 0), &[1]), long.clone()]);
    commit(&mut store);
    assert_eq!(tables(dir.path()).len(), 2);
    let expiry = at(98, -1) + 37 * DAY + 10 * MINUTE;
    advance(&mut store, expiry);
    assert_eq!(tables(dir.path()).len(), 2);
    assert_eq!(record_of(&mut store, last.key), Some(last.record.clone()), "dropped too early");
    // Expired tables are dropped once an hour of the low watermark.
    advance(&mut store, expiry + HOUR);
    assert_eq!(tables(dir.path()).len(), 1, "the table still exists");
    assert_eq!(record_of(&mut store, last.key), None);
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), [at(98, 0) as u64]);
    check_tables(dir.path());
    // Own lookbacks keep their table, also when the store was opened again.
    drop(store);
    let mut store = open(dir.path(), &policy);
    advance(&mut store, at(99, -1) + 67 * DAY + 10 * MINUTE);
    assert_eq!(record_of(&mut store, long.key), None, "the touch has expired");
    assert_eq!(tables(dir.path()).len(), 1);
    advance(&mut store, at(99, 0) + 67 * DAY + 10 * MINUTE + HOUR);
    assert_eq!(tables(dir.path()), [""; 0]);
    check_tables(dir.path());
    // New touches get new tables.
    record_facts(&mut store, [touch("new", at(170, 0), &[1])]);
    commit(&mut store);
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), [at(170, 0) as u64]);
    assert_eq!(tables(dir.path()).len(), 1);
}

/// A process that ends before the commit with the first touch of a new table leaves column families without a record.
#[test]
fn a_table_whose_creation_was_interrupted_is_dropped_when_the_store_is_opened() {
    for created in [&["touches-7"][..], &["touches-7", "touches-7-contents"]] {
        let (mut store, dir) = on_disk(&rules());
        record_facts(&mut store, [touch("c", at(100, 0), &[1])]);
        commit(&mut store);
        drop(store);
        let mut raw = raw(dir.path());
        for name in created {
            raw.create_cf(name, &rocksdb::Options::default()).expect("the table is created");
        }
        drop(raw);
        // A reader ignores them.
        open_for_reading(&settings(dir.path())).expect("the store opens");
        check_tables(dir.path());
        let mut store = open(dir.path(), &rules());
        assert_eq!(column_families(dir.path()), ["touches-1", "touches-1-contents"]);
        record_facts(&mut store, [touch("d", at(107, 0), &[1])]);
        commit(&mut store);
        assert_eq!(tables(dir.path()).len(), 2);
        assert_eq!(times(&mut store, scan(1, end_of_time(), 0)).len(), 2);
        check_tables(dir.path());
    }
}

/// The record of an expired table is deleted first, then its index and its contents are dropped.
#[test]
fn a_table_that_was_being_dropped_is_dropped_when_the_store_is_opened() {
    for is_index_dropped in [false, true] {
        let (mut store, dir) = on_disk(&rules());
        for (id, day) in [("expired", 100), ("kept", 107)] {
            record_facts(&mut store, [touch(id, at(day, 0), &[1])]);
            commit(&mut store);
        }
        drop(store);
        let mut raw = raw(dir.path());
        let meta = raw.cf_handle("meta").expect("the table exists");
        let record = [&b"touch_table/"[..], &1_u32.to_be_bytes()].concat();
        raw.delete_cf(meta, record).expect("the write succeeds");
        if is_index_dropped {
            raw.drop_cf("touches-1").expect("the table is dropped");
        }
        drop(raw);
        let mut reader = open_for_reading(&settings(dir.path())).expect("the store opens");
        let found = reader.scan(&[scan(1, end_of_time(), 0)]).expect("the scan succeeds").remove(0);
        assert_eq!(found.len(), 1);
        drop(reader);
        let mut store = open(dir.path(), &rules());
        assert_eq!(column_families(dir.path()), ["touches-2", "touches-2-contents"]);
        assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), [at(107, 0) as u64]);
        // A touch of that day gets a new table.
        record_facts(&mut store, [touch("late", at(100, 5), &[1])]);
        commit(&mut store);
        assert_eq!(tables(dir.path()), ["touches-2", "touches-3"]);
        let newest_first = [at(107, 0), at(100, 5)].map(|ms| ms as u64);
        assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), newest_first);
        check_tables(dir.path());
    }
}

/// RocksDB may have created a column family when it fails to write its options.
#[test]
fn a_table_is_created_once_a_full_disk_has_space() {
    let dir = temp_folder();
    let folder = dir.path().join("disk");
    let (disk, path) = (Disk::at(&folder, 256), folder.join("store"));
    let mut store = open(&path, &rules());
    let gate = store.block_when_disk_full();
    record_facts(&mut store, [touch("c", at(100, 0), &[1])]);
    commit(&mut store);
    disk.fill();
    record_facts(&mut store, [touch("d", at(107, 0), &[1])]);
    let meanwhile = thread::scope(|scope| {
        let writer = scope.spawn(|| commit(&mut store));
        let is_blocked =
            || if gate.is_blocked() { Ok(()) } else { Err("the commit does not wait") };
        testbed::eventually("the disk is full", is_blocked);
        // Several attempts.
        thread::sleep(Duration::from_secs(2));
        let meanwhile = column_families(&path);
        disk.make_room();
        writer.join().expect("the thread does not panic");
        meanwhile
    });
    // At most one column family of the first attempt, besides those of the first table.
    assert!(meanwhile.len() <= 3, "{meanwhile:?}");
    let newest_first = [at(107, 0), at(100, 0)].map(|ms| ms as u64);
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), newest_first);
    drop(store);
    let mut store = open(&path, &rules());
    assert_eq!(tables(&path).len(), 2);
    assert_eq!(times(&mut store, scan(1, end_of_time(), 0)), newest_first);
}

/// A compaction may have removed expired contents and not yet the reference to them.
#[test]
fn a_reference_without_contents_never_leads_to_another_touch() {
    let (mut store, dir) = on_disk(&rules());
    let expired = touch("expired", at(100, 0), &[1]);
    record_facts(&mut store, [expired.clone()]);
    commit(&mut store);
    drop(store);
    let raw = raw(dir.path());
    let contents = raw.cf_handle("touches-1-contents").expect("the table exists");
    let numbers: Vec<_> = raw
        .iterator_cf(contents, rocksdb::IteratorMode::Start)
        .map(|entry| entry.expect("the entry is readable").0)
        .collect();
    for number in numbers {
        raw.delete_cf(contents, number).expect("the write succeeds");
    }
    drop(raw);
    let mut store = open(dir.path(), &rules());
    let other = touch("other", at(100, 1), &[2]);
    record_facts(&mut store, [other.clone()]);
    commit(&mut store);
    assert_eq!(record_of(&mut store, expired.key), None);
    assert_eq!(record_of(&mut store, other.key), Some(other.record));
}

/// Removes the reference to a touch, and its entry under key 1.
fn remove_from_index(path: &Path, touch: &FactWrite) {
    let raw = raw(path);
    let index = raw.cf_handle("touches-1").expect("the table exists");
    let entry = key::index(MatchKey(1), &touch.key, touch.record.time());
    for key in [key::record(&touch.key), entry] {
        raw.delete_cf(index, key).expect("the write succeeds");
    }
}

/// A compaction has removed the reference to an expired touch, and not yet its contents. The touch has arrived again:
/// for the same table, for a newer and for an older one.
#[test]
fn contents_without_a_reference_are_not_copied() {
    // Touches are kept for 37 days and ten minutes.
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let again = |day: i64| click("c", millis(at(day, 1)));
    for again in [again(101), again(107), again(91).lookback(60 * DAY)] {
        let (mut store, dir) = on_disk(&policy);
        let [expired, kept] = [("c", 98), ("d", 101)].map(|(id, day)| touch(id, at(day, 0), &[1]));
        record_facts(&mut store, [expired.clone(), kept.clone()]);
        commit(&mut store);
        advance(&mut store, at(99, 0) + 37 * DAY + HOUR);
        drop(store);
        remove_from_index(dir.path(), &expired);
        let mut store = open(dir.path(), &policy);
        let again = write(again, &[1]);
        record_facts(&mut store, [again.clone()]);
        commit(&mut store);
        drop(store);
        let (from, to) = (settings(dir.path()), settings(&dir.path().join("copy")));
        let source = Source::open(&from).expect("the source opens");
        let mut target = Target::open(&to).expect("the target folder is empty");
        let copied = target.fill(&source, |_| ()).expect("the copy succeeds");
        assert_eq!(copied["touches"].count, 4, "two records and two entries");
        target.finish(&[], &policy).expect("the copy is completed");
        let mut copy = open(&to.path, &policy);
        assert_eq!(record_of(&mut copy, again.key), Some(again.record));
        assert_eq!(record_of(&mut copy, kept.key), Some(kept.record));
    }
}

/// The copy would lack the touch.
#[test]
fn a_touch_without_a_reference_prevents_a_copy() {
    let (mut store, dir) = on_disk(&rules());
    let touch = touch("c", at(100, 0), &[1]);
    record_facts(&mut store, [touch.clone()]);
    commit(&mut store);
    drop(store);
    remove_from_index(dir.path(), &touch);
    let (from, to) = (settings(dir.path()), settings(&dir.path().join("copy")));
    let source = Source::open(&from).expect("the source opens");
    let mut target = Target::open(&to).expect("the target folder is empty");
    let error = target.fill(&source, |_| ()).expect_err("the touch has no reference");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

/// A decision is not made without a touch that is stored.
#[test]
fn a_reference_to_another_touch_is_an_error() {
    let (mut store, dir) = on_disk(&rules());
    let touches = ["c", "d"].map(|id| touch(id, at(100, 0), &[1]));
    record_facts(&mut store, touches.clone());
    commit(&mut store);
    drop(store);
    let raw = raw(dir.path());
    let index = raw.cf_handle("touches-1").expect("the table exists");
    let [key, other] = touches.each_ref().map(|touch| key::record(&touch.key));
    let reference = raw.get_cf(index, other).expect("the lookup succeeds").expect("a reference");
    raw.put_cf(index, key, reference).expect("the write succeeds");
    drop(raw);
    let mut store = open(dir.path(), &rules());
    let [damaged, intact] = touches;
    let error = store.records(&[intact.key, damaged.key]).expect_err("the touch is another one");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert_eq!(record_of(&mut store, intact.key), Some(intact.record));
}

/// Two tables with one day would return entries out of order.
#[test]
fn tables_with_a_common_day_are_refused() {
    let (mut store, dir) = on_disk(&rules());
    for day in [100, 107] {
        record_facts(&mut store, [touch(&format!("c{day}"), at(day, 0), &[1])]);
        commit(&mut store);
    }
    drop(store);
    let raw = raw(dir.path());
    let meta = raw.cf_handle("meta").expect("the table exists");
    let name = |table: u32| [&b"touch_table/"[..], &table.to_be_bytes()].concat();
    let mut record = raw.get_cf(meta, name(1)).expect("the lookup succeeds").expect("a record");
    // The last day.
    record[4..8].copy_from_slice(&107_u32.to_be_bytes());
    raw.put_cf(meta, name(1), record).expect("the write succeeds");
    drop(raw);
    for error in [
        Embedded::open(&settings(dir.path()), &rules()).map(drop),
        open_for_reading(&settings(dir.path())).map(drop),
    ] {
        let error = error.expect_err("the store does not open").to_string();
        assert!(error.contains("the days of the tables of touches"), "{error}");
    }
}

#[test]
fn a_reader_in_another_process_finds_touches_of_all_days() {
    let (mut store, dir) = on_disk(&rules());
    let touches = [100, 101, 107].map(|day| touch(&format!("c{day}"), at(day, 0), &[1]));
    record_facts(&mut store, touches.clone());
    commit(&mut store);
    let mut reader = open_for_reading(&settings(dir.path())).expect("the store opens");
    let found = reader.scan(&[scan(1, end_of_time(), 0)]).expect("the scan succeeds").remove(0);
    assert_eq!(found, touches.iter().rev().map(entry).collect::<Vec<_>>());
    let keys = touches.clone().map(|touch| touch.key);
    let records = reader.records(&keys).expect("the lookup succeeds");
    assert_eq!(records, touches.map(|touch| Some(touch.record)));
}

/// The filters of a store that was opened again are built in the background.
#[test]
fn no_touch_is_lost_while_filters_are_built_or_afterwards() {
    let (mut store, dir) = on_disk(&rules());
    let touches: Vec<_> =
        (0..3_000).map(|n| touch(&format!("c{n}"), at(100 + n % 30, n), &[n as u64])).collect();
    record_facts(&mut store, touches.clone());
    commit(&mut store);
    for is_built in [false, true] {
        drop(store);
        store = open(dir.path(), &rules());
        if is_built {
            store.wait_for_filters();
        }
        // Written meanwhile.
        let late = touch(&format!("late{is_built}"), at(103, 7), &[1_000_000]);
        record_facts(&mut store, [late.clone()]);
        commit(&mut store);
        let keys: Vec<_> = touches.iter().map(|touch| touch.key).collect();
        for _ in ["perhaps still being built", "complete"] {
            assert!(record_of(&mut store, late.key).is_some());
            let records = store.records(&keys).expect("the lookup succeeds");
            assert!(records.iter().all(Option::is_some), "a filter has forgotten an id");
            let is_found = |n: i64| times(&mut store, scan(n as u64, end_of_time(), 0)).len() == 1;
            assert!((0..3_000).all(is_found), "a filter has forgotten a key");
            store.wait_for_filters();
        }
    }
    assert_eq!(times(&mut store, scan(1_000_000, end_of_time(), 0)).len(), 2);
}

/// Touches search for activations by a filter of all their keys.
#[test]
fn no_activation_is_lost_while_their_filter_is_built_or_afterwards() {
    const MARKERS: u64 = 1_000_000;
    let marked = |n: u64| {
        let time = millis(at(100 + n as i64 % 30, 0));
        let mut write = write(activation(&format!("a{n}"), time), &[n]);
        write.bucket_markers.push((MatchKey(MARKERS + n), IndexEntry { time, fact: write.key }));
        write
    };
    let is_found = |store: &mut Embedded, n: u64| {
        [n, MARKERS + n].into_iter().all(|key| {
            let scan = Scan { family: Family::Activation, ..scan(key, end_of_time(), 0) };
            times(store, scan).len() == 1
        })
    };
    let (mut store, dir) = on_disk(&rules());
    store.wait_for_filters();
    record_facts(&mut store, (0..1_000).map(marked));
    assert!((0..1_000).all(|n| is_found(&mut store, n)), "not found before the commit");
    commit(&mut store);
    for n in [1_000, 1_001] {
        drop(store);
        store = open(dir.path(), &rules());
        if n == 1_001 {
            store.wait_for_filters();
        }
        // Written meanwhile.
        record_facts(&mut store, [marked(n)]);
        assert!((0..=n).all(|n| is_found(&mut store, n)));
        commit(&mut store);
        store.wait_for_filters();
        assert!((0..=n).all(|n| is_found(&mut store, n)), "the filter has forgotten a key");
    }
}

/// A table has so many keys that its filter grows.
#[test]
fn no_touch_is_lost_when_a_filter_grows() {
    let (mut store, _dir) = on_disk(&rules());
    let touches = (0..70_000).map(|n| touch(&format!("c{n}"), at(100, n), &[n as u64]));
    record_facts(&mut store, touches);
    commit(&mut store);
    for chunk in (0..70_000_i64).collect::<Vec<_>>().chunks(5_000) {
        let keys: Vec<_> = chunk.iter().map(|n| touch(&format!("c{n}"), 0, &[]).key).collect();
        let records = store.records(&keys).expect("the lookup succeeds");
        assert!(records.iter().all(Option::is_some), "a filter has forgotten an id");
        let scans: Vec<_> = chunk.iter().map(|n| scan(*n as u64, end_of_time(), 0)).collect();
        let found = store.scan(&scans).expect("the scan succeeds");
        assert!(found.iter().all(|page| page.len() == 1), "a filter has forgotten a key");
    }
}

/// A look-up of an unknown id asks no table, so no block of RocksDB is read.
#[test]
fn a_miss_asks_no_table() {
    let (mut store, _dir) = on_disk(&rules());
    let touches = (0..1_000).map(|n| touch(&format!("c{n}"), at(100 + n % 70, n), &[n as u64]));
    record_facts(&mut store, touches);
    commit(&mut store);
    store.compact().unwrap();
    let before = blocks_read(&store);
    for n in 0..500 {
        assert_eq!(record_of(&mut store, touch(&format!("none{n}"), 1, &[]).key), None);
        assert_eq!(times(&mut store, scan(1_000_000 + n, end_of_time(), 0)), [0; 0]);
    }
    let read = blocks_read(&store) - before;
    // A filter is wrong about one key in 200, and there are eleven; each of these reads a few blocks.
    assert!(read < 500, "{read} blocks for 1,000 misses");
}

/// How many blocks were looked up.
fn blocks_read(store: &Embedded) -> u64 {
    let stats = store.engine().stats().expect("the statistics are readable");
    stats.cache_hits + stats.cache_misses
}

/// The same of activations. A search without their filter reads at least the block with RocksDB's own.
#[test]
fn a_miss_among_activations_asks_no_table() {
    let (mut store, _dir) = on_disk(&rules());
    store.wait_for_filters();
    let activations =
        (0..1_000).map(|n| write(activation(&format!("a{n}"), millis(n)), &[n as u64]));
    record_facts(&mut store, activations);
    commit(&mut store);
    store.compact().unwrap();
    let mut found = |key| {
        times(&mut store, Scan { family: Family::Activation, ..scan(key, end_of_time(), 0) }).len()
    };
    assert_eq!((0..1_000).map(&mut found).sum::<usize>(), 1_000);
    let before = blocks_read(&store);
    for n in 0..500 {
        let scan = scan(1_000_000 + n, end_of_time(), 0);
        assert_eq!(times(&mut store, Scan { family: Family::Activation, ..scan }), [0; 0]);
    }
    let read = blocks_read(&store) - before;
    assert!(read < 100, "{read} blocks for 500 misses");
}

/// A reader lists the tables before it opens them. Whatever the writer creates and drops meanwhile, it opens, and no
/// week that is kept is missing.
#[test]
fn readers_open_while_tables_are_created_and_dropped() {
    // Touches are kept for 37 days, so those of six weeks exist at any time.
    const KEPT: i64 = 6;
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let (mut store, dir) = on_disk(&policy);
    let day = |week: i64| 7 * (14 + week);
    let write_week = |store: &mut Embedded, week: i64| {
        record_facts(store, [touch(&format!("c{week}"), at(day(week), 0), &[1])]);
        advance(store, at(day(week), HOUR));
    };
    (0..KEPT).for_each(|week| write_week(&mut store, week));
    let (opened_min, weeks_max) = testbed::length((10, 600), (50, 2_000));
    let (opened, mut failures) = (AtomicUsize::new(0), Vec::new());
    let weeks = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut store = store;
            let mut week = KEPT;
            while week < weeks_max && opened.load(Ordering::Relaxed) < opened_min {
                write_week(&mut store, week);
                week += 1;
            }
            week
        });
        while !writer.is_finished() {
            let mut reader = match open_for_reading(&settings(dir.path())) {
                Ok(reader) => reader,
                Err(error) => {
                    failures.push(error.to_string());
                    continue;
                }
            };
            let scan = scan(1, end_of_time(), 0);
            let found = reader.scan(&[scan]).expect("the scan succeeds").remove(0);
            let is_next = |pair: &[IndexEntry]| {
                pair[0].time.since(pair[1].time).is_some_and(|ms| ms as i64 == 7 * DAY)
            };
            assert!(found.windows(2).all(is_next), "a week is missing: {found:?}");
            assert!(found.len() >= KEPT as usize, "weeks are missing: {found:?}");
            opened.fetch_add(1, Ordering::Relaxed);
        }
        writer.join().expect("the thread does not panic")
    });
    let opened = opened.into_inner();
    assert!(opened >= opened_min, "{opened} opened in {weeks} weeks, and failed: {failures:?}");
    // How often the writer is in the way of all attempts depends on speed. `embedded/tables.rs` tests each retry.
    assert!(failures.len() < opened, "{opened} opened, and failed: {failures:?}");
    let mut store = open(dir.path(), &policy);
    let found = times(&mut store, scan(1, end_of_time(), 0));
    let newest_first: Vec<_> = (0..KEPT).map(|age| at(day(weeks - 1 - age), 0) as u64).collect();
    assert_eq!(found, newest_first);
}
