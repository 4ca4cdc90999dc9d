//! Runs the conformance suite through everything that runs in production: Kafka, the service, its store, HTTP. Test
//! binaries include this file, each with a store of its own.
//!
//! `adtrail conformance` runs twice, each time with a line of shell as its engine. The first engine saves the settings
//! and events of each case. Then each case runs through Kafka, and its rows are saved. The second engine returns the
//! saved rows. Thus the code that reads cases and judges rows is the same as for any other engine.
//!
//! Every fourth case of the contract's table runs unless `CONFORMANCE_KAFKA` selects others: names as for `--case`, or
//! `all`.

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

/// The kind of store in which the services keep their rows.
pub struct Backend {
    /// Prefix of the names of topics, unique among the tests of a Kafka.
    pub name: &'static str,
    /// Index of the first case that runs by default, below 4. With different ones, the tests of two stores run
    /// different cases.
    pub first_case: usize,
    /// Gives a site its store, whose name is unique among the tests.
    pub prepare: fn(Site, &str) -> Site,
    /// Removes a store by its name, once its service has ended.
    pub remove: fn(&str),
}

/// Runs the selected cases and checks that all pass.
pub fn check_cases(backend: &Backend) {
    let selected = selected(backend.first_case);
    let folder = TempDir::with_prefix("adtrail-conformance-").unwrap();
    // This run passes no case, since its engine writes no rows.
    conformance(folder.path(), r#"mkdir -p "$run" && cp "$2" "$5" "$run""#, &selected);
    let runs = runs(folder.path());
    let cases = runs.len() / 2;
    run_all(runs, backend);
    let judged = conformance(folder.path(), r#"cp "$run/rows.csv" "$4""#, &selected);
    print!("{judged}");
    let summary = format!("{cases} cases in 4 orders each: {cases} passed, 0 failed");
    assert_eq!(judged.lines().last(), Some(&*summary));
}

/// Returns the names for `--case`; none for all cases.
fn selected(first_case: usize) -> Vec<String> {
    match env::var("CONFORMANCE_KAFKA").as_deref() {
        Ok("all") => Vec::new(),
        Ok("") | Err(_) => numbered_cases(first_case),
        Ok(names) => names.split_whitespace().map(str::to_owned).collect(),
    }
}

/// Returns cases whose file names have a number of the contract's table: `case-06-last-click.toml`.
fn numbered_cases(first_case: usize) -> Vec<String> {
    let name = |file: PathBuf| {
        let name = file.strip_prefix(SUITE).unwrap().with_extension("");
        name.to_str().unwrap().to_owned()
    };
    let names = in_sections(Path::new(SUITE)).into_iter().map(name);
    let mut names: Vec<_> = names.filter(|name| name.contains("/case-")).collect();
    names.sort();
    assert!(names.len() >= 30, "{names:?}");
    let step = length(4, 1);
    names.into_iter().skip(first_case % step).step_by(step).collect()
}

/// Returns the entries of all subfolders.
fn in_sections(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let sections = entries(folder).into_iter().filter(|entry| entry.is_dir());
    sections.flat_map(|section| entries(&section)).collect()
}

/// Runs the suite on an engine in shell and returns its output. `$2` is the file of settings, `$4` that of rows, `$5`
/// that of events, and `$run` the folder of the case and the order.
fn conformance(folder: &Path, engine: &str, selected: &[String]) -> String {
    let script = folder.join("engine");
    let run = "$ADTRAIL_CONFORMANCE_CASE/$ADTRAIL_CONFORMANCE_ORDER";
    fs::write(&script, format!("run='{}'/\"{run}\"\n{engine}\n", folder.display())).unwrap();
    let mut command = adtrail();
    command.args(["conformance", "--dir", SUITE, "--engine"]);
    command.arg(format!("sh '{}'", script.display()));
    if !selected.is_empty() {
        command.arg("--case").args(selected);
    }
    let output = testbed::run(&mut command, b"");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// One service with separate topics.
struct Run {
    /// The case's folder.
    case: PathBuf,
    /// An order of the events, and the same order followed by all events again.
    orders: [&'static str; 2],
    /// True if each event is produced after the previous one is attributed, so that events arrive in exactly this
    /// order. Otherwise all are in Kafka before the service starts, which may read topics in any order.
    is_live: bool,
    partitions: i32,
}

/// Returns two runs of each case, which cover all four orders.
fn runs(folder: &Path) -> Vec<Run> {
    let runs_of_case = |case: PathBuf| {
        let orders = ["given", "given-twice"];
        let backlog = Run { case: case.clone(), orders, is_live: false, partitions: 1 };
        let orders = ["reversed", "reversed-then-given"];
        [backlog, Run { case, orders, is_live: true, partitions: 3 }]
    };
    in_sections(folder).into_iter().flat_map(runs_of_case).collect()
}

/// Runs all on threads. A run that panics prints its name and saves no rows.
fn run_all(runs: Vec<Run>, backend: &Backend) {
    let producer = &Kafka::shared().producer();
    // More threads than cores, since a run mostly waits.
    let threads = 4 * thread::available_parallelism().map_or(2, usize::from);
    let runs = Mutex::new(runs.into_iter().enumerate());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || runs.lock().unwrap().next();
                while let Some((number, run)) = next() {
                    let name = format!("{} {}", run.case.display(), run.orders[0]);
                    let run =
                        move || run.run(&format!("{}.{number}", backend.name), producer, backend);
                    let run = thread::Builder::new().name(name).spawn_scoped(scope, run);
                    let _ = run.unwrap().join();
                }
            });
        }
    });
}

/// 2030, later than every event, so that no event is in the future, whatever this machine's clock is.
const BROKER_MS: i64 = 1_893_456_000_000;

/// Settings of a topic that accepts and retains messages with that timestamp.
const TOPIC_SETTINGS: [(&str, &str); 2] =
    [("message.timestamp.after.max.ms", "9223372036854775807"), ("retention.ms", "-1")];

impl Run {
    /// Runs the case in both orders and saves the rows.
    fn run(&self, name: &str, producer: &Producer, backend: &Backend) {
        let kafka = Kafka::shared();
        let site = (backend.prepare)(self.site(kafka, name), name);
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
        self.save(self.orders[0], &rows(&service));
        produce(producer, &site, &all[first.len()..]);
        service.await_read(all.len() as u64);
        self.save(self.orders[1], &rows(&service));
        drop(service);
        (backend.remove)(name);
        // Hundreds of cases would leave thousands of topics.
        let topics = site.topics.all().map(|topic| [topic.to_owned(), format!("{topic}.dlq")]);
        kafka.delete_topics(topics.as_flattened());
    }

    /// Creates a site with the case's settings, except that no event is too late or expires.
    fn site(&self, kafka: &Kafka, name: &str) -> Site {
        let topics = Topics::of(name);
        for topic in topics.all() {
            kafka.create_topic(topic, self.partitions, &TOPIC_SETTINGS);
        }
        let settings = fs::read_to_string(self.file(self.orders[0], "config.toml")).unwrap();
        Site::on(topics, kafka.brokers(), &settings)
            .set("ingest.bad_records_max", "10000")
            .set("attribution.correction_horizon", "off")
            // Live runs wait for each event.
            .set("ingest.batch_age_max", "10ms")
    }

    /// Returns the events of an order, each with the index of its topic in [`Topics::all`].
    fn messages(&self, order: &str) -> Vec<(usize, Message)> {
        let message = |(line, number): (&str, i32)| {
            // Records that are not events, or have no type, may go to any topic.
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

    fn save(&self, order: &str, rows: &str) {
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

/// Returns the rows of all apps under one header line.
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
