//! A real registry under load: gone for a while, and asked for very many schemas that it has not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testbed::avro::{ACTIVATION, CLICK, avro, by_id, message, schema};
use testbed::kafka::{Kafka, Message};
use testbed::registry::{Registered, Registry};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{eventually, rows};

/// So many installs are sent at once, and so often.
const AT_ONCE: usize = 50;
const EVERY: Duration = Duration::from_millis(50);

fn site(registry: &Registry, name: &str, partitions: i32, more: &str) -> Site {
    let settings = format!("[registry]\nurls = [{:?}]\n{more}\n{ONE_CAMPAIGN}", registry.url());
    Site::new(Kafka::shared(), name, partitions, &settings)
}

/// The schema with one field more, as producers' schemas grow.
fn grown(schema: &Value) -> Value {
    let mut grown = schema.clone();
    let added = json!({"name": "added", "type": ["null", "string"], "default": null});
    grown["fields"].as_array_mut().expect("fields").push(added);
    grown
}

/// A schema and what the registry calls it.
struct Known(Value, Registered);

impl Known {
    fn register(registry: &Registry, subject: &str, schema: Value) -> Self {
        let registered = registry.register(subject, &schema, &[]);
        Self(schema, registered)
    }

    fn message(&self, partition: i32, event: &Value) -> Message {
        let message = by_id(&self.1, &avro(&self.0, event));
        Message { partition: Some(partition), ..message }
    }
}

/// A click and its activation, an hour ago.
fn install(number: usize) -> (Value, Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let time = i64::try_from(now.as_millis()).expect("a time") - 3_600_000;
    let ids = json!({"oaid": format!("o-{number}")});
    let click = json!({"app": "app-x", "click_id": format!("c-{number}"), "spreadid": 7,
                       "time": time, "ids": ids});
    let activation = json!({"app": "app-x", "event_id": format!("a-{number}"),
                            "time": time + 60_000, "ids": ids});
    (click, activation)
}

/// For how long the registry is gone: a minute, and more, by hand.
fn outage() -> Duration {
    let seconds = std::env::var("ADTRAIL_TEST_OUTAGE_S").ok();
    Duration::from_secs(seconds.map_or(5, |seconds| seconds.parse().expect("seconds")))
}

/// On each topic, events of a schema that is known come to one partition, and to the other those of
/// a schema that nobody has asked for before the registry is gone.
#[test]
fn a_registry_that_goes_and_comes_back_under_load() {
    let (kafka, mut registry) = (Kafka::shared(), Registry::start());
    let register = |name: &str, schema| Known::register(&registry, name, schema);
    let old =
        [register("load-clicks", schema(CLICK)), register("load-installs", schema(ACTIVATION))];
    let new = [
        register("load-clicks", grown(&schema(CLICK))),
        register("load-installs", grown(&schema(ACTIVATION))),
    ];
    let site = site(&registry, "registry-load", 2, "");
    let [clicks, activations, _] = site.topics.all();
    let service = site.start();
    let (is_growing, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let load = || {
        let producer = kafka.producer();
        let mut sent = 0;
        while !is_over.load(Ordering::Relaxed) {
            let is_growing = is_growing.load(Ordering::Relaxed);
            let messages = (sent..sent + AT_ONCE).flat_map(|number| {
                let partition = i32::from(number % 2 == 1);
                let known = if is_growing && partition == 1 { &new } else { &old };
                let (click, activation) = install(number);
                let click = known[0].message(partition, &click);
                [(clicks, click), (activations, known[1].message(partition, &activation))]
            });
            producer.produce_all(messages.collect::<Vec<_>>());
            sent += AT_ONCE;
            thread::sleep(EVERY);
        }
        sent
    };
    let sent = thread::scope(|scope| {
        let load = scope.spawn(load);
        service.await_some_read();
        registry.stop();
        is_growing.store(true, Ordering::Relaxed);
        let since = Instant::now();
        let held = || service.metric_of("adtrail_ingest_held_partitions", "reason=\"schema\"");
        eventually("both topics' new schemas are waited for", || match held() {
            Some(2.0) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        thread::sleep(outage().saturating_sub(since.elapsed()));
        assert_eq!(service.admin("/readyz").expect("it answers").status, 503);
        registry.restart();
        eventually("nothing is waited for", || match held() {
            Some(0.0) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        is_over.store(true, Ordering::Relaxed);
        load.join().expect("the load is sent")
    });
    service.await_read(2 * sent as u64);
    let rows = rows::parse(&site.download("app-x", "2000-01-01", "2100-01-01", &[]));
    assert_eq!(rows.len(), sent);
    let rows = rows::by_event_id(rows);
    assert_eq!(rows.len(), sent, "each once");
    for number in 0..sent {
        let row = &rows[&format!("a-{number}")];
        assert_eq!((&*row["status"], &*row["click_id"]), ("attributed", &*format!("c-{number}")));
    }
    assert_eq!(service.metric("adtrail_ingest_dead_lettered_total"), Some(0.0));
    assert_eq!(service.admin("/readyz").expect("it answers").status, 200);
    println!("{sent} installs, {:?} without the registry", outage());
}

#[test]
fn many_ids_that_the_registry_has_not() {
    const COUNT: u32 = 500;
    let (kafka, registry) = (Kafka::shared(), Registry::shared());
    let known = Known::register(registry, "many-ids", schema(ACTIVATION));
    let site = site(registry, "many-ids", 2, "[ingest]\nbad_records_max = 10000");
    let topic = site.topics.all()[1];
    let datum = avro(&known.0, &install(0).1);
    let unknown = (0..COUNT).map(|number| {
        let framed = [&[0][..], &(1_000_000 + number).to_be_bytes(), &datum].concat();
        Message { partition: Some(0), ..message(framed) }
    });
    let good = (0..100).map(|number| known.message(1, &install(number).1));
    kafka.produce(topic, unknown.chain(good));
    let started = Instant::now();
    let service = site.start();
    service.await_read(u64::from(COUNT) + 100);
    println!("{COUNT} unknown ids in {:?}", started.elapsed());
    assert_eq!(service.metric("adtrail_ingest_dead_lettered_total"), Some(f64::from(COUNT)));
    let asked = service.metric_of("adtrail_registry_requests_total", "outcome=\"unknown\"");
    assert_eq!(asked, Some(f64::from(COUNT)), "each is asked for once");
    let rows = rows::parse(&site.download("app-x", "2000-01-01", "2100-01-01", &[]));
    assert_eq!(rows.len(), 100);
}
