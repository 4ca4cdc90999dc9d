//! All roles in one process over the embedded store.

use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};

use anyhow::Context;
use attribution::ledger::{Facts, Ledger, Progress};
use attribution::parallelism::Parallelism;
use attribution::worker::Worker;
use collect::Collector;
use config::Config;
use export::http::admin::Admin;
use export::{Access, ExportState};
use ingest::{Health, Shutdown};
use metrics_exporter_prometheus::PrometheusHandle;
use store::embedded::{DiskFullGate, Embedded, EngineMetrics};
use store::reader::Reader;
use tokio::runtime::Runtime;

use super::attribution_thread::{self, PipelineMetrics};
use super::callbacks::Callbacks;
use super::callbacks::metrics::OutboxMetrics;
use super::listeners::{Listeners, Served};
use super::notify::{Notifier, Observed, ObservedAttribution};
use super::readiness::{self, Readiness};
use super::shutdown_deadline::listen_for_signals;
use super::{
    BATCH_QUEUE_LENGTH, Running, Threads, collector, control_socket, links, log_retained_floors,
    served_and_delivered,
};
use crate::timing::Timing;

/// See [`super::run`].
pub fn run(
    config: &Config,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    let callbacks = Callbacks::new(config)?;
    let runtime = Runtime::new().context("the runtime of the listeners cannot be started")?;
    let listeners = Listeners::bind(&runtime, config, Served { exports: true, collects: true })?;
    let mut embedded = Embedded::open_with_timing(&config.store, &config.policy, timing.store)?;
    let parallelism = Parallelism::new(config.workers);
    embedded.set_parallelism(parallelism);
    log_retained_floors(&config.policy, &embedded.retained_floors(&config.policy));
    let (reader, checkpoints) = (embedded.reader(), embedded.checkpoints());
    let engine = EngineMetrics::new(embedded.engine());
    let disk_gate = embedded.block_when_disk_full();
    let worker = Worker::new(embedded, Arc::clone(&config.policy));
    let mut worker = worker.with_parallelism(parallelism).with_interests(callbacks.interests());
    let positions = worker.ledger_mut().positions()?;
    let progress = Progress { positions, consumed_until: worker.ledger().consumed_until() };

    let collector = collector::start(config)?;
    // Until here a signal ends the process at once, because nothing has been read.
    listen_for_signals(shutdown).context("cannot install signal handlers")?;
    let metrics = Arc::new(PipelineMetrics::new(config));
    let health = Arc::new(Health::default());
    let (batches, batches_in) = sync_channel(BATCH_QUEUE_LENGTH);
    let (committed, committed_in) = channel();
    let (stop, state) = (shutdown.clone(), Arc::clone(&health));
    let intake =
        ingest::start(config, &progress, batches, committed_in, stop, state, timing.ingest)?;
    let attribution = attribution_thread::start(worker, batches_in, committed, metrics.clone())?;
    let control = control_socket::start(&config.store.path, checkpoints, &reader, shutdown)?;
    let delivery = callbacks.start(&runtime, &reader, &timing, shutdown)?;

    let access = Access::new(&config.tokens, config.downloads_per_token_max);
    let intake_state = Arc::clone(&health);
    let complete_until = Arc::new(move || intake_state.complete_until());
    let export = ExportState::new(reader.clone(), config.policy.clone(), access, complete_until)
        .with_links(links::tracking_links(config, collector.clone()));
    let ready = readiness(health.clone(), disk_gate.clone(), collector.clone());
    let requests = collector.clone().map(links::requests);
    let notifier = notifier(&ready, &health, &metrics, &disk_gate, timing);
    let outbox = OutboxMetrics::new(&callbacks, &reader, &timing);
    let render = render(metrics, recorder, engine, outbox, reader, health);
    let admin = Admin { metrics: render, readiness: ready, requests };
    tracing::info!(
        export = %config.export_listen,
        admin = %config.admin_listen,
        store = %config.store.path.display(),
        "adtrail runs"
    );
    let served = listeners.serve(Some(export), collector, admin, shutdown.clone());
    let servers = runtime.spawn(served_and_delivered(served, delivery));
    let threads = Some(Threads { intake, attribution, others: vec![control] });
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
    outbox: OutboxMetrics,
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
    collector: Option<Collector>,
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
