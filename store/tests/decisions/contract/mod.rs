//! What the conformance cases of the attribution contract do not show: edges, many pages and floods of facts, shared
//! ids, counts, index entries, rows after each batch, and explanations. `rows_in_any_order` compares the rows in memory
//! and on disk, in the given and the reversed order, in one batch and one fact at a time. `on_hbase` runs the same tests
//! over a real HBase.

mod changes;
mod details;
mod edges;
mod explain;
mod explanations;
mod floods;
mod identity;
mod late;
mod pages;
mod shared_ids;

use std::sync::Arc;

use attribution::rules::policy::Policy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use support::facts::{Draft, identified};
use support::random::{self, Facts, Rules};
use support::rules::rules;
use support::run::rows_in_any_order;

use crate::support;

/// Checks the short texts of the facts' rows in any order, because rows of one millisecond are ordered by a hash.
#[track_caller]
fn check(facts: impl IntoIterator<Item = Draft>, expected: &[&str]) {
    let rows = rows_in_any_order(&rules(), &identified(facts));
    let mut found: Vec<_> = rows.iter().map(|row| &*row.short).collect();
    let mut expected = expected.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// Checks the credit of the activation `a`: the id of the credited click, or the status if there is none.
#[track_caller]
fn check_credit(policy: &Arc<Policy>, facts: impl IntoIterator<Item = Draft>, expected: &str) {
    let rows = rows_in_any_order(policy, &identified(facts));
    let row = rows.iter().find(|row| row.short.starts_with("a: ")).expect("a has a row");
    let found = match row.short.split(' ').collect::<Vec<_>>()[..] {
        [_, _, "attributed", click_id, ..] => click_id,
        [_, _, status, ..] => status,
        _ => panic!("unexpected row: {}", row.short),
    };
    assert_eq!(found, expected, "{}", row.short);
}

/// A fixed sample, because it also runs on HBase.
#[test]
fn random_facts_have_the_same_rows_on_every_ledger() {
    let config = Config { cases: 8, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let run = |(Rules(_, policy), Facts(facts)): (Rules, Facts)| {
        rows_in_any_order(&policy, &facts);
        Ok(())
    };
    let strategy = (random::policies(), random::facts(20));
    let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, run);
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
