//! Compares the store on disk with the one in memory after random sequences of writes.

use std::collections::BTreeMap;

use adtrail_store::memory::Memory;
use attribution::facts::event::Family;
use attribution::facts::keys::MatchKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::{FactWrite, Facts, Ledger};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::support::facts::{activation, effect, millis};
use super::support::folders::temp_folder;
use super::support::rules::rules;
use super::support::run::open;
use super::{begin_commit, record_facts, scan, touch, write};

/// Family and number of a fact.
type Id = (Family, u8);

/// Per family.
const FACTS: u8 = 6;

/// Facts with a time and keys.
#[derive(Debug, Clone)]
enum Step {
    Record(Vec<(Id, i64, Vec<u64>)>),
    /// Its write is in flight until the next commit or wait.
    Commit,
    Wait,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let keys = btree_set(0..3u64, 0..3).prop_map(|keys| keys.into_iter().collect());
    let id = (select(Family::ALL.to_vec()), 0..FACTS);
    let writes = vec((id, 0..4i64, keys), 1..12);
    prop_oneof![
        6 => writes.prop_map(Step::Record),
        3 => Just(Step::Commit),
        2 => Just(Step::Wait),
        1 => Just(Step::Reopen),
    ]
}

/// Time and keys of each fact, so that its next write can delete its index entries.
type Indexed = BTreeMap<Id, (i64, Vec<u64>)>;

fn fact((family, number): Id, ms: i64, keys: &[u64]) -> FactWrite {
    let (id, time) = (format!("f{number}"), millis(ms));
    match family {
        Family::Touch => touch(&id, ms, keys),
        Family::Activation => write(activation(&id, time), keys),
        Family::Effect => write(effect(&id, time), keys),
    }
}

fn next_write(indexed: &mut Indexed, id: Id, ms: i64, keys: Vec<u64>) -> FactWrite {
    let mut write = fact(id, ms, &keys);
    if let Some((old_ms, old_keys)) = indexed.insert(id, (ms, keys.clone())) {
        let is_stale = |key: &u64| old_ms != ms || !keys.contains(key);
        let stale = old_keys.into_iter().filter(is_stale);
        write.stale = stale.map(|key| (MatchKey(key), millis(old_ms))).collect();
    }
    write
}

fn pages(ledger: &mut impl super::SuiteLedger, limit: usize, newest: i64) -> Vec<Vec<IndexEntry>> {
    let of_family =
        |family| (0..3).map(move |key| Scan { family, limit, ..scan(key, newest, newest - 2) });
    let mut scans: Vec<Scan> = Family::ALL.into_iter().flat_map(of_family).collect();
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
                Step::Record(facts) => {
                    let writes: Vec<_> = facts
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
            let of_family = |family| (0..FACTS).map(move |number| fact((family, number), 0, &[]).key);
            let keys: Vec<_> = Family::ALL.into_iter().flat_map(of_family).collect();
            prop_assert_eq!(disk.records(&keys).unwrap(), memory.records(&keys).unwrap());
        }
    }
}
