//! A real Apache Kafka: one broker and controller in one JVM, from jars that Maven resolves. Several
//! of them make a cluster.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tempfile::TempDir;

use super::class_data::Archive;
use super::shared::{Service, note_start};
use super::{eventually, free_port, maven, run_ok};
use crate::child_guard::Leash;

mod client;
mod cluster;
mod hang;
mod secured;
mod storage;
pub use client::{Message, Producer, Record};
pub use cluster::Cluster;
pub use secured::{PASSWORD, Secured, USER};

const POM: &str = include_str!("pom.xml");

/// Any 16 bytes in URL-safe base 64.
const CLUSTER_ID: &str = "YWR0cmFpbC10ZXN0LWJlZA";

pub struct Kafka {
    dir: PathBuf,
    /// Of the whole cluster that it is of.
    brokers: String,
    running: Option<Leash>,
    /// Reused, as starting one takes half a second; dropped when its topic metadata becomes stale.
    producer: Mutex<Option<Arc<Producer>>>,
    /// By isolation level, for what is asked again and again.
    lookers: Mutex<HashMap<&'static str, Arc<BaseConsumer>>>,
}

impl Kafka {
    /// The broker that all tests share; topics are each test's own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Kafka> = OnceLock::new();
        SHARED.get_or_init(|| match Service::find("kafka") {
            Some(service) => Self::found(&service),
            // Nobody kills it, and however busy the machine is, it is not gone.
            None => Self::start_to_hang(),
        })
    }

    /// What others need to know to use this broker.
    pub fn service(&self) -> Service {
        Service::default().with("dir", self.dir.display()).with("brokers", &self.brokers)
    }

    /// A broker that another process has started, and ends.
    fn found(service: &Service) -> Self {
        let (dir, brokers) = (service.text("dir").into(), service.text("brokers").into());
        Self { dir, brokers, running: None, producer: Mutex::default(), lookers: Mutex::default() }
    }

    /// A broker of one's own, empty, to be killed and restarted.
    pub fn start() -> Self {
        Self::start_with(server_properties)
    }

    /// As [`Kafka::start`], with rules of who may do what: everybody everything, but for [`Kafka::rule`].
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

    /// Denies everybody an operation on a topic, or does so no more.
    pub fn rule(&self, is_denied: bool, topic: &str, operation: &str) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kafka/Rule.java");
        let mut command = Command::new("java");
        command.arg("-cp").arg(jars().join("*")).arg(source);
        let what = if is_denied { "add" } else { "remove" };
        run_ok(command.args([&self.brokers(), what, topic, operation]), b"");
    }

    /// As [`Kafka::start`], for whoever lets it hang: its broker does not count as gone for that. Where it does, and
    /// its last heartbeat was under way when it was stopped, it may not find back to itself for minutes.
    pub fn start_to_hang() -> Self {
        const PATIENT: &str =
            "broker.session.timeout.ms=600000\nbroker.heartbeat.interval.ms=5000\n";
        Self::start_with(|ports, dir| server_properties(ports, dir) + PATIENT)
    }

    /// As [`Kafka::start`], with the settings that the function makes of ports and folder.
    pub fn start_with(properties: impl Fn(&Ports, &Path) -> String) -> Self {
        Self::start_with_users(properties, &[])
    }

    /// As [`Kafka::start_with`], knowing these users: `"SCRAM-SHA-256=[name=…,password=…]"`.
    fn start_with_users(properties: impl Fn(&Ports, &Path) -> String, users: &[String]) -> Self {
        // Between the look for a free port and its use someone else may take it: once more then.
        Self::try_start(&properties, users)
            .or_else(|_| Self::try_start(&properties, users))
            .unwrap_or_else(|log| panic!("kafka does not start:\n{log}"))
    }

    fn try_start(
        properties: &impl Fn(&Ports, &Path) -> String,
        users: &[String],
    ) -> Result<Self, String> {
        let ports = Ports::free();
        let brokers = ports.broker();
        let mut kafka = Self::format(|dir| properties(&ports, dir), brokers, users);
        kafka.launch()?;
        Ok(kafka)
    }

    /// An empty folder for a broker that does not run yet.
    fn format(settings: impl Fn(&Path) -> String, brokers: String, users: &[String]) -> Self {
        let dir = TempDir::with_prefix("adtrail-kafka-").expect("a temporary folder");
        let (settings, file) = (settings(dir.path()), dir.path().join("server.properties"));
        fs::write(&file, &settings).expect("a file");
        storage::format(&file, &settings, users);
        // Kept: the leash removes it, which works for a broker in a `static` too.
        Self {
            dir: dir.keep(),
            brokers,
            running: None,
            producer: Mutex::default(),
            lookers: Mutex::default(),
        }
    }

    /// Runs the broker on its folder and waits until it answers; else its log.
    fn launch(&mut self) -> Result<(), String> {
        let started = Instant::now();
        self.run();
        self.await_answer()?;
        note_start("kafka", started);
        archive().make(self.running.as_ref().expect("kafka runs").pid());
        Ok(())
    }

    fn run(&mut self) {
        let mut command = java("kafka.Kafka", &[&archive().option()]);
        command.arg(self.dir.join("server.properties"));
        self.running = Some(Leash::hold(&self.dir, &command));
    }

    /// Until it, or another one of its cluster, answers; else its log.
    fn await_answer(&self) -> Result<(), String> {
        let client: BaseConsumer = self.client().create().expect("a client");
        eventually("kafka answers", || {
            let log = self.log();
            if log.contains("Address already in use") {
                return Ok(Err(log));
            }
            match client.fetch_metadata(None, Duration::from_millis(500)) {
                Ok(metadata) if !metadata.brokers().is_empty() => Ok(Ok(())),
                Ok(_) => Err(format!("no broker yet:\n{log}")),
                Err(error) => Err(format!("{error}:\n{log}")),
            }
        })
    }

    /// Ends the process as a power cut would, but for what the system has not written yet.
    pub fn kill9(&mut self) {
        self.forget_producer();
        self.running.take().expect("kafka runs").end("KILL");
    }

    /// Starts again, on the same port and folder, after [`Kafka::kill9`].
    pub fn restart(&mut self) {
        assert!(self.running.is_none(), "kafka still runs");
        self.launch().unwrap_or_else(|log| panic!("kafka does not start again:\n{log}"));
    }

    /// As the setting `kafka.brokers` wants it.
    pub fn brokers(&self) -> String {
        self.brokers.clone()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.brokers());
        // A client that outlives a killed broker comes back at once.
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
        // The leash has removed it, but for a broker that was not running any more.
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

/// Short sessions let a killed broker come back in 3 s instead of 12.
/// Records are kept, whatever their timestamps: else those of long ago would go half a minute after the
/// start, read or not.
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

fn java(class: &str, options: &[&str]) -> Command {
    let mut command = Command::new("java");
    command
        .args(options)
        // Made to start fast and to stay small, not to run long.
        .args(["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
        .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
        .arg(jars().join("*"))
        .arg(class);
    command
}

fn archive() -> Archive {
    Archive::new(&jars(), "broker")
}

/// The folder of Kafka's jars.
fn jars() -> PathBuf {
    static JARS: OnceLock<PathBuf> = OnceLock::new();
    let goal = ["dependency:copy-dependencies", "-DoutputDirectory=."];
    JARS.get_or_init(|| maven::resolve("kafka", POM, &goal)).clone()
}
