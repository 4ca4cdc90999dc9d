//! The engine against the slow, obvious reference, over random facts.
#![cfg(test)]

mod support;

use adtrail_store::memory::Memory;
use proptest::prelude::*;
use proptest::test_runner::Config;
use support::random::{self, Facts, Rules};
use support::reference::decisions;
use support::run::{Shelf, fed};

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
}
