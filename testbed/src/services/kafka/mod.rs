//! A real Apache Kafka: one broker and controller in one JVM, with jars resolved by Maven. Several form a cluster.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tempfile::TempDir;

use super::child_guard::ChildGuard;
use super::class_data::Archive;
use super::maven;
use super::shared::{Service, note_start};
use crate::{eventually, free_port, run_ok};

mod admin;
mod client;
mod cluster;
mod hang;
mod secured;
mod storage;
pub use client::{Message, Producer, Record};
pub use cluster::Cluster;
pub use secured::{PASSWORD, Secured, USER};

const POM: &str = include_str!("pom.xml");

/// Any 16 bytes, encoded in URL-safe base 64.
const CLUSTER_ID: &str = "YWR0cmFpbC10ZXN0LWJlZA";

/// Options of a JVM that is optimized for a fast start and a small size, not for a long run.
const SHORT_RUN: &[&str] = &["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
/// The memory and the garbage collector with which Kafka's own script starts a broker.
const LONG_RUN: &[&str] = &[
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
];

pub struct Kafka {
    dir: PathBuf,
    jvm: &'static [&'static str],
    /// The addresses of all brokers of the cluster.
    brokers: String,
    running: Option<ChildGuard>,
    /// Cached, because starting one takes half a second. Dropped when its topic metadata becomes stale.
    producer: Mutex<Option<Arc<Producer>>>,
    /// Cached clients for metadata queries, by isolation level.
    query_clients: Mutex<HashMap<&'static str, Arc<BaseConsumer>>>,
}

impl Kafka {
    /// The broker shared by all tests. Each test creates its own topics.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Kafka> = OnceLock::new();
        SHARED.get_or_init(|| match Service::find("kafka") {
            Some(service) => Self::found(&service),
            // Tests do not kill it, so its session must survive any stall of a busy machine.
            None => Self::start_to_hang(),
        })
    }

    /// The values that other processes need to use this broker.
    pub fn service(&self) -> Service {
        Service::default().with("dir", self.dir.display()).with("brokers", &self.brokers)
    }

    /// A broker that another process has started and will stop.
    fn found(service: &Service) -> Self {
        let (dir, brokers) = (service.text("dir").into(), service.text("brokers").into());
        let (producer, query_clients) = Default::default();
        Self { dir, jvm: SHORT_RUN, brokers, running: None, producer, query_clients }
    }

    /// Starts a new, empty broker, which may be killed and restarted.
    pub fn start() -> Self {
        Self::start_with(server_properties)
    }

    /// Like [`Kafka::start`], with an authorizer. All operations are allowed unless denied with [`Kafka::rule`].
    pub fn start_with_rules() -> Self {
        Self::start_with(|ports, dir| {
            format!(
                "{}authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
",
                server_properties(ports, dir)
            )
        })
    }

    /// Adds or removes a rule that denies all users an operation on a topic.
    pub fn rule(&self, is_denied: bool, topic: &str, operation: &str) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/services/kafka/Rule.java");
        let mut command = Command::new("java");
        command.arg("-cp").arg(jars().join("*")).arg(source);
        let what = if is_denied { "add" } else { "remove" };
        run_ok(command.args([&self.brokers(), what, topic, operation]), b"");
    }

    /// Like [`Kafka::start`], for tests that suspend the broker. Its session does not expire meanwhile; a broker
    /// whose session expired while a heartbeat was in flight may take minutes to recover.
    pub fn start_to_hang() -> Self {
        Self::start_with(patient_properties)
    }

    /// A broker for benches, in a JVM as Kafka's own script starts one. Its session survives a busy machine.
    pub fn start_to_measure() -> Self {
        Self::start_in(LONG_RUN, patient_properties, &[])
    }

    /// Like [`Kafka::start`], with settings derived from ports and directory.
    pub fn start_with(properties: impl Fn(&Ports, &Path) -> String) -> Self {
        Self::start_with_users(properties, &[])
    }

    /// Like [`Kafka::start_with`], with users such as `"SCRAM-SHA-256=[name=…,password=…]"`.
    fn start_with_users(properties: impl Fn(&Ports, &Path) -> String, users: &[String]) -> Self {
        Self::start_in(SHORT_RUN, properties, users)
    }

    fn start_in(
        jvm: &'static [&'static str],
        properties: impl Fn(&Ports, &Path) -> String,
        users: &[String],
    ) -> Self {
        // Another process may take a port between `free_port` and its use: retry once.
        Self::try_start(jvm, &properties, users)
            .or_else(|_| Self::try_start(jvm, &properties, users))
            .unwrap_or_else(|log| panic!("Kafka does not start:\n{log}"))
    }

    fn try_start(
        jvm: &'static [&'static str],
        properties: &impl Fn(&Ports, &Path) -> String,
        users: &[String],
    ) -> Result<Self, String> {
        let ports = Ports::free();
        let brokers = ports.broker();
        let mut kafka = Self::format(|dir| properties(&ports, dir), brokers, users);
        kafka.jvm = jvm;
        kafka.launch()?;
        Ok(kafka)
    }

    /// Creates the formatted directory of a broker that is not running yet.
    fn format(settings: impl Fn(&Path) -> String, brokers: String, users: &[String]) -> Self {
        let dir = TempDir::with_prefix("adtrail-kafka-").expect("the directory is created");
        let (settings, file) = (settings(dir.path()), dir.path().join("server.properties"));
        fs::write(&file, &settings).expect("the file is written");
        storage::format(&file, &settings, users);
        // Kept, because the child guard removes it, which also works for a broker in a `static`.
        let (dir, running) = (dir.keep(), None);
        let (producer, query_clients) = Default::default();
        Self { dir, jvm: SHORT_RUN, brokers, running, producer, query_clients }
    }

    /// Starts the broker and waits until it responds. Returns the log if a port is taken.
    fn launch(&mut self) -> Result<(), String> {
        let started = Instant::now();
        self.run();
        self.await_response()?;
        note_start("kafka", started);
        archive().make(self.pid());
        Ok(())
    }

    fn run(&mut self) {
        let archive = archive().option();
        let mut command = java("kafka.Kafka", &[&[&*archive], self.jvm].concat());
        command.arg(self.dir.join("server.properties"));
        self.running = Some(ChildGuard::spawn(&self.dir, &command));
    }

    /// Waits until this broker, or another one of its cluster, responds. Returns the log if a port is taken.
    fn await_response(&self) -> Result<(), String> {
        let client: BaseConsumer = self.client().create().expect("the client is created");
        eventually("Kafka responds", || {
            let log = self.log();
            if log.contains("Address already in use") {
                return Ok(Err(log));
            }
            match client.fetch_metadata(None, Duration::from_millis(500)) {
                Ok(metadata) if !metadata.brokers().is_empty() => Ok(Ok(())),
                Ok(_) => Err(format!("no broker has joined yet:\n{log}")),
                Err(error) => Err(format!("{error}:\n{log}")),
            }
        })
    }

    /// Kills the process with SIGKILL. Like a power failure, except that the page cache survives.
    pub fn kill9(&mut self) {
        self.forget_producer();
        self.running.take().expect("Kafka runs").end("KILL");
    }

    /// Restarts the broker on the same port and directory after [`Kafka::kill9`].
    pub fn restart(&mut self) {
        assert!(self.running.is_none(), "Kafka is still running");
        self.launch().unwrap_or_else(|log| panic!("Kafka does not restart:\n{log}"));
    }

    /// The process id of the broker.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("Kafka runs").pid()
    }

    /// The version of Apache Kafka.
    pub fn version() -> &'static str {
        let (_, rest) =
            POM.split_once("<artifactId>kafka_2.13</artifactId>").expect("the POM names Kafka");
        let (_, rest) = rest.split_once("<version>").expect("the POM has its version");
        rest.split_once("</version>").expect("the element ends").0
    }

    /// The value of the setting `kafka.brokers`.
    pub fn brokers(&self) -> String {
        self.brokers.clone()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.brokers());
        // A client reconnects at once after a broker is restarted.
        config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "200");
        config
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("brokers", &self.brokers).finish_non_exhaustive()
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        drop(self.running.take());
        // The child guard has removed it, unless the broker was not running.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[derive(Debug)]
