//! The validated settings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use attribution::rules::policy::Policy;
use jiff::Timestamp;

use crate::parse::section::Section;
use crate::parse::{address, duration};
use crate::sections::callbacks::{self, Callbacks};
use crate::sections::catalogue::{self, WORKERS_MAX};
use crate::sections::collect::{self, Collect};
use crate::sections::kafka::{self, Kafka};
use crate::sections::links::{self, KnownCampaigns, Link};
use crate::sections::registry::{self, Registry};
use crate::sections::signatures::Signature;
use crate::sections::store::{self, Store};
use crate::sections::tokens::{self, KnownApps, Token};

/// All settings.
#[derive(Debug, Clone)]
pub struct Config {
    pub kafka: Kafka,
    /// `None` if no registry is configured: messages are JSON, or Avro with schemas from files.
    pub registry: Option<Registry>,
    pub ingest: Ingest,
    pub store: Store,
    /// Address of the data listener; a loopback address if `tokens` is empty.
    pub export_listen: SocketAddr,
    /// Maximum number of concurrent downloads per token; without tokens, of all clients together.
    pub downloads_per_token_max: usize,
    pub export_clients: ExportClients,
    /// API tokens. If empty, every client of the listener can read everything.
    pub tokens: Vec<Token>,
    /// Address of the admin listener.
    pub admin_listen: SocketAddr,
    /// `None` if no collector is configured.
    pub collect: Option<Collect>,
    /// The endpoints that are notified of decisions.
    pub callbacks: Callbacks,
    /// The tracking links of the collector.
    pub links: Vec<Link>,
    /// Tokens with which apps and servers may send events to the collector.
    pub write_tokens: Vec<Token>,
    /// Maximum time from SIGTERM to the exit of the process; unfinished work is abandoned.
    pub shutdown_deadline: Duration,
    pub policy: Arc<Policy>,
    /// Number of threads that share the work on a batch of events.
    pub workers: usize,
    /// The ids of the channels, in the order of the file.
    pub channels: Vec<Box<str>>,
    /// The dialects of the collector that the channels name, by the channel's id.
    pub dialects: BTreeMap<Box<str>, Box<str>>,
    /// How the collector checks signatures, by the channel's id.
    pub signatures: BTreeMap<Box<str>, Signature>,
    /// Warnings about valid but probably unintended settings, one line each, with location and key.
    pub warnings: Vec<Box<str>>,
}

/// Who may connect to the data listener, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportClients {
    /// Host names by which clients may reach the listener besides loopback names and its own address: lower case,
    /// without a port. If this is empty and there are tokens, any name is allowed.
    pub allowed_hosts: Box<[Box<str>]>,
    /// Maximum number of connections of one client address.
    pub connections_per_client_max: usize,
}

/// Limits of an event, of a batch and of invalid records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingest {
    /// Maximum size of an event; a larger one is invalid.
    pub event_bytes_max: usize,
    pub batch_records_max: usize,
    pub batch_bytes_max: usize,
    pub batch_age_max: Duration,
    /// Maximum number of invalid records among the last 10,000 of a partition; with more, the partition is paused.
    pub bad_records_max: usize,
}

/// Allowed values of `ingest.event_bytes_max`.
const EVENT_BYTES_MIN: u64 = 1 << 10;
const EVENT_BYTES_MAX: u64 = 1 << 20;

