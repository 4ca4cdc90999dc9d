//! All roles in one process over the embedded store.

use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};

use anyhow::Context;
use attribution::ledger::{Facts, Ledger, Progress};
use attribution::parallelism::Parallelism;
use attribution::worker::Worker;
use collect::CollectRoutes;
use config::Config;
use export::http::admin::Admin;
use export::{Access, ExportState};
use ingest::{Health, Queues, Shutdown};
use metrics_exporter_prometheus::PrometheusHandle;
use store::embedded::{DiskFullGate, Embedded, EngineMetrics};
use store::reader::Reader;
use tokio::runtime::Runtime;

use super::attribution_thread::{self, PipelineMetrics};
use super::callbacks::Callbacks;
use super::callbacks::delivery::Delivery;
use super::callbacks::metrics::OutboxMetrics;
use super::listeners::{Listeners, Served};
use super::notify::{Notifier, Observed, ObservedAttribution};
use super::readiness::{self, Readiness};
use super::reload::{Parts, Reloading, StorePart, WorkerPart};
use super::shutdown_deadline::listen_for_signals;
use super::{
    BATCH_QUEUE_LENGTH, Running, Threads, collector, control_socket, links, log_retained_floors,
    served_and_delivered,
};
use crate::telemetry::LOG_LEVEL;
use crate::timing::Timing;

/// See [`super::run`].
pub fn run(
    config: &Config,
    reloading: Option<Reloading>,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    let callbacks = Callbacks::new(config)?;
    let runtime = Runtime::new().context("the runtime of the listeners cannot be started")?;
    let listeners = Listeners::bind(&runtime, config, Served { exports: true, collects: true })?;
    let mut worker = worker(config, &callbacks, timing)?;
    let (reader, checkpoints) = (worker.ledger().reader(), worker.ledger().checkpoints());
    let engine = EngineMetrics::new(worker.ledger().engine());
    let disk_gate = worker.ledger().block_when_disk_full();
    let positions = worker.ledger_mut().positions()?;
    let progress = Progress { positions, consumed_until: worker.ledger().consumed_until() };

    let collector = collector::start(config)?;
    // Until here a signal ends the process at once, because nothing has been read.
    listen_for_signals(shutdown).context("cannot install signal handlers")?;
    let part = WorkerPart::new(config, &callbacks, None);
    let health = Arc::new(Health::default());
    let (batches, batches_in) = sync_channel(BATCH_QUEUE_LENGTH);
    let (committed, committed_in) = channel();
    let (stop, state) = (shutdown.clone(), Arc::clone(&health));
    let queues = Queues { batches, store_commits: committed_in };
    let policy = Arc::clone(&part.decoded_by);
    let intake = ingest::start(config, policy, &progress, queues, stop, state, timing.ingest)?;
    let (feed, metrics) = (part.feed(), Arc::clone(&part.metrics));
    let attribution = attribution_thread::start(worker, feed, batches_in, committed, metrics)?;
    let control = control_socket::start(&config.store.path, checkpoints, &reader, shutdown)?;
    let (delivery, delivered) = Delivery::start(&callbacks, &runtime, &reader, &timing, shutdown)?;

    let export = export(config, &reader, &health, collector.as_ref());
    let export = listeners.export_routes(export);
    let ready = readiness(health.clone(), disk_gate.clone(), collector.clone());
    let requests = collector.clone().map(links::requests);
    let notifier = notifier(&ready, &health, &part.metrics, &disk_gate, timing);
    let (metrics, outbox) = (Arc::clone(&part.metrics), delivery.outbox());
    let render = render(metrics, recorder, engine, outbox, reader.clone(), health);
    let parts = Parts {
        store: Some(StorePart::Embedded(reader)),
        worker: Some(part),
        delivery: Some(delivery),
        collector: collector.clone(),
        export: export.clone(),
    };
    let (reload, reloads) =
        reloading.map(|reloading| reloading.start(config, parts, shutdown)).transpose()?.unzip();
    let admin = Admin { metrics: render, readiness: ready, requests, reload, log_level: LOG_LEVEL };
    log_start(config);
    let served = listeners.serve(export, collector, admin, shutdown.clone());
    let servers = runtime.spawn(served_and_delivered(served, delivered));
    let others = [control].into_iter().chain(reloads).collect();
    let threads = Some(Threads { intake, attribution, others });
    let mut is_full = false;
    let poll = || {
        if disk_gate.is_blocked() != is_full {
            is_full = !is_full;
            log_disk_full(config, is_full);
        }
    };
    let running = Running { runtime, servers, threads, notifier };
    running.supervise(config, timing, shutdown, poll, |_, _| disk_gate.give_up())
}

