//! Records on another partition than most records of their app: they are counted and logged with advice, and exports
//! are still correct.

use std::collections::{BTreeMap, BTreeSet};

use testbed::adtrail::Adtrail;
use testbed::exports::Workload;
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;
use testbed::traffic::{self, APPS, Record, site};

const MISMATCHES: &str = "adtrail_ingest_key_partition_mismatch_total";
/// Broker timestamp of the first record, later than all events.
const FIRST_MS: i64 = 1_754_784_000_000;
/// Distance between broker timestamps.
const INTERVAL_MS: i64 = 10_000;

static WORKLOAD: Workload = Workload::new(|| traffic::records(16, 2000));

/// Returns the record's message, with a broker timestamp by its number.
fn message(number: usize, record: &Record) -> Message {
    record.message().at(FIRST_MS + INTERVAL_MS * number as i64)
}

/// Produces all records. Every tenth record of app-x and app-y is changed and produced by a second producer with these
/// settings, but for the first and last quarter of an hour: a partition that is used within ten minutes of either end
/// alone may belong to an app that moves, which isn't a mismatch.
fn produce_mixed(site: &Site, settings: &[(&str, &str)], change: impl Fn(Message) -> Message) {
    let kafka = Kafka::shared();
    let margin = (15 * 60_000 / INTERVAL_MS) as usize;
    let changed = margin..WORKLOAD.records().len() - margin;
    let is_other = |number: usize, record: &Record| {
        changed.contains(&number) && number.is_multiple_of(10) && record.app != APPS[2]
    };
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

/// Counts, by topic, the facts that are not on the partition with most facts of their app.
fn mismatches(site: &Site) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<(&str, i32), BTreeMap<&str, u64>> = BTreeMap::new();
    let apps: BTreeMap<&str, &str> = WORKLOAD
        .records()
        .iter()
        .filter(|record| !record.is_bad)
        .map(|record| (&*record.line, &*record.app))
        .collect();
    for topic in site.topics.all() {
        for record in Kafka::shared().consume_all(topic) {
            let line = String::from_utf8(record.value.unwrap()).unwrap();
            let Some(app) = apps.get(&*line) else { continue };
            let of_topic = counts.entry((app, record.partition)).or_default();
            *of_topic.entry(topic).or_default() += 1;
        }
    }
    let mut mismatches = BTreeMap::new();
    for app in APPS {
        let of_app: Vec<_> = counts.iter().filter(|((counted, _), _)| *counted == app).collect();
        let majority = of_app.iter().max_by_key(|(_, of_topic)| of_topic.values().sum::<u64>());
        let ((_, majority), _) = majority.unwrap();
        for (_, of_topic) in of_app.iter().filter(|((_, partition), _)| partition != majority) {
            for (topic, count) in *of_topic {
                *mismatches.entry((*topic).to_owned()).or_default() += count;
            }
        }
    }
    mismatches
}

fn warnings(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("arrive on another partition")).collect()
}

fn read_all(site: &Site) -> Adtrail {
    let adtrail = site.start();
    adtrail.await_read(WORKLOAD.records().len() as u64);
    adtrail
}

#[track_caller]
fn check(site: &Site, advice: &str) {
    let mismatches = mismatches(site);
    assert_eq!(mismatches.len(), 3, "a topic has no mismatches: {mismatches:?}");
    let adtrail = read_all(site);
    for (topic, expected) in &mismatches {
        let found = adtrail.metric_of(MISMATCHES, &format!("topic=\"{topic}\"")).unwrap() as u64;
        assert!(found >= *expected, "{topic}: {found}, expected at least {expected}");
    }
    // Records that were read before the majority was known may count as well.
    let (found, expected) = (adtrail.metric(MISMATCHES).unwrap(), mismatches.values().sum::<u64>());
    assert!(found as u64 <= 3 * expected, "{found}, expected about {expected}");
    WORKLOAD.check(site, &adtrail);
    let log = adtrail.stop();
    let warnings = warnings(&log);
    assert!((1..=3).contains(&warnings.len()), "{log}");
    for part in [advice, "exports are still correct", "partition=", "majority="] {
        assert!(warnings[0].contains(part), "{part}: {}", warnings[0]);
    }
    let has_any = |names: &[&str]| names.iter().any(|name| warnings[0].contains(name));
    assert!(has_any(&APPS[..2]) && has_any(&site.topics.all()), "{}", warnings[0]);
    assert!(!log.contains("secret-device"), "{log}");
}

