//! `adtrail run`, and its two roles alone: `adtrail attribute` and `adtrail export`.

use ingest::Shutdown;

use super::reload::loader;
use super::{UsageError, load_for_kafka, require_apps};
use crate::cli::Settings;
use crate::service::{self, Roles, shutdown_deadline};
use crate::telemetry;
use crate::timing::Timing;

pub fn run(settings: &Settings, timing: Timing) -> anyhow::Result<()> {
    run_roles(settings, Roles::ALL, timing)
}

pub fn attribute(settings: &Settings, timing: Timing) -> anyhow::Result<()> {
    run_roles(settings, Roles { attributes: true, exports: false }, timing)
}

pub fn export(settings: &Settings, timing: Timing) -> anyhow::Result<()> {
    run_roles(settings, Roles { attributes: false, exports: true }, timing)
}

fn run_roles(settings: &Settings, roles: Roles, timing: Timing) -> anyhow::Result<()> {
    let config = load_for_kafka(settings)?;
    require_apps(&config, settings)?;
    if config.store.hbase.is_none() && roles != Roles::ALL {
        let problem = "one role alone needs a shared store: set store.kind = \"hbase\", or use `adtrail run` with an \
                       embedded store";
        return Err(UsageError(problem.to_owned()).into());
    }
    let recorder = telemetry::start_metrics()?;
    let shutdown = Shutdown::default();
    shutdown_deadline::watch(&shutdown, config.shutdown_deadline, timing.forced_exit_grace)?;
    let load = Some(loader(settings));
    let outcome = service::run_roles(&config, roles, load, timing, &shutdown, recorder);
    // The watchdog also covers the last log line, which may block.
    shutdown.request();
    outcome
}
