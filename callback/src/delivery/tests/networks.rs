//! Every preset against a server that checks its request and answers by script.

use std::collections::BTreeSet;
use std::sync::Arc;

use attribution::outbox::record::CallbackKind;

use super::super::queue::{Finished, Outcome};
use super::mock::{Answer, Mock};
use super::table::{ENCRYPTED_OAID, NETWORKS, Network, WEBHOOK_SECRET};
use super::{NOW_MS, sender};
use crate::Sender;
use crate::event::tests::{OAID, activation, event};
use crate::event::{CallbackEvent, Credit};
use crate::preset::catalogue::Presets;
use crate::webhook::WebhookKeys;

/// A network with its server.
struct Site {
    mock: Mock,
    sender: Sender,
    event: CallbackEvent,
}

impl Network {
    fn site(&self) -> Site {
        let mock = Mock::start();
        let url = mock.url(self.path);
        let of_settings =
            if self.callback_is_url { String::new() } else { format!("url = \"{url}\"\n") };
        let (sender, _) = sender(&format!(
            "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"{}\"\nrequests_per_second_max = 10000\n{of_settings}{}\n",
            self.preset, self.lines
        ));
        let callback = if self.callback_is_url { url } else { "token/1=".to_owned() };
        Site { mock, sender, event: self.event(&callback) }
    }

    fn event(&self, callback: &str) -> CallbackEvent {
        // Unity takes activations only.
        let event = if self.preset == "unity" { activation() } else { event() };
        let mut credit = Credit { callback: callback.into(), ..event.credit };
        for (name, value) in [("ad_id", "123"), ("creative_id", "cr"), ("gamer_id", "gamer-1")] {
            credit.params.insert(name.into(), value.into());
        }
        let mut ids = event.ids;
        ids.insert("gaid".into(), "GAID-1".into());
        let is_webhook = matches!(self.preset, "webhook" | "appsflyer_push");
        let kind = if is_webhook { CallbackKind::EffectAttributed } else { event.kind };
        CallbackEvent { kind, credit, ids, ..event }
    }
}

impl Site {
    async fn send(&self, answer: Answer) -> Finished {
        self.mock.answers(answer);
        let endpoint = &self.sender.endpoints()[0];
        self.sender.try_once(endpoint, &self.event).await
    }
}

fn reply(status: u16, body: &str) -> Answer {
    Answer::Reply(status, body.to_owned())
}

#[test]
fn every_preset_is_tested() {
    let presets = Presets::load(&config::Callbacks::default()).unwrap();
    for preset in presets.iter() {
        let is_tested = NETWORKS.iter().any(|network| *network.preset == *preset.name);
        assert!(is_tested, "{}", preset.name);
    }
}

#[tokio::test]
async fn requests_are_what_each_network_expects() {
    for network in &NETWORKS {
        let site = network.site();
        let finished = site.send(reply(200, network.success)).await;
        let name = network.preset;
        assert_eq!(finished.outcome, Outcome::Sent, "{name}: {finished:?}");
        let received = site.mock.received();
        let [received] = &received[..] else { panic!("{name}: one request is expected") };
        assert_eq!(received.method, network.method, "{name}");
        for (parameter, expected) in network.query {
            assert_eq!(
                received.parameter(parameter).as_deref(),
                Some(*expected),
                "{name} {parameter}"
            );
        }
        for (pointer, expected) in network.body {
            let found = received.json().pointer(pointer).map(ToString::to_string);
            assert_eq!(found.as_deref(), Some(*expected), "{name} {pointer}");
        }
        assert_eq!(received.body.is_empty(), network.body.is_empty(), "{name}");
        (network.check)(received);
    }
}

#[tokio::test]
async fn what_is_kept_of_a_request_has_no_ids_and_no_tokens() {
    for network in &NETWORKS {
        let site = network.site();
        let callback = &site.event.credit.callback;
        let answer = format!("{} {callback} {OAID} GAID-1 203.0.113.9", network.success);
        let finished = site.send(reply(500, &answer)).await;
        let shown = format!("{:?}", finished.attempt.unwrap());
        for private in [
            "token/1=",
            "token%2F1%3D",
            OAID,
            "GAID-1",
            "gaid-1",
            "token-1",
            "t%2B1",
            "203.0.113.9",
            "cb=x",
            "gamer-1",
        ] {
            assert!(!shown.contains(private), "{}: {private} in {shown}", network.preset);
        }
    }
}

