//! Invalid records: each is produced unchanged to the dead-letter topic, with the error, and the valid events around it
//! are attributed.

use std::collections::BTreeMap;

use testbed::kafka::{Kafka, Message, Record};
use testbed::rows;
use testbed::site::{ONE_CAMPAIGN, Site, Topics};

use super::NOON_MS;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Clicks,
    Activations,
    Effects,
}
use Topic::{Activations, Clicks, Effects};

impl Topic {
    fn name(self, topics: &Topics) -> &str {
        topics.all()[self as usize]
    }
}

/// A record that is not a valid event.
struct Case {
    topic: Topic,
    value: Vec<u8>,
    /// Error code of the dead letter.
    code: &'static str,
    /// Part of its error message.
    message: &'static str,
}

/// Returns a case for each error code and topic, and values that are not text. `ingest/src/decode/tests.rs` has the
/// others.
#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let case = |topic, value: &str, code, message| Case { topic, value: value.into(), code, message };
    let bytes = |value: &[u8], code, message| Case { topic: Activations, value: value.into(), code, message };
    let large = format!(r#"{{"app":"app-x","time":1741608000000,"ua":"{}"}}"#, "x".repeat(10 << 20));
    vec![
        case(Activations, "[1]", "not_an_object", "not an object"),
        case(Activations, r#"{"app":"app-x","time":17416"#, "not_json", "EOF"),
        bytes(b"{\"app\":\"app-x\",\"time\":1741608000000,\"ua\":\"\xff\xfe\"}", "not_json", "UTF-8"),
        bytes(b"\x00\x00\x00\x00\x07avro", "unknown_schema", "registry.urls"),
        case(Activations, r#"{"app":"app-x"}"#, "missing_field", "time is missing"),
        case(Activations, r#"{"app":"app-q","time":1741608000000}"#, "unknown_app", "app-q"),
        case(Activations, r#"{"app":"app-x","time":1741694400001}"#, "bad_time", "ahead"),
        case(Activations, r#"{"app":"app-x","time":1741003199999}"#, "too_late", "correction_horizon"),
        case(Activations, r#"{"app":"app-x","time":1741608000000,"type":"click"}"#, "bad_value", "another topic"),
        case(Activations, &large, "too_large", "65536 bytes"),
        case(Clicks, r#"{"app":"app-x","time":1741608000000,"click_id":"c","spreadid":"7"}"#, "wrong_type", "spreadid"),
        case(Effects, r#"{"app":"app-x","time":1741608000000,"name":"n","props":{"level":3}}"#, "wrong_type", "props.level"),
    ]
}

/// Returns a click, the activation that is credited to it, and an effect of the activation.
fn good(number: usize) -> [(Topic, String); 3] {
    let common = format!(r#""app":"app-x","ids":{{"oaid":"device-{number}"}}"#);
    [
        (Clicks, format!(r#"{{{common},"click_id":"c-{number}","spreadid":7,"time":{NOON_MS}}}"#)),
        (Activations, format!(r#"{{{common},"event_id":"a-{number}","time":{}}}"#, NOON_MS + 1)),
        (
            Effects,
            format!(
                r#"{{{common},"event_id":"e-{number}","name":"buy","time":{},"revenue":9007199254740993}}"#,
                NOON_MS + 2
            ),
        ),
    ]
}

/// Creates the topics, except those of dead letters, which adtrail creates.
fn create_topics(kafka: &Kafka, topics: &Topics, partitions: i32) {
    for topic in topics.all() {
        let settings = [("max.message.bytes", "20000000"), ("retention.ms", "-1")];
        kafka.create_topic(topic, partitions, &settings);
    }
}

/// Produces every bad record between good ones, with and without a key, and records without a value. All have the same
/// broker timestamp.
fn produce(kafka: &Kafka, topics: &Topics, cases: &[Case]) {
    let keys: [Option<&[u8]>; 3] = [Some(b"app-x"), None, Some(b"\xff\x00key")];
    let mut messages = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let bad = Message {
            key: keys[number % keys.len()].map(<[u8]>::to_vec),
            value: Some(case.value.clone()),
            headers: vec![("trace".into(), b"\x00\xff".to_vec()), ("trace".into(), vec![])],
            ..Message::default()
        };
        messages.push((case.topic, bad));
        messages.push((case.topic, Message { key: Some(b"app-x".to_vec()), ..Message::default() }));
        messages.push((case.topic, Message::new("app-x", "")));
        let good = good(number).map(|(topic, line)| (topic, Message::new("app-x", line)));
        messages.extend(good);
    }
    let messages = messages.into_iter();
    kafka.produce_all(messages.map(|(topic, message)| (topic.name(topics), message.at(NOON_MS))));
}

#[test]
fn invalid_records_become_dead_letters() {
    let kafka = Kafka::shared();
    let topics = Topics::of("bad");
    create_topics(kafka, &topics, 2);
    let cases = cases();
    produce(kafka, &topics, &cases);
    let site = Site::on(topics, kafka.brokers(), ONE_CAMPAIGN);
    let adtrail = site.start();
    adtrail.await_read(6 * cases.len() as u64);

    for topic in [Clicks, Activations, Effects] {
        let of_topic: Vec<_> = cases.iter().filter(|case| case.topic == topic).collect();
        check_dead_letters(kafka, topic.name(&site.topics), &of_topic);
        let label = format!("topic=\"{}\"", topic.name(&site.topics));
        let metric = |name: &str| adtrail.metric_of(name, &label).unwrap();
        assert_eq!(metric("adtrail_ingest_dead_lettered_total"), of_topic.len() as f64);
        assert_eq!(metric("adtrail_ingest_empty_total"), 2.0 * of_topic.len() as f64);
        assert_eq!(metric("adtrail_attribution_accepted_total"), cases.len() as f64);
        let read = cases.len() + 3 * of_topic.len();
        assert_eq!(metric("adtrail_ingest_read_total"), read as f64);
    }

    let rows =
        rows::by_event_id(rows::parse(&site.download("app-x", "2025-03-10", "2025-03-10", &[])));
    assert_eq!(rows.len(), 2 * cases.len());
    for (id, row) in &rows {
        let [status, channel, revenue] = ["status", "channel", "revenue"].map(|name| &*row[name]);
        let expected = if id.starts_with('e') { "9007199254740993" } else { "" };
        assert_eq!([status, channel, revenue], ["attributed", "toutiao", expected], "{id}");
    }

    // Positions are committed past the bad records: none becomes a dead letter again.
    adtrail.stop();
    let adtrail = site.start();
    adtrail.await_caught_up();
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
    let letters = site.topics.all().map(|topic| kafka.consume_all(&format!("{topic}.dlq")).len());
    assert_eq!(letters.iter().sum::<usize>(), cases.len());
}

/// Kafka accepts values that are small when compressed. Neither one that no dead letter can contain nor one that the
/// client does not decompress stops reading.
#[test]
fn values_that_are_too_large_for_dead_letters_are_passed_over() {
    const BYTES: usize = 120_000_000;
    let kafka = Kafka::shared();
    let topics = Topics::of("bad.huge");
    for topic in topics.all() {
        kafka.create_topic(topic, 1, &[("retention.ms", "-1")]);
    }
    let huge = "0".repeat(BYTES);
    for (topic, codec) in [(Activations, "gzip"), (Effects, "zstd")] {
        let settings = [("message.max.bytes", "200000000"), ("compression.type", codec)];
        let producer = kafka.producer_with(&settings);
        let value = Message::new("app-x", huge.as_str()).at(NOON_MS);
        producer.produce_all([(topic.name(&topics), value)]);
    }
    let good = good(1).map(|(topic, line)| (topic, Message::new("app-x", line).at(NOON_MS)));
    kafka.produce_all(good.map(|(topic, message)| (topic.name(&topics), message)));
    // Only zstd is limited: the value of the other topic is decompressed.
    let site = Site::on(topics, kafka.brokers(), ONE_CAMPAIGN)
        .set("kafka.librdkafka.receive.message.max.bytes", "40000000");
    let adtrail = site.start();
    adtrail.await_read(5);
    let rows = rows::parse(&site.download("app-x", "2025-03-10", "2025-03-10", &[]));
    assert_eq!(rows.len(), 2);

    let check = |topic: Topic, code: &str, length: Option<&str>| {
        let letters = kafka.consume_all(&format!("{}.dlq", topic.name(&site.topics)));
        assert_eq!(letters.len(), 1, "{code}");
        let letter = &letters[0];
        let header = |name: &str| {
            let found = letter.headers.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
        };
        assert_eq!(letter.value, None, "{code}");
        assert_eq!(header("adtrail.error.code").as_deref(), Some(code));
        assert_eq!(header("__connect.errors.offset").as_deref(), Some("0"));
        assert_eq!(header("adtrail.value.length").as_deref(), length, "{code}");
        assert_eq!(header("adtrail.value.sha256").is_some(), length.is_some(), "{code}");
    };
    check(Activations, "too_large", Some("120000000"));
    check(Effects, "unreadable", None);

    // Such letters cannot be sent back.
    let dlq = format!("{}.dlq", Activations.name(&site.topics));
    let replayed = site.run(&["replay-dlq", &dlq]);
    let (table, log) = (
        String::from_utf8_lossy(&replayed.stdout).into_owned(),
        String::from_utf8_lossy(&replayed.stderr).into_owned(),
    );
    assert!(replayed.status.success(), "{log}");
    assert!(table.contains(",,1,0,0,0,0,1"), "{table}");
    assert!(log.contains("it has no value"), "{log}");

    adtrail.stop();
    let adtrail = site.start();
    adtrail.await_caught_up();
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
}

/// Checks that each case has exactly one dead letter, byte for byte, with its origin and its error.
#[track_caller]
fn check_dead_letters(kafka: &Kafka, topic: &str, cases: &[&Case]) {
    let sources: BTreeMap<(String, String), Record> = kafka
        .consume_all(topic)
        .into_iter()
        .map(|record| ((record.partition.to_string(), record.offset.to_string()), record))
        .collect();
    let letters = kafka.consume_all(&format!("{topic}.dlq"));
    assert_eq!(letters.len(), cases.len());
    for letter in &letters {
        let (own, added) = letter.headers.split_at(2);
        let added: BTreeMap<&str, String> = added
            .iter()
            .map(|(key, value)| (&**key, String::from_utf8(value.clone()).unwrap()))
            .collect();
        let header = |name: &str| added[&*format!("__connect.errors.{name}")].clone();
        let source = &sources[&(header("partition"), header("offset"))];
        assert!(letter.key == source.key && letter.value == source.value, "{added:?}");
        assert_eq!(own, source.headers, "{added:?}");
        let case = cases.iter().find(|case| Some(&case.value) == letter.value.as_ref());
        let case = case.unwrap_or_else(|| panic!("a good event became a dead letter: {added:?}"));
        let start = String::from_utf8_lossy(&case.value[..case.value.len().min(100)]);
        assert_eq!(added["adtrail.error.code"], case.code, "{start}");
        assert!(header("exception.message").contains(case.message), "{start}: {added:?}");
        assert_eq!(header("exception.class.name"), format!("adtrail.{}", case.code));
        assert_eq!(
            (header("topic").as_str(), header("stage").as_str()),
            (topic, "VALUE_CONVERTER")
        );
        assert_eq!(added.len(), 7, "{added:?}");
    }
}

/// docs/drills.md: a restart alone pauses the partition again, a lifted limit makes dead letters of the bad records.
#[test]
fn a_paused_partition_is_read_once_the_limit_is_lifted() {
    let kafka = Kafka::shared();
    let settings = |limit| format!("[ingest]\nbad_records_max = {limit}\n{ONE_CAMPAIGN}");
    let site = Site::new(kafka, "bad.lifted", 1, &settings(3));
    let mut site = site.set("attribution.correction_horizon", "off");
    let topic = site.topics.activations.clone();
    let letters = format!("{topic}.dlq");
    let good = good(1).into_iter().find(|(of, _)| *of == Activations).map(|(_, value)| value);
    let bad = (0..10).map(|_| "[1]".to_owned());
    kafka.produce(&topic, bad.chain(good).map(|value| Message::new("app-x", value)));
    for letters_before in [0, 3] {
        assert_eq!(kafka.written(&letters), letters_before);
        let adtrail = site.start();
        adtrail.await_metric("adtrail_ingest_dead_lettered_total", "", |letters| letters == 3.0);
        let is_one = |paused| paused == 1.0;
        adtrail.await_metric("adtrail_ingest_paused_partitions", "reason=\"bad\"", is_one);
        adtrail.stop();
    }
    site.change(&settings(10_000));
    let adtrail = site.start();
    adtrail.await_read(5);
    assert_eq!(kafka.written(&letters), 10);
    assert_eq!(rows::parse(&site.download("app-x", "2025-03-10", "2025-03-11", &[])).len(), 1);
    adtrail.stop();
}
