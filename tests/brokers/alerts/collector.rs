//! Alerts of processes that collect.

use testbed::disk::flip_bit;
use testbed::http;

use super::*;

/// A process that only collects, and the address of its collector.
fn collector(kafka: &Kafka, name: &str, more: &str) -> (Fixture, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let settings =
        format!("[collect]\nlisten = \"{address}\"\nacknowledgement_timeout = \"500ms\"\n{more}");
    let site = site(kafka, name, &settings);
    let fixture = Fixture::of(site.start_role("collect"), site);
    (fixture, address)
}

#[track_caller]
fn click(address: &str, status: u16) {
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let path = format!("/click/app-x/toutiao?spreadid=7&click_id=c-{now_ms}&time={now_ms}");
    let reply = http::get(address, &path).expect("the collector responds");
    assert_eq!(reply.status, status, "{reply:?}");
}

/// Without a spool requests fail, and with one their events are on disk, where they are damaged afterwards.
#[test]
fn a_killed_broker_and_a_damaged_spool_raise_alerts() {
    let mut kafka = Kafka::start();
    let (plain, plain_address) = collector(&kafka, "plain", "");
    let (spooling, address) = collector(&kafka, "spooling", "spool = \"spool\"\n");
    for (fixture, address) in [(&plain, &plain_address), (&spooling, &address)] {
        click(address, 200);
        fixture.await_evaluated();
    }
    kafka.kill9();
    plain.await_alerts_while(&["AdtrailCollectorUnavailable"], &[], || click(&plain_address, 503));
    (0..3).for_each(|_| click(&address, 200));
    spooling.await_alerts(&["AdtrailCollectorSpooling"], &[]);

    let Fixture { adtrail, site, .. } = spooling;
    adtrail.kill9();
    let files = std::fs::read_dir(site.path().join("spool")).expect("the spool exists");
    let mut files = files.map(|file| file.expect("the spool can be read").path());
    let segment = files.find(|file| file.extension().is_some_and(|name| name == "events"));
    flip_bit(&segment.expect("the spool has a segment"));
    kafka.restart();
    let fixture = Fixture::of(site.start_role("collect"), site);
    fixture.await_alerts(&["AdtrailCollectorSpoolDamaged"], &["AdtrailCollectorSpooling"]);
}
