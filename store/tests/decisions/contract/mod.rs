//! The attribution contract, rule by rule and on both sides of every edge. Each case runs through the worker in memory
//! and on disk, in the given and the reversed order, in one batch and one fact at a time.

mod candidates;
mod changes;
mod classes;
mod effects;
mod explain;
mod explanations;
mod floods;
mod identifiers;
mod identity;
mod late;
mod rejects;
mod winner;

use std::sync::Arc;

use attribution::rules::policy::Policy;
use support::facts::{Draft, identified};
use support::rules::rules;
use support::run::rows_in_any_order;

use crate::support;

/// Checks the short texts of the facts' rows in any order, because rows of one millisecond are ordered by a hash.
#[track_caller]
fn check(facts: impl IntoIterator<Item = Draft>, expected: &[&str]) {
    check_with(rules(), facts, expected);
}

#[track_caller]
fn check_with(policy: Arc<Policy>, facts: impl IntoIterator<Item = Draft>, expected: &[&str]) {
    let rows = rows_in_any_order(&policy, &identified(facts));
    let mut found: Vec<_> = rows.iter().map(|row| &*row.short).collect();
    let mut expected = expected.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// Checks the credit of the activation `a`: the id of the credited click, or the status if there is none.
#[track_caller]
fn check_credit(facts: impl IntoIterator<Item = Draft>, expected: &str) {
    check_credit_with(rules(), facts, expected);
}

#[track_caller]
fn check_credit_with(policy: Arc<Policy>, facts: impl IntoIterator<Item = Draft>, expected: &str) {
    let rows = rows_in_any_order(&policy, &identified(facts));
    let row = rows.iter().find(|row| row.short.starts_with("a: ")).expect("a has a row");
    let found = match row.short.split(' ').collect::<Vec<_>>()[..] {
        [_, _, "attributed", click_id, ..] => click_id,
        [_, _, status, ..] => status,
        _ => panic!("unexpected row: {}", row.short),
    };
    assert_eq!(found, expected, "{}", row.short);
}
