//! What an explanation tells besides the decision.

use adtrail_store::memory::Memory;
use attribution::explain::{Because, Explanation, Verdict};
use attribution::policy::Policy;
use attribution::row::Status;
use attribution::worker::explain;

use super::support::facts::{
    A, DAY, Draft, HOUR, MINUTE, a_and, activation, click, identified, impression,
};
use super::support::rules::{X, rules, rules_with};
use super::support::run::fed;

/// Why the activation `a` is credited as it is.
fn told(facts: impl IntoIterator<Item = Draft>) -> Explanation {
    told_with(&rules(), facts)
}

/// The same, asked with other settings than it was decided with.
fn told_with(policy: &Policy, facts: impl IntoIterator<Item = Draft>) -> Explanation {
    let mut worker = fed(Memory::default(), &rules(), vec![identified(facts)]);
    let told = explain(worker.ledger_mut(), policy, X, "a");
    told.expect("memory does not fail").expect("the activation is there")
}

#[test]
fn settings_that_would_decide_otherwise_are_told_of() {
    let facts = || [click("c1", a_and(-2 * DAY)), activation("a", A)];
    let narrow = rules_with(|app| app.windows.click_ms = DAY as u64);
    let told = told_with(&narrow, facts());
    assert_eq!(told.decision.credit.status, Status::Attributed);
    assert_eq!(told.anew.map(|anew| anew.credit.status), Some(Status::Organic));
    assert_eq!(told_with(&rules_with(|app| app.windows.click_ms -= 1), facts()).anew, None);
}

fn there(draft: Draft) -> Draft {
    draft.anyone().ip("203.0.113.9").ua("agent")
}

#[test]
fn guesses_are_told_of_that_are_almost_7_d_too_old() {
    let facts = [
        there(click("c1", a_and(-7 * DAY + HOUR))),
        there(impression("i2", a_and(-2 * DAY))),
        there(activation("a", A)),
    ];
    let told = told(facts).considered.into_iter().map(|one| (one.touch.id, one.verdict));
    let too_old = Verdict::NoCandidate(Because::TooOld);
    assert_eq!(told.collect::<Vec<_>>(), [("i2".into(), too_old), ("c1".into(), too_old)]);
}

#[test]
fn touches_of_the_device_are_told_of_that_are_half_a_year_old() {
    let facts = [
        click("c1", a_and(-179 * DAY)),
        click("c2", a_and(-181 * DAY)),
        click("c3", a_and(MINUTE)),
        activation("a", A),
    ];
    let told = told(facts).considered.into_iter().map(|one| (one.touch.id, one.verdict));
    let of = Verdict::NoCandidate;
    let expected = [("c3".into(), of(Because::NotBefore)), ("c1".into(), of(Because::TooOld))];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn it_is_told_whether_there_may_be_older_touches() {
    let facts = |clicks: i64| {
        let clicks = (0..clicks).map(|n| click(&format!("t{n}"), a_and(-HOUR - n * MINUTE)));
        clicks.chain([activation("a", A)])
    };
    assert!(!told(facts(3)).has_more);
    assert!(!told(facts(10)).has_more);
    // Clicks count for a day, so that of a day all are read.
    let older = (0..100).map(|n| click(&format!("u{n}"), a_and(-5 * DAY - n * MINUTE)));
    assert!(told(facts(10).chain(older)).has_more);
}
