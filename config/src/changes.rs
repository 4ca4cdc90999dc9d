//! Finds the settings that cannot change while a process runs.

use std::collections::BTreeMap;

use attribution::facts::event::Pid;

use crate::sections::kafka::Kafka;
use crate::sections::librdkafka::ClientSetting;
use crate::sections::store::{AppStore, Store};
use crate::settings::{Config, ExportClients};

/// Returns the names of the settings that differ and cannot change while a process runs: they decide what it is
/// connected to and where it listens. A process that has a store also has [`fixed_store_changes`].
pub fn fixed_changes(old: &Config, new: &Config) -> Vec<&'static str> {
    // All settings are named, so that a new one is compared here or below, or can change.
    let Config {
        kafka,
        registry: _,
        ingest,
        store: _,
        export_listen,
        downloads_per_token_max,
        export_clients,
        tokens: _,
        admin_listen,
        collect,
        callbacks,
        links: _,
        write_tokens: _,
        shutdown_deadline,
        policy: _,
        workers: _,
        channels: _,
        dialects: _,
        signatures: _,
        warnings: _,
    } = old;
    let ExportClients { allowed_hosts, connections_per_client_max } = export_clients;
    let mut changed = kafka_changes(kafka, &new.kafka);
    let clients = &new.export_clients;
    let others = [
        ("ingest", *ingest != new.ingest),
        ("export.listen", *export_listen != new.export_listen),
        ("export.downloads_per_token_max", *downloads_per_token_max != new.downloads_per_token_max),
        ("export.allowed_hosts", *allowed_hosts != clients.allowed_hosts),
        (
            "export.connections_per_client_max",
            *connections_per_client_max != clients.connections_per_client_max,
        ),
        ("admin.listen", *admin_listen != new.admin_listen),
        ("collect", *collect != new.collect),
        ("callbacks.allow_loopback", callbacks.allow_loopback != new.callbacks.allow_loopback),
        ("run.shutdown_deadline", *shutdown_deadline != new.shutdown_deadline),
    ];
    changed.extend(names(others));
    changed
}

/// Like [`fixed_changes`], of the settings that only a process with a store uses. A collector has none.
pub fn fixed_store_changes(old: &Config, new: &Config) -> Vec<&'static str> {
    let mut changed = names([
        ("registry", old.registry != new.registry),
        ("attribution.workers", old.workers != new.workers),
    ]);
    changed.extend(store_changes(&old.store, &new.store));
    changed
}

fn kafka_changes(old: &Kafka, new: &Kafka) -> Vec<&'static str> {
    let Kafka { brokers, group, topics, formats, librdkafka } = old;
    names([
        ("kafka.brokers", *brokers != new.brokers),
        ("kafka.group", *group != new.group),
        ("kafka.clicks", topics.clicks != new.topics.clicks),
        ("kafka.activations", topics.activations != new.topics.activations),
        ("kafka.effects", topics.effects != new.topics.effects),
        ("kafka.formats", *formats != new.formats),
        ("kafka.librdkafka", !are_equal(librdkafka, &new.librdkafka)),
    ])
}

/// Compares values only: the locations of settings change with every line before them.
fn are_equal(old: &BTreeMap<String, ClientSetting>, new: &BTreeMap<String, ClientSetting>) -> bool {
    let value =
        |(name, value): (&String, &ClientSetting)| (name.clone(), value.expose().to_owned());
    old.iter().map(value).eq(new.iter().map(value))
}

fn store_changes(old: &Store, new: &Store) -> Vec<&'static str> {
    let Store {
        hbase,
        path,
        partitions,
        retention_ms,
        region_bytes_max,
        fanout_above,
        memory_bytes,
        apps,
    } = old;
    // An app may come or go. Over HBase, every process has the settings of the apps with which it was started.
    let is_changed_app =
        |pid: &Pid, of_app: &AppStore| apps.get(pid).is_some_and(|known| known != of_app);
    let is_new_app = |pid: &Pid, of_app: &AppStore| {
        let has_settings = of_app.retention_ms.is_some() || of_app.fanout.is_some();
        hbase.is_some() && has_settings && !apps.contains_key(pid)
    };
    let mut of_apps = new.apps.iter();
    names([
        ("store.kind", hbase.is_some() != new.hbase.is_some()),
        ("store.hbase", hbase.is_some() && new.hbase.is_some() && *hbase != new.hbase),
        ("store.path", *path != new.path),
        ("store.partitions", *partitions != new.partitions),
        ("store.retention", *retention_ms != new.retention_ms),
        ("store.region_bytes_max", *region_bytes_max != new.region_bytes_max),
        ("store.fanout_above", *fanout_above != new.fanout_above),
        ("store.memory", *memory_bytes != new.memory_bytes),
        (
            "apps.store",
            of_apps.any(|(pid, of_app)| is_changed_app(pid, of_app) || is_new_app(pid, of_app)),
        ),
    ])
}

fn names<const N: usize>(settings: [(&'static str, bool); N]) -> Vec<&'static str> {
    settings.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name).collect()
}
