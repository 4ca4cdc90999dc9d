//! Compressed and compacted topics, both group protocols, and access rules: the service reads all records, and the rows
//! are correct.

use std::collections::BTreeSet;

use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{eventually, length};

use super::{NOON_MS, activation, check_rows, ids, messages, site};

#[test]
fn batches_of_every_codec_are_read() {
    let kafka = Kafka::shared();
    let site = site("features.compressed");
    let topic = &*site.topics.activations;
    let batches = ["gzip", "snappy", "lz4", "zstd"].map(|codec| (codec, ids(codec, 100)));
    for (codec, ids) in &batches {
        // Lingering puts several records into a batch, so that compression takes effect.
        let producer = kafka.producer_with(&[("compression.type", codec), ("linger.ms", "100")]);
        producer.produce_all(messages(ids).into_iter().map(|message| (topic, message)));
    }
    // The numbers of all four codecs, from the broker's log files, since clients do not show them.
    assert_eq!(kafka.codecs(topic), BTreeSet::from([1, 2, 3, 4]));
    let adtrail = site.start();
    adtrail.await_read(400);
    let expected: Vec<&[String]> = batches.iter().map(|(_, ids)| &**ids).collect();
    check_rows(&site, &expected);
}

#[test]
fn compacted_topics_with_offset_gaps_are_read() {
    let kafka = Kafka::shared();
    let site = site("features.compacted");
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
    // Old and new records have the same keys, so that compaction leaves only the new ones, at offsets from 50 on.
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
        // Only closed segments are compacted; the timestamp of this record closes the current one.
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

/// Offsets are visible in the group with the classic group protocol and with that of KIP-848.
#[test]
fn offsets_are_committed_by_either_group_protocol() {
    let kafka = Kafka::shared();
    for protocol in ["classic", "consumer"] {
        let settings =
            format!("[kafka.librdkafka]\ngroup.protocol = \"{protocol}\"\n{ONE_CAMPAIGN}");
        let site = Site::new(kafka, &format!("features.{protocol}"), 2, &settings);
        let site = site.set("kafka.group", protocol);
        let topic = &*site.topics.activations;
        let (first, second) = (ids("first", 20), ids("second", 20));
        kafka.produce(topic, messages(&first));
        let adtrail = site.start();
        let await_committed = |expected| {
            eventually("the group has the offsets", || match kafka.committed(protocol, topic) {
                committed if committed == expected => Ok(()),
                other => Err(other),
            });
        };
        await_committed(20);
        // The last offsets are committed on shutdown at the latest.
        kafka.produce(topic, messages(&second));
        adtrail.await_read(40);
        adtrail.stop();
        await_committed(40);
        check_rows(&site, &[&first, &second]);
    }
}

/// `/readyz` names the topic, and the lag is reported; ingest resumes without a restart.
#[test]
fn a_revoked_read_permission_is_reported_and_reading_resumes_once_granted() {
    let kafka = Kafka::start_with_rules();
    for operation in length(&["Read"][..], &["Read", "All"]) {
        let name = format!("features.denied-{operation}");
        let site = Site::new(&kafka, &name, 2, ONE_CAMPAIGN).impatient();
        let topic = &*site.topics.activations;
        let (before, after) = (ids("before", 20), ids("after", 20));
        kafka.produce(topic, messages(&before));
        let adtrail = site.start();
        adtrail.await_read(20);
        kafka.rule(true, topic, operation);
        adtrail.await_readiness(503, topic);
        let lag = || adtrail.metric_of("adtrail_ingest_lag_messages", topic);
        assert!(lag() > Some(0.0), "{:?}", lag());
        // The readiness changes before the line is logged.
        adtrail.await_line(&["kafka does not let adtrail read", topic]);
        // A new process does not become ready either.
        let beside = site.beside();
        let another = beside.spawn();
        another.await_readiness(503, topic);
        drop(another);
        kafka.rule(false, topic, operation);
        kafka.produce(topic, messages(&after));
        adtrail.await_readiness(200, "");
        adtrail.await_read(40);
        check_rows(&site, &[&before, &after]);
    }
}
