//! Ids that many devices share identify none of them.

use std::collections::BTreeSet;

use adtrail_store::memory::Memory;
use attribution::facts::event::Fact;

use super::support::facts::{Draft, HOUR, SECOND, a_plus, activation, click, identified};
use super::support::rules::rules;
use super::support::run::{LedgerUnderTest, worker_after};

/// Facts that are processed together.
const BATCH: usize = 1_000;

/// Adds an OAID of its own, and the MAC address and the `android_id` that every device has.
fn on_device(draft: Draft, number: i64) -> Draft {
    let draft = draft.only("oaid", &format!("oaid-{number}"));
    draft.and("mac", "02:00:00:00:00:00").and("android_id", "9774d56d682e549c")
}

/// If these ids counted, every install after the first would be a reinstall or a duplicate.
#[test]
fn installs_with_a_shared_mac_and_android_id_are_credited_to_their_own_clicks() {
    let installs = testbed::length(2_000, 20_000);
    let facts = (0..installs).flat_map(|number| {
        let time = number * SECOND;
        let click = click(&format!("c{number}"), a_plus(time - HOUR)).campaign(7);
        let install = activation(&format!("a{number}"), a_plus(time));
        [on_device(click, number), on_device(install, number)]
    });
    let facts = identified(facts);
    let expected: BTreeSet<String> = (0..installs)
        .map(|number| format!("a{number}: install attributed c{number} (click by oaid)"))
        .collect();
    let reversed: Vec<Fact> = facts.iter().rev().cloned().collect();
    for facts in [facts, reversed] {
        let batches = facts.chunks(BATCH).map(<[Fact]>::to_vec).collect();
        let worker = worker_after(Memory::default(), &rules(), batches);
        let found: BTreeSet<String> =
            worker.ledger().row_texts().into_iter().map(|row| row.short).collect();
        let wrong: Vec<_> = found.difference(&expected).take(3).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(found.len(), expected.len());
    }
}
