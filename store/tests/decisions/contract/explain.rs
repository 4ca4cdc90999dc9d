//! The content of an explanation besides the decision.

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
    A, DAY, Draft, HOUR, MINUTE, SECOND, a_plus, activation, click, identified, impression,
};
use super::support::rules::{X, rules, rules_with};
use super::support::run::worker_after;

/// Explains the activation `a`.
fn explain(facts: impl IntoIterator<Item = Draft>) -> Explanation {
    explain_with_changed_policy(&rules(), facts)
}

/// Explains the activation under `policy`, after its decision was made under the default settings.
fn explain_with_changed_policy(
    policy: &Policy,
    facts: impl IntoIterator<Item = Draft>,
) -> Explanation {
    explain_after(&rules(), policy, vec![identified(facts)])
}

/// Makes and explains the decision for the activation under `policy`.
fn explain_under(policy: &Arc<Policy>, facts: impl IntoIterator<Item = Draft>) -> Explanation {
    explain_after(policy, policy, vec![identified(facts)])
}

/// Processes the batches under `old_policy`, then explains the activation `a` under `new_policy`.
pub fn explain_after(
    old_policy: &Arc<Policy>,
    new_policy: &Policy,
    batches: Vec<Vec<Fact>>,
) -> Explanation {
    let mut worker = worker_after(Memory::default(), old_policy, batches);
    let explanation = collect::explain(worker.ledger_mut(), new_policy, X, "a");
    explanation.expect("memory does not fail").expect("the activation exists")
}

#[test]
fn a_different_decision_under_other_settings_is_shown() {
    let facts = || [click("c1", a_plus(-2 * DAY)), activation("a", A)];
    let narrow = rules_with(|app| app.windows.click_ms = DAY as u64);
    let explanation = explain_with_changed_policy(&narrow, facts());
    assert_eq!(explanation.decision.credit.status, Status::Attributed);
    assert_eq!(
        explanation.recomputed.map(|recomputed| recomputed.credit.status),
        Some(Status::Organic)
    );
    let narrower = rules_with(|app| app.windows.click_ms -= 1);
    assert_eq!(explain_with_changed_policy(&narrower, facts()).recomputed, None);
}

/// Returns status and verdicts for a click `age_ms` before an activation that matches it only by click id.
fn click_by_click_id(policy: &Arc<Policy>, age_ms: i64) -> (Status, Vec<Verdict>) {
    let facts = [
        click("c1", a_plus(-age_ms)).without_ids(),
        activation("a", A).without_ids().click_id("c1"),
    ];
    let explanation = explain_under(policy, facts);
    assert_eq!(explanation.recomputed, None);
    let verdicts = explanation.considered.iter().map(|touch| touch.verdict).collect();
    (explanation.decision.credit.status, verdicts)
}

#[test]
fn a_click_that_matches_only_by_click_id_is_listed() {
    for policy in [rules(), rules_with(|app| app.probabilistic = false)] {
        let explain = |age_ms| click_by_click_id(&policy, age_ms);
        assert_eq!(explain(HOUR), (Status::Attributed, vec![Verdict::Won]));
        let too_old = Verdict::Ineligible(Ineligible::TooOld);
        assert_eq!(explain(8 * DAY), (Status::Organic, vec![too_old]));
        let too_short = Verdict::Rejected(RejectReason::CtitTooShort);
        assert_eq!(explain(SECOND), (Status::Organic, vec![too_short]));
    }
}

#[test]
fn a_touch_is_listed_with_the_match_that_won() {
    let add_ip_ua = |draft: Draft| draft.ip("203.0.113.9").ua("agent");
    let explanation =
        explain([add_ip_ua(click("c1", a_plus(-2 * DAY))), add_ip_ua(activation("a", A))]);
    let tiers: Vec<_> =
        explanation.considered.iter().map(|touch| touch.found.map(|found| found.tier)).collect();
    assert_eq!(tiers, [Some(Tier::ClickById)]);
}

pub fn with_ip_ua(draft: Draft) -> Draft {
    draft.without_ids().ip("203.0.113.9").ua("agent")
}

#[test]
fn probabilistic_touches_of_the_last_7_d_are_listed() {
    let facts = [
        with_ip_ua(click("c1", a_plus(-7 * DAY + HOUR))),
        with_ip_ua(impression("i2", a_plus(-2 * DAY))),
        with_ip_ua(activation("a", A)),
    ];
    let considered = explain(facts).considered.into_iter();
    let verdicts = considered.map(|evaluated| (evaluated.touch.id().to_owned(), evaluated.verdict));
    let too_old = Verdict::Ineligible(Ineligible::TooOld);
    assert_eq!(verdicts.collect::<Vec<_>>(), [("i2".into(), too_old), ("c1".into(), too_old)]);
}

