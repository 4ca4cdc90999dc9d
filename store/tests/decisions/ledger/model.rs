//! Compares the store on disk with the one in memory after random sequences of writes.

use std::collections::BTreeMap;

use adtrail_store::memory::Memory;
use attribution::facts::keys::MatchKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::{FactWrite, Facts, Ledger};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::support::facts::millis;
use super::support::folders::temp_folder;
use super::support::rules::rules;
use super::support::run::open;
use super::{begin_commit, record_facts, scan, touch};

#[derive(Debug, Clone)]
enum Step {
    /// Touches: number, time and keys.
    Record(Vec<(u8, i64, Vec<u64>)>),
    /// Its write is in flight until the next commit or wait.
    Commit,
    Wait,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let keys = btree_set(0..3u64, 0..3).prop_map(|keys| keys.into_iter().collect());
    let writes = vec((0..12u8, 0..4i64, keys), 1..8);
    prop_oneof![
        6 => writes.prop_map(Step::Record),
        3 => Just(Step::Commit),
        2 => Just(Step::Wait),
        1 => Just(Step::Reopen),
    ]
}

/// Time and keys of each touch, so that its next write can delete its index entries.
type Indexed = BTreeMap<u8, (i64, Vec<u64>)>;

fn next_write(indexed: &mut Indexed, id: u8, ms: i64, keys: Vec<u64>) -> FactWrite {
    let mut write = touch(&format!("c{id}"), ms, &keys);
    if let Some((old_ms, old_keys)) = indexed.insert(id, (ms, keys.clone())) {
        let is_stale = |key: &u64| old_ms != ms || !keys.contains(key);
        let stale = old_keys.into_iter().filter(is_stale);
        write.stale = stale.map(|key| (MatchKey(key), millis(old_ms))).collect();
    }
    write
}

fn pages(ledger: &mut impl super::SuiteLedger, limit: usize, newest: i64) -> Vec<Vec<IndexEntry>> {
    let mut scans: Vec<Scan> =
        (0..3).map(|key| Scan { limit, ..scan(key, newest, newest - 2) }).collect();
    let mut all = Vec::new();
    for _ in 0..6 {
        let found = ledger.scan(&scans).expect("the scans succeed");
        for (scan, page) in scans.iter_mut().zip(&found) {
            scan.after = page.last().copied().or(scan.after);
        }
        all.extend(found);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: testbed::length(20, 60),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn both_ledgers_return_the_same_results(steps in vec(step(), 1..25)) {
        let dir = temp_folder();
        let open = || {
            let mut store = open(dir.path(), &rules());
            store.defer_writes();
            store
        };
        let mut embedded = Some(open());
        let mut memory = Memory::default();
        let mut indexed = Indexed::new();
        for step in steps {
            let disk = embedded.get_or_insert_with(open);
            match step {
                Step::Record(touches) => {
                    let writes: Vec<_> = touches
                        .into_iter()
                        .map(|(id, ms, keys)| next_write(&mut indexed, id, ms, keys))
                        .collect();
                    record_facts(&mut memory, writes.clone());
                    record_facts(disk, writes);
                }
                Step::Commit => begin_commit(disk),
                Step::Wait => disk.wait_for_commit().expect("the commit succeeds"),
                Step::Reopen => {
                    begin_commit(disk);
                    embedded = None;
                }
            }
            let disk = embedded.get_or_insert_with(open);
            for (limit, newest) in [(1, 3), (2, 3), (100, 3), (3, 2)] {
                prop_assert_eq!(pages(disk, limit, newest), pages(&mut memory, limit, newest));
            }
            let keys: Vec<_> = (0..12).map(|id| touch(&format!("c{id}"), 0, &[]).key).collect();
            prop_assert_eq!(disk.records(&keys).unwrap(), memory.records(&keys).unwrap());
        }
    }
}
