//! Compares the pipeline with stream processors. adtrail, Flink SQL (with RocksDB and with heap state) and Kafka
//! Streams read the same clicks and activations from the same topics, one after the other, and credit each activation
//! to the last click of its device in the 7 days before it. Prints the events per CPU-second of each with its children.
//! Fails if a system credits an activation to another click than adtrail does.
//!
//! `ADTRAIL_BENCH_EVENTS` sets the number of events (5,000,000).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "support/produce.rs"]
mod produce;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use produce::produce;
use support::{
    APP, APP_KEY, Events, count, has_read_all, memory_mib, tree_cpu_seconds, version_of,
    wait_until_idle,
};
use testbed::adtrail::binary;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::Family;
use testbed::{Captured, maven, run_ok};

const PARTITIONS: i32 = 4;

fn main() {
    let total = count("ADTRAIL_BENCH_EVENTS", 5_000_000);
    println!("{}", testbed::machine());
    let folder = tempfile::tempdir().expect("the folder is created");
    let flink = Program::build("flink", "FlinkJoin", folder.path());
    let kafka_streams = Program::build("kafka-streams", "KafkaStreamsJoin", folder.path());
    let bench = Bench::new(total);
    println!("Apache Kafka {}", Kafka::version());
    let ours = bench.adtrail();
    let peers = [
        bench.peer("Flink SQL, RocksDB state", &flink, &["rocksdb"]),
        bench.peer("Flink SQL, heap state", &flink, &["hashmap"]),
        bench.peer("Kafka Streams, RocksDB", &kafka_streams, &[]),
    ];
    println!(
        "{:<24} {:>8} {:>8} {:>12} {:>12} {:>10} {:>10} {:>8}",
        "",
        "wall s",
        "CPU s",
        "broker CPU s",
        "events/CPU-s",
        "ours / its",
        "attributed",
        "peak MiB"
    );
    ours.print(total, &ours);
    peers.iter().for_each(|peer| peer.print(total, &ours));
    for peer in &peers {
        let differences = differences(&ours.credits, &peer.credits);
        assert_eq!(differences, 0, "activations with another credit by {}", peer.name);
    }
    println!("all systems credit the same {} activations to the same clicks", ours.credits.len());
}

/// A Java program in `benches/peers`.
struct Program {
    class: &'static str,
    class_path: String,
}

impl Program {
    /// Downloads the libraries if they are not cached, and compiles the program.
    fn build(project: &str, class: &'static str, folder: &Path) -> Self {
        let project_folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers").join(project);
        let pom = fs::read_to_string(project_folder.join("pom.xml")).expect("the POM can be read");
        let goal = ["dependency:copy-dependencies", "-DoutputDirectory=."];
        let libraries = maven::resolve(&format!("bench-{project}"), &pom, &goal).join("*");
        let classes = folder.join(project);
        let mut javac = Command::new("javac");
        javac.arg("-cp").arg(&libraries).arg("-d").arg(&classes);
        javac.arg(project_folder.join(format!("src/main/java/{class}.java")));
        run_ok(&mut javac, b"");
        Self { class, class_path: format!("{}:{}", classes.display(), libraries.display()) }
    }
}

/// The click ids to which activations are credited, by the event ids of the activations.
type Credits = BTreeMap<String, String>;

/// Returns the number of activations that only one of two systems credits, or that they credit to different clicks.
fn differences(ours: &Credits, theirs: &Credits) -> usize {
    let others = ours.iter().filter(|(id, click)| theirs.get(*id) != Some(*click)).count();
    others + theirs.keys().filter(|id| !ours.contains_key(*id)).count()
}

/// What a system has used and credited.
struct Outcome {
    name: &'static str,
    wall: f64,
    cpu: f64,
    broker_cpu: f64,
    peak_mib: u64,
    credits: Credits,
}

impl Outcome {
    fn print(&self, total: usize, ours: &Self) {
        println!(
            "{:<24} {:>8.1} {:>8.1} {:>12.1} {:>12.0} {:>10.2} {:>10} {:>8}",
            self.name,
            self.wall,
            self.cpu,
            self.broker_cpu,
            total as f64 / self.cpu,
            self.cpu / ours.cpu,
            self.credits.len(),
            self.peak_mib
        );
    }
}

