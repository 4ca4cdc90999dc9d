//! Topics as Kafka keeps them: compressed, compacted, and with the marks of transactions. The rows
//! are right, and the service gets to the end.
#![cfg(test)]

mod support;

use std::collections::BTreeSet;

use support::eventually;
use support::kafka::{Kafka, Message};
use support::rows;
use support::site::{ONE_CAMPAIGN, Site};

/// 2025-03-10T12:00:00Z; all records have this as the broker's timestamp.
const NOON_MS: i64 = 1_741_608_000_000;

fn site(name: &str) -> Site {
    Site::new(Kafka::shared(), name, 2, ONE_CAMPAIGN).set("store.retention", "off")
}

fn activation(id: &str) -> Message {
    let line = format!(
        r#"{{"app":"app-x","event_id":"{id}","time":{NOON_MS},"ua":"{}"}}"#,
        "the same for all ".repeat(10)
    );
    Message::new(format!("key-{id}"), line).at(NOON_MS)
}

fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number:03}")).collect()
}

fn messages(ids: &[String]) -> Vec<Message> {
    ids.iter().map(|id| activation(id)).collect()
}

/// That the export has these events and no others.
#[track_caller]
fn check_rows(site: &Site, expected: &[&[String]]) {
    let rows = rows::parse(&site.download("app-x", "2025-03-10", "2025-03-10", &[]));
    let found: BTreeSet<String> = rows::by_event_id(rows).into_keys().collect();
    assert_eq!(found, expected.concat().into_iter().collect());
}

#[test]
fn compressed_in_every_way() {
    let kafka = Kafka::shared();
    let site = site("kept.compressed");
    let topic = &*site.topics.activations;
    let kinds = ["gzip", "snappy", "lz4", "zstd"].map(|codec| (codec, ids(codec, 100)));
    for (codec, ids) in &kinds {
        // More than one record in a batch, or nothing would be gained.
        let producer = kafka.producer_with(&[("compression.type", codec), ("linger.ms", "100")]);
        producer.produce_all(messages(ids).into_iter().map(|message| (topic, message)));
    }
    // It is compressed, and each in its own way: no tool of the client tells, the log does.
    assert_eq!(kafka.codecs(topic), BTreeSet::from([1, 2, 3, 4]));
    let adtrail = site.start();
    adtrail.await_read(400);
    let expected: Vec<&[String]> = kinds.iter().map(|(_, ids)| &**ids).collect();
    check_rows(&site, &expected);
}

