//! Many schemas at once: memory and the load on the registry stay bounded.

use super::server::{Reply, Server, unknown};
use super::*;

/// More keys than may wait. Each is requested once, with few concurrent requests.
#[test]
fn ten_thousand_unknown_ids_are_each_requested_once() {
    const IDS: u32 = 10_000;
    let server = Server::start(|_| unknown());
    let registry = Fixture::for_servers(&[&server]).start("unknown_schema_retry = \"1h\"");
    let mut unsettled: Vec<u32> = (0..IDS).collect();
    wait_until("all keys are settled", || {
        assert!(registry.health().waiting <= WAITING_MAX);
        unsettled.retain(|number| matches!(registry.look_up(id(*number)), SchemaLookup::Waiting));
        unsettled.is_empty()
    });
    assert_eq!(registry.health().requests(RegistryOutcome::Unknown), u64::from(IDS));
    assert_eq!(server.requests().len(), IDS as usize);
    assert!(server.in_flight_max() <= 4, "{}", server.in_flight_max());
    // Nothing is requested again within the retry interval.
    for number in 0..IDS {
        assert!(matches!(registry.look_up(id(number)), SchemaLookup::Unusable(_)), "{number}");
    }
    assert_eq!(server.requests().len(), IDS as usize);
}

/// Many waiting schemas are probed no more often than one.
#[test]
fn a_registry_that_is_down_is_probed_once_per_interval() {
    let server = Server::start(|_| Reply::Status(500, String::new()));
    let timing = Timing::default() / 10;
    let registry = Fixture::for_servers(&[&server]).start_with("", timing);
    let started = Instant::now();
    for number in 0..2_000 {
        check_waiting(&registry, id(number));
    }
    assert_eq!(registry.health().waiting, WAITING_MAX);
    wait_until("a few probes are sent", || server.requests().len() > 6);
    let probes = server.requests().len() as u64;
    // The requests in flight when it failed, the first probe, and then one per interval.
    let intervals = started.elapsed().div_duration_f64(timing.registry_probe_interval) as u64;
    assert!(probes <= 4 + 1 + intervals + 1, "{probes}");
    server.set(|_| unknown());
    wait_until("all keys are settled", || registry.health().waiting == 0);
}

/// A schema that always gets an error does not block the others, and the registry counts as answering.
#[test]
fn a_schema_that_always_fails_does_not_block_others() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/0" => Reply::Status(500, String::new()),
        _ => unknown(),
    });
    let registry = Fixture::for_servers(&[&server]).start("");
    check_waiting(&registry, id(0));
    for number in 1..50 {
        check_unusable(&registry, id(number), UnusableKind::Unknown, "");
    }
    wait_until("a request fails", || registry.health().requests(RegistryOutcome::Failed) > 0);
    check_waiting(&registry, id(0));
    assert!(registry.health().is_answering);
}
