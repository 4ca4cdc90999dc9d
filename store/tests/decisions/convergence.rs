//! The rows are a function of the set of facts: whatever the order, the batches, redelivery,
//! crashes and the number of workers.

use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use attribution::worker::Worker;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use support::cells::Late;
use support::disk::{Restart, rows_on_disk};
use support::race::{Side, race};
use support::random::{self, Facts, Rules};
use support::run::{Shelf, fed, give, same};
use support::show::Shown;

use crate::support;

fn config(cases: u32) -> Config {
    // `PROPTEST_CASES` asks for more.
    let cases = cases.max(Config::default().cases * cases / 256);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// The rows of all facts, sorted, in one batch.
fn expected(policy: &Arc<Policy>, facts: &[Fact]) -> Vec<Shown> {
    let mut facts = facts.to_vec();
    facts.sort();
    fed(Memory::default(), policy, vec![facts]).ledger().shown()
}

/// What arrives together: which facts, and what happens before.
#[derive(Debug, Clone)]
struct Delivery {
    restart: Restart,
    facts: Vec<usize>,
}

/// Each fact at least once, in any order, in batches of any size.
fn deliveries(facts: usize) -> impl Strategy<Value = Vec<Delivery>> {
    let stop = select(vec![
        Restart::No,
        Restart::No,
        Restart::No,
        Restart::No,
        Restart::Between,
        Restart::Midway,
    ]);
    // When it comes, whether it is the last of its batch, and what happens before the next.
    let how = (any::<u16>(), 0..4u8, stop);
    let again = vec((any::<Index>(), how.clone()), 0..=facts);
    (vec(how, facts), again).prop_map(move |(once, again)| {
        let again = again.into_iter().map(|(index, how)| (index.index(facts), how));
        let mut all: Vec<_> = once.into_iter().enumerate().chain(again).collect();
        all.sort_by_key(|(_, (when, ..))| *when);
        let mut batches = vec![Delivery { restart: Restart::No, facts: Vec::new() }];
        for (fact, (_, cut, restart)) in all {
            if let Some(batch) = batches.last_mut() {
                batch.facts.push(fact);
            }
            if cut == 0 {
                batches.push(Delivery { restart, facts: Vec::new() });
            }
        }
        batches
    })
}

fn delivered(facts_max: usize) -> impl Strategy<Value = (Facts, Vec<Delivery>)> {
    random::facts(facts_max).prop_flat_map(|facts| (Just(facts.clone()), deliveries(facts.0.len())))
}

fn pick(facts: &[Fact], delivery: &Delivery) -> Vec<Fact> {
    delivery.facts.iter().map(|place| facts[*place].clone()).collect()
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn in_memory_the_rows_are_those_of_one_sorted_batch(
        Rules(_, policy) in random::policies(),
        (Facts(facts), deliveries) in delivered(40),
    ) {
        let mut worker = Worker::new(Memory::default(), Arc::clone(&policy));
        for delivery in &deliveries {
            if delivery.restart != Restart::No {
                // A crash before the commit: the batch leaves no trace and comes again.
                let before = worker.ledger().clone();
                give(&mut worker, pick(&facts, delivery));
                *worker.ledger_mut() = before;
            }
            give(&mut worker, pick(&facts, delivery));
        }
        same(&worker.ledger().shown(), &expected(&policy, &facts), "in memory");
    }
}

proptest! {
    #![proptest_config(config(testbed::length(10, 40)))]

    #[test]
    fn on_disk_the_rows_are_those_of_one_sorted_batch(
        Rules(_, policy) in random::policies(),
        (Facts(facts), deliveries) in delivered(25),
    ) {
        let batches: Vec<_> = deliveries
            .iter()
            .map(|delivery| (delivery.restart, pick(&facts, delivery)))
            .collect();
        same(&rows_on_disk(&policy, &batches), &expected(&policy, &facts), "on disk");
    }
}

/// Settings, facts, deliveries with the side that they go to, and turns.
type Raced = (Rules, (Facts, Vec<Delivery>, Vec<Side>), Vec<Side>);

#[test]
fn two_workers_of_one_store_come_to_the_same_rows() {
    let side = || select(vec![Side::Left, Side::Right]);
    let strategy = (
        random::policies(),
        delivered(25).prop_flat_map(|(facts, deliveries)| {
            let sides = vec(side(), deliveries.len());
            (Just(facts), Just(deliveries), sides)
        }),
        vec(side(), 1..200),
    );
    let late = std::cell::Cell::new(Late::default());
    let run = |(Rules(_, policy), (Facts(facts), deliveries, sides), turns): Raced| {
        let batches = [Side::Left, Side::Right].map(|side| {
            let of_side = deliveries.iter().zip(&sides).filter(|(_, of)| **of == side);
            of_side.map(|(delivery, _)| pick(&facts, delivery)).collect::<Vec<_>>()
        });
        let outcome = race(&policy, batches, &turns);
        same(&outcome.rows, &expected(&policy, &facts), "of two workers");
        let Late { facts, decisions } = late.get();
        late.set(Late {
            facts: facts + outcome.late.facts,
            decisions: decisions + outcome.late.decisions,
        });
        Ok(())
    };
    let outcome = TestRunner::new(config(150)).run(&strategy, run);
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let Late { facts, decisions } = late.get();
    assert!(facts > 0 && decisions > 0, "the workers never met: {:?}", late.get());
}
