//! Tests of where requests go, and how long they may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::super::queue::{Finished, Outcome};
use super::super::timing::Timing;
use super::mock::{Answer, Mock};
use super::{NOW_MS, found, lookup, sender, sender_with, timing};
use crate::event::tests::activation;
use crate::event::{CallbackEvent, Credit};
use crate::resolver::Lookup;

const KUAISHOU: &str = "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"kuaishou\"\n";

/// Sends an activation whose callback is this URL, with names at this address.
async fn send_to(callback: &str, lookup: Lookup) -> Finished {
    let (sender, _) = sender_with(KUAISHOU, timing(), lookup);
    let event = activation();
    let credit = Credit { callback: callback.into(), ..event.credit };
    let event = CallbackEvent { credit, ..event };
    sender.try_once(&sender.endpoints()[0], &event).await
}

fn reason(finished: &Finished) -> &str {
    &finished.attempt.as_ref().unwrap().reason
}

#[tokio::test]
async fn a_name_with_a_refused_address_gets_no_request() {
    for (address, class) in [
        ("127.0.0.1", "a loopback address"),
        ("::1", "a loopback address"),
        ("10.1.2.3", "a private address"),
        ("169.254.169.254", "a link-local address"),
        ("100.100.100.200", "an address of carrier-grade NAT"),
        ("224.0.0.1", "a multicast address"),
        ("::ffff:127.0.0.1", "an address that is not global"),
        ("64:ff9b::7f00:1", "an address that is not global"),
        ("fd00::1", "an address that is not global"),
    ] {
        let callback = "https://ad.partner.gifshow.com/track/activate?callback=t";
        let finished = send_to(callback, lookup(address)).await;
        assert_eq!(reason(&finished), format!("refused: the host has {class}"));
        assert!(matches!(finished.outcome, Outcome::Retry { .. }), "the name may be repaired");
        assert!(!finished.attempt.unwrap().maybe_sent, "nothing was sent");
    }
}

#[tokio::test]
async fn a_url_of_a_click_leads_to_the_network_only() {
    for callback in [
        "https://evil.example/",
        "https://ad.partner.gifshow.com.evil.example/",
        "https://ad.partner.gifshow.com@evil.example/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://[::ffff:127.0.0.1]/",
        "http://localhost:8081/metrics",
        "https://ad.partner.gifshow.com:6443/",
        "http%3A%2F%2F169.254.169.254%2F",
    ] {
        let finished = send_to(callback, lookup("127.0.0.1")).await;
        assert_eq!(finished.outcome, Outcome::Dead, "{callback}");
        assert_eq!(finished.attempt.unwrap().status, None);
    }
}

/// The second answer of the DNS would be another address; it is not asked for.
#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let mock = Mock::start();
    mock.answers(Answer::Reply(200, "{\"result\":1}".to_owned()));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let changing: Lookup = Arc::new(move |_| {
        let address = match counted.fetch_add(1, Ordering::SeqCst) {
            0 => "127.0.0.1",
            _ => "10.0.0.1",
        };
        Box::pin(found(address.parse().unwrap()))
    });
    let url = mock.url("/track?callback={callback|url}");
    let settings =
        format!("[callbacks]\nallow_loopback = [\"localhost\"]\n{KUAISHOU}url = \"{url}\"\n");
    let (sender, _) = sender_with(&settings, timing(), changing);
    let endpoint = &sender.endpoints()[0];
    let finished = sender.try_once(endpoint, &activation()).await;
    assert_eq!((finished.outcome, asked.load(Ordering::SeqCst)), (Outcome::Sent, 1));
    // The mock closes each connection, so that the next request needs the name again.
    let finished = sender.try_once(endpoint, &activation()).await;
    assert_eq!(reason(&finished), "refused: the host has a private address");
    assert_eq!(mock.received().len(), 1);
}

#[tokio::test]
async fn a_silent_server_is_a_failure() {
    let mock = Mock::start();
    mock.answers(Answer::Silence);
    let url = mock.url("/track?callback={callback|url}");
    let settings =
        format!("[callbacks]\nallow_loopback = [\"localhost\"]\n{KUAISHOU}url = \"{url}\"\n");
    let timing = Timing { request_timeout: Duration::from_millis(200), ..timing() };
    let (sender, _) = sender_with(&settings, timing, lookup("127.0.0.1"));
    let finished = sender.try_once(&sender.endpoints()[0], &activation()).await;
    assert_eq!(reason(&finished), "no response within 200ms");
    assert!(matches!(finished.outcome, Outcome::Retry { .. }));
    assert!(finished.attempt.unwrap().maybe_sent);
}

/// Otherwise its lease could end while it waits.
#[tokio::test]
async fn a_callback_does_not_wait_long_for_others_of_its_host() {
    let mock = Mock::start();
    mock.answers(Answer::Silence);
    let url = mock.url("/track?callback={callback|url}");
    let settings = format!(
        "[callbacks]\nallow_loopback = [\"localhost\"]\n{KUAISHOU}in_flight_max = 1\nurl = \"{url}\"\n"
    );
    let timing = Timing { rate_wait_max: Duration::from_millis(50), ..timing() };
    let (sender, _) = sender_with(&settings, timing, lookup("127.0.0.1"));
    let (endpoint, event) = (&sender.endpoints()[0], activation());
    let finished = tokio::select! {
        biased;
        first = sender.try_once(endpoint, &event) => panic!("it has no response: {first:?}"),
        second = sender.try_once(endpoint, &event) => second,
    };
    assert_eq!(finished.outcome, Outcome::Postponed { due_ms: NOW_MS + 500 });
}

#[tokio::test]
async fn a_long_response_is_read_up_to_its_limit() {
    let mock = Mock::start();
    let url = mock.url("/track?callback={callback|url}");
    let (sender, _) = sender(&format!("{KUAISHOU}url = \"{url}\"\n"));
    let event = activation();
    let send = |answer: Answer| {
        mock.answers(answer);
        sender.try_once(&sender.endpoints()[0], &event)
    };
    let body = format!("{{\"result\":1}}{}", " ".repeat((64 << 10) - 12));
    assert_eq!(send(Answer::Reply(200, body.clone())).await.outcome, Outcome::Sent);
    // What would follow is not waited for.
    assert_eq!(send(Answer::Unfinished(body)).await.outcome, Outcome::Sent);
    let cut = format!("{}{{\"result\":1}}", " ".repeat(64 << 10));
    let finished = send(Answer::Reply(200, cut)).await;
    assert_eq!(reason(&finished), "status 200, but the body is not JSON");
}