fn notifier(
    ready: &Readiness,
    health: &Arc<Health>,
    metrics: &PipelineMetrics,
    disk_gate: &DiskFullGate,
    timing: Timing,
) -> Notifier {
    let (readiness, health, disk_gate) = (ready.clone(), Arc::clone(health), disk_gate.clone());
    let is_held_up = Box::new(move || disk_gate.is_blocked());
    let progress = Arc::clone(&metrics.progress);
    let attribution = Some(ObservedAttribution { health, progress, is_held_up });
    Notifier::new(Observed { readiness, attribution }, timing.status_interval)
}

/// Opens the store.
fn worker(
    config: &Config,
    callbacks: &Callbacks,
    timing: Timing,
) -> anyhow::Result<Worker<Embedded>> {
    let mut embedded = Embedded::open_with_timing(&config.store, &config.policy, timing.store)?;
    let parallelism = Parallelism::new(config.workers);
    embedded.set_parallelism(parallelism);
    log_retained_floors(&config.policy, &embedded.retained_floors(&config.policy));
    let worker = Worker::new(embedded, Arc::clone(&config.policy));
    Ok(worker.with_parallelism(parallelism).with_interests(callbacks.interests()))
}

fn export(
    config: &Config,
    reader: &Reader,
    health: &Arc<Health>,
    collector: Option<&CollectRoutes>,
) -> ExportState {
    let access = Access::new(&config.tokens, config.downloads_per_token_max);
    let health = Arc::clone(health);
    let complete_until = Arc::new(move || health.complete_until());
    let links = links::tracking_links(config, collector.map(CollectRoutes::collector));
    ExportState::new(reader.clone(), config.policy.clone(), access, complete_until)
        .with_links(links)
}

fn log_start(config: &Config) {
    tracing::info!(
        export = %config.export_listen,
        admin = %config.admin_listen,
        store = %config.store.path.display(),
        "adtrail runs"
    );
}

fn log_disk_full(config: &Config, is_full: bool) {
    let path = config.store.path.display();
    if is_full {
        tracing::error!(
            store = %path,
            "the disk of store.path is full: commits, and soon reads from kafka, are blocked until there is \
             free space; downloads continue, and nothing is lost"
        );
    } else {
        tracing::info!(store = %path, "the disk of store.path has free space again");
    }
}

/// Returns what renders the metrics.
fn render(
    metrics: Arc<PipelineMetrics>,
    recorder: PrometheusHandle,
    engine: EngineMetrics,
    outbox: Arc<OutboxMetrics>,
    reader: Reader,
    health: Arc<Health>,
) -> Arc<dyn Fn() -> String + Send + Sync> {
    Arc::new(move || {
        engine.observe();
        outbox.observe();
        metrics.scrape(&health, reader.regions().as_ref(), || recorder.render())
    })
}

fn readiness(
    health: Arc<Health>,
    disk_gate: DiskFullGate,
    collector: Option<CollectRoutes>,
) -> Readiness {
    Arc::new(move || {
        if disk_gate.is_blocked() {
            return Err(
                "the disk of store.path is full: commits are blocked until there is free space"
                    .to_owned(),
            );
        }
        readiness::check(&health)?;
        collector.as_ref().map_or(Ok(()), collector::readiness)
    })
}
