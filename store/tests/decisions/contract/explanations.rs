//! Explanations of random facts: whatever they are, an explanation is that of the row.

use std::collections::BTreeMap;
use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::explain::collect;
use attribution::explain::explanation::{Explanation, Verdict};
use attribution::facts::event::{Activation, Fact, Pid};
use attribution::rules::build_row;
use attribution::rules::policy::Policy;
use attribution::rules::row::{EventType, Row};
use attribution::rules::winner::Decision;
use attribution::worker::Worker;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::support::facts::{A, Draft, activation, click, identified};
use super::support::random::{self, Facts, Rules};
use super::support::rules::rules;
use super::support::run::give;

fn config(cases: u32) -> Config {
    // `PROPTEST_CASES` asks for more.
    let cases = cases.max(Config::default().cases * cases / 256);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Random facts; in half of the sets an activation that names a click has nothing else.
fn facts(max: usize) -> impl Strategy<Value = Facts> {
    (random::facts(max), any::<bool>()).prop_map(|(Facts(mut facts), has_ids)| {
        for fact in &mut facts {
            if let Fact::Activation(activation) = fact
                && !activation.click_id.is_empty()
                && !has_ids
            {
                activation.ids.clear();
            }
        }
        Facts(facts)
    })
}

fn told(worker: &mut Worker<Memory>, policy: &Policy, (pid, id): &(Pid, String)) -> Explanation {
    let told = collect::explain(worker.ledger_mut(), policy, *pid, id);
    told.expect("memory does not fail").expect("what has a row is told of")
}

/// What the row shows is what is told, and who won is among those that are listed.
fn check(told: &Explanation, row: &Row) -> Result<(), TestCaseError> {
    let mut composed = build_row::activation_row(&told.activation, &told.decision);
    composed.revision = row.revision;
    prop_assert_eq!(&composed, row);
    prop_assert_eq!(&told.recomputed, &None);
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

/// What an activation is and was decided to be.
type Decided = BTreeMap<(Pid, String), (Activation, Decision)>;

fn decided(worker: &mut Worker<Memory>, policy: &Policy) -> Decided {
    let rows = worker.ledger().rows().filter(|row| row.event_type == EventType::Activation);
    let events: Vec<_> = rows.map(|row| (row.pid, row.event_id.to_string())).collect();
    let decided = events.into_iter().map(|event| {
        let Explanation { activation, decision, .. } = told(worker, policy, &event);
        (event, (activation, decision))
    });
    decided.collect()
}

/// The messages of a batch that are told to have changed a decision.
fn named(batch: &[Fact], told: &Explanation, pid: Pid) -> Vec<Fact> {
    let is_named = |fact: &&Fact| {
        let id = Some(fact.id());
        let mut causes = told.changed_by.iter();
        fact.pid() == pid
            && causes.any(|one| one.family == fact.family() && one.id.as_deref() == id)
    };
    batch.iter().filter(is_named).cloned().collect()
}

/// What changed each decision that a batch changed: facts of the batch, without which it would have
/// stayed, and all that it needs.
fn check_causes(
    worker: &mut Worker<Memory>,
    policy: &Arc<Policy>,
    batch: &[Fact],
) -> Result<(), TestCaseError> {
    let ledger = worker.ledger().clone();
    let before = decided(worker, policy);
    give(worker, batch.to_vec());
    for (event, after) in decided(worker, policy) {
        if before.get(&event).is_none_or(|before| *before == after) {
            continue;
        }
        let told = told(worker, policy, &event);
        prop_assert_eq!(told.previous.as_ref(), before.get(&event).map(|(_, before)| before));
        let named = named(batch, &told, event.0);
        prop_assert!(!told.changed_by.is_empty() && named.len() >= told.changed_by.len());
        if !told.changed_by_more {
            let mut other = Worker::new(ledger.clone(), Arc::clone(policy));
            give(&mut other, named);
            let other = self::told(&mut other, policy, &event);
            prop_assert_eq!(&(other.activation, other.decision), &after);
        }
    }
    Ok(())
}

#[track_caller]
fn check_batches(batches: &[&[Draft]]) {
    let policy = rules();
    let mut worker = Worker::new(Memory::default(), Arc::clone(&policy));
    for batch in batches {
        let batch = identified(batch.iter().cloned());
        check_causes(&mut worker, &policy, &batch).unwrap_or_else(|problem| panic!("{problem}"));
    }
}

#[test]
fn a_click_that_says_something_else_changes_a_decision() {
    let click = click("c1", "03-09T12:00");
    check_batches(&[&[click.clone(), activation("a", A)], &[click.retargeting()]]);
}

proptest! {
    #![proptest_config(config(testbed::length(50, 200)))]

    #[test]
    fn what_changed_a_decision_is_what_came_in(
        Rules(_, policy) in random::policies(),
        Facts(facts) in facts(30),
        batches in vec(1..5usize, 100),
    ) {
        let mut worker = Worker::new(Memory::default(), Arc::clone(&policy));
        let mut rest: &[Fact] = &facts;
        for size in batches {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            check_causes(&mut worker, &policy, batch)?;
            rest = later;
        }
    }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn every_explanation_is_that_of_the_row(
        Rules(_, policy) in random::policies(),
        Facts(facts) in facts(40),
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
