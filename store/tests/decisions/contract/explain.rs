//! What an explanation tells besides the decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use adtrail_store::memory::Memory;
use attribution::explain::collect;
use attribution::explain::explanation::{self, Explanation, Ineligible, Verdict};
use attribution::facts::event::Fact;
use attribution::rules::candidate::Tier;
use attribution::rules::policy::{AppPolicy, Policy};
use attribution::rules::row::{RejectReason, Status};

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
    told_after(&rules(), policy, vec![identified(facts)])
}

/// The same under other settings, then and now.
fn told_under(policy: &Arc<Policy>, facts: impl IntoIterator<Item = Draft>) -> Explanation {
    told_after(policy, policy, vec![identified(facts)])
}

pub fn told_after(then: &Arc<Policy>, now: &Policy, batches: Vec<Vec<Fact>>) -> Explanation {
    let mut worker = fed(Memory::default(), then, batches);
    let told = collect::explain(worker.ledger_mut(), now, X, "a");
    told.expect("memory does not fail").expect("the activation is there")
}

#[test]
fn settings_that_would_decide_otherwise_are_told_of() {
    let facts = || [click("c1", a_and(-2 * DAY)), activation("a", A)];
    let narrow = rules_with(|app| app.windows.click_ms = DAY as u64);
    let told = told_with(&narrow, facts());
    assert_eq!(told.decision.credit.status, Status::Attributed);
    assert_eq!(told.recomputed.map(|recomputed| recomputed.credit.status), Some(Status::Organic));
    assert_eq!(told_with(&rules_with(|app| app.windows.click_ms -= 1), facts()).anew, None);
}

/// What is told of the click that an activation without ids names, so long before it.
fn told_of_the_named_click(policy: &Arc<Policy>, age_ms: i64) -> (Status, Vec<Verdict>) {
    let facts = [click("c1", a_and(-age_ms)).anyone(), activation("a", A).anyone().names("c1")];
    let told = told_under(policy, facts);
    assert_eq!(told.recomputed, None);
    let verdicts = told.considered.iter().map(|one| one.verdict).collect();
    (told.decision.credit.status, verdicts)
}

#[test]
fn a_click_that_is_only_named_is_told_of() {
    for policy in [rules(), rules_with(|app| app.probabilistic = false)] {
        let told = |age_ms| told_of_the_named_click(&policy, age_ms);
        assert_eq!(told(HOUR), (Status::Attributed, vec![Verdict::Won]));
        let too_old = Verdict::Ineligible(Ineligible::TooOld);
        assert_eq!(told(8 * DAY), (Status::Organic, vec![too_old]));
        let too_short = Verdict::Rejected(RejectReason::CtitTooShort);
        assert_eq!(told(SECOND), (Status::Organic, vec![too_short]));
    }
}

#[test]
fn a_touch_is_told_of_by_the_match_that_it_was_credited_for() {
    let both = |draft: Draft| draft.ip("203.0.113.9").ua("agent");
    let told = told([both(click("c1", a_and(-2 * DAY))), both(activation("a", A))]);
    let tiers: Vec<_> = told.considered.iter().map(|one| one.found.map(|it| it.tier)).collect();
    assert_eq!(tiers, [Some(Tier::ClickById)]);
}

pub fn there(draft: Draft) -> Draft {
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
    let too_old = Verdict::Ineligible(Ineligible::TooOld);
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
    let of = Verdict::Ineligible;
    let expected =
        [("c3".into(), of(Ineligible::NotBefore)), ("c1".into(), of(Ineligible::TooOld))];
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
    let place = explanation::runner_up(&told.considered).expect("a runner-up");
    assert_eq!(&*told.considered[place].touch.id, "o249");
    assert!(!told.has_more);
}

#[test]
fn the_runner_up_is_listed_however_many_are_newer() {
    let impressions = (0..80).map(|n| impression(&format!("i{n}"), a_and(-HOUR - n * SECOND)));
    let clicks = [click("c1", a_and(-MINUTE)), click("c2", a_and(-5 * DAY))];
    let told = told(impressions.chain(clicks).chain([activation("a", A)]));
    let place = explanation::runner_up(&told.considered).expect("a runner-up");
    assert_eq!(&*told.considered[place].touch.id, "c2");
    assert_eq!(told.considered.len() + told.unlisted, 82);
}

/// How many are listed of each verdict.
fn listed(told: &Explanation) -> BTreeMap<Verdict, usize> {
    let mut listed = BTreeMap::new();
    for one in &told.considered {
        *listed.entry(one.verdict).or_default() += 1;
    }
    listed
}

