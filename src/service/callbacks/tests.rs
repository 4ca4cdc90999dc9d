//! Tests of the queue over a store on disk: what each endpoint gets, and what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use attribution::facts::canonical;
use attribution::facts::event::{
    Activation, Device, Effect, EventTime, Fact, Pid, Purpose, SpreadId, TouchFields, TouchKind,
};
use attribution::facts::match_keys::fact_key;
use attribution::outbox::MAX_AGE_MS_MAX;
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{CallbackKind, Counts, EndpointId, Tally};
use attribution::rules::policy::HOUR_MS;
use attribution::rules::row::EventType;
use attribution::worker::{Batch, Worker};
use callback::{Attempt, CallbackEvent, Claimed, Finished, Outcome, Queue, Shown};
use metrics_exporter_prometheus::PrometheusBuilder;
use store::embedded::Embedded;
use tempfile::TempDir;

use super::metrics::OutboxMetrics;
use super::queue::{Key, StoreQueue};
use super::unclaimed::expire_regularly;
use super::{Callbacks, now};
use crate::timing::Timing;

const LEASE: Duration = Duration::from_secs(60);
const MINUTE_MS: u64 = 60_000;

const CATALOGUE: &str = "[attribution]\ncorrection_horizon = \"off\"\n\
    [[apps]]\npid = 1\nkey = \"app-x\"\nname = \"X\"\n\
    [[channels]]\nid = \"a\"\n[[channels]]\nid = \"b\"\n\
    [[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"a\"\nname = \"Spring\"\n\
    [[campaigns]]\nspreadid = 8\npid = 1\nchannel = \"b\"\n\
    [callbacks]\nsettle = \"0s\"\n";

/// A network of a channel, with more lines.
fn network(name: &str, channel: &str, more: &str) -> String {
    format!(
        "[[callbacks.endpoint]]\nname = \"{name}\"\npreset = \"oceanengine\"\n\
         channels = [\"{channel}\"]\n{more}"
    )
}

const WEBHOOK: &str = "[[callbacks.endpoint]]\nname = \"hook\"\npreset = \"webhook\"\n\
    url = \"https://a.example/\"\ncredentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n";

struct Bed {
    worker: Worker<Embedded>,
    callbacks: Callbacks,
    queue: StoreQueue,
    /// The time of the first event.
    start: EventTime,
    _dir: TempDir,
}

impl Bed {
    fn new(endpoints: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config::parse(&format!("{CATALOGUE}{endpoints}")).unwrap();
        config.store.path = dir.path().join("store");
        let callbacks = Callbacks::new(&config).unwrap();
        let ledger = Embedded::open(&config.store, &config.policy).unwrap();
        let worker = Worker::new(ledger, Arc::clone(&config.policy));
        let worker = worker.with_interests(callbacks.interests());
        // Later than the clock of the commits, so that everything is due.
        let clock_ms = i64::try_from(now().plus(10 * MINUTE_MS).millis()).unwrap();
        let reader = worker.ledger().reader();
        let clock = Arc::new(move || clock_ms);
        let queue = StoreQueue::new(&reader, &config.policy, callbacks.endpoints(), clock);
        let start = now().minus(60 * MINUTE_MS);
        Self { worker, callbacks, queue: queue.with_lease(LEASE), start, _dir: dir }
    }

    /// The queue of a process with these endpoints, at a time.
    fn queue_with(&self, endpoints: &str, now: EventTime) -> StoreQueue {
        let config = config::parse(&format!("{CATALOGUE}{endpoints}")).unwrap();
        let callbacks = Callbacks::new(&config).unwrap();
        let now_ms = i64::try_from(now.millis()).unwrap();
        let clock = Arc::new(move || now_ms);
        let reader = self.worker.ledger().reader();
        StoreQueue::new(&reader, &config.policy, callbacks.endpoints(), clock)
    }

    fn at(&self, minute: u64) -> EventTime {
        self.start.plus(minute * MINUTE_MS)
    }

