//! Explanations of random facts: whatever they are, an explanation is that of the row.

use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::compose;
use attribution::event::{Fact, Pid};
use attribution::explain::{Explanation, Verdict};
use attribution::policy::Policy;
use attribution::row::{EventType, Row};
use attribution::worker::{self, Worker};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::support::random::{self, Facts, Rules};
use super::support::run::give;

fn config() -> Config {
    Config { failure_persistence: None, ..Config::default() }
}

fn told(worker: &mut Worker<Memory>, policy: &Policy, (pid, id): &(Pid, String)) -> Explanation {
    let told = worker::explain(worker.ledger_mut(), policy, *pid, id);
    told.expect("memory does not fail").expect("what has a row is told of")
}

/// What the row shows is what is told, and who won is among those that are listed.
fn check(told: &Explanation, row: &Row) -> Result<(), TestCaseError> {
    let mut composed = compose::activation_row(&told.activation, &told.decision);
    composed.revision = row.revision;
    prop_assert_eq!(&composed, row);
    prop_assert_eq!(&told.anew, &None);
    prop_assert_eq!(told.revision, row.revision);
    let won = told.considered.iter().filter(|one| one.verdict == Verdict::Won);
    let won: Vec<_> = won.map(|one| &one.touch.id).collect();
    let credited: Vec<_> = told.decision.credit.touch.iter().map(|one| &one.click_id).collect();
    prop_assert_eq!(won, credited);
    let contributed = told.considered.iter().filter(|one| one.verdict == Verdict::Contributor);
    let contributed: Vec<_> = contributed.map(|one| one.touch.time).collect();
    let contributors: Vec<_> =
        told.decision.credit.contributors.iter().map(|one| one.time).collect();
    prop_assert_eq!(contributed, contributors);
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_explanation_is_that_of_the_row(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
        batches in vec(1..8usize, 100),
    ) {
        let mut worker = Worker::new(Memory::default(), Arc::clone(&policy));
        let mut rest: &[Fact] = &facts;
        for size in batches {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            give(&mut worker, batch.to_vec());
            rest = later;
        }
        give(&mut worker, rest.to_vec());
        let rows: Vec<Row> = worker.ledger().rows().cloned().collect();
        for row in rows.iter().filter(|row| row.event_type == EventType::Activation) {
            let told = told(&mut worker, &policy, &(row.pid, row.event_id.to_string()));
            check(&told, row)?;
        }
    }
}
