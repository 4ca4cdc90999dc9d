//! The callbacks of an outbox as the page shows them.

use std::sync::Arc;

use attribution::facts::canonical;
use attribution::facts::event::{Fact, SpreadId};
use attribution::facts::match_keys::fact_key;
use attribution::outbox::interest::{Interest, Interests, LateCredit};
use attribution::outbox::port::{Outbox, Outcome};
use attribution::outbox::record::{CallbackKind, EndpointId, OutboxKey};
use attribution::rules::policy::Campaign;
use attribution::rules::row::EventType;
use attribution::worker::{Batch, Worker};
use store::embedded::Embedded;

use super::*;
use crate::tests::fixture::{at, settings};

const LEASE_MS: u64 = 60_000;

/// A service with callbacks about the activations `a-0` to `a-3`: dead, sent, pending, and pending.
fn bed() -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let mut config = settings(dir.path());
    config.tokens = vec![entry("x", Some(1), None), entry("all", None, None)];
    let campaign = Campaign {
        spreadid: SpreadId(7),
        pid: Pid(1),
        channel: "toutiao".into(),
        name: "Spring".into(),
        windows: Windows::default(),
    };
    let apps: Vec<AppPolicy> = config.policy.apps().cloned().collect();
    config.policy = Arc::new(Policy::new(apps, vec![campaign]));
    let interest = Interest {
        endpoint: EndpointId::new("ocean"),
        apps: Vec::new(),
        channels: Vec::new(),
        kinds: vec![CallbackKind::Activation],
        event_names: Vec::new(),
        settle_ms: 0,
        max_age_ms: 1 << 47,
        late_credit: LateCredit::Withhold,
    };
    let interests = Arc::new(Interests::new(vec![interest], Arc::clone(&config.policy)));
    let ledger = Embedded::open(&config.store, &config.policy).unwrap();
    let mut worker = Worker::new(ledger, Arc::clone(&config.policy)).with_interests(interests);
    let mut facts: Vec<Fact> = Vec::new();
    for number in 0..4_u64 {
        let (id, device, time) = (format!("a-{number}"), format!("d-{number}"), DAY + number);
        facts.push(click(7, &format!("c-{number}"), &device, time));
        facts.push(Fact::Activation(activation(&id, &device, time + MINUTE)));
    }
    for fact in &mut facts {
        canonical::identify(fact, "app-x");
    }
    worker.process(Batch { facts, ..Batch::default() }).unwrap();
    let reader = worker.ledger().reader();
    let refused = format!("status 400\n{HOSTILE}").into();
    finish(&reader, "a-0", 1, Outcome::Dead { note: refused, maybe_sent: false });
    let taken = "taken\nrequest: POST https://a/".into();
    finish(&reader, "a-1", 2, Outcome::Sent { note: taken });
    Bed::linked(dir, config, reader, None)
}

fn finish(reader: &store::reader::Reader, id: &str, minute: u64, outcome: Outcome) {
    let event = fact_key(EventType::Activation, Pid(1), id);
    let endpoint = EndpointId::new("ocean");
    let key = OutboxKey { endpoint, event, kind: CallbackKind::Activation };
    // Later than the clock that the store has used.
    let now = at(4_000_000_000_000 + minute * MINUTE);
    let mut outbox = reader.outbox();
    let claim = outbox.claim(&[key], now, LEASE_MS).unwrap().pop().unwrap();
    outbox.finish(&[(claim, outcome)], now).unwrap();
}

#[track_caller]
fn check(bed: &Bed, query: &str, expected: usize) -> Answer {
    let answer = by(bed, &format!("/callbacks?app=app-x{query}"), "x");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text().matches("data-endpoint=\"ocean\"").count(), expected, "{query}");
    answer
}

#[test]
fn callbacks_are_shown_with_their_last_attempts() {
    let bed = bed();
    let all = check(&bed, "", 4);
    has(&all, &["status 400", "&lt;script&gt;", "request: POST https:", "<bdi>a-0</bdi>"]);
    assert_eq!(all.text().matches("<script").count(), 1, "{}", all.text());
    has(&check(&bed, "&state=dead", 1), &["<bdi>a-0</bdi>"]);
    has(&check(&bed, "&state=sent", 1), &["<bdi>a-1</bdi>"]);
    check(&bed, "&state=pending&endpoint=ocean", 2);
    has(&check(&bed, "&endpoint=other", 0), &["No callbacks"]);
}

#[test]
fn the_last_changes_are_first() {
    let all = check(&bed(), "", 4);
    let positions = ["a-1", "a-0", "a-2", "a-3"].map(|id| {
        let found = all.text().find(&format!("<bdi>{id}</bdi>"));
        found.unwrap_or_else(|| panic!("{id} is not in {}", all.text()))
    });
    let [sent, dead, pending, other] = positions;
    assert!(sent < dead && dead < pending.min(other), "{positions:?}");
}

#[test]
fn a_callback_has_the_name_of_its_campaign() {
    let all = check(&bed(), "&state=dead", 1);
    has(&all, &["<dd>7 “<bdi>Spring</bdi>” of channel <bdi>toutiao</bdi></dd>"]);
}

#[test]
fn only_who_may_read_all_apps_sees_their_counts() {
    let bed = bed();
    let answer = by(&bed, "/callbacks?app=app-x", "all");
    has(&answer, &["4 made, 2 pending, 1 sent, 0 dropped, 0 withheld, 0 too old, 1 dead"]);
    assert!(!check(&bed, "", 4).text().contains("4 made"));
    let other = by(&bed, "/callbacks?app=app%20y", "x");
    assert_eq!(other.status, 404);
    let none = by(&bed, "/callbacks?app=app%20y", "all");
    assert_eq!(none.text().matches("data-endpoint").count(), 0);
}

#[test]
fn what_cannot_be_chosen_is_marked() {
    let bed = bed();
    let wrong = by(&bed, "/callbacks?app=app-x&state=lost", "x");
    assert_eq!(wrong.status, 400);
    has(&wrong, &["id=\"state-wrong\""]);
    let wrong = by(&bed, "/callbacks?app=app-x&after=x", "x");
    assert_eq!(wrong.status, 400);
    has(&wrong, &["This page does not exist"]);
}