#[test]
fn touches_by_id_of_the_last_half_year_are_listed() {
    let facts = [
        click("c1", a_plus(-179 * DAY)),
        click("c2", a_plus(-181 * DAY)),
        click("c3", a_plus(MINUTE)),
        activation("a", A),
    ];
    let considered = explain(facts).considered.into_iter();
    let verdicts = considered.map(|evaluated| (evaluated.touch.id().to_owned(), evaluated.verdict));
    let expected = [
        ("c3".into(), Verdict::Ineligible(Ineligible::NotBefore)),
        ("c1".into(), Verdict::Ineligible(Ineligible::TooOld)),
    ];
    assert_eq!(verdicts.collect::<Vec<_>>(), expected);
}

#[test]
fn unlisted_touches_are_counted() {
    let counted = |clicks: i64, age_ms: i64| {
        let clicks = (0..clicks).map(|n| click(&format!("t{n}"), a_plus(-age_ms - n * MINUTE)));
        let explanation = explain(clicks.chain([activation("a", A)]));
        (explanation.considered.len() + explanation.unlisted, explanation.has_more)
    };
    assert_eq!(counted(3, HOUR), (3, false));
    // Touches that were read, touches that did not have to be read, and touches that are too old.
    assert_eq!(counted(200, HOUR), (200, false));
    assert_eq!(counted(200, 100 * DAY), (200, false));
    assert_eq!(counted(200, -DAY), (0, false));
    assert_eq!(counted(1_001, 100 * DAY), (1_000, true));
}

#[test]
fn clicks_whose_count_is_unknown_are_not_listed() {
    let new = (0..4).map(|n| click(&format!("n{n}"), a_plus(-DAY - n * DAY)));
    let many = (2_000..4_000).map(|n| click(&format!("u{n}"), a_plus(-6 * DAY - n * SECOND)));
    let explanation = explain(new.chain(many).chain([activation("a", A)]));
    let verdicts =
        explanation.considered.iter().map(|touch| touch.verdict).collect::<BTreeSet<_>>();
    let too_many = Verdict::Rejected(RejectReason::TooManyClicks);
    assert!(verdicts.is_subset(&[Verdict::Won, Verdict::Contributor, too_many].into()));
    assert!(explanation.has_more);
}

#[test]
fn the_runner_up_is_found_beyond_the_touches_that_the_decision_read() {
    let newer = (0..3).map(|n| impression(&format!("i{n}"), a_plus(-MINUTE - n)));
    // The older half is within the click limit; all belong to one channel, that of unknown campaigns.
    let old = (200..300).map(|n| click(&format!("o{n}"), a_plus(-6 * DAY + n)));
    let explanation =
        explain(newer.chain(old).chain([click("c1", a_plus(-HOUR)), activation("a", A)]));
    let index = explanation::runner_up(&explanation.considered).expect("a runner-up is listed");
    assert_eq!(explanation.considered[index].touch.id(), "o249");
    assert!(!explanation.has_more);
}

#[test]
fn the_runner_up_is_listed_behind_many_newer_touches() {
    let impressions = (0..80).map(|n| impression(&format!("i{n}"), a_plus(-HOUR - n * SECOND)));
    let clicks = [click("c1", a_plus(-MINUTE)), click("c2", a_plus(-5 * DAY))];
    let explanation = explain(impressions.chain(clicks).chain([activation("a", A)]));
    let index = explanation::runner_up(&explanation.considered).expect("a runner-up is listed");
    assert_eq!(explanation.considered[index].touch.id(), "c2");
    assert_eq!(explanation.considered.len() + explanation.unlisted, 82);
}

/// Returns the number of listed touches per verdict.
fn listed(explanation: &Explanation) -> BTreeMap<Verdict, usize> {
    let mut listed = BTreeMap::new();
    for touch in &explanation.considered {
        *listed.entry(touch.verdict).or_default() += 1;
    }
    listed
}

