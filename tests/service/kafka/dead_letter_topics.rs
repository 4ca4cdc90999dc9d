//! Dead-letter topics that accept nothing: no position beyond an unacknowledged dead letter is committed, and the log
//! says what to do.

use testbed::kafka::{Kafka, Message};

use super::{activation, check_rows, ids, messages, site};

/// Until the dead letter is acknowledged, all records count as lag, even after a kill.
#[test]
fn no_position_beyond_an_unacknowledged_dead_letter_is_committed() {
    let kafka = Kafka::shared();
    let site = site("letters.small");
    let (topic, letters) = (&*site.topics.activations, format!("{}.dlq", site.topics.activations));
    // Too little for the headers of a dead letter.
    kafka.set_topic(&letters, &[("max.message.bytes", "100")]);
    let bad = "x".repeat(3_000);
    kafka.produce(topic, [Message::new("key", &*bad)]);
    let start_and_stall = || {
        let adtrail = site.start();
        adtrail.await_log("dead letters are not acknowledged");
        adtrail
    };
    start_and_stall().kill9();
    let adtrail = start_and_stall();
    assert!(adtrail.log().contains("max.message.bytes=104857600"), "{}", adtrail.log());
    assert!(kafka.consume_all(&letters).is_empty());
    let good = ids("good", 20);
    kafka.produce(topic, messages(&good));
    adtrail.await_metric("adtrail_ingest_lag_messages", "", |lag| lag == 21.0);
    assert!(adtrail.metric_of("adtrail_ingest_lag_seconds", topic) > Some(0.0));
    let progress = || adtrail.metric("adtrail_ingest_last_progress_timestamp_seconds");
    let before = progress();
    // Two more refreshes of the watermarks.
    let later = ids("later", 2);
    for (id, unread) in later.iter().zip([22.0, 23.0]) {
        kafka.produce(topic, [activation(id)]);
        adtrail.await_metric("adtrail_ingest_lag_messages", "", |lag| lag == unread);
    }
    assert_eq!(progress(), before);
    kafka.set_topic(&letters, &[("max.message.bytes", "104857600")]);
    adtrail.await_read(23);
    check_rows(&site, &[&good, &later]);
    assert!(progress() > before);
    let letters = kafka.consume_all(&letters);
    assert_eq!(letters.len(), 1);
}

/// Kafka rejects a batch as a whole, so the small letters are rejected together with the large one.
#[test]
fn only_a_dead_letter_that_is_larger_than_its_topic_lacks_its_value() {
    let kafka = Kafka::shared();
    let site = site("letters.larger");
    let (topic, letters) = (&*site.topics.activations, format!("{}.dlq", site.topics.activations));
    kafka.set_topic(&letters, &[("max.message.bytes", "2000")]);
    let large = "x".repeat(3_000);
    let values = ["a", "b", &*large, "c"];
    let message = |value: &&str| Message { partition: Some(0), ..Message::new("key", *value) };
    kafka.produce(topic, values.iter().map(message));
    let adtrail = site.start();
    adtrail.await_read(4);
    let mut found: Vec<_> = kafka
        .consume_all(&letters)
        .into_iter()
        .map(|letter| {
            let header = |name: &str| {
                let found = letter.headers.iter().find(|(key, _)| key == name);
                found.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
            };
            let value =
                letter.value.as_ref().map(|value| String::from_utf8(value.clone()).unwrap());
            (header("__connect.errors.offset").unwrap(), value, header("adtrail.value.length"))
        })
        .collect();
    found.sort();
    let whole = |offset: &str, value: &str| (offset.to_owned(), Some(value.to_owned()), None);
    let without_value = ("2".to_owned(), None, Some("3000".to_owned()));
    assert_eq!(found, [whole("0", "a"), whole("1", "b"), without_value, whole("3", "c")]);
    assert!(
        adtrail.log().contains("of its topic and is sent without its value"),
        "{}",
        adtrail.log()
    );
}

/// A compacted topic rejects records without a key, and compaction would drop dead letters.
#[test]
fn a_compacted_dead_letter_topic_is_reported() {
    let kafka = Kafka::shared();
    let site = site("letters.compacted");
    let (topic, letters) = (&*site.topics.activations, format!("{}.dlq", site.topics.activations));
    kafka.set_topic(&letters, &[("cleanup.policy", "compact")]);
    let adtrail = site.start();
    assert!(adtrail.log().contains("set cleanup.policy=delete on the topic"), "{}", adtrail.log());
    kafka.produce(topic, [Message { key: None, ..Message::new("", "no event") }]);
    adtrail.await_log("perhaps the topic has cleanup.policy=compact");
    kafka.set_topic(&letters, &[("cleanup.policy", "delete")]);
    adtrail.await_read(1);
    assert_eq!(kafka.consume_all(&letters).len(), 1);
}

#[test]
fn a_deleted_dead_letter_topic_is_reported() {
    let kafka = Kafka::shared();
    let site = site("letters.deleted");
    let (topic, letters) = (&*site.topics.activations, format!("{}.dlq", site.topics.activations));
    let adtrail = site.start();
    kafka.delete_topics(std::slice::from_ref(&letters));
    kafka.produce(topic, [Message::new("key", "x")]);
    adtrail.await_readiness(503, "dead letters are not acknowledged");
    // The message is not librdkafka's, which logs nothing for half a minute.
    adtrail.await_line(&["does not exist", &letters]);
    let log = adtrail.log();
    assert!(!log.contains("produced to the dead-letter topic"), "{log}");
    kafka.create_topic(&letters, 1, &[]);
    adtrail.await_read(1);
    adtrail.await_readiness(200, "");
    assert_eq!(kafka.consume_all(&letters).len(), 1);
}