    fn process(&mut self, mut facts: Vec<Fact>) {
        facts.iter_mut().for_each(|fact| canonical::identify(fact, "app-x"));
        self.worker.process(Batch { facts, ..Batch::default() }).unwrap();
    }

    fn click(&self, spreadid: u32, id: &str, minute: u64) -> Fact {
        let pair = |name: &str, value: &str| (name.into(), value.into());
        let fields = TouchFields {
            pid: Pid(1),
            id: "".into(),
            click_id: id.into(),
            kind: TouchKind::Click,
            purpose: Purpose::Ua,
            spreadid: SpreadId(spreadid),
            time: self.at(minute),
            lookback_ms: None,
            ids: vec![pair("imei_md5", "0c2bd03c39f19845bf54ea0abafae70e"), pair("oaid", "d-1")],
            device: Device::default(),
            site: "site-1".into(),
            params: vec![
                pair("ad_id", "9"),
                pair("callback", &format!("token-{id}")),
                pair("gamer_id", "g-1"),
            ],
        };
        Fact::Touch(fields.into())
    }

    fn activation(&self, id: &str, minute: u64) -> Fact {
        Fact::Activation(Box::new(Activation {
            pid: Pid(1),
            id: id.into(),
            time: self.at(minute),
            install_begin_time: None,
            click_id: "".into(),
            ids: vec![("oaid".into(), "d-1".into())],
            device: Device { os: "android".into(), ip: "203.0.113.9".into(), ..Device::default() },
            app_version: "1.2".into(),
            props: vec![("store".into(), "x".into())],
        }))
    }

    fn effect(&self, id: &str, minute: u64) -> Fact {
        Fact::Effect(Box::new(Effect {
            pid: Pid(1),
            id: id.into(),
            name: "purchase".into(),
            time: self.at(minute),
            ids: vec![("oaid".into(), "d-1".into())],
            device: Device::default(),
            app_version: "".into(),
            revenue: "9.99".into(),
            currency: "CNY".into(),
            props: Vec::new(),
        }))
    }

    fn claim(&self, endpoint: &str) -> Vec<Claimed<Key>> {
        let now_ms = i64::try_from(self.queue.now().millis()).unwrap();
        self.queue.claim(endpoint, now_ms, 10, LEASE).unwrap().claimed
    }

    fn events(&self, endpoint: &str) -> Vec<CallbackEvent> {
        self.claim(endpoint).into_iter().map(|claimed| claimed.event).collect()
    }

    /// Claims everything of the endpoint, and sends it. Returns how much there was.
    fn send_all(&self, endpoint: &str) -> usize {
        self.send(self.claim(endpoint)).len()
    }

    /// Sends what was claimed, and returns it.
    fn send(&self, claimed: Vec<Claimed<Key>>) -> Vec<CallbackEvent> {
        let attempt = Attempt {
            at_ms: 1,
            status: Some(200),
            reason: "taken".into(),
            request: Shown::default(),
            maybe_sent: false,
            answer: "".into(),
        };
        let sent = Finished { outcome: Outcome::Sent, attempt: Some(attempt) };
        let (keys, events): (Vec<Key>, Vec<_>) =
            claimed.into_iter().map(|claimed| (claimed.key, claimed.event)).unzip();
        let finished: Vec<_> = keys.into_iter().map(|key| (key, sent.clone())).collect();
        self.queue.finish(&finished).unwrap();
        events
    }

    /// Returns the number of effects before this one.
    fn earlier(&self, endpoint: &str, id: &str) -> usize {
        let key = fact_key(EventType::Effect, Pid(1), id);
        let event = self.queue.describe(endpoint, key, CallbackKind::Effect).unwrap().unwrap();
        event.earlier.len()
    }

    /// Claims everything of the endpoint, which fails and is due again at this time.
    fn fail_all(&self, endpoint: &str, due: EventTime) {
        let outcome = Outcome::Retry { due_ms: i64::try_from(due.millis()).unwrap() };
        let finished = |claimed: Claimed<Key>| (claimed.key, Finished { outcome, attempt: None });
        let finished: Vec<_> = self.claim(endpoint).into_iter().map(finished).collect();
        assert!(!finished.is_empty());
        self.queue.finish(&finished).unwrap();
    }

