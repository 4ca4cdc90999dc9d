//! The engine against the slow, obvious reference, over random facts.

use adtrail_store::memory::Memory;
use attribution::explain::collect;
use attribution::explain::explanation::Verdict;
use attribution::facts::event::Family;
use attribution::rules::classify::{ActivationKey, InstallChain};
use proptest::prelude::*;
use proptest::test_runner::Config;
use support::random::{self, Facts, Rules};
use support::reference::decisions;
use support::run::{Shelf, fed};

use crate::support;

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_engine_decides_what_the_reference_decides(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
    ) {
        let worker = fed(Memory::default(), &policy, vec![facts.clone()]);
        let mut found: Vec<_> =
            worker.ledger().shown().into_iter().map(|row| row.decision).collect();
        found.sort();
        prop_assert_eq!(found, decisions(&policy, &facts));
    }

    #[test]
    fn an_explanation_tells_what_was_decided(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::facts(40),
    ) {
        let mut worker = fed(Memory::default(), &policy, vec![facts.clone()]);
        for fact in facts.iter().filter(|fact| fact.family() == Family::Activation) {
            let told = collect::explain(worker.ledger_mut(), &policy, fact.pid(), fact.id());
            let told = told.expect("memory does not fail").expect("the activation is there");
            prop_assert_eq!(&told.recomputed, &None);
            let credit = &told.decision.credit;
            let ids = |wanted: Verdict| {
                let found = told.considered.iter().filter(|one| one.verdict == wanted);
                found.map(|one| (one.touch.spreadid, one.touch.time)).collect::<Vec<_>>()
            };
            let winner = credit.touch.as_ref().map(|touch| (credit.spreadid, touch.time));
            prop_assert_eq!(ids(Verdict::Won), winner.into_iter().collect::<Vec<_>>());
            let contributors = credit.contributors.iter().map(|other| (other.spreadid, other.time));
            prop_assert_eq!(ids(Verdict::Contributor), contributors.collect::<Vec<_>>());
            let found = told.considered.iter().find(|one| one.verdict == Verdict::Won);
            let match_type = found.and_then(|one| one.found).map(|found| found.match_type);
            prop_assert_eq!(match_type, credit.touch.as_ref().map(|touch| touch.match_type));
            let next = ActivationKey::of(&told.activation);
            let app = policy.app(fact.pid()).expect("a known app");
            let (_, class) = InstallChain::step(told.before.as_ref(), app, next);
            prop_assert_eq!(class.install_type, told.decision.install_type);
        }
    }
}

proptest! {
    // A flood costs the reference seconds: it compares every touch with every other.
    #![proptest_config(Config {
        failure_persistence: None,
        cases: Config::default().cases / 64,
        ..Config::default()
    })]

    #[test]
    fn floods_are_decided_as_the_reference_decides_them(
        Rules(_, policy) in random::policies(),
        Facts(facts) in random::floods(),
    ) {
        let worker = fed(Memory::default(), &policy, vec![facts.clone()]);
        let mut found: Vec<_> =
            worker.ledger().shown().into_iter().map(|row| row.decision).collect();
        found.sort();
        prop_assert_eq!(found, decisions(&policy, &facts));
    }
}
