//! The service: reads and attributes events, serves exports, or both.

pub(crate) mod attribution_thread;
mod batch_span;
pub(crate) mod callbacks;
pub(crate) mod collector;
pub(crate) mod control_socket;
mod decision_metrics;
mod embedded;
mod hbase;
mod heartbeat;
mod links;
mod listeners;
mod loop_progress;
mod notify;
mod opening;
mod readiness;
pub mod region_metrics;
mod regions;
pub(crate) mod reload;
mod service_ledger;
pub(crate) mod shutdown_deadline;
mod until_shutdown;
mod worker_settings;

use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, bail};
use attribution::facts::event::EventTime;
use attribution::rules::policy::Policy;
use config::Config;
use ingest::{IngestError, Shutdown};
use jiff::Timestamp;
use metrics_exporter_prometheus::PrometheusHandle;
use store::RetainedFloor;
use tokio::runtime::Runtime;

use crate::open_files;
use crate::timing::Timing;
use notify::Notifier;
use reload::{Load, Reloading};
use until_shutdown::SUPERVISION_INTERVAL;

/// Capacity of the queue of batches in front of the attribution worker.
const BATCH_QUEUE_LENGTH: usize = 2;

/// The roles of a process. A process with an embedded store has all roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    pub attributes: bool,
    pub exports: bool,
}

impl Roles {
    pub const ALL: Self = Self { attributes: true, exports: true };
}

/// Runs all roles until shutdown is requested, with these settings. Shutdown commits the records that were read and waits
/// for downloads, but no longer than the configured deadline.
///
/// # Errors
/// If the service cannot start, or if a part of it fails.
pub fn run(
    config: &Config,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    run_roles(config, Roles::ALL, None, timing, shutdown, recorder)
}

/// Runs like [`run`], with these roles only. With an embedded store, `roles` is ignored: the process has all roles.
/// `load` loads the settings again; without it, they cannot be reloaded.
pub(crate) fn run_roles(
    config: &Config,
    roles: Roles,
    load: Option<Load>,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    open_files::check_limit(config);
    let reloading = load.map(Reloading::new).transpose()?;
    match &config.store.hbase {
        Some(hbase) => hbase::run(config, hbase, roles, reloading, timing, shutdown, recorder),
        None => embedded::run(config, reloading, timing, shutdown, recorder),
    }
}

/// The listeners and threads of a running process.
struct Running {
    runtime: Runtime,
    servers: tokio::task::JoinHandle<anyhow::Result<()>>,
    /// `None` in a process that does not read Kafka.
    threads: Option<Threads>,
    notifier: Notifier,
}

impl Running {
    /// Calls `poll` periodically until shutdown is requested or a part has ended. Then stops all parts; `give_up` must
    /// abort writes that would wait beyond the deadline.
    fn supervise(
        self,
        config: &Config,
        timing: Timing,
        shutdown: &Shutdown,
        mut poll: impl FnMut(),
        give_up: impl FnOnce(Option<&Threads>, Instant),
    ) -> anyhow::Result<()> {
        let Self { runtime, servers, threads, mut notifier } = self;
        while !shutdown.is_requested() {
            if threads.as_ref().is_some_and(Threads::is_any_finished) || servers.is_finished() {
                shutdown.request();
            }
            poll();
            notifier.poll();
            shutdown.sleep(SUPERVISION_INTERVAL);
        }
        let deadline = Instant::now() + config.shutdown_deadline;
        notifier.stop();
        // May block if standard error is a pipe that is not read.
        tracing::info!("stopping");
        give_up(threads.as_ref(), deadline);
        let reads_kafka = threads.is_some();
        let outcome = threads.map_or(Ok(0), |threads| threads.join(deadline));
        let remaining = deadline.saturating_duration_since(Instant::now());
        let served = runtime.block_on(async { tokio::time::timeout(remaining, servers).await });
        // Aborts the remaining downloads, so that their clients see an error, and gives them time to log.
        runtime.shutdown_timeout(timing.aborted_download_timeout);
        let uncommitted = outcome?;
        if let Ok(served) = served {
            served.context("the listeners failed")??;
        }
        match uncommitted {
            _ if !reads_kafka => tracing::info!("adtrail has stopped"),
            0 => tracing::info!("adtrail has stopped; everything read is committed"),
            _ => tracing::info!(
                uncommitted,
                "adtrail has stopped; uncommitted records will be read again"
            ),
        }
        Ok(())
    }
}

/// Waits for the listeners and for the delivery of callbacks.
async fn served_and_delivered(
    served: impl Future<Output = anyhow::Result<()>>,
    delivery: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let (served, delivered) = tokio::join!(served, delivery);
    served.and(delivered.context("the delivery of callbacks failed"))
}

/// The threads that read and attribute. Each ends by itself on shutdown.
struct Threads {
    /// Returns the number of records that were read but not committed.
    intake: JoinHandle<Result<u64, IngestError>>,
    attribution: JoinHandle<anyhow::Result<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Returns true if the intake or the attribution has ended.
    fn is_any_finished(&self) -> bool {
        self.intake.is_finished() || self.attribution.is_finished()
    }

    fn are_all_finished(&self) -> bool {
        self.intake.is_finished()
            && self.attribution.is_finished()
            && self.others.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all threads have ended, but not beyond `until`.
    fn wait(&self, until: Instant) {
        while !self.are_all_finished() && Instant::now() < until {
            std::thread::sleep(SUPERVISION_INTERVAL);
        }
    }

    /// Waits for the threads, and returns the number of uncommitted records.
    fn join(self, deadline: Instant) -> anyhow::Result<u64> {
        self.wait(deadline);
        if !self.are_all_finished() {
            bail!(
                "not stopped within run.shutdown_deadline; uncommitted records will be read again"
            );
        }
        let panicked = "a thread panicked";
        self.attribution.join().map_err(|_| anyhow::anyhow!(panicked))??;
        let uncommitted = self.intake.join().map_err(|_| anyhow::anyhow!(panicked))??;
        for other in self.others {
            other.join().map_err(|_| anyhow::anyhow!(panicked))?;
        }
        Ok(uncommitted)
    }
}

/// Warns of state that stays expired although windows or retention were lengthened.
fn log_retained_floors(policy: &Policy, all: &[RetainedFloor]) {
    let text = |time: EventTime| {
        let time = i64::try_from(time.millis()).ok().map(Timestamp::from_millisecond);
        time.and_then(Result::ok).unwrap_or_default().to_string()
    };
    for RetainedFloor { pid, settings, before, ends } in all {
        tracing::warn!(
            app = policy.app(*pid).map_or("", |app| &*app.key),
            settings = settings.join(", "),
            before = text(*before),
            until = ends.map_or("for good".to_owned(), text),
            "state has expired under shorter settings and stays expired: events are decided without it"
        );
    }
}
