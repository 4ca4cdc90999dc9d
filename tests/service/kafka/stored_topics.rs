//! Topics as Kafka stores them: compressed, compacted, and with transactions. The rows are right, and the service reads
//! to the end.

use std::collections::BTreeSet;

use testbed::kafka::{Kafka, Message};
use testbed::rows;
use testbed::site::{ONE_CAMPAIGN, Site, Topics};
use testbed::{eventually, length};

/// 2025-03-10T12:00:00Z; all records have this as the broker's timestamp.
const NOON_MS: i64 = 1_741_608_000_000;

fn site(name: &str) -> Site {
    Site::new(Kafka::shared(), name, 2, ONE_CAMPAIGN).set("store.retention", "off").impatient()
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

/// Checks that the export has exactly these events.
#[track_caller]
fn check_rows(site: &Site, expected: &[&[String]]) {
    let rows = rows::parse(&site.download("app-x", "2025-03-10", "2025-03-10", &[]));
    let found: BTreeSet<String> = rows::by_event_id(rows).into_keys().collect();
    assert_eq!(found, expected.concat().into_iter().collect());
}

#[test]
fn batches_of_every_codec_are_read() {
    let kafka = Kafka::shared();
    let site = site("kept.compressed");
    let topic = &*site.topics.activations;
    let batches = ["gzip", "snappy", "lz4", "zstd"].map(|codec| (codec, ids(codec, 100)));
    for (codec, ids) in &batches {
        // Lingering puts several records into a batch, so that compression takes effect.
        let producer = kafka.producer_with(&[("compression.type", codec), ("linger.ms", "100")]);
        producer.produce_all(messages(ids).into_iter().map(|message| (topic, message)));
    }
    // The ids of all four codecs, from the broker's log, since clients do not show them.
    assert_eq!(kafka.codecs(topic), BTreeSet::from([1, 2, 3, 4]));
    let adtrail = site.start();
    adtrail.await_read(400);
    let expected: Vec<&[String]> = batches.iter().map(|(_, ids)| &**ids).collect();
    check_rows(&site, &expected);
}

/// Until then all records in Kafka count as lag, also after a kill.
#[test]
fn no_position_passes_an_unacknowledged_dead_letter() {
    let kafka = Kafka::shared();
    let site = site("kept.small-letters");
    let (topic, letters) = (&*site.topics.activations, format!("{}.dlq", site.topics.activations));
    kafka.set_topic(&letters, &[("max.message.bytes", "1000")]);
    let bad = "x".repeat(3_000);
    kafka.produce(topic, [Message::new("key", &*bad)]);
    let start_and_stall = || {
        let adtrail = site.start();
        eventually("the letter is refused", || {
            let log = adtrail.log();
            if log.contains("dead letters are not acknowledged") { Ok(()) } else { Err(log) }
        });
        adtrail
    };
    start_and_stall().kill9();
    let adtrail = start_and_stall();
    assert!(adtrail.log().contains("max.message.bytes=104857600"), "{}", adtrail.log());
    assert!(kafka.consume_all(&letters).is_empty());
    let good = ids("good", 20);
    kafka.produce(topic, messages(&good));
    eventually("the lag has the unread records", || {
        match adtrail.metric("adtrail_ingest_lag_messages") {
            Some(21.0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert!(adtrail.metric_of("adtrail_ingest_lag_seconds", topic) > Some(0.0));
    let progress = || adtrail.metric("adtrail_ingest_last_progress_timestamp_seconds");
    let before = progress();
    // Two more refreshes of the watermarks.
    let later = ids("later", 2);
    for (id, unread) in later.iter().zip([22.0, 23.0]) {
        kafka.produce(topic, [activation(id)]);
        eventually("the lag has the later record too", || {
            match adtrail.metric("adtrail_ingest_lag_messages") {
                Some(lag) if lag == unread => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }
    assert_eq!(progress(), before);
    kafka.set_topic(&letters, &[("max.message.bytes", "104857600")]);
    adtrail.await_read(23);
    check_rows(&site, &[&good, &later]);
    assert!(progress() > before);
    let letters = kafka.consume_all(&letters);
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].value.as_deref(), Some(bad.as_bytes()));
}

/// A compacted topic refuses records without a key, and drops dead letters.
#[test]
fn a_compacted_dead_letter_topic_is_reported() {
    let kafka = Kafka::shared();
    let site = site("kept.compacted-letters");
    let (topic, letters) = (&*site.topics.activations, format!("{}.dlq", site.topics.activations));
    kafka.set_topic(&letters, &[("cleanup.policy", "compact")]);
    let adtrail = site.start();
    assert!(adtrail.log().contains("set cleanup.policy=delete on the topic"), "{}", adtrail.log());
    kafka.produce(topic, [Message { key: None, ..Message::new("", "no event") }]);
    eventually("the log says why ingest waits", || {
        let log = adtrail.log();
        if log.contains("perhaps the topic has cleanup.policy=compact") { Ok(()) } else { Err(log) }
    });
    kafka.set_topic(&letters, &[("cleanup.policy", "delete")]);
    adtrail.await_read(1);
    assert_eq!(kafka.consume_all(&letters).len(), 1);
}

/// Offsets are visible in the group with the classic group protocol and with that of KIP-848.
#[test]
fn offsets_are_committed_by_either_group_protocol() {
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
        let await_committed = |expected| {
            eventually("the group has the offsets", || match kafka.committed(protocol, topic, 2) {
                committed if committed == expected => Ok(()),
                other => Err(other),
            });
        };
        await_committed(20);
        // The last offsets are committed on shutdown at the latest.
        kafka.produce(topic, messages(&second));
        adtrail.await_read(40);
        assert!(adtrail.terminate().0.success());
        await_committed(40);
        check_rows(&site, &[&first, &second]);
    }
}

#[test]
fn only_committed_transactions_are_read() {
    let kafka = Kafka::shared();
    let site = site("kept.transactions");
    let topic = &*site.topics.activations;
    let [committed, aborted, open, later] =
        ["committed", "aborted", "open", "later"].map(|prefix| ids(prefix, 50));
    let transaction = |ids: &[String]| {
        let producer = kafka.transactional(&format!("{topic}-{}", ids[0]));
        producer.begin();
        producer.produce_all(messages(ids).into_iter().map(|message| (topic, message)));
        producer
    };
    // The log begins and ends with aborted transactions, which are never delivered.
    transaction(&aborted[..25]).abort();
    transaction(&committed).commit();
    transaction(&aborted[25..]).abort();
    let adtrail = site.start();
    adtrail.await_read(50);
    check_rows(&site, &[&committed]);

    // Records after an open transaction wait for its end, and count as lag.
    let waiting = transaction(&open);
    kafka.produce(topic, messages(&later));
    eventually("the lag has the waiting records", || {
        match adtrail.metric("adtrail_ingest_lag_messages") {
            Some(lag) if lag >= 100.0 => Ok(()),
            lag => Err(format!("{lag:?}")),
        }
    });
    check_rows(&site, &[&committed]);
    waiting.commit();
    adtrail.await_read(150);
    check_rows(&site, &[&committed, &open, &later]);

    // After a restart the position is before a control record, and no other record is left to read.
    transaction(&aborted).abort();
    assert!(adtrail.terminate().0.success());
    let adtrail = site.start();
    adtrail.await_caught_up();
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
    // A new store reads from the beginning, across all control records.
    let beside = site.beside();
    let adtrail = beside.start();
    adtrail.await_read(150);
    check_rows(&beside, &[&committed, &open, &later]);
}

/// `Adtrail-Complete-Until` stays before the transaction, and no state expires by what is read of other topics.
#[test]
fn an_open_transaction_holds_back_completeness_and_expiry() {
    let kafka = Kafka::shared();
    // The second partition of each topic has no records.
    let site =
        Site::new(kafka, "kept.open", 2, ONE_CAMPAIGN).set("store.retention", "off").impatient();
    let Topics { clicks, activations, effects } = &site.topics;
    let adtrail = site.start();
    let line = |number: i64, more: &str| {
        format!(r#"{{"app":"app-x","event_id":"e-{number}","time":{NOON_MS}{more}}}"#)
    };
    let produce = |topic: &str, number: i64, minute: i64, more: &str| {
        let message = Message::new("app-x", line(number, more));
        kafka.produce(topic, [message.at(NOON_MS + minute * 60_000)]);
    };
    let (click, effect) = (r#","type":"click","spreadid":7"#, r#","name":"n""#);
    produce(clicks, 0, 0, &click.replace(",\"type", ",\"click_id\":\"c-0\",\"type"));
    produce(activations, 1, 0, "");
    produce(effects, 2, 0, effect);
    adtrail.await_read(3);
    let complete = || {
        let path = "/v1/apps/app-x/events.csv?from=2025-03-10&to=2025-03-10";
        let reply = adtrail.get(path).expect("adtrail responds");
        let until = reply.header("adtrail-complete-until")?;
        Some(until.parse::<jiff::Timestamp>().expect("an RFC 3339 time"))
    };
    let consumed_minutes = || {
        let until = adtrail.metric("adtrail_ingest_consumed_until_timestamp_seconds")?;
        Some((until - NOON_MS as f64 / 1e3) / 60.0)
    };
    eventually("completeness is known", || complete().ok_or("not yet"));

    let waiting = kafka.transactional("kept.open");
    waiting.begin();
    let first = Message::new("app-x", line(3, "")).at(NOON_MS + 60_000);
    waiting.produce_all([(activations.as_str(), first)]);
    let opened = jiff::Timestamp::now();
    produce(activations, 4, 2, "");
    let topic = format!("topic=\"{activations}\"");
    let lag = || adtrail.metric_of("adtrail_ingest_lag_messages", &topic);
    // Batches of the other topics, each read, and then a refresh of the watermarks.
    for round in 0..4 {
        for number in 5 * round..5 * (round + 1) {
            let minute = 10 + number;
            let id = format!(",\"click_id\":\"c-{number}\",\"type");
            produce(clicks, 100 + number, minute, &click.replace(",\"type", &id));
            produce(effects, 200 + number, minute, effect);
            // The lag is not 0, since the transaction's topic waits.
            adtrail.await_read_more_than(3 + 2 * number as u64 + 1);
            assert!(complete() <= Some(opened), "after {number}");
            assert!(consumed_minutes() <= Some(1.0), "{:?} after {number}", consumed_minutes());
        }
        produce(activations, 400 + round, 2, "");
        eventually("the lag has the waiting records", || match lag() {
            Some(lag) if lag == 3.0 + round as f64 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert!(complete() <= Some(opened), "after {round} refreshes");
        assert!(
            consumed_minutes() <= Some(1.0),
            "{:?} after {round} refreshes",
            consumed_minutes()
        );
    }
    assert_eq!(lag(), Some(6.0));
    assert!(adtrail.metric_of("adtrail_ingest_lag_seconds", &topic) > Some(3.0));
    assert_eq!(adtrail.admin("/readyz").expect("adtrail responds").status, 200);

    waiting.commit();
    adtrail.await_read(3 + 2 + 4 + 2 * 20);
    let mut number = 300;
    eventually("completeness and expiry advance again", || {
        number += 1;
        produce(activations, number, 60, "");
        let (until, minutes) = (complete(), consumed_minutes());
        let has_advanced = until > Some(opened) && minutes > Some(1.0);
        if has_advanced { Ok(()) } else { Err(format!("{until:?} {minutes:?}")) }
    });
}

/// `/readyz` names the topic, and the lag grows; ingest resumes by itself.
#[test]
fn a_revoked_read_permission_is_reported_and_reading_resumes_once_granted() {
    let kafka = Kafka::start_with_rules();
    for operation in length(&["Read"][..], &["Read", "All"]) {
        let name = format!("kept.denied-{operation}");
        let site =
            Site::new(&kafka, &name, 2, ONE_CAMPAIGN).set("store.retention", "off").impatient();
        let topic = &*site.topics.activations;
        let (before, after) = (ids("before", 20), ids("after", 20));
        kafka.produce(topic, messages(&before));
        let adtrail = site.start();
        adtrail.await_read(20);
        kafka.rule(true, topic, operation);
        adtrail.await_readiness(503, topic);
        let lag = || adtrail.metric_of("adtrail_ingest_lag_messages", topic);
        assert!(lag() > Some(0.0), "{:?}", lag());
        let names_topic =
            |log: &str| log.contains("kafka does not let adtrail read") && log.contains(topic);
        // The readiness changes before the line is logged.
        eventually("the log names the topic", || {
            names_topic(&adtrail.log()).then_some(()).ok_or(adtrail.log())
        });
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

#[test]
fn a_deleted_dead_letter_topic_is_reported() {
    let kafka = Kafka::shared();
    let site = site("kept.deleted-letters");
    let (topic, letters) = (&*site.topics.activations, format!("{}.dlq", site.topics.activations));
    let adtrail = site.start();
    kafka.delete_topics(std::slice::from_ref(&letters));
    kafka.produce(topic, [Message::new("key", "x")]);
    adtrail.await_readiness(503, "dead letters are not acknowledged");
    // The message is not librdkafka's, which logs nothing for half a minute.
    eventually("the log names the topic", || {
        let log = adtrail.log();
        let is_report = |line: &str| line.contains("does not exist") && line.contains(&letters);
        if log.lines().any(is_report) { Ok(()) } else { Err(log) }
    });
    let log = adtrail.log();
    assert!(!log.contains("produced to the dead-letter topic"), "{log}");
    kafka.create_topic(&letters, 1, &[]);
    adtrail.await_read(1);
    adtrail.await_readiness(200, "");
    assert_eq!(kafka.consume_all(&letters).len(), 1);
}

#[test]
fn compacted_topics_with_offset_gaps_are_read() {
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
    // The same keys, so that compaction leaves only the new records, at offsets from 50 on.
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
