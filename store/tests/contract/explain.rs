//! What an explanation tells besides the decision.

use std::collections::BTreeSet;
use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::explain::{self, Because, Explanation, Verdict};
use attribution::policy::Policy;
use attribution::row::{RejectReason, Status};
use attribution::worker;

use super::support::facts::{
    A, DAY, Draft, HOUR, MINUTE, SECOND, a_and, activation, click, identified, impression,
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
    let told = worker::explain(worker.ledger_mut(), policy, X, "a");
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

/// What is told of the click that an activation without ids names, so long before it.
fn told_of_the_named_click(policy: &Arc<Policy>, age_ms: i64) -> (Status, Vec<Verdict>) {
    let facts = [click("c1", a_and(-age_ms)).anyone(), activation("a", A).anyone().names("c1")];
    let mut worker = fed(Memory::default(), policy, vec![identified(facts)]);
    let told = worker::explain(worker.ledger_mut(), policy, X, "a");
    let told = told.expect("memory does not fail").expect("the activation is there");
    assert_eq!(told.anew, None);
    let verdicts = told.considered.iter().map(|one| one.verdict).collect();
    (told.decision.credit.status, verdicts)
}

#[test]
fn a_click_that_is_only_named_is_told_of() {
    for policy in [rules(), rules_with(|app| app.probabilistic = false)] {
        let told = |age_ms| told_of_the_named_click(&policy, age_ms);
        assert_eq!(told(HOUR), (Status::Attributed, vec![Verdict::Won]));
        let too_old = Verdict::NoCandidate(Because::TooOld);
        assert_eq!(told(8 * DAY), (Status::Organic, vec![too_old]));
        let too_short = Verdict::Rejected(RejectReason::CtitTooShort);
        assert_eq!(told(SECOND), (Status::Organic, vec![too_short]));
    }
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
fn touches_that_are_not_listed_are_counted() {
    let counted = |clicks: i64, age_ms: i64| {
        let clicks = (0..clicks).map(|n| click(&format!("t{n}"), a_and(-age_ms - n * MINUTE)));
        let told = told(clicks.chain([activation("a", A)]));
        (told.considered.len() + told.unlisted, told.has_more)
    };
    assert_eq!(counted(3, HOUR), (3, false));
    // Those that were read, those that did not need to be, and those that are too old.
    assert_eq!(counted(200, HOUR), (200, false));
    assert_eq!(counted(200, 100 * DAY), (200, false));
    assert_eq!(counted(200, -DAY), (0, false));
    assert_eq!(counted(1_001, 100 * DAY), (1_000, true));
}

#[test]
fn clicks_that_are_not_known_to_be_too_many_are_not_listed() {
    let new = (0..4).map(|n| click(&format!("n{n}"), a_and(-DAY - n * DAY)));
    let many = (2_000..4_000).map(|n| click(&format!("u{n}"), a_and(-6 * DAY - n * SECOND)));
    let told = told(new.chain(many).chain([activation("a", A)]));
    let verdicts = told.considered.iter().map(|one| one.verdict).collect::<BTreeSet<_>>();
    let too_many = Verdict::Rejected(RejectReason::TooManyClicks);
    assert!(verdicts.is_subset(&[Verdict::Won, Verdict::Contributor, too_many].into()));
    assert!(told.has_more);
}

#[test]
fn the_runner_up_is_found_beyond_what_the_decision_needed() {
    let newer = (0..3).map(|n| impression(&format!("i{n}"), a_and(-MINUTE - n)));
    // The older half alone is not too many; all are of one channel, that of unknown campaigns.
    let old = (200..300).map(|n| click(&format!("o{n}"), a_and(-6 * DAY + n)));
    let told = told(newer.chain(old).chain([click("c1", a_and(-HOUR)), activation("a", A)]));
    let place = explain::runner_up(&told.considered).expect("a runner-up");
    assert_eq!(&*told.considered[place].touch.id, "o249");
    assert!(!told.has_more);
}

#[test]
fn the_runner_up_is_listed_however_many_are_newer() {
    let impressions = (0..80).map(|n| impression(&format!("i{n}"), a_and(-HOUR - n * SECOND)));
    let clicks = [click("c1", a_and(-MINUTE)), click("c2", a_and(-5 * DAY))];
    let told = told(impressions.chain(clicks).chain([activation("a", A)]));
    let place = explain::runner_up(&told.considered).expect("a runner-up");
    assert_eq!(&*told.considered[place].touch.id, "c2");
    assert_eq!(told.considered.len() + told.unlisted, 82);
}