#[test]
fn a_different_partitioner_is_reported() {
    let site = site("affinity.hash", 7);
    produce_mixed(&site, &[("partitioner", "murmur2_random")], |message| message);
    check(&site, "use the same partitioner in all producers");
}

#[test]
fn missing_keys_are_reported() {
    let site = site("affinity.no-key", 4);
    produce_mixed(&site, &[], |message| Message { key: None, ..message });
    check(&site, "some have no message key");
}

#[test]
fn other_keys_are_reported_without_their_values() {
    let site = site("affinity.other-key", 4);
    // Seven keys, so that not all go to one partition.
    let key =
        |time_ms: i64| format!("secret-device-{}", time_ms / INTERVAL_MS / 10 % 7).into_bytes();
    produce_mixed(&site, &[], |message| Message {
        key: Some(key(message.time_ms.unwrap())),
        ..message
    });
    check(&site, "some have a message key other than the app's");
}

/// Added partitions change the partition of an app, even if adtrail reads the records only afterwards.
#[test]
fn added_partitions_are_not_key_mismatches() {
    let site = site("affinity.grown", 2);
    let kafka = Kafka::shared();
    let third = WORKLOAD.records().len() / 3;
    let produce = |range: std::ops::Range<usize>| {
        let numbered = range.map(|number| (number, &WORKLOAD.records()[number]));
        kafka.produce_all(
            numbered.map(|(number, record)| (record.topic(&site.topics), message(number, record))),
        );
    };
    let grow = |partitions| {
        site.topics.all().iter().for_each(|topic| kafka.grow_topic(topic, partitions));
    };
    produce(0..third);
    grow(5);
    produce(third..2 * third);
    // The test needs an app that is on several partitions.
    let partitions: BTreeSet<i32> = kafka
        .consume_all(&site.topics.clicks)
        .iter()
        .filter(|record| record.key.as_deref() == Some(APPS[0].as_bytes()))
        .map(|record| record.partition)
        .collect();
    assert!(partitions.len() > 1, "the app is on one partition: {partitions:?}");
    let adtrail = site.start();
    adtrail.await_read(2 * third as u64);
    grow(7);
    produce(2 * third..WORKLOAD.records().len());
    adtrail.await_read(WORKLOAD.records().len() as u64);
    assert_eq!(adtrail.metric(MISMATCHES), Some(0.0), "{}", adtrail.log());
    WORKLOAD.check(&site, &adtrail);
    let log = adtrail.stop();
    assert!(warnings(&log).is_empty(), "{log}");
}

#[test]
fn unequal_partition_counts_are_reported() {
    const UNEQUAL: &str = "different numbers of partitions";
    let site = site("affinity.unequal", 2);
    let start = || site.start().terminate().1;
    assert!(!start().contains(UNEQUAL));
    Kafka::shared().grow_topic(&site.topics.effects, 3);
    let log = start();
    let line = log.lines().find(|line| line.contains(UNEQUAL)).unwrap();
    for (topic, count) in site.topics.all().into_iter().zip([2, 2, 3]) {
        assert!(line.contains(&format!("{topic} {count}")), "{line}");
    }
}

/// `replay-dlq` does not know the partitioner of the original producer.
#[test]
fn a_replayed_dead_letter_goes_to_its_original_partition() {
    const PARTITIONS: i32 = 3;
    let (kafka, site) = (Kafka::shared(), site("affinity.letters", PARTITIONS));
    let topic = &site.topics.effects;
    let bad = (0..PARTITIONS)
        .map(|partition| Message { partition: Some(partition), ..Message::new("app-x", "[1]") });
    kafka.produce(topic, bad);
    let adtrail = site.start();
    adtrail.await_read(PARTITIONS as u64);
    adtrail.stop();
    let output = site.run(&["replay-dlq", &format!("{topic}.dlq")]);
    assert!(output.status.success(), "{output:?}");
    let partitions: Vec<i32> =
        kafka.consume_all(topic).iter().map(|record| record.partition).collect();
    assert_eq!(partitions, [0, 0, 1, 1, 2, 2]);
}
