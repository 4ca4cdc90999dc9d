//! All roles in one process over the embedded store.

use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::time::Instant;

use anyhow::Context;
use attribution::ledger::{Facts, Ledger, Progress};
use attribution::worker::Worker;
use config::Config;
use export::http::admin::Admin;
use export::{Access, ExportState};
use ingest::{Health, Shutdown};
use metrics_exporter_prometheus::PrometheusHandle;
use store::embedded::{DiskFullGate, Embedded, EngineMetrics};
use store::reader::Reader;
use tokio::runtime::Runtime;

use super::attribution_thread::{self, PipelineMetrics};
use super::listeners::Listeners;
use super::shutdown_deadline::listen_for_signals;
use super::{
    BATCHES_WAITING, SUPERVISION, Threads, control_socket, readiness, tell_of_held, tell_of_the_end,
};
use crate::timing::Timing;

/// As [`super::run`].
pub fn run(
    config: &Config,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("the runtime for the listeners does not start")?;
    let listeners = Listeners::bind(&runtime, config, true)?;
    let embedded = Embedded::open_with_timing(&config.store, &config.policy, timing.store)?;
    tell_of_held(&config.policy, &embedded.held_back(&config.policy));
    let (reader, checkpoints) = (embedded.reader(), embedded.checkpoints());
    let engine = EngineMetrics::new(embedded.engine());
    let room = embedded.block_when_disk_full();
    let mut worker = Worker::new(embedded, Arc::clone(&config.policy));
    let positions = worker.ledger_mut().positions()?;
    let progress = Progress { positions, consumed_until: worker.ledger().consumed_until() };

    // Before anything is read: until here a signal just ends the process, and nothing is lost by it.
    listen_for_signals(shutdown).context("signals can not be listened for")?;
    let metrics = Arc::new(PipelineMetrics::new(config));
    let health = Arc::new(Health::default());
    let (batches, batches_in) = sync_channel(BATCHES_WAITING);
    let (committed, committed_in) = channel();
    let (stop, state) = (shutdown.clone(), Arc::clone(&health));
    let intake = ingest::start_with_timing(
        config,
        &progress,
        batches,
        committed_in,
        stop,
        state,
        timing.ingest,
    )?;
    let attribution = attribution_thread::start(worker, batches_in, committed, metrics.clone())?;
    let control = control_socket::start(
        &config.store.path,
        checkpoints,
        timing.control_request_timeout,
        shutdown,
    )?;

    let access = Access::new(&config.tokens, config.downloads_per_token_max);
    let intake_state = Arc::clone(&health);
    let complete_until = Arc::new(move || intake_state.complete_until());
    let export = ExportState::new(reader.clone(), config.policy.clone(), access, complete_until);
    let admin = admin((metrics, recorder), (engine, reader), (health, room.clone()));
    tracing::info!(
        export = %config.export_listen,
        admin = %config.admin_listen,
        store = %config.store.path.display(),
        "adtrail runs"
    );
    let servers = runtime.spawn(listeners.serve(Some(export), admin, shutdown.clone()));
    let threads = Threads { intake, attribution, others: vec![control] };
    let mut is_full = false;
    while !shutdown.is_requested() {
        if threads.is_any_finished() || servers.is_finished() {
            shutdown.request();
        }
        let waits = room.is_blocked();
        if waits != is_full {
            is_full = waits;
            tell_of_room(config, is_full);
        }
        shutdown.sleep(SUPERVISION);
    }
    let deadline = Instant::now() + config.shutdown_deadline;
    room.give_up();
    // It may have to wait until somebody reads the log.
    tracing::info!("stopping");
    let outcome = threads.end(deadline);
    let remaining = deadline.saturating_duration_since(Instant::now());
    let served = runtime.block_on(async { tokio::time::timeout(remaining, servers).await });
    // A download that is still under way is cut off here, and its client can tell. Its line in the
    // log may be written yet.
    runtime.shutdown_timeout(timing.cut_off_download_patience);
    let left = outcome?;
    if let Ok(served) = served {
        served.context("the listeners failed")?.context("the listeners failed")?;
    }
    tell_of_the_end(left);
    Ok(())
}

fn tell_of_room(config: &Config, is_full: bool) {
    let path = config.store.path.display();
    if is_full {
        tracing::error!(
            store = %path,
            "the disk of store.path is full: nothing is committed, and soon nothing read, until there is \
             room; downloads go on, and nothing is lost"
        );
    } else {
        tracing::info!(store = %path, "there is room on the disk of store.path again");
    }
}

fn admin(
    (metrics, recorder): (Arc<PipelineMetrics>, PrometheusHandle),
    (engine, reader): (EngineMetrics, Reader),
    (health, room): (Arc<Health>, DiskFullGate),
) -> Admin {
    let observed = Arc::clone(&health);
    let render = move || {
        engine.observe();
        metrics.scrape(&observed, reader.regions().as_ref(), || recorder.render())
    };
    let ready = move || {
        if room.is_blocked() {
            Err("the disk of store.path is full: nothing is committed until there is room"
                .to_owned())
        } else {
            readiness::of_reading(&health)
        }
    };
    Admin { metrics: Arc::new(render), readiness: Arc::new(ready) }
}
