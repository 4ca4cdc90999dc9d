//! `adtrail collect`.

use ingest::Shutdown;

use super::{UsageError, load_for_kafka, require_apps};
use crate::cli::Settings;
use crate::service::{collector, shutdown_deadline};
use crate::telemetry;
use crate::timing::Timing;

pub fn run(settings: &Settings, timing: Timing) -> anyhow::Result<()> {
    let config = load_for_kafka(settings)?;
    require_apps(&config, settings)?;
    let Some(collect) = &config.collect else {
        let problem = "no address to collect on: set collect.listen, such as \"127.0.0.1:8082\"";
        return Err(UsageError(problem.to_owned()).into());
    };
    let recorder = telemetry::start_metrics()?;
    let shutdown = Shutdown::default();
    shutdown_deadline::watch(&shutdown, config.shutdown_deadline, timing.forced_exit_grace)?;
    let outcome = collector::run(&config, collect, timing, &shutdown, recorder);
    // The watchdog also covers the last log line, which may block.
    shutdown.request();
    outcome
}
