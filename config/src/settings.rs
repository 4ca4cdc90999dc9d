//! The whole of the settings, valid.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attribution::rules::policy::Policy;
use jiff::Timestamp;

use crate::parse::section::Section;
use crate::parse::{address, duration};
use crate::sections::catalog;
use crate::sections::kafka::{self, Kafka};
use crate::sections::registry::{self, Registry};
use crate::sections::store::{self, Store};
use crate::sections::tokens::{self, KnownApps, Token};

/// Everything that a user can set.
#[derive(Debug, Clone)]
pub struct Config {
    pub kafka: Kafka,
    /// `None`: messages are JSON, or Avro of schemas that files have.
    pub registry: Option<Registry>,
    pub ingest: Ingest,
    pub store: Store,
    /// Of the users' listener: a loopback address where there are no tokens.
    pub export_listen: SocketAddr,
    /// Downloads of one token at a time; without tokens, of all together.
    pub downloads_per_token_max: usize,
    /// Whoever has one of these may read; with none, whoever reaches the listener.
    pub tokens: Vec<Token>,
    /// Of the operators' listener.
    pub admin_listen: SocketAddr,
    /// From the signal to stop until the process ends, finished or not.
    pub shutdown_deadline: Duration,
    pub policy: Arc<Policy>,
    /// The ids of the catalogue's channels, in the order of the file.
    pub channels: Vec<Box<str>>,
    /// What is allowed and hardly meant, a line each, with its place and key.
    pub warnings: Vec<Box<str>>,
}

/// When a batch is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingest {
    pub batch_records_max: usize,
    pub batch_bytes_max: usize,
    pub batch_age_max: Duration,
    /// Of the last 10,000 records of a partition, so many may be no events.
    pub bad_records_max: usize,
}

pub(crate) fn read(root: &mut Section<'_>) -> Config {
    let kafka = root.table("kafka", kafka::read);
    let ingest = root.table("ingest", read_ingest);
    let mut store = root.table("store", store::read);
    let registry = root.table("registry", |table| registry::read(table, &store.path));
    let catalogue = catalog::read(root, store.partitions);
    store.apps = catalogue.stores;
    let apps = KnownApps { policy: &catalogue.policy, complete: catalogue.has_all_apps };
    let (tokens, has_all_tokens) = tokens::read(root, &apps, Timestamp::now());
    let is_open = tokens.is_empty() && has_all_tokens;
    let (export_listen, downloads_per_token_max) =
        root.table("export", |export| read_export(export, is_open));
    let admin_listen = root.table("admin", |admin| read_admin(admin, export_listen));
    let shutdown_deadline_ms =
        root.table("run", |run| run.text("shutdown_deadline", duration::parse_ms));
    Config {
        kafka,
        registry,
        ingest,
        store,
        export_listen,
        downloads_per_token_max,
        tokens,
        admin_listen,
        shutdown_deadline: Duration::from_millis(shutdown_deadline_ms.unwrap_or(30_000)),
        policy: Arc::new(catalogue.policy),
        channels: catalogue.channels,
        warnings: Vec::new(),
    }
}

/// Where users are served, and how many downloads each may have. `is_open`: to all who come.
fn read_export(export: &mut Section<'_>, is_open: bool) -> (SocketAddr, usize) {
    let listen = export.text("listen", address::parse_listen);
    let listen = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080)));
    if is_open && !listen.ip().is_loopback() {
        let problem = "expected a loopback address such as \"127.0.0.1:8080\", because there are no \
                       [[tokens]] and the network would be shown every app's rows; `adtrail token \
                       new --app KEY` makes one";
        export.reject("listen", problem, format!("\"{listen}\""));
    }
    (listen, export.integer("downloads_per_token_max", 1..=64).unwrap_or(16))
}

fn read_admin(admin: &mut Section<'_>, export_listen: SocketAddr) -> SocketAddr {
    let listen = admin.text("listen", address::parse_listen);
    let listen = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8081)));
    if listen == export_listen && listen.port() != 0 {
        let problem = "expected another address than export.listen";
        admin.reject("listen", problem, format!("\"{listen}\""));
    }
    listen
}

fn read_ingest(ingest: &mut Section<'_>) -> Ingest {
    let age_max_ms = ingest.text("batch_age_max", duration::parse_ms).unwrap_or(200);
    Ingest {
        batch_records_max: ingest.integer("batch_records_max", 1..=1_000_000).unwrap_or(5_000),
        batch_bytes_max: ingest.integer("batch_bytes_max", 1..=1 << 30).unwrap_or(8 << 20),
        batch_age_max: Duration::from_millis(age_max_ms),
        bad_records_max: ingest.integer("bad_records_max", 0..=10_000).unwrap_or(100),
    }
}
