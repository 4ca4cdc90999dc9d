//! The Debian package in a new Debian root with a running systemd: installed, used, upgraded, removed and purged.

use std::process::Command;

use testbed::kafka::Kafka;

#[test]
#[ignore = "needs a package and a Debian mirror: make try-package"]
fn the_package_is_installed_used_upgraded_and_removed() {
    let package = std::env::var("ADTRAIL_PACKAGE").expect("ADTRAIL_PACKAGE is a package");
    let kafka = Kafka::shared();
    for topic in ["adtrail.clicks", "adtrail.activations", "adtrail.effects"] {
        kafka.create_topic(topic, 4, &[]);
        kafka.create_topic(&format!("{topic}.dlq"), 1, &[]);
    }
    let mut trial = Command::new("scripts/try-package");
    let status = trial.arg(package).arg(kafka.brokers()).status().expect("the script starts");
    assert!(status.success(), "{status}");
}
