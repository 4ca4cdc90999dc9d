//! Compares the timelines of devices with all facts.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use adtrail_store::memory::Memory;
use attribution::explain::timeline::{TimelineEntry, timeline};
use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::Fact;
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys::{TouchClass, fact_key, touch_by_id};
use attribution::ledger::index::IndexEntry;
use attribution::worker::limits::ReadLimits;
use proptest::prelude::*;

use super::support::facts::{D, DAY, a_plus, click, effect, identified, millis};
use super::support::random::facts;
use super::support::rules::{X, rules};
use super::support::run::{LedgerUnderTest, on_disk, worker_after};
use super::{record_facts, write};

fn ids(name: &str, value: &str) -> DeviceIds {
    DeviceIds::of_app_event(&vec![(name.into(), value.into())])
}

/// Reads a whole timeline in pages.
fn read(ledger: &mut impl LedgerUnderTest, ids: &DeviceIds, page: usize) -> Vec<TimelineEntry> {
    let policy = rules();
    let app = policy.app(X).expect("the app is configured");
    let mut all: Vec<TimelineEntry> = Vec::new();
    loop {
        let after = all.last().map(|found| found.entry);
        let result = timeline(ledger, &policy, app, ids, after, page, ReadLimits::default());
        let result = result.expect("the timeline is readable");
        assert!(result.found.len() == page || !result.has_more);
        all.extend(result.found);
        if !result.has_more {
            return all;
        }
    }
}

/// Returns all stored facts of app X with one of the ids, in the order of a timeline.
fn expected(
    ledger: &mut impl LedgerUnderTest,
    facts: &[Fact],
    ids: &DeviceIds,
) -> Vec<TimelineEntry> {
    let of_x = facts.iter().filter(|fact| fact.pid() == X);
    let keys: BTreeSet<FactKey> =
        of_x.map(|fact| fact_key(fact.id_space(), X, fact.id())).collect();
    let keys: Vec<FactKey> = keys.into_iter().collect();
    let records = ledger.records(&keys).expect("the lookup succeeds");
    let mut all: Vec<TimelineEntry> = keys
        .into_iter()
        .zip(records)
        .filter_map(|(fact, record)| {
            let record = record?;
            let shares_id = record.device_ids().iter().any(|id| ids.contains(id));
            shares_id
                .then(|| TimelineEntry { entry: IndexEntry { time: record.time(), fact }, record })
        })
        .collect();
    all.sort_by_key(|found| {
        let FactKey { family, tag, id, .. } = found.entry.fact;
        (Reverse(found.entry.time), family, tag, id)
    });
    all
}

fn check(
    ledger: impl LedgerUnderTest,
    facts: &[Fact],
    batch_size: usize,
) -> Result<(), TestCaseError> {
    let policy = rules();
    let batches = facts.chunks(batch_size).map(<[Fact]>::to_vec).collect();
    let mut worker = worker_after(ledger, &policy, batches);
    let devices: BTreeSet<(&str, &str)> = facts.iter().flat_map(Fact::ids).collect();
    for (name, value) in devices.into_iter().take(12) {
        let ids = ids(name, value);
        let expected = expected(worker.ledger_mut(), facts, &ids);
        for page in [1, 3, 1_000] {
            prop_assert_eq!(&read(worker.ledger_mut(), &ids, page), &expected, "{} {}", name, page);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_timeline_has_all_facts_of_a_device_newest_first(facts in facts(40), size in 1..60usize) {
        check(Memory::default(), &facts.0, size)?;
        let (store, _dir) = on_disk(&rules());
        check(store, &facts.0, size)?;
    }
}

/// The index has stale entries of a replaced fact, and entries of a fact whose id differs but has the same hash.
#[test]
fn index_entries_are_checked_against_the_fact() {
    let ids = ids("oaid", D);
    let keys: Vec<u64> = TouchClass::all()
        .flat_map(|class| ids.iter().map(move |id| touch_by_id(class, id).0))
        .collect();
    let mut ledger = Memory::default();
    record_facts(&mut ledger, [write(click("c1", a_plus(7)), &keys)]);
    record_facts(&mut ledger, [write(click("c1", a_plus(6)), &keys)]);
    record_facts(&mut ledger, [write(click("c2", a_plus(8)).only("oaid", "another"), &keys)]);
    record_facts(&mut ledger, [write(click("c3", a_plus(5)), &keys)]);
    for page in [1, 2, 10] {
        let found = read(&mut ledger, &ids, page);
        let times: Vec<_> = found.iter().map(|found| found.entry.time).collect();
        assert_eq!(times, [a_plus(6), a_plus(5)], "{page}");
    }
}

/// Expired facts are hidden even before they are deleted.
#[test]
fn replaced_and_expired_facts_are_not_in_a_timeline() {
    let policy = rules();
    let late =
        identified([click("c1", a_plus(0)), effect("e1", a_plus(0)), click("c2", a_plus(5))]);
    let early = identified([click("c1", a_plus(-5)), effect("e1", a_plus(-5)).name("a")]);
    let mut worker = worker_after(Memory::with_expiry(&policy), &policy, vec![late, early]);
    let ids = ids("oaid", D);
    let times = |ledger: &mut Memory| -> Vec<u64> {
        let found = read(ledger, &ids, 2);
        found.iter().map(|found| found.entry.time.millis()).collect()
    };
    let at = |ms| a_plus(ms).millis();
    assert_eq!(times(worker.ledger_mut()), [at(5), at(-5), at(-5)]);
    let progress = attribution::ledger::Progress {
        consumed_until: Some(millis(at(200 * DAY) as i64)),
        ..Default::default()
    };
    attribution::ledger::Ledger::commit(worker.ledger_mut(), Vec::new(), &progress)
        .expect("the commit succeeds");
    assert_eq!(times(worker.ledger_mut()), [] as [u64; 0]);
}