    /// Returns how long callbacks have been overdue, in seconds.
    fn overdue(&self, endpoint: &str) -> Option<f64> {
        let recorder = PrometheusBuilder::new().build_recorder();
        let outbox =
            OutboxMetrics::new(&self.callbacks, &self.worker.ledger().reader(), &Timing::default());
        ::metrics::with_local_recorder(&recorder, || outbox.observe());
        let scrape = recorder.handle().render();
        let name = format!("adtrail_callbacks_overdue_seconds{{endpoint=\"{endpoint}\"}} ");
        scrape.lines().find_map(|line| line.strip_prefix(&*name)?.parse().ok())
    }

    /// Claims what is due for an endpoint at a time, and returns the metric of those that have become too old.
    fn too_old_at(&self, endpoint: &str, endpoints: &str, now: EventTime) -> Option<u64> {
        let recorder = PrometheusBuilder::new().build_recorder();
        let queue = self.queue_with(endpoints, now);
        let now_ms = i64::try_from(now.millis()).unwrap();
        let claim = || queue.claim(endpoint, now_ms, 10, LEASE).unwrap();
        let claims = ::metrics::with_local_recorder(&recorder, claim);
        assert_eq!(claims.claimed.len(), 0);
        let scrape = recorder.handle().render();
        let labels = format!("endpoint=\"{endpoint}\",outcome=\"too_old\"");
        let name = format!("adtrail_callbacks_outcomes_total{{{labels}}} ");
        scrape.lines().find_map(|line| line.strip_prefix(&*name)?.parse().ok())
    }

    fn tally(&self, endpoint: &str) -> Tally {
        let counts: Counts = self.queue.with_outbox(|outbox| outbox.counts()).unwrap();
        counts.get(&EndpointId::new(endpoint)).copied().unwrap_or_default()
    }
}

#[test]
fn a_network_gets_the_credit_with_its_token_and_the_ids_that_are_known() {
    let mut bed = Bed::new(&network("a", "a", ""));
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 2), bed.effect("e-1", 3)];
    bed.process(facts);
    let mut events = bed.events("a");
    events.sort_by_key(|event| event.time_ms);
    let [install, purchase] = &events[..] else { panic!("{events:?}") };
    assert_eq!((install.kind, purchase.kind), (CallbackKind::Activation, CallbackKind::Effect));
    assert_eq!((&*install.name, &*install.event_id), ("activation", "a-1"));
    assert_eq!((&*purchase.name, &*purchase.activation_id), ("purchase", "a-1"));
    assert_eq!((&*purchase.revenue, &*purchase.currency), ("9.99", "CNY"));
    assert_eq!((&*install.status, &*install.install_type), ("attributed", "install"));
    assert_eq!((&*install.os, &*install.ip), ("android", "203.0.113.9"));
    assert_eq!(&*install.props["store"], "x");
    for event in &events {
        assert_eq!((&*event.app, &*event.app_name), ("app-x", "X"));
        let credit = &event.credit;
        assert_eq!((&*credit.channel, credit.spreadid, &*credit.campaign), ("a", 7, "Spring"));
        assert_eq!((&*credit.callback, &*credit.click_id), ("token-c-1", "c-1"));
        assert_eq!((&*credit.params["ad_id"], &*credit.params["gamer_id"]), ("9", "g-1"));
        assert!(!credit.params.contains_key("callback"));
        assert_eq!((&*event.ids["oaid"], &*credit.site), ("d-1", "site-1"));
        assert_eq!(&*event.ids["imei_md5"], "0c2bd03c39f19845bf54ea0abafae70e");
    }
    assert_ne!(install.id, purchase.id);
    assert!(bed.claim("a").is_empty(), "their leases have not ended");
}

