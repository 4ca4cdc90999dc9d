//! The conformance suite through all that runs in production: Kafka, the service, RocksDB, HTTP.
//!
//! `adtrail conformance` is asked twice, with engines of a line of shell each. The first keeps the
//! settings and events that it is handed. Each case is then run through Kafka, and its rows are
//! put where the second takes them from. So the code that reads cases and judges rows is the same
//! for this way as for any other engine.
//!
//! Run is every fourth case of the contract's own table. `CONFORMANCE_KAFKA` names others, as `--case`
//! takes them, or `all`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
use testbed::adtrail::{Adtrail, adtrail};
use testbed::kafka::{Kafka, Message, Producer};
use testbed::length;
use testbed::site::{Site, Topics};

const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance");

#[test]
fn contract_cases_hold_through_kafka() {
    let chosen = chosen();
    let folder = TempDir::with_prefix("adtrail-conformance-").unwrap();
    // No case passes here: there are no rows yet.
    conformance(folder.path(), r#"mkdir -p "$run" && cp "$2" "$5" "$run""#, &chosen);
    let runs = runs(folder.path());
    let cases = runs.len() / 2;
    run_all(runs);
    let judged = conformance(folder.path(), r#"cp "$run/rows.csv" "$4""#, &chosen);
    print!("{judged}");
    let summary = format!("{cases} cases in 4 orders each: {cases} passed, 0 failed");
    assert_eq!(judged.lines().last(), Some(&*summary));
}

/// Names for `--case`; none for all cases.
fn chosen() -> Vec<String> {
    match env::var("CONFORMANCE_KAFKA").as_deref() {
        Ok("all") => Vec::new(),
        Ok("") | Err(_) => of_the_table(),
        Ok(names) => names.split_whitespace().map(str::to_owned).collect(),
    }
}

/// The cases whose files have a number of the contract's table: `case-06-last-click.toml`.
fn of_the_table() -> Vec<String> {
    let name = |file: PathBuf| {
        let name = file.strip_prefix(SUITE).unwrap().with_extension("");
        name.to_str().unwrap().to_owned()
    };
    let names = in_sections(Path::new(SUITE)).into_iter().map(name);
    let mut names: Vec<_> = names.filter(|name| name.contains("/case-")).collect();
    names.sort();
    assert!(names.len() >= 30, "{names:?}");
    names.into_iter().step_by(length(4, 1)).collect()
}

/// What is in the folders of a folder.
fn in_sections(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let sections = entries(folder).into_iter().filter(|entry| entry.is_dir());
    sections.flat_map(|section| entries(&section)).collect()
}

/// What the suite says of an engine that is given as shell: `$2` is the settings, `$4` the rows,
/// `$5` the events, and `$run` a folder of its own for the case and the order.
fn conformance(folder: &Path, engine: &str, chosen: &[String]) -> String {
    let script = folder.join("engine");
    let run = "$ADTRAIL_CONFORMANCE_CASE/$ADTRAIL_CONFORMANCE_ORDER";
    fs::write(&script, format!("run='{}'/\"{run}\"\n{engine}\n", folder.display())).unwrap();
    let mut command = adtrail();
    command.args(["conformance", "--dir", SUITE, "--engine"]);
    command.arg(format!("sh '{}'", script.display()));
    if !chosen.is_empty() {
        command.arg("--case").args(chosen);
    }
    let output = testbed::run(&mut command, b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// One service on topics of its own.
struct Run {
    /// The case's folder.
    case: PathBuf,
    /// An order, and the one that is the same and then all events again.
    orders: [&'static str; 2],
    /// Whether each event is produced when the one before is attributed, so that they arrive in
    /// just this order; else all are in Kafka before the service starts, and it is free to read
    /// one topic before another.
    is_live: bool,
    partitions: i32,
}

/// Two of each case, which are all four orders.
fn runs(folder: &Path) -> Vec<Run> {
    let two = |case: PathBuf| {
        let orders = ["given", "given-twice"];
        let backlog = Run { case: case.clone(), orders, is_live: false, partitions: 1 };
        let orders = ["reversed", "reversed-then-given"];
        [backlog, Run { case, orders, is_live: true, partitions: 3 }]
    };
    in_sections(folder).into_iter().flat_map(two).collect()
}

/// A run that panics tells its name and why, and leaves no rows to be judged.
fn run_all(runs: Vec<Run>) {
    let producer = &Kafka::shared().producer();
    // More than there are cores: a run is mostly waiting.
    let threads = 4 * thread::available_parallelism().map_or(2, usize::from);
    let runs = Mutex::new(runs.into_iter().enumerate());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || runs.lock().unwrap().next();
                while let Some((number, run)) = next() {
                    let name = format!("{} {}", run.case.display(), run.orders[0]);
                    let run = move || run.run(number, producer);
                    let run = thread::Builder::new().name(name).spawn_scoped(scope, run);
                    let _ = run.unwrap().join();
                }
            });
        }
    });
}