pub struct Ports {
    pub broker: u16,
    pub controller: u16,
}

impl Ports {
    fn free() -> Self {
        Self { broker: free_port(), controller: free_port() }
    }

    /// The address of the broker.
    fn broker(&self) -> String {
        format!("127.0.0.1:{}", self.broker)
    }
}

/// Sessions are short, so that a killed broker can restart after 3 s instead of 12. Retention is off, because
/// records with old timestamps would otherwise be deleted half a minute after the start.
fn server_properties(ports: &Ports, dir: &Path) -> String {
    let Ports { broker, controller } = ports;
    let data = dir.join("data");
    format!(
        "process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.ms=-1
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=200
",
        data.display()
    )
}

/// Like [`server_properties`], with a session that does not expire while the broker is suspended.
fn patient_properties(ports: &Ports, dir: &Path) -> String {
    server_properties(ports, dir)
        + "broker.session.timeout.ms=600000\nbroker.heartbeat.interval.ms=5000\n"
}

fn java(class: &str, options: &[&str]) -> Command {
    let mut command = Command::new("java");
    command
        .args(options)
        .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
        .arg(jars().join("*"))
        .arg(class);
    command
}

fn archive() -> Archive {
    Archive::new(&jars(), "broker")
}

/// The directory with Kafka's jars.
fn jars() -> PathBuf {
    static JARS: OnceLock<PathBuf> = OnceLock::new();
    let goal = ["dependency:copy-dependencies", "-DoutputDirectory=."];
    JARS.get_or_init(|| maven::resolve("kafka", POM, &goal)).clone()
}
