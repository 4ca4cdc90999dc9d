//! Explanations with other settings than those of the decision.

use std::sync::Arc;

use attribution::explain::collect;
use attribution::explain::explanation::ChangeCause;
use attribution::facts::event::{Fact, Family, Pid};
use attribution::rules::policy::{AppPolicy, DAY_MS, IpRange, Policy};

use super::{json, text};
use crate::tests::check_problem;
use crate::tests::fixture::{
    Bed, DAY, MINUTE, activation, at, click, effect, fill, settings, with_params,
};

type Change = fn(&mut AppPolicy);

/// Explains activation `a`, decided with the settings `then`, by a command with the settings `now`.
fn explained(facts: Vec<Fact>, then: Change, now: Change) -> (String, serde_json::Value) {
    let policy = |change: Change| {
        let mut app = AppPolicy::new(Pid(1), "app-x");
        change(&mut app);
        Policy::new(vec![app], vec![])
    };
    let dir = tempfile::tempdir().unwrap();
    let mut config = settings(dir.path());
    config.policy = Arc::new(policy(then));
    let mut reader = fill(&config, facts);
    let policy = policy(now);
    let explanation = collect::explain(&mut reader, &policy, Pid(1), "a").unwrap().unwrap();
    (text(&explanation, &policy), json(&explanation, &policy))
}

fn install_after_two_days() -> Vec<Fact> {
    let click = click(7, "c", "d", DAY);
    vec![click, Fact::Activation(activation("a", "d", DAY + 2 * DAY_MS))]
}

#[test]
fn a_winner_of_other_settings_is_not_called_the_only_candidate() {
    let (text, _) = explained(install_after_two_days(), |_| {}, |_| {});
    assert!(text.contains("It is the only touch that could be credited."), "{text}");
    let (text, json) =
        explained(install_after_two_days(), |_| {}, |app| app.windows.click_ms = DAY_MS);
    let expected =
        "Decided with other settings; with the current settings it would be\n  install, organic";
    assert!(text.contains(expected), "{text}");
    let expected = "Why attributed\n  It was decided with other settings.\n";
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains("could be credited"), "{text}");
    assert_eq!(json["decision_with_these_settings"]["status"], "organic");
}

#[test]
fn a_rejection_by_other_settings_is_not_explained_with_a_block_list() {
    let mut blocked = activation("a", "d", DAY);
    blocked.device.ip = "203.0.113.9".into();
    let block: Change = |app| {
        app.fraud.block_ips = vec![IpRange { network: [203, 0, 113, 9].into(), prefix_bits: 32 }];
    };
    let facts = || vec![Fact::Activation(blocked.clone())];
    let (text, _) = explained(facts(), block, block);
    assert!(text.contains("own address or device is block-listed"), "{text}");
    let (text, _) = explained(facts(), block, |_| {});
    assert!(text.contains("Why rejected\n  It was decided with other settings"), "{text}");
    assert!(!text.contains("block-listed"), "{text}");
}

#[test]
fn a_class_of_other_settings_is_not_explained_with_these() {
    let facts = || {
        let activations = [("first", DAY), ("a", DAY + 2 * MINUTE)];
        activations.map(|(id, time)| Fact::Activation(activation(id, "d", time))).to_vec()
    };
    let (text, _) = explained(facts(), |_| {}, |_| {});
    assert!(text.contains("is within reattribution_window (90 d)."), "{text}");
    let changes: [Change; 2] =
        [|app| app.reattribution_window_ms = MINUTE, |app| app.duplicate_within_ms = 3 * MINUTE];
    for change in changes {
        let (text, _) = explained(facts(), |_| {}, change);
        let expected = "Why a reinstall\n  It was classified with other settings";
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("reattribution_window"), "{text}");
    }
}

