//! Explanations of random facts always agree with the rows.

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
use super::support::run::process;

fn config(cases: u32) -> Config {
    // `PROPTEST_CASES` can increase the number.
    let cases = cases.max(Config::default().cases * cases / 256);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Generates random facts. In half of the sets, activations with a click id have no device ids.
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

fn explain(worker: &mut Worker<Memory>, policy: &Policy, (pid, id): &(Pid, String)) -> Explanation {
    let explanation = collect::explain(worker.ledger_mut(), policy, *pid, id);
    explanation.expect("memory does not fail").expect("an event with a row has an explanation")
}

/// Checks that the explanation agrees with the row and lists the winner and the contributors.
fn check(explanation: &Explanation, row: &Row) -> Result<(), TestCaseError> {
    let mut composed = build_row::activation_row(&explanation.activation, &explanation.decision);
    composed.revision = row.revision;
    prop_assert_eq!(&composed, row);
    prop_assert_eq!(&explanation.recomputed, &None);
    prop_assert_eq!(explanation.revision, row.revision);
    let won = explanation.considered.iter().filter(|touch| touch.verdict == Verdict::Won);
    let won: Vec<_> = won.map(|evaluated| evaluated.touch.id()).collect();
    let credit = &explanation.decision.credit;
    let credited: Vec<_> = credit.touch.iter().map(|touch| &*touch.click_id).collect();
    prop_assert_eq!(won, credited);
    let contributed =
        explanation.considered.iter().filter(|touch| touch.verdict == Verdict::Contributor);
    let contributed: Vec<_> = contributed.map(|evaluated| evaluated.touch.time).collect();
    let contributors: Vec<_> = credit.contributors.iter().map(|touch| touch.time).collect();
    prop_assert_eq!(contributed, contributors);
    Ok(())
}

/// Activations and their decisions, by app and id.
type Decisions = BTreeMap<(Pid, String), (Activation, Decision)>;

fn decisions(worker: &mut Worker<Memory>, policy: &Policy) -> Decisions {
    let rows = worker.ledger().rows().filter(|row| row.event_type == EventType::Activation);
    let events: Vec<_> = rows.map(|row| (row.pid, row.event_id.to_string())).collect();
    let decisions = events.into_iter().map(|event| {
        let Explanation { activation, decision, .. } = explain(worker, policy, &event);
        (event, (activation, decision))
    });
    decisions.collect()
}

/// Returns those messages of a batch that the explanation names as causes of a change.
fn named(batch: &[Fact], explanation: &Explanation, pid: Pid) -> Vec<Fact> {
    let is_named = |fact: &&Fact| {
        let id = Some(fact.id());
        let mut causes = explanation.changed_by.iter();
        let kind = match fact {
            Fact::Touch(touch) => Some(touch.kind),
            Fact::Activation(_) | Fact::Effect(_) => None,
        };
        let family = fact.id_space().family();
        fact.pid() == pid
            && causes.any(|cause| {
                cause.family == family
                    && cause.id.as_deref() == id
                    && (cause.kind.is_none() || cause.kind == kind)
            })
    };
    batch.iter().filter(is_named).cloned().collect()
}

/// Checks each decision that the batch changed: its causes are facts of the batch, and these alone lead to the same
/// decision.
fn check_causes(
    worker: &mut Worker<Memory>,
    policy: &Arc<Policy>,
    batch: &[Fact],
) -> Result<(), TestCaseError> {
    let ledger = worker.ledger().clone();
    let before = decisions(worker, policy);
    process(worker, batch.to_vec());
    for (event, after) in decisions(worker, policy) {
        if before.get(&event).is_none_or(|before| *before == after) {
            continue;
        }
        let explanation = explain(worker, policy, &event);
        prop_assert_eq!(
            explanation.previous.as_ref(),
            before.get(&event).map(|(_, before)| before)
        );
        let named = named(batch, &explanation, event.0);
        let causes = explanation.changed_by.len();
        prop_assert!(causes > 0 && named.len() >= causes);
        if !explanation.changed_by_more {
            let mut other = Worker::new(ledger.clone(), Arc::clone(policy));
            process(&mut other, named);
            let recomputed = explain(&mut other, policy, &event);
            prop_assert_eq!(&(recomputed.activation, recomputed.decision), &after);
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
fn a_click_with_other_content_changes_a_decision() {
    let click = click("c1", "03-09T12:00");
    check_batches(&[&[click.clone(), activation("a", A)], &[click.retargeting()]]);
}

proptest! {
    #![proptest_config(config(testbed::length(50, 200)))]

    #[test]
    fn changed_decisions_are_explained_by_facts_of_the_batch(
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
    fn every_explanation_agrees_with_its_row(
        Rules(_, policy) in random::policies(),
        Facts(facts) in facts(40),
        batches in vec(1..8usize, 100),
    ) {
        let mut worker = Worker::new(Memory::default(), Arc::clone(&policy));
        let mut rest: &[Fact] = &facts;
        for size in batches {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            process(&mut worker, batch.to_vec());
            rest = later;
        }
        process(&mut worker, rest.to_vec());
        let rows: Vec<Row> = worker.ledger().rows().cloned().collect();
        for row in rows.iter().filter(|row| row.event_type == EventType::Activation) {
            let explanation = explain(&mut worker, &policy, &(row.pid, row.event_id.to_string()));
            check(&explanation, row)?;
        }
    }
}
