//! Facts: records and index entries.

use attribution::facts::event::{Family, IdSpace, Pid, TouchKind};
use attribution::facts::keys::MatchKey;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::FactWrite;
use attribution::ledger::index::{IndexEntry, Scan};

use super::support::facts::{activation, click, effect, millis};
use super::support::rules::{X, Y};
use super::{
    SuiteLedger, commit, end_of_time, entries, entry, of_app, record_facts, record_of, scan, times,
    touch, write,
};

suite! { with_hbase:
    recorded_facts_can_be_read_before_the_commit
    records_are_returned_in_the_order_of_the_keys
    a_record_can_be_replaced
    scans_are_newest_first_and_both_bounds_are_inclusive
    a_scan_with_crossed_bounds_is_empty
    the_earliest_and_latest_times_are_found
    pages_continue_where_the_last_one_ended
    entries_of_one_millisecond_can_be_read_in_pages
    a_scan_merges_stored_and_recorded_entries
    a_recorded_deletion_hides_a_stored_entry
    an_entry_can_be_deleted_before_it_is_stored
    a_deleted_entry_can_be_put_again
    a_scan_finds_only_its_family_and_app
    a_fact_is_found_under_each_of_its_keys
    results_are_in_the_order_of_the_scans
    empty_requests_do_nothing
}

fn recorded_facts_can_be_read_before_the_commit(ledger: &mut impl SuiteLedger) {
    let facts = [
        touch("c", 5, &[1]),
        write(
            activation("a", millis(6)).click_id("c").install_begin(millis(4)).prop("k", "v"),
            &[1],
        ),
        write(effect("e", millis(7)).revenue("9.99", "CNY").ip("203.0.113.9"), &[1]),
    ];
    for fact in &facts {
        assert_eq!(record_of(ledger, fact.key), None);
    }
    record_facts(ledger, facts.clone());
    for fact in &facts {
        assert_eq!(record_of(ledger, fact.key).as_ref(), Some(&fact.record));
    }
    commit(ledger);
    for fact in &facts {
        assert_eq!(record_of(ledger, fact.key).as_ref(), Some(&fact.record));
    }
}

fn records_are_returned_in_the_order_of_the_keys(ledger: &mut impl SuiteLedger) {
    let facts: Vec<FactWrite> = (0..20)
        .map(|n| match n % 3 {
            0 => touch(&format!("c{n}"), n, &[]),
            1 => write(activation(&format!("a{n}"), millis(n)), &[]),
            _ => write(effect(&format!("e{n}"), millis(n)), &[]),
        })
        .collect();
    let (stored, recorded) = facts.split_at(10);
    record_facts(ledger, stored.to_vec());
    commit(ledger);
    record_facts(ledger, recorded.to_vec());
    let mut keys: Vec<_> = facts.iter().rev().map(|fact| fact.key).collect();
    keys.push(fact_key(TouchKind::Click, X, "nobody"));
    keys.push(keys[3]);
    let mut expected: Vec<_> = facts.iter().rev().map(|fact| Some(fact.record.clone())).collect();
    expected.push(None);
    expected.push(expected[3].clone());
    assert_eq!(ledger.records(&keys).expect("the lookup succeeds"), expected);
}

fn a_record_can_be_replaced(ledger: &mut impl SuiteLedger) {
    let [first, second, third] = [9, 8, 7].map(|ms| touch("c", ms, &[1]));
    record_facts(ledger, [first.clone()]);
    record_facts(ledger, [second.clone()]);
    assert_eq!(record_of(ledger, first.key), Some(second.record));
    commit(ledger);
    record_facts(ledger, [third.clone()]);
    assert_eq!(record_of(ledger, first.key), Some(third.record.clone()));
    commit(ledger);
    assert_eq!(record_of(ledger, first.key), Some(third.record));
}

fn scans_are_newest_first_and_both_bounds_are_inclusive(ledger: &mut impl SuiteLedger) {
    record_facts(ledger, [3, 1, 5, 2, 4].map(|ms| touch(&format!("c{ms}"), ms, &[1])));
    for _ in ["recorded", "committed"] {
        assert_eq!(times(ledger, scan(1, 9, 0)), [5, 4, 3, 2, 1]);
        assert_eq!(times(ledger, scan(1, 4, 2)), [4, 3, 2]);
        assert_eq!(times(ledger, scan(1, 3, 3)), [3]);
        assert_eq!(times(ledger, scan(1, 9, 6)), [0; 0]);
        assert_eq!(times(ledger, scan(1, 0, 0)), [0; 0]);
        commit(ledger);
    }
}

