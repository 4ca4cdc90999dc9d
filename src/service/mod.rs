//! The service: attributes what it reads from Kafka, serves exports, or both.

pub(crate) mod attribution_thread;
pub(crate) mod control_socket;
mod embedded;
mod hbase;
mod heartbeat;
mod listeners;
mod readiness;
pub mod region_metrics;
mod regions;
pub(crate) mod shutdown_deadline;

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use attribution::facts::event::EventTime;
use attribution::rules::policy::Policy;
use config::Config;
use ingest::{IngestError, Shutdown};
use jiff::Timestamp;
use metrics_exporter_prometheus::PrometheusHandle;
use store::RetainedFloor;
use tokio::runtime::Runtime;

use crate::timing::Timing;

const SUPERVISION: Duration = Duration::from_millis(50);
/// Batches that wait while the worker processes one.
const BATCHES_WAITING: usize = 2;

/// What a process does. With an embedded store it does everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    pub attributes: bool,
    pub exports: bool,
}

impl Roles {
    pub const ALL: Self = Self { attributes: true, exports: true };
}

/// Runs all roles until shutdown is requested. Then commits what has been read, and lets downloads finish, until the
/// configured deadline.
///
/// # Errors
/// The reason why the service cannot start, or ended.
pub fn run(
    config: &Config,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    run_roles(config, Roles::ALL, timing, shutdown, recorder)
}

/// As [`run`], with these roles alone; an embedded store has all in one process.
pub(crate) fn run_roles(
    config: &Config,
    roles: Roles,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    match &config.store.hbase {
        Some(hbase) => hbase::run((config, hbase), roles, timing, shutdown, recorder),
        None => embedded::run(config, timing, shutdown, recorder),
    }
}

/// The listeners and threads of a process that is up.
struct Running {
    runtime: Runtime,
    servers: tokio::task::JoinHandle<io::Result<()>>,
    /// `None` in a process that only exports.
    threads: Option<Threads>,
}

impl Running {
    /// Calls `poll` now and then until shutdown is requested or a part has ended. Then stops all parts, and calls
    /// `give_up` with the deadline so that no write waits beyond it.
    fn supervise(
        self,
        config: &Config,
        timing: Timing,
        shutdown: &Shutdown,
        mut poll: impl FnMut(),
        give_up: impl FnOnce(Option<&Threads>, Instant),
    ) -> anyhow::Result<()> {
        let Self { runtime, servers, threads } = self;
        while !shutdown.is_requested() {
            if threads.as_ref().is_some_and(Threads::is_any_finished) || servers.is_finished() {
                shutdown.request();
            }
            poll();
            shutdown.sleep(SUPERVISION);
        }
        let deadline = Instant::now() + config.shutdown_deadline;
        // Blocks while nobody reads the log.
        tracing::info!("stopping");
        give_up(threads.as_ref(), deadline);
        let outcome = threads.map_or(Ok(0), |threads| threads.join(deadline));
        let remaining = deadline.saturating_duration_since(Instant::now());
        let served = runtime.block_on(async { tokio::time::timeout(remaining, servers).await });
        // Cuts off the downloads that are left, so that their clients notice; gives them time to log.
        runtime.shutdown_timeout(timing.cut_off_download_patience);
        let uncommitted = outcome?;
        if let Ok(served) = served {
            served.context("the listeners failed")?.context("the listeners failed")?;
        }
        match uncommitted {
            0 => tracing::info!("adtrail has stopped; everything read is committed"),
            _ => tracing::info!(
                uncommitted,
                "adtrail has stopped; uncommitted records will be read again"
            ),
        }
        Ok(())
    }
}

/// The threads of attribution; each ends by itself.
struct Threads {
    /// Returns the number of records that were read and are not committed.
    intake: JoinHandle<Result<u64, IngestError>>,
    attribution: JoinHandle<anyhow::Result<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Threads {
    /// True if a thread has ended too early.
    fn is_any_finished(&self) -> bool {
        self.intake.is_finished() || self.attribution.is_finished()
    }

    fn are_all_finished(&self) -> bool {
        self.intake.is_finished()
            && self.attribution.is_finished()
            && self.others.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all threads have ended, or until this time.
    fn wait(&self, until: Instant) {
        while !self.are_all_finished() && Instant::now() < until {
            std::thread::sleep(SUPERVISION);
        }
    }

    /// Waits for the threads, and returns the number of uncommitted records.
    fn join(self, deadline: Instant) -> anyhow::Result<u64> {
        self.wait(deadline);
        if !self.are_all_finished() {
            bail!("not stopped within run.shutdown_deadline; what is not committed is read again");
        }
        let panicked = "a thread has panicked";
        self.attribution.join().map_err(|_| anyhow::anyhow!(panicked))??;
        let uncommitted = self.intake.join().map_err(|_| anyhow::anyhow!(panicked))??;
        for other in self.others {
            other.join().map_err(|_| anyhow::anyhow!(panicked))?;
        }
        Ok(uncommitted)
    }
}

/// Longer retention settings do not restore expired state.
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
            "state has expired by settings that were shorter, and stays expired: what would need it is \
             decided without it"
        );
    }
}
