//! The rows are a function of the set of facts; order, batching, redelivery, crashes and the number of workers and of
//! their threads do not matter.

use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use attribution::worker::Worker;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use support::cells::Conflicts;
use support::disk::{Restart, rows_on_disk, rows_on_disk_with};
use support::race::{Side, race};
use support::random::{self, Facts, Rules};
use support::row_text::RowText;
use support::run::{LedgerUnderTest, assert_same_rows, process, worker_after};

use crate::support;
use crate::threads::{THREADS, divided_among};

fn config(cases: u32) -> Config {
    // `PROPTEST_CASES` can increase the number.
    let cases = cases.max(Config::default().cases * cases / 256);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Returns the rows after processing all facts, sorted, in one batch.
fn expected(policy: &Arc<Policy>, facts: &[Fact]) -> Vec<RowText> {
    let mut facts = facts.to_vec();
    facts.sort();
    worker_after(Memory::default(), policy, vec![facts]).ledger().row_texts()
}

/// A batch, and the restart before it.
#[derive(Debug, Clone)]
struct Delivery {
    restart: Restart,
    /// Indices into the list of facts.
    facts: Vec<usize>,
}

/// Generates batches of any size that contain each fact at least once, in any order.
fn deliveries(facts: usize) -> impl Strategy<Value = Vec<Delivery>> {
    let restart = select(vec![
        Restart::No,
        Restart::No,
        Restart::InFlight,
        Restart::InFlight,
        Restart::BeforeBatch,
        Restart::BeforeCommit,
    ]);
    // The time of delivery, whether the batch ends with it (0), and the restart before the next batch.
    let delivery = (any::<u16>(), 0..4u8, restart);
    let redeliveries = vec((any::<Index>(), delivery.clone()), 0..=facts);
    (vec(delivery, facts), redeliveries).prop_map(move |(first, redeliveries)| {
        let redeliveries =
            redeliveries.into_iter().map(|(index, delivery)| (index.index(facts), delivery));
        let mut all: Vec<_> = first.into_iter().enumerate().chain(redeliveries).collect();
        all.sort_by_key(|(_, (time, ..))| *time);
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

fn facts_and_deliveries(facts_max: usize) -> impl Strategy<Value = (Facts, Vec<Delivery>)> {
    random::facts(facts_max).prop_flat_map(|facts| (Just(facts.clone()), deliveries(facts.0.len())))
}

fn pick(facts: &[Fact], delivery: &Delivery) -> Vec<Fact> {
    delivery.facts.iter().map(|index| facts[*index].clone()).collect()
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn in_memory_the_rows_are_those_of_one_sorted_batch(
        Rules(_, policy) in random::policies(),
        (Facts(facts), deliveries) in facts_and_deliveries(40),
    ) {
        let mut worker = Worker::new(Memory::default(), Arc::clone(&policy));
        for delivery in &deliveries {
            if matches!(delivery.restart, Restart::BeforeBatch | Restart::BeforeCommit) {
                // A crash before the commit: the batch leaves no trace and is redelivered.
                let before = worker.ledger().clone();
                process(&mut worker, pick(&facts, delivery));
                *worker.ledger_mut() = before;
            }
            process(&mut worker, pick(&facts, delivery));
        }
        assert_same_rows(&worker.ledger().row_texts(), &expected(&policy, &facts), "in memory");
    }
}

proptest! {
    #![proptest_config(config(testbed::length(10, 40)))]

    #[test]
    fn on_disk_the_rows_are_those_of_one_sorted_batch(
        Rules(_, policy) in random::policies(),
        (Facts(facts), deliveries) in facts_and_deliveries(25),
    ) {
        let batches: Vec<_> = deliveries
            .iter()
            .map(|delivery| (delivery.restart, pick(&facts, delivery)))
            .collect();
        assert_same_rows(&rows_on_disk(&policy, &batches), &expected(&policy, &facts), "on disk");
    }
}

proptest! {
    #![proptest_config(config(testbed::length(3, 20)))]

    #[test]
    fn on_disk_any_number_of_threads_writes_the_same_rows(
        Rules(_, policy) in random::policies(),
        (Facts(facts), deliveries) in facts_and_deliveries(25),
    ) {
        let batches: Vec<_> = deliveries
            .iter()
            .map(|delivery| (delivery.restart, pick(&facts, delivery)))
            .collect();
        let expected = expected(&policy, &facts);
        for threads in THREADS {
            let rows = rows_on_disk_with(&policy, &batches, |_| divided_among(threads));
            assert_same_rows(&rows, &expected, &format!("{threads} threads"));
        }
        let changing = |batch: usize| divided_among(THREADS[batch % THREADS.len()]);
        let rows = rows_on_disk_with(&policy, &batches, changing);
        assert_same_rows(&rows, &expected, "the number of threads changes");
    }
}

/// Settings, facts, deliveries with the worker that receives them, and turns.
type RaceInput = (Rules, (Facts, Vec<Delivery>, Vec<Side>), Vec<Side>);

#[test]
fn two_workers_on_one_store_write_the_same_rows() {
    let side = || select(vec![Side::Left, Side::Right]);
    let strategy = (
        random::policies(),
        facts_and_deliveries(25).prop_flat_map(|(facts, deliveries)| {
            let sides = vec(side(), deliveries.len());
            (Just(facts), Just(deliveries), sides)
        }),
        vec(side(), 1..200),
    );
    let conflicts = std::cell::Cell::new(Conflicts::default());
    let run = |(Rules(_, policy), (Facts(facts), deliveries, sides), turns): RaceInput| {
        let batches = [Side::Left, Side::Right].map(|side| {
            let of_side = deliveries.iter().zip(&sides).filter(|(_, receiver)| **receiver == side);
            of_side.map(|(delivery, _)| pick(&facts, delivery)).collect::<Vec<_>>()
        });
        let outcome = race(&policy, batches, &turns);
        assert_same_rows(&outcome.rows, &expected(&policy, &facts), "two workers");
        let Conflicts { facts, decisions } = conflicts.get();
        conflicts.set(Conflicts {
            facts: facts + outcome.conflicts.facts,
            decisions: decisions + outcome.conflicts.decisions,
        });
        Ok(())
    };
    let outcome = TestRunner::new(config(150)).run(&strategy, run);
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let Conflicts { facts, decisions } = conflicts.get();
    assert!(facts > 0 && decisions > 0, "no conflict occurred: {:?}", conflicts.get());
}