fn a_scan_with_crossed_bounds_is_empty(ledger: &mut impl SuiteLedger) {
    record_facts(ledger, [touch("c", 5, &[1])]);
    assert_eq!(times(ledger, scan(1, 4, 6)), [0; 0]);
    commit(ledger);
    assert_eq!(times(ledger, scan(1, 4, 6)), [0; 0]);
}

fn the_earliest_and_latest_times_are_found(ledger: &mut impl SuiteLedger) {
    record_facts(ledger, [touch("first", 0, &[1]), touch("last", end_of_time(), &[1])]);
    for _ in ["recorded", "committed"] {
        assert_eq!(times(ledger, scan(1, end_of_time(), 0)), [end_of_time() as u64, 0]);
        assert_eq!(times(ledger, scan(1, end_of_time() - 1, 0)), [0]);
        assert_eq!(times(ledger, scan(1, end_of_time(), 1)), [end_of_time() as u64]);
        commit(ledger);
    }
}

/// Returns all entries of a scan, read in pages.
fn paged(ledger: &mut impl SuiteLedger, scan: Scan, limit: usize) -> Vec<IndexEntry> {
    let mut found: Vec<IndexEntry> = Vec::new();
    loop {
        let page = entries(ledger, Scan { after: found.last().copied(), limit, ..scan });
        assert!(page.len() <= limit);
        let is_last = page.len() < limit;
        found.extend(page);
        if is_last {
            return found;
        }
    }
}

fn pages_continue_where_the_last_one_ended(ledger: &mut impl SuiteLedger) {
    let even = (0..20).map(|n| touch(&format!("c{n}"), n * 2, &[1]));
    let odd = (0..20).map(|n| touch(&format!("d{n}"), n * 2 + 1, &[1]));
    record_facts(ledger, even);
    commit(ledger);
    record_facts(ledger, odd);
    for limit in [1, 3, 40, 41] {
        let found = paged(ledger, scan(1, 37, 2), limit);
        let times: Vec<_> = found.iter().map(|entry| entry.time.millis()).collect();
        assert_eq!(times, (2..=37).rev().collect::<Vec<_>>(), "pages of {limit}");
    }
}

fn entries_of_one_millisecond_can_be_read_in_pages(ledger: &mut impl SuiteLedger) {
    let facts: Vec<_> = (0..50).map(|n| touch(&format!("c{n}"), 5, &[1])).collect();
    record_facts(ledger, facts[..25].to_vec());
    commit(ledger);
    record_facts(ledger, facts[25..].to_vec());
    record_facts(ledger, [touch("newer", 6, &[1]), touch("older", 4, &[1])]);
    let whole = paged(ledger, scan(1, 9, 0), 1_000);
    assert_eq!(whole.len(), 52);
    for limit in [1, 7, 51, 52, 53] {
        assert_eq!(paged(ledger, scan(1, 9, 0), limit), whole, "pages of {limit}");
    }
    let mut expected: Vec<_> = facts.iter().map(entry).collect();
    expected.sort_by_key(|entry| entry.fact.tag);
    assert_eq!(whole[1..51], expected);
}

fn a_scan_merges_stored_and_recorded_entries(ledger: &mut impl SuiteLedger) {
    record_facts(ledger, [touch("c1", 1, &[1]), touch("c3", 3, &[1]), touch("c5", 5, &[1])]);
    commit(ledger);
    record_facts(ledger, [touch("c0", 0, &[1]), touch("c2", 2, &[1]), touch("c6", 6, &[1])]);
    // A stored fact is recorded again.
    record_facts(ledger, [touch("c3", 3, &[1])]);
    assert_eq!(times(ledger, scan(1, 9, 0)), [6, 5, 3, 2, 1, 0]);
    commit(ledger);
    assert_eq!(times(ledger, scan(1, 9, 0)), [6, 5, 3, 2, 1, 0]);
}

/// Adds to the write the deletion of its stale index entries under `keys` at `ms`.
fn replacing(write: FactWrite, keys: &[u64], ms: i64) -> FactWrite {
    let stale = keys.iter().map(|key| (MatchKey(*key), millis(ms))).collect();
    FactWrite { stale, ..write }
}

fn a_recorded_deletion_hides_a_stored_entry(ledger: &mut impl SuiteLedger) {
    record_facts(ledger, [touch("c", 5, &[1, 2]), touch("d", 5, &[1]), touch("e", 4, &[1])]);
    commit(ledger);
    record_facts(ledger, [replacing(touch("c", 3, &[1]), &[1, 2], 5)]);
    for _ in ["recorded", "committed"] {
        assert_eq!(times(ledger, scan(1, 9, 0)), [5, 4, 3]);
        assert_eq!(entries(ledger, scan(1, 5, 5)), [entry(&touch("d", 5, &[]))]);
        assert_eq!(times(ledger, scan(2, 9, 0)), [0; 0]);
        assert_eq!(times(ledger, Scan { limit: 2, ..scan(1, 9, 0) }), [5, 4]);
        commit(ledger);
    }
}

