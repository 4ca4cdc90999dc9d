//! Avro and JSON on the same topics, with a real Kafka and a real registry: both are attributed in the same way, and
//! undecodable records become dead letters.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};
use testbed::avro::{ACTIVATION, CLICK, avro, by_guid, by_header, by_id, message, schema};
use testbed::kafka::{Kafka, Message};
use testbed::registry::{Registered, Registry};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{eventually, rows};

/// Returns the time of all events: now, since old rows and records would have expired.
fn now_ms() -> i64 {
    static NOW: LazyLock<Timestamp> = LazyLock::new(Timestamp::now);
    NOW.as_millisecond()
}

fn activation(number: u32) -> Value {
    json!({"app": "app-x", "event_id": format!("a-{number}"), "time": now_ms(),
           "ids": {"oaid": format!("o-{number}")}})
}

fn click(number: u32) -> Value {
    json!({"app": "app-x", "click_id": format!("c-{number}"), "spreadid": 7,
           "time": now_ms() - 1_000, "ids": {"oaid": format!("o-{number}")}})
}

fn site(kafka: &Kafka, registry: &Registry, name: &str) -> Site {
    let urls = format!("[registry]\nurls = [{:?}]\n", registry.url());
    Site::new(kafka, name, 1, &format!("{urls}{ONE_CAMPAIGN}"))
}

fn statuses(csv: &[u8]) -> Vec<(String, String)> {
    let rows = rows::by_event_id(rows::parse(csv));
    rows.into_iter().map(|(id, row)| (id, row["status"].clone())).collect()
}

fn download(site: &Site) -> Vec<u8> {
    site.download("app-x", "2000-01-01", "2100-01-01", &[])
}

#[test]
fn avro_with_any_framing_and_json_are_attributed_on_one_topic() {
    let (kafka, registry) = (Kafka::shared(), Registry::shared());
    let clicks = registry.register("every-frame-clicks", &schema(CLICK), &[]);
    let activations = registry.register("every-frame-activations", &schema(ACTIVATION), &[]);
    let site = site(kafka, registry, "every-frame");
    let [clicks_topic, activations_topic, _] = site.topics.all();
    let (click_schema, activation_schema) = (schema(CLICK), schema(ACTIVATION));
    let frames = [by_id, by_header, by_guid];
    let messages = (0..).zip(frames).flat_map(|(number, frame)| {
        let click = frame(&clicks, &avro(&click_schema, &click(number)));
        let activation = frame(&activations, &avro(&activation_schema, &activation(number)));
        [(clicks_topic, click), (activations_topic, activation)]
    });
    let json = [
        (clicks_topic, message(click(3).to_string().into())),
        (activations_topic, message(activation(3).to_string().into())),
    ];
    kafka.produce_all(messages.chain(json));
    let service = site.start();
    service.await_read(8);
    let expected = (0..4).map(|number| (format!("a-{number}"), "attributed".to_owned()));
    assert_eq!(statuses(&download(&site)), expected.collect::<Vec<_>>());
    assert_eq!(service.metric("adtrail_ingest_dead_lettered_total"), Some(0.0));
    let shown = site.run(&["peek", activations_topic]);
    let lines = String::from_utf8(shown.stdout).expect("valid UTF-8");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("valid JSON"));
    let (schemas, ids): (Vec<_>, Vec<_>) =
        lines.map(|line| (line["schema"].clone(), line["event"]["event_id"].clone())).unzip();
    assert_eq!(ids, ["a-0", "a-1", "a-2", "a-3"]);
    assert_eq!(schemas[0], format!("avro id {}", activations.id));
    assert!(schemas[1] == schemas[2] && schemas[1].to_string().contains("avro guid "));
    assert_eq!(schemas[3], "json");
}