#[test]
fn those_that_were_rejected_are_listed_however_many_were_accepted() {
    // Of 60 clicks in a second 50 are accepted; those that are too old or too late are no candidates.
    let clicks = (100..160).map(|n| click(&format!("n{n}"), a_and(-HOUR + n)));
    let old = (100..130).map(|n| click(&format!("o{n}"), a_and(-8 * DAY + n)));
    let after = (100..103).map(|n| click(&format!("p{n}"), a_and(n)));
    let told = told(clicks.chain(old).chain(after).chain([activation("a", A)]));
    let expected = [
        (Verdict::Won, 1),
        (Verdict::Contributor, 3),
        (Verdict::Accepted, 50 - 4 - 5 - 3 - 5),
        (Verdict::Rejected(RejectReason::TooManyClicks), 5),
        (Verdict::Ineligible(Ineligible::NotBefore), 3),
        (Verdict::Ineligible(Ineligible::TooOld), 5),
    ];
    assert_eq!(listed(&told), expected.into());
    // The newest of each, in their order.
    let ids: Vec<_> = told.considered.iter().map(|one| &*one.touch.id).collect();
    assert_eq!(ids[..5], ["n149", "n148", "n147", "n146", "n145"]);
    assert_eq!(ids[37..43], ["n159", "n158", "n157", "n156", "n155", "p102"]);
    assert_eq!(ids[45..], ["o129", "o128", "o127", "o126", "o125"]);
    assert_eq!(told.considered.len() + told.unlisted, 93);
}

#[test]
fn those_just_before_it_are_listed_however_many_are_after_it() {
    let after = (100..120).map(|n| click(&format!("n{n}"), a_and(n)));
    let short = (100..120).map(|n| click(&format!("o{n}"), a_and(-n)));
    let told = told(after.chain(short).chain([activation("a", A)]));
    let expected = [
        (Verdict::Rejected(RejectReason::CtitTooShort), 8),
        (Verdict::Ineligible(Ineligible::NotBefore), 8),
    ];
    assert_eq!(listed(&told), expected.into());
    assert_eq!(told.considered.len() + told.unlisted, 40);
}

#[test]
fn a_hot_device_is_told_of_with_its_rejected_clicks() {
    let clicks = (100..3_100).map(|n| click(&format!("n{n}"), a_and(-HOUR - n * SECOND)));
    let told = told(clicks.chain([activation("a", A)]));
    let listed = listed(&told);
    assert_eq!(listed.get(&Verdict::Rejected(RejectReason::TooManyClicks)), Some(&5));
    assert_eq!(told.considered.len(), 50);
}

/// Whether whoever came second may be unread, and who was found, after so many rejected clicks.
fn second_after(rejected: i64) -> (bool, Option<Box<str>>) {
    let policy = rules_with(|app| {
        app.fraud.block_sites = vec!["bad".into()];
        app.fraud.clicks_per_device_max = 0;
    });
    let newer = (0..3).map(|n| impression(&format!("i{n}"), a_and(-MINUTE - n)));
    let bad = (0..rejected).map(|n| click(&format!("b{n}"), a_and(-2 * HOUR - n)).site("bad"));
    let others = [click("w", a_and(-HOUR)), click("r", a_and(-2 * DAY)), activation("a", A)];
    let facts = newer.chain(bad).chain(others);
    let told = told_under(&policy, facts);
    let second = explanation::runner_up(&told.considered).map(|place| &told.considered[place]);
    (told.is_second_unread, second.map(|second| second.touch.id.clone()))
}

#[test]
fn whoever_came_second_is_looked_for_among_many_that_could_not() {
    assert_eq!(second_after(1_500), (false, Some("r".into())));
    assert_eq!(second_after(15_000), (false, Some("r".into())));
    // Not without end.
    assert_eq!(second_after(60_000), (true, Some("i0".into())));
}

#[test]
fn whoever_came_second_is_known_before_all_is_read() {
    let clicks = (0..3_000).map(|n| click(&format!("n{n:04}"), a_and(-HOUR - n)).lookback(DAY));
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let facts = clicks.chain([activation("a", A)]);
    let told = told_under(&policy, facts);
    assert_eq!((told.has_more, told.is_second_unread), (true, false));
}

#[test]
fn another_class_under_other_settings_is_told_of() {
    let facts = || [activation("first", a_and(-30 * DAY)), activation("a", A)];
    let repeatable =
        |change: fn(&mut AppPolicy)| told_with(&rules_with(change), facts()).is_class_repeatable;
    assert!(repeatable(|_| {}));
    assert!(!repeatable(|app| app.reattribution_window_ms = 29 * DAY as u64));
    assert!(!repeatable(|app| app.duplicate_within_ms = 31 * DAY as u64));
}