/// Some servers answer with what they have compared, or with the whole request.
#[tokio::test]
async fn what_is_kept_of_a_response_has_no_signatures_and_no_encrypted_ids() {
    let mut signed = BTreeSet::new();
    for network in &NETWORKS {
        let (site, name) = (network.site(), network.preset);
        let finished = site.send(Answer::Echo(500)).await;
        let shown = finished.attempt.unwrap().answer;
        let received = site.mock.received().remove(0);
        let signatures = received.signatures();
        if !signatures.is_empty() {
            signed.insert(name);
        }
        for private in signatures.iter().map(|one| &**one).chain([OAID, ENCRYPTED_OAID, "token-1"])
        {
            assert!(!shown.contains(private), "{name}: {private} in {shown}");
        }
    }
    assert_eq!(Vec::from_iter(signed), ["baidu", "huawei", "oppo", "webhook", "xiaomi"]);
}

#[tokio::test]
async fn failures_are_tried_again_or_not() {
    for network in &NETWORKS {
        let (site, name) = (network.site(), network.preset);
        let is_retry = |finished: &Finished| matches!(finished.outcome, Outcome::Retry { .. });
        if let Some(error) = network.error {
            let finished = site.send(reply(200, error)).await;
            assert!(is_retry(&finished), "{name}: {finished:?}");
        }
        for (status, retried) in
            [(400, false), (403, false), (404, false), (408, true), (500, true), (503, true)]
        {
            let finished = site.send(reply(status, network.success)).await;
            assert_eq!(is_retry(&finished), retried, "{name} {status}");
            assert_eq!(finished.outcome == Outcome::Dead, !retried, "{name} {status}");
            let attempt = finished.attempt.unwrap();
            assert_eq!((attempt.status, attempt.maybe_sent), (Some(status), false));
        }
        let finished = site.send(reply(504, "")).await;
        assert!(is_retry(&finished) && finished.attempt.unwrap().maybe_sent, "{name}");
        let finished = site.send(Answer::HangUp).await;
        assert!(is_retry(&finished), "{name}: {finished:?}");
        assert!(finished.attempt.unwrap().maybe_sent, "{name}: it has received the request");
        site.mock.received();
        // It leads to the same server.
        let moved = Answer::With(302, "Location: /moved", network.success.to_owned());
        let finished = site.send(moved).await;
        assert!(is_retry(&finished), "{name}: {finished:?}");
        assert_eq!(finished.attempt.unwrap().status, Some(302), "{name}");
        assert_eq!(site.mock.received().len(), 1, "{name}: a redirect is not followed");
        let finished = site.send(Answer::With(429, "Retry-After: 120", String::new())).await;
        assert_eq!(finished.outcome, Outcome::Retry { due_ms: NOW_MS + 120_000 }, "{name}");
    }
}

#[tokio::test]
async fn a_network_says_what_it_refuses_for_good() {
    let tencent = NETWORKS.iter().find(|network| network.preset == "tencent").unwrap();
    let finished = tencent.site().send(reply(200, "{\"code\":20001}")).await;
    assert_eq!(finished.outcome, Outcome::Dead);
    assert_eq!(&*finished.attempt.unwrap().reason, "status 200, code 20001");
}

#[tokio::test]
async fn a_webhook_is_signed_with_both_secrets_during_a_rotation() {
    let mock = Mock::start();
    let (sender, _) = sender(&format!(
        "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"webhook\"\nurl = \"{}\"\n\
         credentials.secret = \"whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\"\n\
         credentials.previous_secret = \"{WEBHOOK_SECRET}\"\n",
        mock.url("/hook")
    ));
    let endpoint: &Arc<_> = &sender.endpoints()[0];
    let event = CallbackEvent { kind: CallbackKind::EffectAttributed, ..event() };
    let finished = sender.try_once(endpoint, &event).await;
    assert_eq!(finished.outcome, Outcome::Sent);
    let received = mock.received().remove(0);
    let signatures = received.header("webhook-signature").unwrap();
    let old = WebhookKeys::parse([WEBHOOK_SECRET]).unwrap();
    let expected = old.sign("cb_1", NOW_MS / 1_000, received.body.as_bytes());
    assert!(signatures.ends_with(&format!(" {expected}")), "{signatures}");
    assert_eq!(signatures.split(' ').count(), 2);
}

#[tokio::test]
async fn a_changed_credit_has_the_previous_one() {
    let mock = Mock::start();
    let (sender, _) = sender(&format!(
        "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"webhook\"\nurl = \"{}\"\n\
         credentials.secret = \"{WEBHOOK_SECRET}\"\n",
        mock.url("/hook")
    ));
    let previous = Credit { channel: "other".into(), spreadid: 9, ..Credit::default() };
    let changed = CallbackEvent {
        kind: CallbackKind::ActivationChanged,
        previous: Some(previous),
        ..activation()
    };
    sender.try_once(&sender.endpoints()[0], &changed).await;
    let json = mock.received()[0].json();
    assert_eq!(json["type"], "activation.changed");
    assert_eq!(json["data"]["previous"]["channel"], "other");
    assert_eq!(json["data"]["channel"], "toutiao");
    assert_eq!(json["data"]["previous"]["spreadid"], 9);
}