/// The topics with their events.
struct Bench {
    kafka: Kafka,
    site: Site,
    total: usize,
}

impl Bench {
    fn new(total: usize) -> Self {
        let kafka = Kafka::start_to_measure();
        let site = Site::new(&kafka, "bench", PARTITIONS, APP).set("store.retention", "400d");
        // The peers do not read effects.
        let events = Events::default().filter(|(family, _)| *family != Family::Effect).take(total);
        let (bytes, seconds) = produce(&kafka.brokers(), site.topics.all(), events);
        println!(
            "{total} events of {} bytes on average produced in {seconds:.0} s",
            bytes / total as u64
        );
        Self { kafka, site, total }
    }

    /// The CPU-seconds of adtrail include compactions after the last event.
    fn adtrail(&self) -> Outcome {
        println!("adtrail: {}", version_of(&binary()));
        let (started, broker_cpu) = (Instant::now(), tree_cpu_seconds(self.kafka.pid()));
        let adtrail = self.site.start();
        while !has_read_all(&adtrail, self.total) {
            sleep(Duration::from_millis(100));
        }
        let wall = started.elapsed().as_secs_f64();
        wait_until_idle(&adtrail);
        let outcome = Outcome {
            name: "adtrail",
            wall,
            cpu: tree_cpu_seconds(adtrail.pid()),
            broker_cpu: tree_cpu_seconds(self.kafka.pid()) - broker_cpu,
            peak_mib: memory_mib(adtrail.pid()).1,
            credits: Credits::new(),
        };
        adtrail.stop();
        let attributed =
            ["--type", "activation", "--status", "attributed", "--fields", "event_id,click_id"];
        let csv = self.site.download(APP_KEY, "2026-03-01", "2027-01-01", &attributed);
        let csv = String::from_utf8(csv).expect("valid UTF-8");
        let pairs = csv.lines().skip(1).filter_map(|line| line.split_once(','));
        let credits = pairs.map(|(id, click)| (id.to_owned(), click.to_owned())).collect();
        Outcome { credits, ..outcome }
    }

    /// Runs a program until it has processed all events. Its time and CPU include the start of the JVM.
    fn peer(&self, name: &'static str, program: &Program, more: &[&str]) -> Outcome {
        let out = format!("bench.{}", name.replace([',', ' '], "-"));
        self.kafka.create_topic(&out, PARTITIONS, &[]);
        let folder = tempfile::tempdir().expect("the folder is created");
        let stderr = Captured::empty();
        let (started, broker_cpu) = (Instant::now(), tree_cpu_seconds(self.kafka.pid()));
        let mut process = Command::new("java")
            .args(["-Xmx8g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
            .args([program.class_path.as_str(), program.class, &self.kafka.brokers()])
            .args([&self.site.topics.clicks, &self.site.topics.activations, &out])
            .arg(folder.path())
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.sink())
            .spawn()
            .expect("java starts");
        let mut version = String::new();
        let stdout = process.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut version).expect("the output can be read");
        assert!(!version.is_empty(), "{name} has failed:\n{}", stderr.text());
        println!("{name}: {}", version.trim_end());
        let outcome = Outcome {
            name,
            wall: started.elapsed().as_secs_f64(),
            cpu: tree_cpu_seconds(process.id()),
            broker_cpu: tree_cpu_seconds(self.kafka.pid()) - broker_cpu,
            peak_mib: memory_mib(process.id()).1,
            credits: self.credits(&out),
        };
        // Closes its input, so that it exits.
        let status = process.wait().expect("the process can be waited for");
        assert!(status.success(), "{name}: {status}:\n{}", stderr.text());
        outcome
    }

    /// Returns the last value of each key.
    fn credits(&self, topic: &str) -> Credits {
        let mut credits = Credits::new();
        for record in self.kafka.consume_all(topic) {
            let text = |bytes| String::from_utf8(bytes).expect("valid UTF-8");
            let id = text(record.key.expect("the key is an event id"));
            match record.value {
                Some(click) => credits.insert(id, text(click)),
                None => credits.remove(&id),
            };
        }
        credits
    }
}
