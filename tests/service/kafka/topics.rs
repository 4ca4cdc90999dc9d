//! Topics that change while adtrail uses them: added partitions, which are read, and recreated topics, which are
//! detected.

use std::time::Duration;

use jiff::Timestamp;
use testbed::exports::{Workload, by_command, check_equal};
use testbed::kafka::{Kafka, Message};
use testbed::site::{Site, Topics};
use testbed::traffic;

const RECREATED: &str = "a record that was read has changed";

static WORKLOAD: Workload = Workload::new(|| traffic::records(12, 1200));

fn site(name: &str, partitions: i32) -> Site {
    traffic::site(name, partitions).set("ingest.batch_records_max", "100").impatient()
}

#[test]
fn partitions_that_are_added_are_read() {
    let site = site("topics.grown", 2);
    let (first, rest) = WORKLOAD.records().split_at(400);
    traffic::produce(&site.topics, first);
    let adtrail = site.start();
    adtrail.await_caught_up();
    // Added while the service runs.
    site.topics.all().iter().for_each(|topic| Kafka::shared().grow_topic(topic, 5));
    let (second, rest) = rest.split_at(400);
    traffic::produce(&site.topics, second);
    adtrail.await_read(800);
    adtrail.stop();
    // Added while the service is stopped.
    site.topics.all().iter().for_each(|topic| Kafka::shared().grow_topic(topic, 7));
    traffic::produce(&site.topics, rest);
    WORKLOAD.check_all(&site);
}

/// As after the loss of a cluster, in whose place comes a new one.
#[test]
fn a_store_goes_on_with_topics_of_other_names() {
    let mut site = site("topics.lost", 2);
    let (first, rest) = WORKLOAD.records().split_at(600);
    traffic::produce(&site.topics, first);
    site.read_all();
    site.topics = Topics::of("topics.replacement");
    site.topics.all().iter().for_each(|topic| Kafka::shared().create_topic(topic, 2, &[]));
    traffic::produce(&site.topics, rest);
    WORKLOAD.check_all(&site);
}

fn recreate(site: &Site, topic: &str) {
    let kafka = Kafka::shared();
    kafka.delete_topics(&[topic.to_owned()]);
    kafka.create_topic(topic, 1, &[]);
    // More records than before, so that the old positions exist in the new topic.
    let message = |n| Message::new("app-x", format!(r#"{{"app":"app-x","event_id":"new-{n}"}}"#));
    kafka.produce(topic, (0..2000).map(message));
    assert!(site.topics.all().contains(&topic));
}

#[track_caller]
fn check_recreated_after(name: &str, pause: Duration) {
    let site = site(name, 1);
    traffic::produce(&site.topics, WORKLOAD.records());
    let adtrail = site.start();
    adtrail.await_caught_up();
    std::thread::sleep(pause);
    // Suspended meanwhile: for a topic that is still empty it would report that the position is out of range.
    adtrail.signal("STOP");
    recreate(&site, &site.topics.activations);
    adtrail.signal("CONT");
    let (status, log) = adtrail.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains(RECREATED) && log.contains(&site.topics.activations), "{log}");
    // The next start reports it as well.
    let log = site.try_start().map(|adtrail| adtrail.wait().1).unwrap_or_else(|log| log);
    assert!(log.contains(RECREATED), "{log}");
}

#[test]
fn a_topic_recreated_while_reading_ends_ingest() {
    check_recreated_after("topics.meanwhile", Duration::ZERO);
}

/// The pause is longer than two checks, after which the last records are not checked until a new one arrives.
#[test]
fn a_topic_recreated_after_a_pause_ends_ingest() {
    check_recreated_after("topics.pause", Duration::from_secs(3));
}

#[test]
fn a_recreated_topic_is_not_read_as_the_old_one() {
    let site = site("topics.recreated", 1);
    traffic::produce(&site.topics, WORKLOAD.records());
    site.read_all();
    // An unchanged topic is accepted.
    site.read_all();
    recreate(&site, &site.topics.activations);
    let log = site.try_start().map(|adtrail| adtrail.wait().1).unwrap_or_else(|log| log);
    assert!(log.contains(RECREATED) && log.contains(&site.topics.activations), "{log}");
    assert!(log.contains("start with a new store"), "{log}");
    // No record of the new topic was read.
    check_equal(&by_command(&site), WORKLOAD.expected());
}

/// Behaves like the only broker after a power failure: the partition has lost its end, and new records follow.
#[test]
fn a_partition_that_lost_its_end_is_reported() {
    let (site, kafka) = (site("topics.cut", 1), Kafka::shared());
    let topic = &site.topics.activations;
    let now = Timestamp::now().as_millisecond();
    let message = |name: &str, n: i64| {
        let time = now - 1_000 + n;
        let event = format!(r#"{{"app":"app-x","event_id":"{name}-{n}","time":{time}}}"#);
        Message::new("app-x", event).at(time)
    };
    kafka.produce(topic, (0..100).map(|n| message("old", n)));
    site.read_all();
    kafka.delete_topics(std::slice::from_ref(topic));
    kafka.create_topic(topic, 1, &[]);
    kafka.produce(topic, (0..90).map(|n| message("old", n)));
    kafka.produce(topic, (90..300).map(|n| message("new", n)));
    let log = site.try_start().map(|adtrail| adtrail.wait().1).unwrap_or_else(|log| log);
    assert!(log.contains(RECREATED) && log.contains(topic), "{log}");
}