/// All that Kafka has counts as unread then, so that whoever watches is woken.
#[test]
fn a_dead_letter_that_its_topic_does_not_take_is_seen_to_stop_all() {
    let kafka = Kafka::shared();
    let site = site("kept.small-letters");
    let (topic, letters) = (&*site.topics.activations, format!("{}.dlq", site.topics.activations));
    kafka.set_topic(&letters, &[("max.message.bytes", "1000")]);
    let adtrail = site.start();
    assert!(adtrail.log().contains("max.message.bytes=104857600"), "{}", adtrail.log());
    let bad = Message::new("key", "x".repeat(3_000));
    kafka.produce(topic, [bad]);
    eventually("it does not get on", || {
        if adtrail.log().contains("dead letters are not acknowledged") { Ok(()) } else { Err("") }
    });
    let good = ids("good", 20);
    kafka.produce(topic, messages(&good));
    eventually("what is unread is seen", || match adtrail.metric("adtrail_ingest_lag_messages") {
        Some(21.0) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(adtrail.metric_of("adtrail_ingest_lag_seconds", topic) > Some(0.0));
    let progress = || adtrail.metric("adtrail_ingest_last_progress_timestamp_seconds");
    let before = progress();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(progress(), before);
    kafka.set_topic(&letters, &[("max.message.bytes", "104857600")]);
    adtrail.await_read(21);
    check_rows(&site, &[&good]);
    assert!(progress() > before);
}

/// Dashboards see how far it is, by Kafka's old group protocol and by the one of KIP-848.
#[test]
fn positions_are_told_to_the_group_by_either_protocol() {
    let kafka = Kafka::shared();
    for protocol in ["classic", "consumer"] {
        let settings =
            format!("[kafka.librdkafka]\ngroup.protocol = \"{protocol}\"\n{ONE_CAMPAIGN}");
        let site = Site::new(kafka, &format!("kept.{protocol}"), 2, &settings);
        let site = site.set("store.retention", "off").set("kafka.group", protocol);
        let topic = &*site.topics.activations;
        let (first, second) = (ids("first", 20), ids("second", 20));
        kafka.produce(topic, messages(&first));
        let adtrail = site.start();
        let await_told = |expected| {
            eventually("the group has the positions", || {
                match kafka.committed(protocol, topic, 2) {
                    told if told == expected => Ok(()),
                    other => Err(other),
                }
            });
        };
        await_told(20);
        // Told when it ends, at the latest.
        kafka.produce(topic, messages(&second));
        adtrail.await_read(40);
        assert!(adtrail.terminate().0.success());
        await_told(40);
        check_rows(&site, &[&first, &second]);
    }
}

#[test]
fn transactions_that_were_ended_taken_back_and_are_open() {
    let kafka = Kafka::shared();
    let site = site("kept.transactions");
    let topic = &*site.topics.activations;
    let [kept, dropped, open, later] =
        ["kept", "dropped", "open", "later"].map(|prefix| ids(prefix, 50));
    let transaction = |ids: &[String]| {
        let producer = kafka.transactional(&format!("{topic}-{}", ids[0]));
        producer.begin();
        producer.produce_all(messages(ids).into_iter().map(|message| (topic, message)));
        producer
    };
    // The log begins and ends with what is never delivered.
    transaction(&dropped[..25]).abort();
    transaction(&kept).commit();
    transaction(&dropped[25..]).abort();
    let adtrail = site.start();
    adtrail.await_read(50);
    check_rows(&site, &[&kept]);

    // What comes after an open transaction waits for its end, and is no lag until then.
    let waiting = transaction(&open);
    kafka.produce(topic, messages(&later));
    adtrail.await_read(50);
    check_rows(&site, &[&kept]);
    waiting.commit();
    adtrail.await_read(150);
    check_rows(&site, &[&kept, &open, &later]);

    // After a restart the position is behind a mark, with nothing left to read.
    transaction(&dropped).abort();
    assert!(adtrail.terminate().0.success());
    let adtrail = site.start();
    adtrail.await_caught_up();
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
    // And from the beginning, over all marks.
    let beside = site.beside();
    let adtrail = beside.start();
    adtrail.await_read(150);
    check_rows(&beside, &[&kept, &open, &later]);
}

#[test]
fn compacted_topics_have_holes() {
    let kafka = Kafka::shared();
    let site = site("kept.compacted");
    let topic = &*site.topics.activations;
    kafka.set_topic(
        topic,
        &[
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.0"),
            ("segment.ms", "100"),
            ("segment.bytes", "1048576"),
            ("max.compaction.lag.ms", "100"),
            ("delete.retention.ms", "0"),
        ],
    );
    let (old, new) = (ids("old", 50), ids("new", 50));
    // The same keys, so that compaction leaves the new ones only, at offsets from 50 on.
    let keyed = |ids: &[String]| {
        let message = |(number, id): (usize, &String)| Message {
            key: Some(format!("key-{number}").into_bytes()),
            partition: Some(0),
            ..activation(id)
        };
        ids.iter().enumerate().map(message).collect::<Vec<_>>()
    };
    kafka.produce(topic, keyed(&old));
    kafka.produce(topic, keyed(&new));
    let mut fillers = 0;
    eventually("the topic is compacted", || {
        // Only what is not being written to any more is compacted; this closes it, by its time.
        fillers += 1;
        let filler = Message::new("filler", "").at(NOON_MS + fillers * 1000);
        kafka.produce(topic, [Message { partition: Some(0), ..filler }]);
        let values = kafka.consume_all(topic);
        let has_old = values.iter().any(|record| record.offset < 50);
        if has_old { Err(format!("{} records after {fillers}", values.len())) } else { Ok(()) }
    });
    let adtrail = site.start();
    adtrail.await_some_read();
    adtrail.await_caught_up();
    check_rows(&site, &[&new]);
    assert_eq!(adtrail.metric("adtrail_ingest_dead_lettered_total"), Some(0.0));
}
