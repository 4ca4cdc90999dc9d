//! An outage of a real registry under load: records with uncached schemas wait, and nothing is lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use testbed::avro::{ACTIVATION, CLICK, avro, by_id, message, schema};
use testbed::kafka::{Kafka, Message};
use testbed::registry::{Registered, Registry};
use testbed::rows::{self, Row};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{SetOnDrop, eventually, from_env, length};

/// Number of installs that are sent at a time.
const BATCH_INSTALLS: usize = 20;
/// Interval between these batches.
const BATCH_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the schema with an added field, as schemas evolve.
fn with_added_field(schema: &Value) -> Value {
    let mut grown = schema.clone();
    let added = json!({"name": "added", "type": ["null", "string"], "default": null});
    grown["fields"].as_array_mut().expect("fields are a list").push(added);
    grown
}

/// A schema and its ids in the registry.
struct Subject(Value, Registered);

impl Subject {
    fn register(registry: &Registry, subject: &str, schema: Value) -> Self {
        let registered = registry.register(subject, &schema, &[]);
        Self(schema, registered)
    }

    fn message(&self, event: &Value) -> Message {
        by_id(&self.1, &avro(&self.0, event))
    }
}

/// Returns a click and its activation, an hour ago.
fn install(number: usize) -> [Value; 2] {
    let time = Timestamp::now().as_millisecond() - 3_600_000;
    let ids = json!({"oaid": format!("o-{number}")});
    let click = json!({"app": "app-x", "click_id": format!("c-{number}"), "spreadid": 7,
                       "time": time, "ids": ids});
    let activation = json!({"app": "app-x", "event_id": format!("a-{number}"),
                            "time": time + 60_000, "ids": ids});
    [click, activation]
}

/// Checks whether a number is odd: odd numbers are sent to one partition of each topic, even numbers to the other.
fn is_odd(number: usize) -> bool {
    number % 2 == 1
}

/// Checks whether an event is JSON. In both partitions some events are, but not the first ones of a batch.
fn is_json(number: usize) -> bool {
    number % 10 >= 8
}

/// Sends installs until `is_over`, each a click and an activation, mostly in Avro.
struct Load {
    /// Schemas of clicks and activations; they are cached before the outage.
    old: [Subject; 2],
    /// Schemas of odd numbers once `has_grown` is set; they are not cached before the outage.
    new: [Subject; 2],
    has_grown: AtomicBool,
    is_over: AtomicBool,
    sent: AtomicUsize,
}

impl Load {
    fn of(registry: &Registry) -> Self {
        let [clicks, installs] = [schema(CLICK), schema(ACTIVATION)];
        let new = [with_added_field(&clicks), with_added_field(&installs)];
        let register = |[clicks, installs]: [Value; 2]| {
            [("load-clicks", clicks), ("load-installs", installs)]
                .map(|(subject, schema)| Subject::register(registry, subject, schema))
        };
        Self {
            old: register([clicks, installs]),
            new: register(new),
            has_grown: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            sent: AtomicUsize::new(0),
        }
    }

    /// Sends installs. Returns their number.
    fn send(&self, [clicks, activations, _]: [&str; 3]) -> usize {
        let producer = Kafka::shared().producer();
        let mut sent = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            let has_grown = self.has_grown.load(Ordering::SeqCst);
            let messages = (sent..sent + BATCH_INSTALLS).flat_map(|number| {
                let [click, activation] = self.messages(number, has_grown);
                [(clicks, click), (activations, activation)]
            });
            producer.produce_all(messages);
            sent += BATCH_INSTALLS;
            self.sent.store(sent, Ordering::SeqCst);
            thread::sleep(BATCH_INTERVAL);
        }
        sent
    }

    fn messages(&self, number: usize, has_grown: bool) -> [Message; 2] {
        let is_odd = is_odd(number);
        let subjects = if is_odd && has_grown { &self.new } else { &self.old };
        let events = install(number);
        [0, 1].map(|topic| {
            let event = &events[topic];
            let message = match is_json(number) {
                true => message(event.to_string().into()),
                false => subjects[topic].message(event),
            };
            Message { partition: Some(i32::from(is_odd)), ..message }
        })
    }

    /// Switches to the new schemas. Returns a number after which every odd number is behind a record with a new schema.
    fn grow(&self) -> usize {
        self.has_grown.store(true, Ordering::SeqCst);
        // The batch that is being sent may still use the old schemas.
        self.sent.load(Ordering::SeqCst) + BATCH_INSTALLS
    }
}

/// Returns the duration of the outage: a minute and more in manual runs.
fn outage() -> Duration {
    Duration::from_secs(from_env("ADTRAIL_TEST_OUTAGE_S", length(1, 5)))
}

fn rows(site: &Site) -> Vec<Row> {
    rows::parse(&site.download("app-x", "2000-01-01", "2100-01-01", &[]))
}

/// Checks that the partition with JSON and cached schemas is read, but no record behind one that waits for its schema.
#[track_caller]
fn check_even_numbers_are_read(site: &Site, grown: usize) {
    let number = |row: &Row| row["event_id"][2..].parse::<usize>().expect("it is a number");
    let shown = eventually("events in JSON are read", || {
        let shown: BTreeSet<usize> = rows(site).iter().map(number).collect();
        match shown.range(grown..).any(|number| is_json(*number)) {
            true => Ok(shown),
            false => Err(format!("{:?} of {grown}", shown.last())),
        }
    });
    assert!(shown.range(grown..).any(|number| !is_json(*number)), "{shown:?} from {grown} on");
    assert!(!shown.range(grown..).any(|number| is_odd(*number)), "{shown:?} from {grown} on");
}

#[test]
fn a_registry_outage_under_load_loses_nothing() {
    let mut registry = Registry::start();
    let load = Load::of(&registry);
    let settings = format!("[registry]\nurls = [{:?}]\n{ONE_CAMPAIGN}", registry.url());
    let site = Site::new(Kafka::shared(), "registry-load", 2, &settings);
    let service = site.start();
    let (paused, schema) = ("adtrail_ingest_paused_partitions", "reason=\"schema\"");
    let await_paused = |count| service.await_metric(paused, schema, |paused| paused == count);
    let sent = thread::scope(|scope| {
        let end = SetOnDrop(&load.is_over);
        let sending = scope.spawn(|| load.send(site.topics.all()));
        // The first schemas are cached.
        let found = "outcome=\"found\"";
        service.await_metric("adtrail_registry_requests_total", found, |count| count >= 2.0);
        registry.stop();
        let since = Instant::now();
        let grown = load.grow();
        // One partition of each topic.
        await_paused(2.0);
        check_even_numbers_are_read(&site, grown);
        thread::sleep(outage().saturating_sub(since.elapsed()));
        service.await_readiness(503, "the schema registry does not respond");
        assert_eq!(service.metric_of(paused, schema), Some(2.0));
        registry.restart();
        await_paused(0.0);
        drop(end);
        sending.join().expect("the load is sent")
    });
    service.await_read(2 * sent as u64);
    let rows = rows::by_event_id(rows(&site));
    assert_eq!(rows.len(), sent, "one row for each install");
    for number in 0..sent {
        let row = &rows[&format!("a-{number}")];
        assert_eq!((&*row["status"], &*row["click_id"]), ("attributed", &*format!("c-{number}")));
    }
    assert_eq!(service.metric("adtrail_ingest_dead_lettered_total"), Some(0.0));
    assert_eq!(service.admin("/readyz").expect("adtrail responds").status, 200);
    println!("{sent} installs, {:?} without the registry", outage());
}
