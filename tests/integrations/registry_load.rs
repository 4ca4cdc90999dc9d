//! A real registry that is gone for a while, under load.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testbed::avro::{ACTIVATION, CLICK, avro, by_id, message, schema};
use testbed::kafka::{Kafka, Message};
use testbed::registry::{Registered, Registry};
use testbed::rows::{self, Row};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{eventually, from_env, length};

/// So many installs are sent at once, and so often.
const AT_ONCE: usize = 20;
const EVERY: Duration = Duration::from_millis(50);

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

    fn message(&self, event: &Value) -> Message {
        by_id(&self.1, &avro(&self.0, event))
    }
}

/// A click and its activation, an hour ago.
fn install(number: usize) -> [Value; 2] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let time = i64::try_from(now.as_millis()).expect("a time") - 3_600_000;
    let ids = json!({"oaid": format!("o-{number}")});
    let click = json!({"app": "app-x", "click_id": format!("c-{number}"), "spreadid": 7,
                       "time": time, "ids": ids});
    let activation = json!({"app": "app-x", "event_id": format!("a-{number}"),
                            "time": time + 60_000, "ids": ids});
    [click, activation]
}

/// Those come to one partition of each topic, all others to the other one.
fn is_odd(number: usize) -> bool {
    number % 2 == 1
}

/// Some of both partitions, but none of the first that are sent at once.
fn is_json(number: usize) -> bool {
    number % 10 >= 8
}

/// Installs that are sent until it is over, each a click and an activation, in Avro but for some.
struct Load {
    /// Of clicks and of activations, known before the registry is gone.
    old: [Known; 2],
    /// Of odd numbers once schemas have grown: nobody has asked for them before.
    new: [Known; 2],
    has_grown: AtomicBool,
    is_over: AtomicBool,
    sent: AtomicUsize,
}

impl Load {
    fn of(registry: &Registry) -> Self {
        let [clicks, installs] = [schema(CLICK), schema(ACTIVATION)];
        let new = [grown(&clicks), grown(&installs)];
        let register = |[clicks, installs]: [Value; 2]| {
            [("load-clicks", clicks), ("load-installs", installs)]
                .map(|(subject, schema)| Known::register(registry, subject, schema))
        };
        Self {
            old: register([clicks, installs]),
            new: register(new),
            has_grown: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            sent: AtomicUsize::new(0),
        }
    }

    /// How many were sent, once it is over.
    fn send(&self, [clicks, activations, _]: [&str; 3]) -> usize {
        let producer = Kafka::shared().producer();
        let mut sent = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            let has_grown = self.has_grown.load(Ordering::SeqCst);
            let messages = (sent..sent + AT_ONCE).flat_map(|number| {
                let [click, activation] = self.messages(number, has_grown);
                [(clicks, click), (activations, activation)]
            });
            producer.produce_all(messages);
            sent += AT_ONCE;
            self.sent.store(sent, Ordering::SeqCst);
            thread::sleep(EVERY);
        }
        sent
    }

    fn messages(&self, number: usize, has_grown: bool) -> [Message; 2] {
        let is_odd = is_odd(number);
        let known = if is_odd && has_grown { &self.new } else { &self.old };
        let events = install(number);
        [0, 1].map(|topic| {
            let event = &events[topic];
            let message = match is_json(number) {
                true => message(event.to_string().into()),
                false => known[topic].message(event),
            };
            Message { partition: Some(i32::from(is_odd)), ..message }
        })
    }

    /// The number from which on all odd ones are behind one of a new schema.
    fn grow(&self) -> usize {
        self.has_grown.store(true, Ordering::SeqCst);
        // Those that are being sent may have the old ones yet.
        self.sent.load(Ordering::SeqCst) + AT_ONCE
    }
}

/// Ends the load, also where a check has failed.
struct End<'a>(&'a Load);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

/// For how long the registry is gone: a minute, and more, by hand.
fn outage() -> Duration {
    Duration::from_secs(from_env("ADTRAIL_TEST_OUTAGE_S", length(1, 5)))
}

fn rows(site: &Site) -> Vec<Row> {
    rows::parse(&site.download("app-x", "2000-01-01", "2100-01-01", &[]))
}

/// JSON and what has a known schema is read on, and nothing behind what waits.
#[track_caller]
fn check_read_on(site: &Site, grown: usize) {
    let number = |row: &Row| row["event_id"][2..].parse::<usize>().expect("a number");
    let shown = eventually("events in JSON are read on", || {
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
fn a_registry_that_goes_and_comes_back_under_load() {
    let mut registry = Registry::start();
    let load = Load::of(&registry);
    let settings = format!("[registry]\nurls = [{:?}]\n{ONE_CAMPAIGN}", registry.url());
    let site = Site::new(Kafka::shared(), "registry-load", 2, &settings);
    let service = site.start();
    let held = || service.metric_of("adtrail_ingest_paused_partitions", "reason=\"schema\"");
    let await_held = |count: f64| {
        eventually("so many partitions wait for schemas", || match held() {
            Some(held) if held == count => Ok(()),
            other => Err(format!("{other:?} of {count}")),
        });
    };
    let sent = thread::scope(|scope| {
        let end = End(&load);
        let sending = scope.spawn(|| load.send(site.topics.all()));
        let found = || service.metric_of("adtrail_registry_requests_total", "outcome=\"found\"");
        eventually("the first schemas are known", || match found() {
            Some(2.0..) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        registry.stop();
        let since = Instant::now();
        let grown = load.grow();
        // Of each topic one.
        await_held(2.0);
        check_read_on(&site, grown);
        thread::sleep(outage().saturating_sub(since.elapsed()));
        service.await_readiness(503, "the schema registry does not answer");
        assert_eq!(held(), Some(2.0));
        registry.restart();
        await_held(0.0);
        drop(end);
        sending.join().expect("the load is sent")
    });
    service.await_read(2 * sent as u64);
    let rows = rows::by_event_id(rows(&site));
    assert_eq!(rows.len(), sent, "each once");
    for number in 0..sent {
        let row = &rows[&format!("a-{number}")];
        assert_eq!((&*row["status"], &*row["click_id"]), ("attributed", &*format!("c-{number}")));
    }
    assert_eq!(service.metric("adtrail_ingest_dead_lettered_total"), Some(0.0));
    assert_eq!(service.admin("/readyz").expect("it answers").status, 200);
    println!("{sent} installs, {:?} without the registry", outage());
}
