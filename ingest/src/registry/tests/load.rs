//! Many schemas at once: neither memory nor the registry suffers.

use super::server::{Reply, Server, unknown};
use super::*;

/// More than may wait, each asked for once, a few at a time.
#[test]
fn ten_thousand_unknown_ids() {
    const IDS: u32 = 10_000;
    let server = Server::start(|_| unknown());
    let registry = Bed::of(&[&server]).start("unknown_schema_retry = \"1h\"");
    let mut left: Vec<u32> = (0..IDS).collect();
    until("all are settled", || {
        assert!(registry.health().waiting <= WAITING_MAX);
        left.retain(|number| matches!(registry.look_up(id(*number)), Lookup::Waiting));
        left.is_empty()
    });
    assert_eq!(registry.health().requests(RegistryOutcome::Unknown), u64::from(IDS));
    assert_eq!(server.requests().len(), IDS as usize);
    assert!(server.at_work_max() <= 4, "{}", server.at_work_max());
    // And nothing is asked for again within the time.
    for number in 0..IDS {
        assert!(matches!(registry.look_up(id(number)), Lookup::Unusable(_)), "{number}");
    }
    assert_eq!(server.requests().len(), IDS as usize);
}

/// A crowd of schemas knocks as seldom as one.
#[test]
fn a_registry_that_is_down_is_left_alone() {
    let server = Server::start(|_| Reply::Status(500, String::new()));
    let timing = Timing::default() / 10;
    let registry = Bed::of(&[&server]).start_with("", timing);
    let started = Instant::now();
    for number in 0..2_000 {
        check_waiting(&registry, id(number));
    }
    assert_eq!(registry.health().waiting, WAITING_MAX);
    until("a few probes", || server.requests().len() > 6);
    let probes = server.requests().len() as u64;
    // Those under way when it failed, the first probe, and then one in each interval.
    let intervals = started.elapsed().div_duration_f64(timing.registry_probe_interval) as u64;
    assert!(probes <= 4 + 1 + intervals + 1, "{probes}");
    server.set(|_| unknown());
    until("all are settled", || registry.health().waiting == 0);
}

/// One that is always answered with an error does not keep the others away.
#[test]
fn a_schema_that_breaks_the_registry_harms_itself_alone() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/0" => Reply::Status(500, String::new()),
        _ => unknown(),
    });
    let registry = Bed::of(&[&server]).start("");
    check_waiting(&registry, id(0));
    for number in 1..50 {
        check_unusable(&registry, id(number), UnusableKind::Unknown, "");
    }
    check_waiting(&registry, id(0));
}
