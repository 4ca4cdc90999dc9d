//! The collector as a role of its own.

use std::sync::Arc;

use anyhow::Context;
use collect::{CollectRoutes, Collector, Echo};
use config::{Collect, Config};
use export::http::admin::{Admin, Reload};
use ingest::Shutdown;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::runtime::Runtime;

use super::listeners::{Listeners, Served};
use super::notify::{Notifier, Observed};
use super::reload::{Parts, Reloading};
use super::shutdown_deadline::listen_for_signals;
use super::{Running, links};
use crate::open_files;
use crate::telemetry::LOG_LEVEL;
use crate::timing::Timing;

/// Collects until shutdown is requested, then answers the requests received by then. `echo` gets a line for each, and
/// `reloading` loads the settings again.
///
/// # Errors
/// If the collector cannot start, or its Kafka client fails for good.
pub fn run(
    config: &Config,
    collect: &Collect,
    echo: Option<Echo>,
    reloading: Reloading,
    timing: Timing,
    shutdown: &Shutdown,
    recorder: PrometheusHandle,
) -> anyhow::Result<()> {
    open_files::check_limit_of_collector();
    let runtime = Runtime::new().context("the runtime of the listeners cannot be started")?;
    let listeners = Listeners::bind(&runtime, config, Served { exports: false, collects: true })?;
    let routes = CollectRoutes::new(Collector::start(config, collect, echo)?);
    listen_for_signals(shutdown).context("cannot install signal handlers")?;
    let parts = Parts {
        store: None,
        worker: None,
        delivery: None,
        collector: Some(routes.clone()),
        export: None,
    };
    let (reload, _) = reloading.start(config, parts, shutdown)?;
    let admin = admin(recorder, routes.clone(), reload);
    let observed = Observed { readiness: admin.readiness.clone(), attribution: None };
    let notifier = Notifier::new(observed, timing.status_interval);
    tracing::info!(collect = %collect.listen, admin = %config.admin_listen, "adtrail collects");
    let served = listeners.serve(None, Some(routes), admin, shutdown.clone());
    let running = Running { servers: runtime.spawn(served), runtime, threads: None, notifier };
    running.supervise(config, timing, shutdown, || (), |_, _| ())
}

fn admin(recorder: PrometheusHandle, routes: CollectRoutes, reload: Reload) -> Admin {
    let requests = Some(links::requests(routes.clone()));
    let ready = move || readiness(&routes);
    Admin {
        metrics: Arc::new(move || recorder.render()),
        readiness: Arc::new(ready),
        requests,
        reload: Some(reload),
        log_level: LOG_LEVEL,
    }
}

/// Returns an error if requests would fail.
pub fn readiness(routes: &CollectRoutes) -> Result<(), String> {
    routes.collector().readiness().map_err(str::to_owned)
}

/// Starts the collector of a process with other roles, if one is configured.
pub fn start(config: &Config) -> anyhow::Result<Option<CollectRoutes>> {
    let collect = config.collect.as_ref();
    let collector = collect.map(|collect| Collector::start(config, collect, None)).transpose()?;
    Ok(collector.map(CollectRoutes::new))
}
