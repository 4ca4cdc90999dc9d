//! The service: reading Kafka and attributing, serving exports, or both, over the store of the settings.

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

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::bail;
use attribution::facts::event::EventTime;
use attribution::rules::policy::Policy;
use config::Config;
use ingest::{IngestError, Shutdown};
use jiff::Timestamp;
use metrics_exporter_prometheus::PrometheusHandle;
use store::RetainedFloor;

use crate::timing::Timing;

const SUPERVISION: Duration = Duration::from_millis(50);
/// Batches that wait for the worker: one is being decided, two are ready.
const BATCHES_WAITING: usize = 2;

/// What a process does. Over an embedded store it does all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    pub attributes: bool,
    pub exports: bool,
}

impl Roles {
    pub const ALL: Self = Self { attributes: true, exports: true };
}

/// Runs all roles until the wish to stop, then drains: what has been read is committed, downloads under
/// way may end, and all is over by the deadline of the settings.
///
/// # Errors
/// What keeps the service from starting, or ended it.
pub fn run(
    config: &Config,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    run_roles(config, Roles::ALL, timing, shutdown, recorder)
}

/// As [`run`], with those roles alone; an embedded store has all in one process.
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

/// The threads of attribution; each ends by itself.
struct Threads {
    /// Says how many records were read and are not committed.
    intake: JoinHandle<Result<u64, IngestError>>,
    attribution: JoinHandle<anyhow::Result<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Whether one has ended that is to go on.
    fn is_any_finished(&self) -> bool {
        self.intake.is_finished() || self.attribution.is_finished()
    }

    fn are_all_finished(&self) -> bool {
        self.intake.is_finished()
            && self.attribution.is_finished()
            && self.others.iter().all(JoinHandle::is_finished)
    }

    /// Until all have ended, at most so long.
    fn wait(&self, until: Instant) {
        while !self.are_all_finished() && Instant::now() < until {
            std::thread::sleep(SUPERVISION);
        }
    }

    /// Waits for the threads, and tells the reason if one of them failed: how many records were read and
    /// are not committed.
    fn end(self, deadline: Instant) -> anyhow::Result<u64> {
        self.wait(deadline);
        if !self.are_all_finished() {
            bail!("not stopped within run.shutdown_deadline; what is not committed is read again");
        }
        let panicked = "a thread has panicked";
        self.attribution.join().map_err(|_| anyhow::anyhow!(panicked))??;
        let left = self.intake.join().map_err(|_| anyhow::anyhow!(panicked))??;
        for other in self.others {
            other.join().map_err(|_| anyhow::anyhow!(panicked))?;
        }
        Ok(left)
    }
}

/// Settings that keep state for longer bring back nothing that had expired before.
fn tell_of_held(policy: &Policy, all: &[RetainedFloor]) {
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

/// The last line of the log.
fn tell_of_the_end(left: u64) {
    match left {
        0 => tracing::info!("adtrail has stopped; everything read is committed"),
        left => tracing::info!(left, "adtrail has stopped; so many records are read again"),
    }
}