/// Workers over HBase take each assignment of the group as a whole, which librdkafka does not allow with the protocol of
/// KIP-848.
fn check_group_protocol(root: &mut Section<'_>, kafka: &Kafka, store: &Store) {
    let Some(setting) = kafka.librdkafka.get("group.protocol") else { return };
    if store.hbase.is_some() && setting.expose().eq_ignore_ascii_case("consumer") {
        let key = "kafka.librdkafka.group.protocol".to_owned();
        let problem = r#"expected "classic", because store.kind = "hbase""#;
        root.error(key, setting.location.clone(), problem.into(), r#""consumer""#.to_owned());
    }
}

pub(crate) fn read(root: &mut Section<'_>) -> Config {
    let kafka = root.table("kafka", kafka::read);
    let ingest = root.table("ingest", read_ingest);
    let mut store = root.table("store", store::read);
    let registry = root.table("registry", |table| registry::read(table, &store.path));
    let catalogue = catalogue::read(root, store.partitions);
    store.apps = catalogue.stores;
    check_group_protocol(root, &kafka, &store);
    let apps = KnownApps { policy: &catalogue.policy, complete: catalogue.has_all_apps };
    let (tokens, has_all_tokens) = tokens::read(root, "tokens", &apps, Timestamp::now());
    let (write_tokens, _) = tokens::read(root, "write_tokens", &apps, Timestamp::now());
    let is_open = tokens.is_empty() && has_all_tokens;
    let (export_listen, downloads_per_token_max, export_clients) =
        root.table("export", |export| read_export(export, is_open));
    let admin_listen = root.table("admin", |admin| read_admin(admin, export_listen));
    let campaigns =
        KnownCampaigns { policy: &catalogue.policy, complete: catalogue.has_all_campaigns };
    let links = links::read(root, &campaigns);
    let others = [("export.listen", export_listen), ("admin.listen", admin_listen)];
    let mut signatures = catalogue.signatures.values();
    let signs_urls = signatures.any(|of| of.is_checked() && of.scheme.signs_url());
    let collect = root.table("collect", |collect| {
        collect::read(collect, &kafka.formats, others, &store.path, signs_urls)
    });
    let known = callbacks::Known {
        policy: &catalogue.policy,
        has_all_apps: catalogue.has_all_apps,
        channels: &catalogue.channels,
        brokers: &kafka.brokers,
    };
    let callbacks = root.table("callbacks", |table| callbacks::read(table, &known));
    let shutdown_deadline_ms =
        root.table("run", |run| run.text("shutdown_deadline", duration::parse_ms));
    Config {
        kafka,
        registry,
        ingest,
        store,
        export_listen,
        downloads_per_token_max,
        export_clients,
        tokens,
        admin_listen,
        collect,
        callbacks,
        links,
        write_tokens,
        shutdown_deadline: Duration::from_millis(shutdown_deadline_ms.unwrap_or(30_000)),
        policy: Arc::new(catalogue.policy),
        workers: catalogue.workers.unwrap_or_else(default_workers),
        channels: catalogue.channels,
        dialects: catalogue.dialects,
        signatures: catalogue.signatures,
        warnings: Vec::new(),
    }
}

/// Returns one worker per processor that this process may use, except for one, which reads and decodes events.
fn default_workers() -> usize {
    available_parallelism().map_or(1, |processors| processors.get() - 1).clamp(1, WORKERS_MAX)
}

/// Reads the listener's address, the maximum number of downloads per token, and the limits of clients. `is_open` is
/// true if no tokens are configured.
fn read_export(export: &mut Section<'_>, is_open: bool) -> (SocketAddr, usize, ExportClients) {
    let listen = export.text("listen", address::parse_listen);
    let listen = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080)));
    if is_open && !listen.ip().is_loopback() {
        let problem = "expected a loopback address such as \"127.0.0.1:8080\", because without \
                       [[tokens]] every client can read the rows of all apps; create a token with \
                       `adtrail token new --app KEY`";
        export.reject("listen", problem, format!("\"{listen}\""));
    }
    let downloads_per_token_max = export.integer("downloads_per_token_max", 1..=64).unwrap_or(16);
    let allowed_hosts = export.texts("allowed_hosts", address::parse_host).unwrap_or_default();
    let per_client_max = export.integer("connections_per_client_max", 1..=512);
    let clients = ExportClients {
        allowed_hosts: allowed_hosts.into(),
        connections_per_client_max: per_client_max.unwrap_or(128),
    };
    (listen, downloads_per_token_max, clients)
}

fn read_admin(admin: &mut Section<'_>, export_listen: SocketAddr) -> SocketAddr {
    let listen = admin.text("listen", address::parse_listen);
    let listen = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8081)));
    if listen == export_listen && listen.port() != 0 {
        let problem = "expected another address than export.listen";
        admin.reject("listen", problem, format!("\"{listen}\""));
    }
    if !listen.ip().is_loopback() {
        let consequence = "every client that reaches this address can, without a token, reload the settings, change \
                           the log level, and read metrics with the names of apps, channels and topics, and the state \
                           of the service";
        admin.warn("listen", consequence, &format!("\"{listen}\""));
    }
    listen
}

fn read_ingest(ingest: &mut Section<'_>) -> Ingest {
    let age_max_ms = ingest.text("batch_age_max", duration::parse_ms).unwrap_or(200);
    let event_bytes = EVENT_BYTES_MIN..=EVENT_BYTES_MAX;
    Ingest {
        event_bytes_max: ingest.integer("event_bytes_max", event_bytes).unwrap_or(64 << 10),
        batch_records_max: ingest.integer("batch_records_max", 1..=1_000_000).unwrap_or(5_000),
        batch_bytes_max: ingest.integer("batch_bytes_max", 1..=1 << 30).unwrap_or(8 << 20),
        batch_age_max: Duration::from_millis(age_max_ms),
        bad_records_max: ingest.integer("bad_records_max", 0..=10_000).unwrap_or(100),
    }
}