#[test]
fn credit_that_has_moved_is_dropped_or_withheld() {
    let endpoints = [network("a", "a", ""), network("b", "b", ""), WEBHOOK.to_owned()].concat();
    let mut bed = Bed::new(&endpoints);
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 5)];
    bed.process(facts);
    let moved = vec![bed.click(8, "c-2", 2)];
    bed.process(moved);
    assert_eq!(bed.send_all("a"), 0);
    assert_eq!(bed.tally("a"), Tally { made: 1, dropped: 1, ..Tally::default() });
    assert_eq!((bed.send_all("b"), bed.send_all("hook")), (1, 1));
    // After it was sent, other networks do not get it, and the webhook learns of the change.
    let moved = vec![bed.click(7, "c-3", 3)];
    bed.process(moved);
    assert_eq!(bed.send_all("a"), 0);
    assert_eq!(bed.tally("a"), Tally { made: 2, dropped: 1, withheld: 1, ..Tally::default() });
    let hooks = bed.events("hook");
    let [changed] = &hooks[..] else { panic!("{hooks:?}") };
    assert_eq!(changed.kind, CallbackKind::ActivationChanged);
    assert_eq!((changed.credit.spreadid, &*changed.credit.callback), (7, "token-c-3"));
    let previous = changed.previous.as_ref().unwrap();
    assert_eq!((previous.spreadid, &*previous.click_id), (8, "c-2"));
}

#[test]
fn a_webhook_of_a_channel_sees_no_click_of_another_one() {
    let mut bed = Bed::new(&format!("{WEBHOOK}channels = [\"a\"]\n"));
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 5)];
    bed.process(facts);
    assert_eq!(bed.send_all("hook"), 1);
    let moved = vec![bed.click(8, "c-2", 2)];
    bed.process(moved);
    let hooks = bed.send(bed.claim("hook"));
    let [changed] = &hooks[..] else { panic!("{hooks:?}") };
    assert_eq!((changed.kind, &*changed.status), (CallbackKind::ActivationChanged, "attributed"));
    assert_eq!(changed.credit, callback::Credit::default());
    assert_eq!(changed.ids.get("imei_md5"), None);
    assert_eq!(changed.previous.as_ref().map(|previous| previous.spreadid), Some(7));
    let back = vec![bed.click(7, "c-3", 3)];
    bed.process(back);
    let hooks = bed.events("hook");
    let changed = hooks.iter().find(|hook| hook.kind == CallbackKind::ActivationChanged);
    let changed = changed.expect("the credit has changed");
    assert_eq!((changed.credit.spreadid, changed.previous.as_ref()), (7, None));
}

#[test]
fn credit_that_moves_while_it_is_sent_waits() {
    let mut bed = Bed::new(&[network("a", "a", ""), network("b", "b", "")].concat());
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 5)];
    bed.process(facts);
    let claimed = bed.claim("a").remove(0);
    let moved = vec![bed.click(8, "c-2", 2)];
    bed.process(moved);
    assert_eq!(bed.send_all("b"), 0);
    assert_eq!(bed.tally("b"), Tally { made: 1, ..Tally::default() });
    // The network has refused it.
    let finished = Finished { outcome: Outcome::Dead, attempt: None };
    bed.queue.finish(&[(claimed.key, finished)]).unwrap();
    let later_ms = i64::try_from(bed.queue.now().plus(2 * MINUTE_MS).millis()).unwrap();
    assert_eq!(bed.queue.claim("b", later_ms, 10, LEASE).unwrap().claimed.len(), 1);
}

#[test]
fn a_claim_says_that_there_is_more_to_settle() {
    let mut bed = Bed::new(&[network("a", "a", ""), network("b", "b", "")].concat());
    let mut facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 5)];
    facts.extend((0..20).map(|number| bed.effect(&format!("e-{number}"), 6)));
    bed.process(facts);
    let moved = vec![bed.click(8, "c-2", 2)];
    bed.process(moved);
    let now_ms = i64::try_from(bed.queue.now().millis()).unwrap();
    let claims: Vec<_> = (0..2).map(|_| bed.queue.claim("a", now_ms, 1, LEASE).unwrap()).collect();
    assert!(claims.iter().all(|claims| claims.claimed.is_empty()));
    assert_eq!([claims[0].has_more, claims[1].has_more], [true, false]);
    assert_eq!(bed.tally("a"), Tally { made: 21, dropped: 21, ..Tally::default() });
}

