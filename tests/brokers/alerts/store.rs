//! Alerts of the store.

use testbed::faults::Faults;

use super::*;

/// All events are of one app, so that one region takes all rows.
#[test]
fn a_hot_region_raises_an_alert() {
    let kafka = Kafka::shared();
    let site = site(kafka, "region", "");
    let adtrail = site.start();
    let lower = [("{of=\"largest\"} > 1000\n", "{of=\"largest\"} > 10\n")];
    let rules = replace_all(rules(), &lower);
    let prometheus = Prometheus::start_with(&[&adtrail.admin], "adtrail", &rules);
    let fixture = Fixture { adtrail, prometheus, site };
    fixture.await_evaluated();
    fixture.produce((0..2_000).map(event));
    fixture.await_alerts(&["AdtrailRegionsUneven"], &WAITING);
}

/// Flushes take so long that the write buffers fill up.
#[test]
fn a_slow_disk_raises_an_alert() {
    let kafka = Kafka::shared();
    let site = site(kafka, "slow", "").set("store.memory", "32MiB");
    let faults = Faults::of(&site);
    let fixture = Fixture::of(faults.start(&site), site);
    fixture.await_evaluated();
    faults.delay_table_writes(Duration::from_secs(3));
    let agent = "x".repeat(2_000);
    fixture.produce((100..20_000).map(|number| event_of(number, &agent)));
    fixture.await_alerts(&["AdtrailStoreStalls"], &WAITING);
    faults.mend();
}
