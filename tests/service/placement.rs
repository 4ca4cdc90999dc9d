//! Records that are not on the partition that their app's key stands for: counted, told with what to
//! do, and no less right for it.

use std::collections::{BTreeMap, BTreeSet};

use testbed::adtrail::Adtrail;
use testbed::exports::{Workload, check_equal, downloads};
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;
use testbed::traffic::{self, APPS, Record};

const MISPLACED: &str = "adtrail_ingest_key_partition_mismatch_total";
/// After all events of the crowd; the broker's times are ten seconds apart.
const FIRST_MS: i64 = 1_754_784_000_000;
const APART_MS: i64 = 10_000;

static WORKLOAD: Workload = Workload::new(|| traffic::records(16, 2000));

fn site(name: &str, partitions: i32) -> Site {
    Site::new(Kafka::shared(), name, partitions, traffic::SETTINGS).set("store.retention", "off")
}

/// The record's place among all gives its time.
fn message(number: usize, record: &Record) -> Message {
    record.message().at(FIRST_MS + APART_MS * number as i64)
}

/// Every tenth record of app-x and app-y is sent by a producer of its own: changed, and with settings
/// of that producer.
fn produce_mixed(site: &Site, settings: &[(&str, &str)], change: impl Fn(Message) -> Message) {
    let kafka = Kafka::shared();
    let is_other =
        |number: usize, record: &Record| number.is_multiple_of(10) && record.app != APPS[2];
    let all = || WORKLOAD.records().iter().enumerate();
    kafka.produce_all(
        all()
            .filter(|(number, record)| !is_other(*number, record))
            .map(|(number, record)| (record.topic(&site.topics), message(number, record))),
    );
    let other = all().filter(|(number, record)| is_other(*number, record));
    kafka.producer_with(settings).produce_all(
        other.map(|(number, record)| (record.topic(&site.topics), change(message(number, record)))),
    );
}

/// The facts of each topic that are not on the partition with most of their app's.
fn astray(site: &Site) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<(&str, i32), BTreeMap<&str, u64>> = BTreeMap::new();
    let apps: BTreeMap<&str, &str> = WORKLOAD
        .records()
        .iter()
        .filter(|one| !one.is_bad)
        .map(|one| (&*one.line, &*one.app))
        .collect();
    for topic in site.topics.all() {
        for record in Kafka::shared().consume_all(topic) {
            let line = String::from_utf8(record.value.unwrap()).unwrap();
            let Some(app) = apps.get(&*line) else { continue };
            let of_topic = counts.entry((app, record.partition)).or_default();
            *of_topic.entry(topic).or_default() += 1;
        }
    }
    let mut astray = BTreeMap::new();
    for app in APPS {
        let of_app: Vec<_> = counts.iter().filter(|((of, _), _)| *of == app).collect();
        let home = of_app.iter().max_by_key(|(_, of_topic)| of_topic.values().sum::<u64>());
        let ((_, home), _) = home.unwrap();
        for (_, of_topic) in of_app.iter().filter(|((_, partition), _)| partition != home) {
            for (topic, count) in *of_topic {
                *astray.entry((*topic).to_owned()).or_default() += count;
            }
        }
    }
    astray
}

fn warnings(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("come on another partition")).collect()
}

fn read_all(site: &Site) -> Adtrail {
    let adtrail = site.start();
    adtrail.await_read(WORKLOAD.records().len() as u64);
    adtrail
}

#[track_caller]
fn check(site: &Site, advice: &str) {
    let astray = astray(site);
    assert_eq!(astray.len(), 3, "the producers agree: {astray:?}");
    let adtrail = read_all(site);
    for (topic, astray) in &astray {
        let found = adtrail.metric_of(MISPLACED, &format!("topic=\"{topic}\"")).unwrap() as u64;
        assert!(found >= *astray, "{topic}: {found}, {astray} are astray");
    }
    // Some that were read before it was known where most are may count, too.
    let (found, astray) = (adtrail.metric(MISPLACED).unwrap(), astray.values().sum::<u64>());
    assert!(found as u64 <= 3 * astray, "{found}, {astray} are astray");
    check_equal(&downloads(site, &adtrail), WORKLOAD.expected());
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
    let warnings = warnings(&log);
    assert!((1..=3).contains(&warnings.len()), "{log}");
    for part in [advice, "exports are right all the same", "partition=", "home="] {
        assert!(warnings[0].contains(part), "{part}: {}", warnings[0]);
    }
    let names = |what: &[&str]| what.iter().any(|one| warnings[0].contains(one));
    assert!(names(&APPS[..2]) && names(&site.topics.all()), "{}", warnings[0]);
    assert!(!log.contains("secret-device"), "{log}");
}

