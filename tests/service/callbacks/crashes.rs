//! A process that crashes between the steps of a callback, or is killed: it is sent at least once, always with the same
//! id.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;

use testbed::kafka::Kafka;
use testbed::length;
use testbed::site::Site;

use super::*;

const SIGABRT: i32 = 6;

/// The crash points of delivery.
#[cfg(feature = "crash-points")]
pub const POINTS: &[&str] =
    &["callback-settled", "callback-claimed", "callback-sent", "callback-finished"];

fn site(name: &str, network: &Network) -> Site {
    network.answer("/hook", 200, "");
    Site::new(Kafka::shared(), name, 2, &settings(&webhook(network, ""))).impatient()
}

/// Checks that each of these events was sent, and that all requests about one event have one id.
#[track_caller]
fn check_sent(network: &Network, events: usize) {
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for hook in network.received("/hook") {
        let event = hook.json()["data"]["event_id"].to_string();
        ids.entry(event).or_default().insert(hook.headers["webhook-id"].clone());
    }
    assert_eq!(ids.len(), events, "{ids:?}");
    assert!(ids.values().all(|of_event| of_event.len() == 1), "{ids:?}");
}

/// Starts processes that crash at the point, and then one that sends everything.
fn check(point: &str) {
    let network = Network::start();
    let site = site(&format!("callbacks.{point}"), &network);
    let crashes = length(2, 16);
    for number in 0..crashes {
        for part in 0..2 {
            let device = 2 * number as u64 + part;
            produce(&site, &click(1, &format!("c-{device}"), device, 30 * MINUTE_MS));
            produce(&site, &activation(&format!("a-{device}"), device, 20 * MINUTE_MS));
        }
        // What the process before has left is due at once, so this one may crash before it is ready.
        let points = format!("{point}=return");
        let (status, log) = site.spawn_with(&[("FAILPOINTS", &points)]).wait();
        assert_eq!(status.signal(), Some(SIGABRT), "{point}: {status}: {log}");
    }
    let adtrail = site.start();
    await_state(&adtrail, "hook", "sent", 2 * crashes);
    check_sent(&network, 2 * crashes);
    check_conserved(&adtrail);
}

#[test]
fn before_a_callback_is_claimed() {
    check("callback-settled");
}

#[test]
fn before_a_callback_is_sent() {
    check("callback-claimed");
}

#[test]
fn before_it_is_noted_that_a_callback_was_sent() {
    check("callback-sent");
}

#[test]
fn after_a_callback_is_finished() {
    check("callback-finished");
}

#[test]
fn a_service_that_is_killed_loses_no_callback() {
    let network = Network::start();
    let site = site("callbacks.killed", &network);
    let kills = length(3, 150);
    let mut device = 0;
    for _ in 0..kills {
        let adtrail = site.start();
        let before = network.received("/hook").len();
        for _ in 0..20 {
            produce(&site, &click(1, &format!("c-{device}"), device, 30 * MINUTE_MS));
            produce(&site, &activation(&format!("a-{device}"), device, 20 * MINUTE_MS));
            device += 1;
        }
        network.await_requests("/hook", before + 1);
        adtrail.kill9();
    }
    let adtrail = site.start();
    let events = usize::try_from(device).expect("it is small");
    await_state(&adtrail, "hook", "sent", events);
    check_sent(&network, events);
    check_conserved(&adtrail);
}
