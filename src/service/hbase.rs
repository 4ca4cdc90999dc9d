//! Roles over a store in HBase. Any number of processes attribute, as members of one consumer group, and any number
//! serve exports.

use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::time::Instant;

use anyhow::Context;
use attribution::parallelism::Parallelism;
use attribution::worker::Worker;
use collect::CollectRoutes;
use config::Config;
use export::http::admin::Admin;
use export::{Access, ExportState};
use ingest::{Health, Queues, Shutdown, TopicNames};
use metrics_exporter_prometheus::PrometheusHandle;
use store::StoreError;
use store::hbase::Shared;
use tokio::runtime::Runtime;

use super::attribution_thread::{self, PipelineMetrics};
use super::callbacks::delivery::Delivery;
use super::callbacks::{self, Callbacks};
use super::heartbeat::{self, LastSeen};
use super::listeners::{Listeners, Served};
use super::notify::{self, Notifier, Observed, ObservedAttribution};
use super::reload::{Parts, Reloading, StorePart, WorkerPart};
use super::shutdown_deadline::listen_for_signals;
use super::{
    BATCH_QUEUE_LENGTH, Roles, Running, Threads, collector, links, log_retained_floors, opening,
    readiness, regions, served_and_delivered,
};
use crate::telemetry::LOG_LEVEL;
use crate::timing::Timing;

pub fn run(
    config: &Config,
    hbase: &config::HBase,
    roles: Roles,
    reloading: Option<Reloading>,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    let callbacks = Callbacks::new(config)?;
    let runtime = Runtime::new().context("the runtime of the listeners cannot be started")?;
    // A role alone does not collect: `adtrail collect` does.
    let served = Served { exports: roles.exports, collects: roles == Roles::ALL };
    let listeners = Listeners::bind(&runtime, config, served)?;
    let found = Shutdown::default();
    let wait = || {
        listen_for_signals(shutdown).context("cannot install signal handlers")?;
        notify::waits_for(opening::MISSING);
        listeners.serve_admin_until(&found, opening::waiting_admin(recorder.clone()), &runtime)
    };
    let store = opening::open(config, hbase, &timing, shutdown, wait)?;
    found.request();
    let Some(store) = store.map(Arc::new) else { return Ok(()) };
    check_tables(config, &store, roles)?;
    let collector = if served.collects { collector::start(config)? } else { None };
    listen_for_signals(shutdown).context("cannot install signal handlers")?;
    let health = Arc::new(Health::default());
    let attribution = match roles.attributes {
        true => Some(attribute(config, &store, &callbacks, &health, timing.ingest, shutdown)?),
        false => None,
    };
    let (delivery, delivered) = match roles.attributes {
        true => Some(deliver(&callbacks, &store, &runtime, &timing, shutdown)?).unzip(),
        false => (None, None),
    };
    let names = TopicNames::new(&config.kafka.topics);
    let (checked, state, interval) =
        (Arc::clone(&store), Arc::clone(&health), timing.hbase_check_interval);
    let seen = heartbeat::start(checked, names, state, roles, interval, shutdown)?;
    if roles.exports {
        regions::start(Arc::clone(&store), timing.region_check_interval, shutdown)?;
    }
    let links = || links::tracking_links(config, collector.as_ref().map(CollectRoutes::collector));
    let export = roles.exports.then(|| export(config, &store, &seen).with_links(links()));
    let export = export.and_then(|state| listeners.export_routes(state));
    let (worker, threads) = attribution.unzip();
    let metrics = worker.as_ref().map(|worker: &WorkerPart| Arc::clone(&worker.metrics));
    let parts = Parts {
        store: Some(StorePart::Shared(Arc::clone(&store))),
        worker,
        delivery,
        collector: collector.clone(),
        export: export.clone(),
    };
    let (reload, _) =
        reloading.map(|reloading| reloading.start(config, parts, shutdown)).transpose()?.unzip();
    let observed = metrics.as_ref().map(|metrics| observe(metrics, &health, &seen));
    let admin = Admin { reload, ..admin(metrics, recorder, health, seen, collector.clone()) };
    let observed = Observed { readiness: admin.readiness.clone(), attribution: observed };
    let notifier = Notifier::new(observed, timing.status_interval);
    log_start(config, hbase, roles);
    let served = listeners.serve(export, collector, admin, shutdown.clone());
    let delivered = async move {
        match delivered {
            Some(delivered) => delivered.await,
            None => Ok(()),
        }
    };
    let servers = runtime.spawn(served_and_delivered(served, delivered));
    let give_up = |threads: Option<&Threads>, deadline: Instant| {
        if let Some(threads) = threads {
            threads.wait(deadline.min(Instant::now() + timing.hbase_last_write_timeout));
            store.give_up();
        }
    };
    let running = Running { runtime, servers, threads, notifier };
    running.supervise(config, timing, shutdown, || (), give_up)
}

