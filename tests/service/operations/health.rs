//! `adtrail health`, the health check of containers.

use testbed::kafka::Kafka;
use testbed::site::{ONE_CAMPAIGN, Site, Topics};
use testbed::{check_refused, run_ok};

#[test]
fn health_succeeds_while_the_service_is_ready() {
    let site = Site::new(Kafka::shared(), "health.ready", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    run_ok(&mut site.command(&["health"]), b"");
    run_ok(&mut site.command(&["health", "--live"]), b"");
    adtrail.stop();
    check_refused(&site.run(&["health"]), 1, &["/readyz: Connection refused"]);
    check_refused(&site.run(&["health", "--live"]), 1, &["/livez: Connection refused"]);
}

#[test]
fn a_service_without_kafka_is_alive_but_not_ready() {
    let site = Site::on(Topics::of("health.none"), "127.0.0.1:1".to_owned(), ONE_CAMPAIGN);
    let adtrail = site.spawn();
    adtrail.await_readiness(503, "kafka cannot be reached");
    check_refused(&site.run(&["health"]), 1, &["not ready: kafka cannot be reached"]);
    run_ok(&mut site.command(&["health", "--live"]), b"");
}