fn an_entry_can_be_deleted_before_it_is_stored(ledger: &mut impl SuiteLedger) {
    record_facts(ledger, [touch("c", 5, &[1, 2])]);
    record_facts(ledger, [replacing(touch("c", 3, &[2]), &[1, 2], 5)]);
    for _ in ["recorded", "committed"] {
        assert_eq!(times(ledger, scan(1, 9, 0)), [0; 0]);
        assert_eq!(times(ledger, scan(2, 9, 0)), [3]);
        commit(ledger);
    }
}

/// The content decides between messages with the same time, so the first and the third fact can have the same key. On a
/// shared store, the entry of the second may remain: it leads to a fact that does not match.
fn a_deleted_entry_can_be_put_again(ledger: &mut impl SuiteLedger) {
    record_facts(ledger, [touch("c", 5, &[1])]);
    commit(ledger);
    record_facts(ledger, [replacing(touch("c", 5, &[2]), &[1], 5)]);
    record_facts(ledger, [replacing(touch("c", 5, &[1]), &[2], 5)]);
    assert_eq!(times(ledger, scan(1, 9, 0)), [5]);
    commit(ledger);
    assert_eq!(times(ledger, scan(1, 9, 0)), [5]);
    // If one write both deletes and puts an entry, the put wins.
    record_facts(ledger, [replacing(touch("c", 5, &[1]), &[1], 5)]);
    commit(ledger);
    assert_eq!(times(ledger, scan(1, 9, 0)), [5]);
}

fn a_scan_finds_only_its_family_and_app(ledger: &mut impl SuiteLedger) {
    let all = |n: i64| {
        [X, Y].into_iter().flat_map(move |pid: Pid| {
            [
                of_app(pid, click(&format!("c{n}"), millis(n)), &[1]),
                of_app(pid, activation(&format!("a{n}"), millis(n)), &[1]),
                of_app(pid, effect(&format!("e{n}"), millis(n)), &[1]),
                // Under the adjacent keys.
                of_app(pid, click(&format!("b{n}"), millis(n)), &[0]),
                of_app(pid, click(&format!("d{n}"), millis(n)), &[2]),
            ]
        })
    };
    record_facts(ledger, all(5));
    commit(ledger);
    record_facts(ledger, all(6));
    let spaces = [(IdSpace::Click, "c"), (IdSpace::Activation, "a"), (IdSpace::Effect, "e")];
    for (space, letter) in spaces {
        let family = space.family();
        for pid in [X, Y] {
            let found = entries(ledger, Scan { family, pid, ..scan(1, 9, 0) });
            let key = |n: i64| IndexEntry {
                time: millis(n),
                fact: fact_key(space, pid, &format!("{letter}{n}")),
            };
            assert_eq!(found, [key(6), key(5)]);
        }
    }
}

fn a_fact_is_found_under_each_of_its_keys(ledger: &mut impl SuiteLedger) {
    let keys = [0, 1, u64::MAX - 1, u64::MAX];
    record_facts(ledger, [touch("c", 5, &keys)]);
    for _ in ["recorded", "committed"] {
        for key in keys {
            assert_eq!(entries(ledger, scan(key, 9, 0)), [entry(&touch("c", 5, &[]))]);
        }
        commit(ledger);
    }
}

fn results_are_in_the_order_of_the_scans(ledger: &mut impl SuiteLedger) {
    record_facts(ledger, (0..30).map(|n| touch(&format!("c{n}"), n, &[n as u64 % 3])));
    record_facts(ledger, [write(activation("a", millis(5)), &[1])]);
    commit(ledger);
    let activations = Scan { family: Family::Activation, ..scan(1, 99, 0) };
    let scans = [scan(2, 99, 0), scan(0, 99, 0), activations, scan(7, 99, 0), scan(2, 10, 0)];
    let found = ledger.scan(&scans).expect("the scans succeed");
    let counts: Vec<_> = found.iter().map(Vec::len).collect();
    assert_eq!(counts, [10, 10, 1, 0, 3]);
    assert_eq!(found[0][0].time, millis(29));
    assert_eq!(found[1][0].time, millis(27));
    assert_eq!(found[4][0].time, millis(8));
}

fn empty_requests_do_nothing(ledger: &mut impl SuiteLedger) {
    assert!(ledger.records(&[]).expect("the lookup succeeds").is_empty());
    assert!(ledger.scan(&[]).expect("the scans succeed").is_empty());
    record_facts(ledger, []);
    commit(ledger);
    assert!(ledger.positions().expect("the positions are readable").is_empty());
}