#[test]
fn rejected_touches_are_listed_beside_many_accepted_ones() {
    // 50 of 60 clicks in a second are accepted; clicks that are too old or too late are not candidates.
    let clicks = (100..160).map(|n| click(&format!("n{n}"), a_plus(-HOUR + n)));
    let old = (100..130).map(|n| click(&format!("o{n}"), a_plus(-8 * DAY + n)));
    let after = (100..103).map(|n| click(&format!("p{n}"), a_plus(n)));
    let explanation = explain(clicks.chain(old).chain(after).chain([activation("a", A)]));
    let expected = [
        (Verdict::Won, 1),
        (Verdict::Contributor, 3),
        (Verdict::Accepted, 50 - 4 - 5 - 3 - 5),
        (Verdict::Rejected(RejectReason::TooManyClicks), 5),
        (Verdict::Ineligible(Ineligible::NotBefore), 3),
        (Verdict::Ineligible(Ineligible::TooOld), 5),
    ];
    assert_eq!(listed(&explanation), expected.into());
    // The newest of each verdict, newest first.
    let ids: Vec<_> = explanation.considered.iter().map(|evaluated| evaluated.touch.id()).collect();
    assert_eq!(ids[..5], ["n149", "n148", "n147", "n146", "n145"]);
    assert_eq!(ids[37..43], ["n159", "n158", "n157", "n156", "n155", "p102"]);
    assert_eq!(ids[45..], ["o129", "o128", "o127", "o126", "o125"]);
    assert_eq!(explanation.considered.len() + explanation.unlisted, 93);
}

#[test]
fn touches_just_before_the_activation_are_listed_beside_many_after_it() {
    let after = (100..120).map(|n| click(&format!("n{n}"), a_plus(n)));
    let before = (100..120).map(|n| click(&format!("o{n}"), a_plus(-n)));
    let explanation = explain(after.chain(before).chain([activation("a", A)]));
    let expected = [
        (Verdict::Rejected(RejectReason::CtitTooShort), 8),
        (Verdict::Ineligible(Ineligible::NotBefore), 8),
    ];
    assert_eq!(listed(&explanation), expected.into());
    assert_eq!(explanation.considered.len() + explanation.unlisted, 40);
}

#[test]
fn rejected_clicks_of_a_device_with_many_clicks_are_listed() {
    let clicks = (100..3_100).map(|n| click(&format!("n{n}"), a_plus(-HOUR - n * SECOND)));
    let explanation = explain(clicks.chain([activation("a", A)]));
    let listed = listed(&explanation);
    assert_eq!(listed.get(&Verdict::Rejected(RejectReason::TooManyClicks)), Some(&5));
    assert_eq!(explanation.considered.len(), 50);
}

/// Returns, for `rejected` rejected clicks, whether the runner-up may be unread, and the id of the one found.
fn runner_up_behind(rejected: i64) -> (bool, Option<Box<str>>) {
    let policy = rules_with(|app| {
        app.fraud.block_sites = vec!["bad".into()];
        app.fraud.clicks_per_device_max = 0;
    });
    let newer = (0..3).map(|n| impression(&format!("i{n}"), a_plus(-MINUTE - n)));
    let bad = (0..rejected).map(|n| click(&format!("b{n}"), a_plus(-2 * HOUR - n)).site("bad"));
    let others = [click("w", a_plus(-HOUR)), click("r", a_plus(-2 * DAY)), activation("a", A)];
    let facts = newer.chain(bad).chain(others);
    let explanation = explain_under(&policy, facts);
    let index = explanation::runner_up(&explanation.considered);
    let id = index.map(|index| explanation.considered[index].touch.id().into());
    (explanation.may_have_unread_runner_up, id)
}

#[test]
fn the_runner_up_is_searched_for_behind_many_rejected_touches() {
    assert_eq!(runner_up_behind(1_500), (false, Some("r".into())));
    assert_eq!(runner_up_behind(15_000), (false, Some("r".into())));
    // The search is limited.
    assert_eq!(runner_up_behind(60_000), (true, Some("i0".into())));
}

#[test]
fn the_runner_up_can_be_known_before_all_touches_are_read() {
    let clicks = (0..3_000).map(|n| click(&format!("n{n:04}"), a_plus(-HOUR - n)).lookback(DAY));
    let policy = rules_with(|app| app.fraud.clicks_per_device_max = 0);
    let facts = clicks.chain([activation("a", A)]);
    let explanation = explain_under(&policy, facts);
    assert_eq!((explanation.has_more, explanation.may_have_unread_runner_up), (true, false));
}

#[test]
fn a_different_class_under_other_settings_is_shown() {
    let facts = || [activation("first", a_plus(-30 * DAY)), activation("a", A)];
    let repeatable = |change: fn(&mut AppPolicy)| {
        explain_with_changed_policy(&rules_with(change), facts()).is_class_repeatable
    };
    assert!(repeatable(|_| {}));
    assert!(!repeatable(|app| app.reattribution_window_ms = 29 * DAY as u64));
    assert!(!repeatable(|app| app.duplicate_within_ms = 31 * DAY as u64));
}
