//! Alerts of endpoints that do not take callbacks, or not soon enough.

use super::*;
use crate::network::Network;

const OCEAN_ENGINE: &str = "preset = \"oceanengine\"\nchannels = [\"toutiao\"]\n";

/// A service that notifies this endpoint, whose answers have this status.
fn notifying(name: &str, endpoint: &str, status: u16, answer: &str) -> (Fixture, Network) {
    let network = Network::start();
    network.answer("/callback", status, answer);
    let url = network.url("/callback");
    let settings = format!(
        "[callbacks]\nsettle = \"0s\"\nallow_loopback = [\"localhost\"]\n\
         [[callbacks.endpoint]]\nname = \"network\"\nurl = \"{url}\"\n{endpoint}"
    );
    let kafka = Kafka::shared();
    (healthy(kafka, site(kafka, name, &settings).impatient()), network)
}

/// Produces a click and its activation.
fn attribute(fixture: &Fixture, number: u32) {
    let topics = &fixture.site.topics;
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let click = format!(
        r#"{{"type":"click","app":"app-x","spreadid":7,"click_id":"c-{number}","time":{},"params":{{"callback":"t"}}}}"#,
        now_ms - 60_000
    );
    let activation = format!(
        r#"{{"app":"app-x","event_id":"c-{number}","click_id":"c-{number}","time":{now_ms},"os":"android"}}"#
    );
    let messages = [(&*topics.clicks, click), (&*topics.activations, activation)];
    let messages = messages.map(|(topic, event)| (topic, Message::new("app-x", event)));
    Kafka::shared().produce_all(messages);
}

/// Attributes activations until these alerts fire, while the endpoint answers with this status.
#[track_caller]
fn check(name: &str, endpoint: &str, status: u16, expected: &str, allowed: &[&str]) {
    let (fixture, network) = notifying(name, endpoint, status, "");
    let mut number = 0;
    fixture.await_alerts_while(&[expected], allowed, || {
        number += 1;
        attribute(&fixture, number);
    });
    assert!(!network.received("/callback").is_empty());
}

#[test]
fn an_endpoint_that_fails_raises_an_alert() {
    let endpoint =
        "preset = \"webhook\"\ncredentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n";
    check("failing", endpoint, 500, "AdtrailCallbacksFailing", &[]);
}

#[test]
fn an_endpoint_that_refuses_callbacks_raises_an_alert() {
    check("dead", OCEAN_ENGINE, 403, "AdtrailCallbacksDead", &["AdtrailCallbacksFailing"]);
}

/// What waits for less than a minute does not count, so this takes a minute and a half.
#[test]
fn callbacks_that_become_too_old_raise_an_alert() {
    let endpoint = format!("{OCEAN_ENGINE}max_age = \"90s\"\nrequests_per_second_max = 1\n");
    let (fixture, network) = notifying("too-old", &endpoint, 200, "{\"code\":0}");
    (0..300).for_each(|number| attribute(&fixture, number));
    network.await_requests("/callback", 60);
    let outcomes = "adtrail_callbacks_outcomes_total";
    fixture.adtrail.await_metric(outcomes, "outcome=\"too_old\"", |count| count > 0.0);
    fixture.await_alerts(&["AdtrailCallbacksTooOld"], &[]);
}