#[test]
fn causes_of_a_change_are_named_even_if_they_are_no_longer_kept() {
    let app = AppPolicy::new(Pid(1), "app-x");
    let policy = Policy::new(vec![app], vec![]);
    let dir = tempfile::tempdir().unwrap();
    let mut config = settings(dir.path());
    config.policy = Arc::new(policy.clone());
    let mut reader = fill(&config, install_after_two_days());
    let mut explanation = collect::explain(&mut reader, &policy, Pid(1), "a").unwrap().unwrap();
    explanation.previous = Some(explanation.decision.clone());
    let mut check = |changed_by: Vec<ChangeCause>, more: bool, expected: &str| {
        (explanation.changed_by, explanation.changed_by_more) = (changed_by, more);
        let text = text(&explanation, &policy);
        assert!(text.contains(&format!("  {expected}. (section 7)\n")), "{text}");
    };
    let gone =
        |family| ChangeCause { id: None, kind: None, family, time: at(DAY), is_update: false };
    let time = "of 2026-03-10T00:00:00.000Z";
    check(vec![], false, "The cause is not known");
    check(
        vec![gone(Family::Touch)],
        false,
        &format!("Caused by touch {time}, which is no longer kept"),
    );
    let known = ChangeCause { id: Some("b".into()), is_update: true, ..gone(Family::Activation) };
    let expected = format!(
        "Caused by facts that arrived together: touch {time}, which is no longer kept; \
         activation b {time}, known before and now \
         with an earlier time or other content; and more"
    );
    check(vec![gone(Family::Touch), known], true, &expected);
}

#[test]
fn a_bad_signature_is_shown_where_no_rule_rejects_it() {
    let explained_with = |outcome: &str| {
        let touch = with_params(click(7, "c", "d", DAY), &[("signature", outcome)]);
        let activation = activation("a", "d", DAY + MINUTE);
        explained(vec![touch, Fact::Activation(activation)], |_| {}, |_| {})
    };
    let (text, json) = explained_with("expired");
    let expected = "its signature is expired, for which no rule rejects it (section 4)";
    assert!(text.contains(expected), "{text}");
    let touch = &json["touches"][0];
    assert_eq!((&touch["verdict"], &touch["bad_signature"]), (&"won".into(), &"expired".into()));
    let (text, json) = explained_with("valid");
    assert!(!text.contains("signature"), "{text}");
    assert!(json["touches"][0]["bad_signature"].is_null(), "{json}");
}

#[test]
fn the_ad_of_the_touch_is_named_without_its_callback_token() {
    let explained_with = |params: &[(&str, &str)]| {
        let touch = with_params(click(7, "c", "d", DAY), params);
        let activation = activation("a", "d", DAY + MINUTE);
        explained(vec![touch, Fact::Activation(activation)], |_| {}, |_| {})
    };
    let params = [("ad_id", "9"), ("adset_name", "a\nb"), ("callback", "secret"), ("sub1", "s")];
    let (text, json) = explained_with(&params);
    let expected = "\nAd\n  ad_id 9; adset_name a\\nb\n  It has a callback token.\n";
    assert!(text.contains(expected), "{text}");
    let decision = &json["decision"];
    let expected = serde_json::json!({"ad_id": "9", "adset_name": "a\nb"});
    assert_eq!((&decision["touch_params"], &decision["has_callback"]), (&expected, &true.into()));
    assert!(!text.contains("secret") && !json.to_string().contains("secret"));
    let (text, json) = explained_with(&[("callback", "secret")]);
    assert!(text.contains("\nAd\n  It has a callback token.\n"), "{text}");
    assert_eq!(json["decision"]["touch_params"], serde_json::json!({}));
    let (text, json) = explained_with(&[("sub1", "s")]);
    assert!(!text.contains("\nAd\n"), "{text}");
    assert_eq!(json["decision"]["has_callback"], false);
}

#[test]
fn http_serves_the_json_of_the_command() {
    let bed = Bed::new(vec![
        click(7, "c", "d", DAY),
        Fact::Activation(activation("a/1 é", "d", DAY + MINUTE)),
        Fact::Effect(effect("e", "purchase", "d", DAY + 2 * MINUTE)),
    ]);
    let path = |id: &str| format!("/v1/apps/app-x/activations/{id}/explain");
    let policy = &bed.config.policy;
    let explanation =
        collect::explain(&mut bed.reader.clone(), policy, Pid(1), "a/1 é").unwrap().unwrap();
    let answer = bed.get(&path("a%2F1%20%C3%A9"));
    assert_eq!((answer.status, answer.json()), (200, json(&explanation, policy)));
    assert_eq!(answer.json()["touches"][0]["verdict"], "won");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    for id in ["b", "e", "c"] {
        let unknown = bed.get(&path(id));
        check_problem(&unknown, 404, "unknown-activation", None);
        let detail = format!("no activation of the app has this id: \"{id}\"");
        assert_eq!(unknown.json()["detail"], detail);
        assert_eq!(unknown.header("cache-control"), Some("no-store"));
    }
}