/// Checks that the tables' TTLs keep everything that a worker needs; otherwise it must not start. If no master
/// responds, or the user may not read the table descriptors, it starts with a warning.
fn check_tables(config: &Config, store: &Shared, roles: Roles) -> anyhow::Result<()> {
    match store.require_kept(&config.policy) {
        Err(StoreError::HBase(error)) => {
            tracing::warn!(
                %error,
                "the table descriptors cannot be read, so their TTLs are not checked: run `adtrail hbase init \
                 --dry-run` as a user with permission to read them"
            );
        }
        Err(error) if !roles.attributes => tracing::warn!(%error),
        checked => checked?,
    }
    Ok(())
}

/// Starts the threads that read Kafka and attribute.
fn attribute(
    config: &Config,
    store: &Shared,
    callbacks: &Callbacks,
    health: &Arc<Health>,
    timing: ingest::Timing,
    shutdown: &Shutdown,
) -> anyhow::Result<(WorkerPart, Threads)> {
    let ledger = store.ledger(&config.policy)?;
    log_retained_floors(&config.policy, &ledger.retained_floors(&config.policy));
    let worker = Worker::new(ledger, Arc::clone(&config.policy));
    let worker = worker
        .with_parallelism(Parallelism::new(config.workers))
        .with_interests(callbacks.interests());
    // The ledger has its apps already.
    let part = WorkerPart::new(config, callbacks, None);
    let (batches, batches_in) = sync_channel(BATCH_QUEUE_LENGTH);
    let (committed, committed_in) = channel();
    let (stop, state) = (shutdown.clone(), Arc::clone(health));
    let queues = Queues { batches, store_commits: committed_in };
    let policy = Arc::clone(&part.decoded_by);
    let intake = ingest::join(config, policy, queues, stop, state, timing)?;
    let (feed, metrics) = (part.feed(), Arc::clone(&part.metrics));
    let attribution = attribution_thread::start(worker, feed, batches_in, committed, metrics)?;
    Ok((part, Threads { intake, attribution, others: Vec::new() }))
}

/// Starts to send callbacks, and to count them.
fn deliver(
    callbacks: &Callbacks,
    store: &Shared,
    runtime: &Runtime,
    timing: &Timing,
    shutdown: &Shutdown,
) -> anyhow::Result<(Delivery, impl Future<Output = anyhow::Result<()>> + Send + use<>)> {
    let started = Delivery::start(callbacks, runtime, &store.reader(), timing, shutdown)?;
    let (delivery, _) = &started;
    callbacks::metrics::start(delivery.outbox(), timing, shutdown)?;
    Ok(started)
}

fn export(config: &Config, store: &Shared, seen: &Arc<LastSeen>) -> ExportState {
    let access = Access::new(&config.tokens, config.downloads_per_token_max);
    let seen = Arc::clone(seen);
    let complete_until = Arc::new(move || seen.complete_until());
    ExportState::new(store.reader(), Arc::clone(&config.policy), access, complete_until)
}

fn admin(
    metrics: Option<Arc<PipelineMetrics>>,
    recorder: PrometheusHandle,
    health: Arc<Health>,
    seen: Arc<LastSeen>,
    collector: Option<CollectRoutes>,
) -> Admin {
    let (observed, reads_kafka) = (Arc::clone(&health), metrics.is_some());
    let render = move || match &metrics {
        Some(metrics) => metrics.scrape(&observed, None, || recorder.render()),
        None => recorder.render(),
    };
    let requests = collector.clone().map(links::requests);
    let ready = move || {
        seen.check()?;
        if reads_kafka {
            readiness::check(&health)?;
        }
        collector.as_ref().map_or(Ok(()), collector::readiness)
    };
    Admin {
        metrics: Arc::new(render),
        readiness: Arc::new(ready),
        requests,
        reload: None,
        log_level: LOG_LEVEL,
    }
}

/// While HBase does not respond, the attribution retries, and a restart would not help.
fn observe(
    metrics: &PipelineMetrics,
    health: &Arc<Health>,
    seen: &Arc<LastSeen>,
) -> ObservedAttribution {
    let (health, seen) = (Arc::clone(health), Arc::clone(seen));
    let progress = Arc::clone(&metrics.progress);
    ObservedAttribution { health, progress, is_held_up: Box::new(move || seen.check().is_err()) }
}

fn log_start(config: &Config, hbase: &config::HBase, roles: Roles) {
    let servers = hbase.servers.join(",");
    let (admin, prefix) = (config.admin_listen, &hbase.prefix);
    match roles {
        Roles { attributes: true, exports: true } => {
            tracing::info!(export = %config.export_listen, %admin, hbase = servers, %prefix, "adtrail runs");
        }
        Roles { exports: true, .. } => {
            tracing::info!(export = %config.export_listen, %admin, hbase = servers, %prefix, "adtrail exports");
        }
        Roles { .. } => tracing::info!(%admin, hbase = servers, %prefix, "adtrail attributes"),
    }
}