/// 2030: later than every event, so that none is of the future, whatever this machine's clock says.
const BROKER_MS: i64 = 1_893_456_000_000;

/// Of a topic that takes and keeps messages of that time.
const TOPIC: [(&str, &str); 2] =
    [("message.timestamp.after.max.ms", "9223372036854775807"), ("retention.ms", "-1")];

impl Run {
    /// `number` is that of no other run.
    fn run(&self, number: usize, producer: &Producer) {
        let kafka = Kafka::shared();
        let site = self.site(kafka, &format!("conformance.{number}"));
        let [first, all] = self.orders.map(|order| self.messages(order));
        let service = if self.is_live {
            let service = site.start();
            for (message, read) in first.iter().zip(1..) {
                produce(producer, &site, std::slice::from_ref(message));
                service.await_read(read);
            }
            service
        } else {
            produce(producer, &site, &first);
            site.start()
        };
        service.await_read(first.len() as u64);
        self.keep(self.orders[0], &rows(&service));
        produce(producer, &site, &all[first.len()..]);
        service.await_read(all.len() as u64);
        self.keep(self.orders[1], &rows(&service));
        drop(service);
        // Else hundreds of cases leave thousands of topics.
        let topics = site.topics.all().map(|topic| [topic.to_owned(), format!("{topic}.dlq")]);
        kafka.delete_topics(topics.as_flattened());
    }

    /// The case's settings, and that no event is too late or expires.
    fn site(&self, kafka: &Kafka, name: &str) -> Site {
        let topics = Topics::of(name);
        for topic in topics.all() {
            kafka.create_topic(topic, self.partitions, &TOPIC);
        }
        let settings = fs::read_to_string(self.file(self.orders[0], "config.toml")).unwrap();
        Site::on(topics, kafka.brokers(), &settings)
            .set("ingest.bad_records_max", "10000")
            .set("attribution.correction_horizon", "off")
            .set("store.retention", "off")
            // Live events are waited for one by one.
            .set("ingest.batch_age_max", "10ms")
    }

    /// The events of an order, each with the place of its topic among [`Topics::all`].
    fn messages(&self, order: &str) -> Vec<(usize, Message)> {
        let message = |(line, number): (&str, i32)| {
            // What is no event, or of no type, is one on no topic.
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            let topic = match event["type"].as_str() {
                Some("activation") => 1,
                Some("effect") => 2,
                _ => 0,
            };
            let app = event["app"].as_str().unwrap_or_default();
            let partition = Some(number % self.partitions);
            (topic, Message { partition, ..Message::new(app, line).at(BROKER_MS) })
        };
        let events = fs::read_to_string(self.file(order, "events.ndjson")).unwrap();
        events.lines().zip(0..).map(message).collect()
    }

    fn keep(&self, order: &str, rows: &str) {
        fs::write(self.file(order, "rows.csv"), rows).unwrap();
    }

    fn file(&self, order: &str, name: &str) -> PathBuf {
        self.case.join(order).join(name)
    }
}

fn produce(producer: &Producer, site: &Site, messages: &[(usize, Message)]) {
    let topics = site.topics.all();
    producer.produce_all(messages.iter().map(|(topic, message)| (topics[*topic], message.clone())));
}

/// Those of all apps, under one line of names.
fn rows(service: &Adtrail) -> String {
    let apps: Vec<Value> = serde_json::from_str(&download(service, "/v1/apps")).unwrap();
    let mut rows = String::new();
    for app in apps {
        let app = app["key"].as_str().unwrap();
        let path = format!("/v1/apps/{app}/events.csv?from=1970-01-01&to=9999-12-30");
        let csv = download(service, &path);
        let names = csv.find('\n').unwrap() + 1;
        rows.push_str(if rows.is_empty() { &csv } else { &csv[names..] });
    }
    rows
}

fn download(service: &Adtrail, path: &str) -> String {
    let reply = service.get(path).unwrap();
    assert!(reply.status == 200 && reply.is_whole, "{reply:?}");
    reply.text()
}
