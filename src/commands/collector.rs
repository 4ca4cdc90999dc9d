//! `adtrail collect`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use collect::Echo;
use ingest::Shutdown;

use super::reload::loader;
use super::{UsageError, load_for_kafka, print, require_apps};
use crate::cli::Collect;
use crate::service::reload::Reloading;
use crate::service::{collector, shutdown_deadline};
use crate::telemetry;
use crate::timing::Timing;

pub fn run(options: &Collect, timing: Timing) -> anyhow::Result<()> {
    let settings = &options.settings;
    let config = load_for_kafka(settings)?;
    require_apps(&config, settings)?;
    let Some(collect) = &config.collect else {
        let problem = "no address to collect on: set collect.listen, such as \"127.0.0.1:8082\"";
        return Err(UsageError(problem.to_owned()).into());
    };
    let recorder = telemetry::start_metrics()?;
    let shutdown = Shutdown::default();
    shutdown_deadline::watch(&shutdown, config.shutdown_deadline, timing.forced_exit_grace)?;
    let echo = options.echo.then(echo);
    let reloading = Reloading::new(loader(settings))?;
    let outcome = collector::run(&config, collect, echo, reloading, timing, &shutdown, recorder);
    // The watchdog also covers the last log line, which may block.
    shutdown.request();
    outcome
}

/// Returns a function that writes lines to standard output. After a failure, it writes no more.
fn echo() -> Echo {
    let has_failed = AtomicBool::new(false);
    Arc::new(move |line: &str| {
        if has_failed.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = print(format!("{line}\n").as_bytes())
            && !has_failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(error = format!("{error:#}"), "no more requests are shown");
        }
    })
}