#[test]
fn an_effect_waits_for_its_activation() {
    let mut bed = Bed::new(&network("a", "a", ""));
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 2), bed.effect("e-1", 3)];
    bed.process(facts);
    let claimed = bed.claim("a");
    let of_kind = |kind| claimed.iter().find(|claimed| claimed.event.kind == kind).unwrap();
    let (install, purchase) = (of_kind(CallbackKind::Activation), of_kind(CallbackKind::Effect));
    let wait = bed.queue.pending_activation_ms(&purchase.key).unwrap().unwrap();
    let now_ms = i64::try_from(bed.queue.now().millis()).unwrap();
    assert!((now_ms..now_ms + 60_000).contains(&wait), "{wait} at {now_ms}");
    assert_eq!(bed.queue.pending_activation_ms(&install.key).unwrap(), None);
    let finished = Finished { outcome: Outcome::Dead, attempt: None };
    bed.queue.finish(&[(install.key.clone(), finished)]).unwrap();
    assert_eq!(bed.queue.pending_activation_ms(&purchase.key).unwrap(), None);
}

#[test]
fn an_effect_after_a_reinstall_waits_for_the_install_whose_credit_it_has() {
    let mut bed = Bed::new(&network("a", "a", ""));
    let facts = vec![
        bed.click(7, "c-1", 1),
        bed.activation("a-1", 2),
        bed.activation("a-2", 5),
        bed.effect("e-1", 6),
    ];
    bed.process(facts);
    let claimed = bed.claim("a");
    let events: Vec<_> = claimed.iter().map(|claimed| &*claimed.event.event_id).collect();
    assert_eq!(events, ["a-1", "e-1"]);
    assert_eq!(&*claimed[1].event.activation_id, "a-2");
    assert!(bed.queue.pending_activation_ms(&claimed[1].key).unwrap().is_some());
}

#[test]
fn earlier_effects_are_read_for_endpoints_that_need_them() {
    let first = network("first", "a", "first_only = true\n");
    let mut bed = Bed::new(&[network("a", "a", ""), first].concat());
    let facts = vec![
        bed.click(7, "c-1", 1),
        bed.activation("a-1", 2),
        bed.effect("e-1", 3),
        bed.effect("e-2", 4),
        bed.effect("e-3", 5),
    ];
    bed.process(facts);
    assert_eq!(["e-1", "e-2", "e-3"].map(|id| bed.earlier("first", id)), [0, 1, 2]);
    assert_eq!(bed.earlier("a", "e-3"), 0);
}

#[test]
fn of_effects_at_one_time_one_is_the_first() {
    let mut bed = Bed::new(&network("first", "a", "first_only = true\n"));
    let facts = vec![
        bed.click(7, "c-1", 1),
        bed.activation("a-1", 2),
        bed.effect("e-3", 3),
        bed.effect("e-1", 3),
        bed.effect("e-2", 3),
    ];
    bed.process(facts);
    assert_eq!(["e-1", "e-2", "e-3"].map(|id| bed.earlier("first", id)), [0, 1, 2]);
}

#[tokio::test]
async fn callbacks_of_an_endpoint_that_is_not_in_the_settings_end_after_some_days() {
    let mut bed = Bed::new(&[network("a", "a", ""), WEBHOOK.to_owned()].concat());
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 2), bed.effect("e-1", 3)];
    bed.process(facts);
    let pending = Tally { made: 2, ..Tally::default() };
    for (elapsed_ms, expected) in [
        (MAX_AGE_MS_MAX - HOUR_MS, pending),
        (MAX_AGE_MS_MAX + HOUR_MS, Tally { too_old: 2, ..pending }),
    ] {
        let queue = Arc::new(bed.queue_with(WEBHOOK, now().plus(elapsed_ms)));
        expire_regularly(move || Arc::clone(&queue), LEASE, std::future::ready(())).await.unwrap();
        assert_eq!(bed.tally("a"), expected);
        assert_eq!(bed.tally("hook"), pending);
    }
}

