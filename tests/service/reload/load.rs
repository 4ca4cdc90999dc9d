//! Reloads while events are attributed.

use std::thread;

use testbed::exports::{check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::length;
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::traffic::{self, APPS};

use super::{SUCCESSFUL, reload};

/// Settings with this many further campaigns. The first one is in the traffic from its beginning.
fn settings(campaigns: usize) -> String {
    let campaign = |number: usize| {
        let spreadid = if number == 0 { 6 } else { 1_000 + number };
        format!("[[campaigns]]\nspreadid = {spreadid}\npid = 1\nchannel = \"toutiao\"\n")
    };
    let campaigns: String = (0..campaigns).map(campaign).collect();
    format!("{}{campaigns}", traffic::SETTINGS)
}

/// No decision depends on the campaigns, but each row names its campaign.
#[test]
fn exports_after_many_reloads_are_those_of_a_replay_with_the_final_settings() {
    let reloads = length(50, 1_000);
    let records = traffic::records(36, length(4_000, 40_000));
    let mut site = traffic::site("reload.load", 2);
    let adtrail = site.start();
    for (number, portion) in traffic::portions(&records, reloads).enumerate() {
        traffic::produce(&site.topics, portion);
        reload(&mut site, &adtrail, &settings(number + 1));
    }
    adtrail.await_read(records.len() as u64);
    assert_eq!(adtrail.metric(SUCCESSFUL), Some(1.0));
    let events = traffic::file(&records);
    let expected = APPS.map(|app| site.replay(app, events.as_bytes()));
    check_equal(&downloads(&site, &adtrail), &expected);
    adtrail.stop();
    let verified = site.run(&["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn concurrent_reloads_all_succeed_and_a_shutdown_ends_them() {
    let site = Site::new(Kafka::shared(), "reload.concurrent", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    thread::scope(|scope| {
        let reloads: Vec<_> = (0..4).map(|_| scope.spawn(|| adtrail.reload().status)).collect();
        adtrail.signal("HUP");
        for reload in reloads {
            assert_eq!(reload.join().unwrap(), 200);
        }
    });
    adtrail.signal("HUP");
    let log = adtrail.stop();
    assert!(!log.contains("settings not reloaded"), "{log}");
}
