//! Compares the engine with the slow reference implementation, on random facts.

use adtrail_store::memory::Memory;
use attribution::explain::collect;
use attribution::explain::explanation::Verdict;
use attribution::facts::event::Fact;
use attribution::rules::classify::{ActivationKey, InstallChain};
use proptest::prelude::*;
use proptest::test_runner::Config;
use support::random::{self, Facts, Rules};
use support::reference::decisions;
use support::run::{LedgerUnderTest, worker_after};

use crate::support;

/// Returns the configuration of 256 cases, or of 10,000 in the long form. `PROPTEST_CASES` can increase the number;
/// `PROPTEST_RNG_SEED` fixes the cases, and `make long-test` prints it.
fn config() -> Config {
    let cases = Config::default().cases.max(testbed::length(0, 10_000));
    Config { cases, failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_engine_agrees_with_the_reference(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
    ) {
        let worker = worker_after(Memory::default(), &policy, vec![facts.clone()]);
        let mut found: Vec<_> =
            worker.ledger().row_texts().into_iter().map(|row| row.decision).collect();
        found.sort();
        prop_assert_eq!(found, decisions(&policy, &facts));
    }

    #[test]
    fn an_explanation_agrees_with_the_decision(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
    ) {
        let mut worker = worker_after(Memory::default(), &policy, vec![facts.clone()]);
        for fact in facts.iter().filter(|fact| matches!(fact, Fact::Activation(_))) {
            let explanation = collect::explain(worker.ledger_mut(), &policy, fact.pid(), fact.id());
            let explanation = explanation.expect("memory does not fail").expect("the activation exists");
            prop_assert_eq!(&explanation.recomputed, &None);
            let credit = &explanation.decision.credit;
            let ids = |wanted: Verdict| {
                let found = explanation.considered.iter().filter(|touch| touch.verdict == wanted);
                let touches = found.map(|evaluated| &evaluated.touch);
                touches.map(|touch| (touch.spreadid, touch.time)).collect::<Vec<_>>()
            };
            let winner = credit.touch.as_ref().map(|touch| (credit.spreadid, touch.time));
            prop_assert_eq!(ids(Verdict::Won), winner.into_iter().collect::<Vec<_>>());
            let contributors = credit.contributors.iter().map(|other| (other.spreadid, other.time));
            prop_assert_eq!(ids(Verdict::Contributor), contributors.collect::<Vec<_>>());
            let won = explanation.considered.iter().find(|touch| touch.verdict == Verdict::Won);
            let match_type = won.and_then(|touch| touch.found).map(|found| found.match_type);
            prop_assert_eq!(match_type, credit.touch.as_ref().map(|touch| touch.match_type));
            let next = ActivationKey::of(&explanation.activation);
            let app = policy.app(fact.pid()).expect("the app is configured");
            let (_, class) = InstallChain::advance(explanation.before.as_ref(), app, next);
            prop_assert_eq!(class.install_type, explanation.decision.install_type);
        }
    }
}

proptest! {
    // The reference takes seconds for a flood, as it compares every touch with every other one.
    #![proptest_config(Config {
        failure_persistence: None,
        cases: Config::default().cases / 64,
        ..Config::default()
    })]

    #[test]
    fn the_engine_agrees_with_the_reference_on_floods(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::floods(),
    ) {
        let worker = worker_after(Memory::default(), &policy, vec![facts.clone()]);
        let mut found: Vec<_> =
            worker.ledger().row_texts().into_iter().map(|row| row.decision).collect();
        found.sort();
        prop_assert_eq!(found, decisions(&policy, &facts));
    }
}
