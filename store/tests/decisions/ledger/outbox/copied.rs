//! Callbacks in a copy of a store.

use adtrail_store::maintenance::copy_store::{Source, Target};
use attribution::outbox::record::{OutboxRecord, Tally};

use super::{check_counts, dead, decide, due_events, due_of, finish, key, later, record, sent};
use crate::support::folders::temp_folder;
use crate::support::outbox::{LedgerWithOutbox, planned};
use crate::support::rules::rules;
use crate::support::run::{on_disk, open, settings};

/// Makes callbacks that are sent, dead and pending. Returns their records.
fn make_some(ledger: &mut impl LedgerWithOutbox) -> Vec<OutboxRecord> {
    decide(ledger, "a", vec![planned("m", 1), planned("n", 1)]);
    finish(ledger, "a", "n", sent());
    decide(ledger, "b", vec![planned("n", 2)]);
    finish(ledger, "b", "n", dead());
    decide(ledger, "c", vec![planned("n", 3)]);
    records(ledger)
}

fn records(ledger: &mut impl LedgerWithOutbox) -> Vec<OutboxRecord> {
    ["a", "b", "c"].iter().filter_map(|id| record(ledger, id)).collect()
}

/// Copies a store into an empty one.
fn copy(from: &config::Store, to: &config::Store) {
    let source = Source::open(from).expect("the source opens");
    let mut target = Target::open(to).expect("the target is empty");
    target.fill(&source, |_| ()).expect("the store is copied");
    target.finish(&[], &rules()).expect("the copy is completed");
}

/// Checks that a copy has all callbacks, and that those that are pending are due.
#[track_caller]
fn check_copied(ledger: &mut impl LedgerWithOutbox, expected: &[OutboxRecord]) {
    assert_eq!(records(ledger), expected);
    assert_eq!(due_events(ledger, 10), [key("c")]);
    assert_eq!(due_of(ledger, "m", later(), 10).len(), 1);
    let made = |made| Tally { made, ..Tally::default() };
    check_counts(ledger, [("m", made(1)), ("n", Tally { sent: 1, dead: 1, ..made(3) })]);
}

#[test]
fn callbacks_are_copied_with_a_store() {
    let (mut store, dir) = on_disk(&rules());
    let expected = make_some(&mut store);
    drop(store);
    let folder = temp_folder();
    let target = settings(&folder.path().join("copy"));
    copy(&settings(dir.path()), &target);
    check_copied(&mut open(&target.path, &rules()), &expected);
}

mod on_hbase {
    use std::path::Path;

    use adtrail_store::Timing;
    use adtrail_store::hbase::cluster::Cluster;
    use adtrail_store::hbase::init;

    use super::*;
    use crate::support::hbase::{delete_tables, ledger, settings as hbase_settings};

    #[test]
    fn callbacks_are_copied_into_hbase_and_back() {
        let (mut store, dir) = on_disk(&rules());
        let expected = make_some(&mut store);
        drop(store);
        let hbase = hbase_settings("outbox-copied");
        let shared = config::Store { hbase: Some(hbase.clone()), ..settings(Path::new("")) };
        init(&shared, &hbase, &rules()).expect("the tables are created");
        copy(&settings(dir.path()), &shared);
        let cluster = Cluster::connect(&hbase, Timing::default()).expect("HBase is reachable");
        check_copied(&mut ledger(&cluster, &rules()), &expected);
        let folder = temp_folder();
        let back = settings(&folder.path().join("copy"));
        copy(&shared, &back);
        check_copied(&mut open(&back.path, &rules()), &expected);
        delete_tables(&cluster);
    }
}