#[test]
fn json_framed_with_its_schema_id_is_read_as_json() {
    let (kafka, registry) = (Kafka::shared(), Registry::shared());
    let text = include_str!("../../schemas/json/activation.schema.json");
    let registered = registry.register_as("JSON", "framed-json", text, &[]);
    let site = site(kafka, registry, "framed-json");
    let topic = site.topics.all()[1];
    let frames = [by_id, by_header, by_guid];
    let framed = (0..)
        .zip(frames)
        .map(|(number, frame)| frame(&registered, activation(number).to_string().as_bytes()));
    let cut = by_id(&registered, b"{");
    kafka.produce(topic, framed.chain([cut]));
    let service = site.start();
    service.await_read(4);
    let expected = (0..3).map(|number| (format!("a-{number}"), "organic".to_owned()));
    assert_eq!(statuses(&download(&site)), expected.collect::<Vec<_>>());
    let letters = eventually("the dead letter exists", || {
        let letters = kafka.consume_all(&format!("{topic}.dlq"));
        if letters.len() == 1 { Ok(letters) } else { Err(letters.len()) }
    });
    let code = ("adtrail.error.code".to_owned(), b"not_json".to_vec());
    assert!(letters[0].headers.contains(&code), "{:?}", letters[0].headers);
    let shown = site.run(&["peek", topic, "--count", "1"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("valid JSON");
    assert_eq!(shown["schema"], format!("json id {}", registered.id));
}

#[test]
fn undecodable_records_become_dead_letters_unchanged() {
    let (kafka, registry) = (Kafka::shared(), Registry::shared());
    let usable = registry.register("dead-activations", &schema(ACTIVATION), &[]);
    let number = registry.register("dead-number", &json!("long"), &[]);
    let site = site(kafka, registry, "avro-dead");
    let topic = site.topics.all()[1];
    let datum = avro(&schema(ACTIVATION), &activation(0));
    let unknown = Registered { id: 2_000_000, guid: [9; 16] };
    let bad_header = vec![("__value_schema_id".to_owned(), vec![1, 2, 3])];
    let bad = [
        (by_id(&usable, &datum[..datum.len() - 1]), "not_avro"),
        (by_id(&usable, &[&datum[..], &[0]].concat()), "not_avro"),
        (message(vec![0, 0, 0]), "not_avro"),
        (message(vec![1; 16]), "not_avro"),
        (Message { headers: bad_header, ..message(datum.clone()) }, "not_avro"),
        (by_id(&unknown, &datum), "unknown_schema"),
        (by_guid(&unknown, &datum), "unknown_schema"),
        (by_id(&number, &[2]), "bad_schema"),
        (message(datum.clone()), "not_json"),
    ];
    let good = by_header(&usable, &datum);
    let sent: Vec<_> = bad.iter().map(|(message, _)| message.clone()).chain([good]).collect();
    kafka.produce(topic, sent);
    let service = site.start();
    service.await_read(10);
    assert_eq!(statuses(&download(&site)), [("a-0".to_owned(), "organic".to_owned())]);
    let letters = eventually("all dead letters exist", || {
        let letters = kafka.consume_all(&format!("{topic}.dlq"));
        if letters.len() == bad.len() { Ok(letters) } else { Err(letters.len()) }
    });
    for ((message, code), letter) in bad.iter().zip(&letters) {
        assert_eq!((&letter.value, &letter.key), (&message.value, &message.key));
        let found = letter.headers.iter().find(|(name, _)| name == "adtrail.error.code");
        assert_eq!(found.map(|(_, code)| &**code), Some(code.as_bytes()));
        assert!(message.headers.iter().all(|header| letter.headers.contains(header)));
    }
}

#[test]
fn a_partition_with_too_many_bad_records_is_paused_and_others_are_read() {
    let kafka = Kafka::shared();
    let settings = format!("[ingest]\nbad_records_max = 3\n{ONE_CAMPAIGN}");
    let mut site = Site::new(kafka, "too-many-bad", 2, &settings);
    let topic = site.topics.all()[1].to_owned();
    let on =
        |partition, value: String| Message { partition: Some(partition), ..message(value.into()) };
    let unknown = |number| on(0, activation(number).to_string().replace("app-x", "app-q"));
    let good = |partition, number| on(partition, activation(number).to_string());
    let first = [good(0, 0)].into_iter().chain((1..6).map(unknown)).chain([good(0, 6)]);
    kafka.produce(&topic, first.chain([good(1, 7)]));
    let service = site.start();
    service.await_read_more_than(4);
    let reason = "reason=\"bad\"";
    service.await_metric("adtrail_ingest_paused_partitions", reason, |paused| paused == 1.0);
    kafka.produce(&topic, [good(1, 8)]);
    service.await_read_more_than(5);
    assert!(service.log().contains("ingest.bad_records_max"), "{}", service.log());
    service.await_metric("adtrail_ingest_lag_messages", "activations", |lag| lag == 3.0);
    let found: Vec<_> = statuses(&download(&site)).into_iter().map(|(id, _)| id).collect();
    assert_eq!(found, ["a-0", "a-7", "a-8"]);
    drop(service);
    let app = "[[apps]]\npid = 2\nkey = \"app-q\"\n";
    site.change(&format!("{settings}{app}"));
    let service = site.start();
    service.await_read(3);
    let found: Vec<_> = statuses(&download(&site)).into_iter().map(|(id, _)| id).collect();
    assert_eq!(found, ["a-0", "a-6", "a-7", "a-8"]);
    let others = site.download("app-q", "2000-01-01", "2100-01-01", &[]);
    assert_eq!(statuses(&others).len(), 2);
}

#[test]
fn a_topic_can_be_unframed_avro_with_a_schema_file() {
    let kafka = Kafka::shared();
    let mut site = Site::new(kafka, "bare-avro", 1, "");
    let file = site.write("activation.avsc", ACTIVATION);
    let settings = format!("[kafka.formats]\nactivations = \"avro:{file}\"\n{ONE_CAMPAIGN}");
    site.change(&settings);
    let datum = avro(&schema(ACTIVATION), &activation(0));
    kafka.produce(site.topics.all()[1], [message(datum)]);
    let service = site.start();
    service.await_read(1);
    assert_eq!(statuses(&download(&site)).len(), 1);
    drop(service);
    site.change(&settings.replace("activation.avsc", "absent.avsc"));
    let refused = site.try_start().expect_err("the schema file is missing");
    assert!(refused.contains("kafka.formats.activations"), "{refused}");
    let checked = site.run(&["check-config"]);
    assert_eq!(checked.status.code(), Some(2));
    site.change("[kafka.formats]\nclicks = \"avro\"");
    let refused = site.try_start().expect_err("no registry is configured");
    assert!(refused.contains("kafka.formats.clicks: avro needs a registry"), "{refused}");
}
