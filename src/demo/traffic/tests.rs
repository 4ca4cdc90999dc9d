//! The generated traffic: its shares, its order, and that adtrail accepts it.

use std::collections::{BTreeMap, BTreeSet};

use attribution::facts::event::{Fact, Purpose, TouchKind};
use config::Config;
use ingest::decode;

use super::*;

const TO_MS: i64 = 1_773_144_000_000;
const DAY_MS: i64 = 86_400_000;
const PLAN: Plan = Plan { seed: 7, from_ms: TO_MS - 3 * DAY_MS, to_ms: TO_MS, journeys: 14_700 };

fn settings() -> Config {
    config::parse(&catalogue::settings()).expect("the settings are valid")
}

/// Returns the valid messages with their facts.
fn facts() -> Vec<(Message, Fact)> {
    let config = settings();
    let valid = Traffic::new(PLAN).filter(|message| !message.is_invalid);
    valid
        .map(|message| {
            let fact = decode::decode(&message.value, Some(message.topic), &config.policy);
            let text = String::from_utf8_lossy(&message.value).into_owned();
            (message, fact.unwrap_or_else(|error| panic!("{error}: {text}")))
        })
        .collect()
}

fn percent(part: usize, whole: usize) -> usize {
    (100 * part + whole / 2) / whole
}

#[test]
fn the_same_plan_generates_the_same_messages() {
    let all = |plan| Traffic::new(plan).collect::<Vec<_>>();
    assert!(all(PLAN) == all(PLAN));
    assert!(all(PLAN) != all(Plan { seed: 8, ..PLAN }));
    assert!(all(Plan { journeys: 0, ..PLAN }).is_empty());
}

#[test]
fn the_catalogue_is_a_valid_configuration() {
    let config = settings();
    assert_eq!(config.policy.apps().count(), 3);
    assert_eq!((config.channels.len(), config.policy.campaigns().count()), (5, 7));
    for app in &catalogue::APPS {
        let configured = config.policy.app_by_key(app.key).expect("the app is configured");
        assert_eq!((configured.pid.0, &*configured.name), (app.pid, app.name));
    }
    let names: BTreeSet<_> = config.policy.campaigns().map(|campaign| &*campaign.name).collect();
    assert!(names.contains("健身季 💪") && names.contains(r#"Playables "A", wave 2"#), "{names:?}");
}

#[test]
fn exactly_the_valid_messages_decode_to_facts() {
    let config = settings();
    let mut codes = BTreeMap::new();
    for message in Traffic::new(PLAN) {
        let outcome = decode::decode(&message.value, Some(message.topic), &config.policy);
        assert_eq!(outcome.is_err(), message.is_invalid, "{:?}", String::from_utf8(message.value));
        if let Err(error) = outcome {
            *codes.entry(error.code.name()).or_insert(0) += 1;
        }
    }
    let kinds: Vec<_> = codes.keys().copied().collect();
    assert_eq!(kinds, ["bad_time", "missing_field", "not_json", "unknown_app"]);
    // Far below the share of invalid records at which a partition is paused.
    assert_eq!(codes.values().sum::<usize>(), 33);
}

#[test]
fn event_types_have_realistic_shares() {
    let facts = facts();
    #[track_caller]
    fn check(facts: &[(Message, Fact)], matches: impl Fn(&Fact) -> bool, expected: [usize; 2]) {
        let share = percent(facts.iter().filter(|(_, fact)| matches(fact)).count(), facts.len());
        assert!((expected[0]..=expected[1]).contains(&share), "{share} percent");
    }
    assert!((38_000..42_000).contains(&facts.len()), "{} messages", facts.len());
    check(
        &facts,
        |fact| matches!(fact, Fact::Touch(touch) if touch.kind == TouchKind::Click),
        [48, 56],
    );
    check(&facts, |fact| matches!(fact, Fact::Touch(_)), [68, 76]);
    check(&facts, |fact| matches!(fact, Fact::Activation(_)), [5, 8]);
    check(&facts, |fact| matches!(fact, Fact::Effect(_)), [17, 25]);
    check(&facts, |fact| fact.pid().0 == 1, [45, 55]);
}

#[test]
fn touches_have_ids_in_every_form() {
    let mut kinds = BTreeMap::new();
    let (mut unknown, mut upper, mut retargeting, mut unlisted) = (0, 0, 0, 0);
    for (_, fact) in facts() {
        let Fact::Touch(touch) = fact else { continue };
        unknown += usize::from(touch.ids().next().is_none() && !touch.device().ua.is_empty());
        retargeting += usize::from(touch.purpose == Purpose::Retargeting);
        unlisted += usize::from(touch.spreadid.0 == 199);
        for (kind, value) in touch.ids() {
            upper +=
                usize::from(kind == "imei_md5" && value.chars().any(|c| c.is_ascii_uppercase()));
            *kinds.entry(kind.to_owned()).or_insert(0) += 1;
        }
    }
    for kind in ["oaid", "oaid_md5", "imei", "imei_md5", "idfa", "idfa_md5", "gaid", "android_id"] {
        assert!(kinds.get(kind).is_some_and(|count| *count > 50), "{kind}: {kinds:?}");
    }
    assert!(unknown > 1000 && upper > 100 && retargeting > 10 && unlisted > 100);
}

#[test]
fn messages_are_ordered_by_arrival_but_not_by_event_time() {
    let facts = facts();
    let mut newest_ms = 0;
    let mut late = 0;
    for (message, fact) in &facts {
        let time_ms = i64::try_from(fact.time().millis()).expect("the time fits into i64");
        assert!((PLAN.from_ms..PLAN.to_ms).contains(&time_ms), "{time_ms}");
        assert!((time_ms..=PLAN.to_ms).contains(&message.arrival_ms), "{}", message.arrival_ms);
        late += usize::from(time_ms < newest_ms);
        newest_ms = newest_ms.max(time_ms);
    }
    assert!(facts.is_sorted_by_key(|(message, _)| message.arrival_ms));
    assert!(percent(late, facts.len()) > 10, "{late} late");
}

#[test]
fn some_messages_are_redelivered_and_some_effects_precede_their_activation() {
    let facts = facts();
    let mut copies: BTreeMap<(&'static str, TopicKind, &str), usize> = BTreeMap::new();
    let mut activated = BTreeMap::new();
    let mut early = 0;
    for (message, fact) in &facts {
        *copies.entry((message.key, message.topic, fact.id())).or_default() += 1;
        match fact {
            Fact::Activation(activation) => {
                activated.entry(&activation.ids).or_insert(message.arrival_ms);
            }
            Fact::Effect(effect) => early += usize::from(!activated.contains_key(&effect.ids)),
            Fact::Touch(_) => {}
        }
    }
    let with_copies = |times| copies.values().filter(|count| **count == times).count();
    assert!(with_copies(2) > 300 && with_copies(3) > 150 && with_copies(4) == 0);
    assert!(early > 100, "{early} early");
}
