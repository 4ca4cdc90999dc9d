//! Opens a store in HBase at the start of a process. HBase may be away then, as after a power failure: the process waits
//! for it, as it would if HBase went away later.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Instant;

use anyhow::Context;
use attribution::rules::policy::Policy;
use backon::{BackoffBuilder, ExponentialBuilder};
use config::Config;
use export::http::admin::Admin;
use ingest::Shutdown;
use metrics_exporter_prometheus::PrometheusHandle;
use store::StoreError;
use store::hbase::Shared;

use super::until_shutdown::SUPERVISION_INTERVAL;
use crate::telemetry::LOG_LEVEL;
use crate::timing::Timing;

/// What a process lacks while it waits.
pub const MISSING: &str =
    "waiting for HBase: no server of store.hbase.servers serves requests (see the log)";

/// Opens the store. If HBase does not respond, calls `on_wait` and retries until it does; returns `None` if shutdown is
/// requested meanwhile.
///
/// # Errors
/// If the store cannot be opened for a reason that does not pass, such as missing tables or permissions.
pub fn open(
    config: &Config,
    hbase: &config::HBase,
    timing: &Timing,
    shutdown: &Shutdown,
    on_wait: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Option<Shared>> {
    let opening = Opening {
        store: config.store.clone(),
        hbase: hbase.clone(),
        policy: Arc::clone(&config.policy),
        timing: *timing,
    };
    match opening.attempt() {
        Err(error) if error.is_passing() => opening.warn_of(&error),
        outcome => return Ok(Some(outcome?)),
    }
    on_wait()?;
    let (sender, outcomes) = channel();
    let stop = shutdown.clone();
    // An attempt takes up to half a minute, for which a shutdown must not wait.
    let retry = move || {
        if let Some(outcome) = opening.retry(&stop) {
            // Nobody receives it after a shutdown request.
            let _ = sender.send(outcome);
        }
    };
    let thread = Builder::new().name("hbase-open".into()).spawn(retry);
    thread.context("the thread that waits for hbase cannot be started")?;
    Ok(receive(&outcomes, shutdown)?)
}

/// Returns what the admin listener serves while a process waits.
pub fn waiting_admin(recorder: PrometheusHandle) -> Admin {
    Admin {
        metrics: Arc::new(move || recorder.render()),
        readiness: Arc::new(move || -> Result<(), String> { Err(MISSING.to_owned()) }),
        requests: None,
        reload: Some(Arc::new(|| -> Result<String, String> {
            Err("adtrail waits for HBase and has not started yet: reload later".to_owned())
        })),
        log_level: LOG_LEVEL,
    }
}

struct Opening {
    store: config::Store,
    hbase: config::HBase,
    policy: Arc<Policy>,
    timing: Timing,
}

impl Opening {
    fn attempt(&self) -> Result<Shared, StoreError> {
        let store = Shared::open_with_timing(&self.store, &self.hbase, self.timing.store)?;
        store.reader().require_apps(&self.policy)?;
        Ok(store)
    }

    /// Retries until the store is open, or a failure does not pass; returns `None` if shutdown is requested.
    fn retry(&self, shutdown: &Shutdown) -> Option<Result<Shared, StoreError>> {
        let delays = ExponentialBuilder::new()
            .with_min_delay(self.timing.hbase_start_delay)
            .with_max_delay(self.timing.hbase_start_delay_max)
            .with_jitter()
            .without_max_times();
        let mut warned = Instant::now();
        for delay in delays.build() {
            shutdown.sleep(delay);
            if shutdown.is_requested() {
                break;
            }
            match self.attempt() {
                Err(error) if error.is_passing() => {
                    if warned.elapsed() >= self.timing.hbase_start_warning_interval {
                        self.warn_of(&error);
                        warned = Instant::now();
                    }
                }
                outcome => return Some(outcome),
            }
        }
        None
    }

    fn warn_of(&self, error: &StoreError) {
        tracing::warn!(
            %error,
            store.hbase.servers = self.hbase.servers.join(","),
            "HBase does not respond; waiting for it"
        );
    }
}

fn receive(
    outcomes: &Receiver<Result<Shared, StoreError>>,
    shutdown: &Shutdown,
) -> Result<Option<Shared>, StoreError> {
    while !shutdown.is_requested() {
        match outcomes.recv_timeout(SUPERVISION_INTERVAL) {
            Ok(outcome) => {
                let store = outcome?;
                tracing::info!("HBase responds");
                return Ok(Some(store));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    tracing::info!("stopped while waiting for HBase; nothing was read");
    Ok(None)
}