#[test]
fn another_partitioner_is_reported() {
    let site = site("placement.hash", 7);
    produce_mixed(&site, &[("partitioner", "murmur2_random")], |message| message);
    check(&site, "give all producers the same partitioner");
}

#[test]
fn missing_keys_are_reported() {
    let site = site("placement.no-key", 4);
    produce_mixed(&site, &[], |message| Message { key: None, ..message });
    check(&site, "some have no message key");
}

#[test]
fn other_keys_are_reported_and_not_shown() {
    let site = site("placement.other-key", 4);
    // Seven of them, so that not all come on one partition.
    let key = |time_ms: i64| format!("secret-device-{}", time_ms / APART_MS / 10 % 7).into_bytes();
    produce_mixed(&site, &[], |message| Message {
        key: Some(key(message.time_ms.unwrap())),
        ..message
    });
    check(&site, "the message key of some is another than their app's");
}

/// Apps move when partitions are added, also where adtrail reads it all at once, later.
#[test]
fn an_app_that_moves_is_not_misplaced() {
    let site = site("placement.grown", 2);
    let kafka = Kafka::shared();
    let third = WORKLOAD.records().len() / 3;
    let produce = |range: std::ops::Range<usize>| {
        let some = range.map(|number| (number, &WORKLOAD.records()[number]));
        kafka
            .produce_all(some.map(|(number, one)| (one.topic(&site.topics), message(number, one))));
    };
    let grow = |partitions| {
        site.topics.all().iter().for_each(|topic| kafka.grow_topic(topic, partitions));
    };
    produce(0..third);
    grow(5);
    produce(third..2 * third);
    // Else it would be no test.
    let on: BTreeSet<i32> = kafka
        .consume_all(&site.topics.clicks)
        .iter()
        .filter(|record| record.key.as_deref() == Some(APPS[0].as_bytes()))
        .map(|record| record.partition)
        .collect();
    assert!(on.len() > 1, "the app has not moved: {on:?}");
    let adtrail = site.start();
    adtrail.await_read(2 * third as u64);
    grow(7);
    produce(2 * third..WORKLOAD.records().len());
    adtrail.await_read(WORKLOAD.records().len() as u64);
    assert_eq!(adtrail.metric(MISPLACED), Some(0.0), "{}", adtrail.log());
    check_equal(&downloads(&site, &adtrail), WORKLOAD.expected());
    let (status, log) = adtrail.terminate();
    assert!(status.success() && warnings(&log).is_empty(), "{log}");
}

#[test]
fn unequal_partition_counts_are_reported() {
    const UNEQUAL: &str = "not as many partitions as each other";
    let site = site("placement.unequal", 2);
    let start = || site.start().terminate().1;
    assert!(!start().contains(UNEQUAL));
    Kafka::shared().grow_topic(&site.topics.effects, 3);
    let log = start();
    let line = log.lines().find(|line| line.contains(UNEQUAL)).unwrap();
    for (topic, count) in site.topics.all().into_iter().zip([2, 2, 3]) {
        assert!(line.contains(&format!("{topic} {count}")), "{line}");
    }
}

/// Whatever partitioner its producer has, which `replay-dlq` does not know.
#[test]
fn a_resent_letter_goes_to_its_original_partition() {
    const PARTITIONS: i32 = 3;
    let (kafka, site) = (Kafka::shared(), site("placement.letters", PARTITIONS));
    let topic = &site.topics.effects;
    let bad = (0..PARTITIONS)
        .map(|partition| Message { partition: Some(partition), ..Message::new("app-x", "[1]") });
    kafka.produce(topic, bad);
    let adtrail = site.start();
    adtrail.await_read(PARTITIONS as u64);
    assert!(adtrail.terminate().0.success());
    let output = site.run(&["replay-dlq", &format!("{topic}.dlq")]);
    assert!(output.status.success(), "{output:?}");
    let on: Vec<i32> = kafka.consume_all(topic).iter().map(|record| record.partition).collect();
    assert_eq!(on, [0, 0, 1, 1, 2, 2]);
}