#[test]
fn what_becomes_too_old_while_it_waits_is_counted() {
    let endpoints = network("a", "a", "");
    let mut bed = Bed::new(&endpoints);
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 2), bed.effect("e-1", 3)];
    bed.process(facts);
    // The host fails, so that the effect gets no attempt.
    let install = bed.claim("a").into_iter().map(|claimed| {
        let outcome = match claimed.event.kind.is_effect() {
            true => Outcome::Postponed { due_ms: claimed.event.time_ms },
            false => Outcome::Dead,
        };
        (claimed.key, Finished { outcome, attempt: None })
    });
    bed.queue.finish(&install.collect::<Vec<_>>()).unwrap();
    assert_eq!(bed.too_old_at("a", &endpoints, now().plus(25 * HOUR_MS)), Some(1));
    let tally = Tally { made: 2, dead: 1, too_old: 1, ..Tally::default() };
    assert_eq!(bed.tally("a"), tally);
}

/// The events of a backfill have every age.
#[test]
fn what_was_about_to_be_too_old_when_it_was_decided_is_not_counted() {
    let endpoints = network("a", "a", "max_age = \"3510s\"\n");
    let mut bed = Bed::new(&endpoints);
    // Decided when it is 58 minutes old, half a minute before it is too old.
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 2)];
    bed.process(facts);
    let event = fact_key(EventType::Activation, Pid(1), "a-1");
    let record = bed.queue.with_outbox(|outbox| outbox.records_of(&[event])).unwrap().remove(0);
    let decided = record.unwrap().entries.remove(0).changed;
    assert_eq!(bed.too_old_at("a", &endpoints, decided.plus(50_000)), None);
    assert_eq!(bed.tally("a"), Tally { made: 1, too_old: 1, ..Tally::default() });
}

#[test]
fn callbacks_are_overdue_since_the_first_one_was_due() {
    let mut bed = Bed::new(&[network("a", "a", ""), WEBHOOK.to_owned()].concat());
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 2)];
    bed.process(facts);
    bed.fail_all("a", now().plus(5 * MINUTE_MS));
    assert_eq!(bed.overdue("a"), Some(0.0), "it is not due yet");
    bed.fail_all("a", now().minus(5 * HOUR_MS));
    let facts = vec![bed.effect("e-1", 3)];
    bed.process(facts);
    let five_hours = Some(5.0 * 3_600.0)..Some(6.0 * 3_600.0);
    assert!(five_hours.contains(&bed.overdue("a")), "{:?}", bed.overdue("a"));
    assert_eq!(bed.send_all("hook"), 2);
    assert_eq!(bed.overdue("hook"), Some(0.0));
}

#[test]
fn outcomes_are_kept_with_their_reasons() {
    let mut bed = Bed::new(&network("a", "a", ""));
    let facts = vec![bed.click(7, "c-1", 1), bed.activation("a-1", 2)];
    bed.process(facts);
    let claimed = bed.claim("a").remove(0);
    let later_ms = i64::try_from(bed.queue.now().plus(5 * MINUTE_MS).millis()).unwrap();
    let attempt = Attempt {
        at_ms: 1,
        status: Some(500),
        reason: "status 500".into(),
        request: Shown::default(),
        maybe_sent: false,
        answer: "busy".into(),
    };
    let outcome = Outcome::Retry { due_ms: later_ms };
    let finished = Finished { outcome, attempt: Some(attempt) };
    let event = claimed.key.event();
    bed.queue.finish(&[(claimed.key, finished)]).unwrap();
    let record = bed.queue.with_outbox(|outbox| outbox.records_of(&[event])).unwrap().remove(0);
    let entry = record.unwrap().entries.remove(0);
    assert_eq!((&*entry.note, entry.attempt), ("status 500\nresponse: busy", 1));
    assert_eq!(entry.due.millis(), u64::try_from(later_ms).unwrap());
    assert!(bed.claim("a").is_empty(), "it is not due");
    assert!(bed.queue.claim("other", later_ms, 1, LEASE).is_err());
}
