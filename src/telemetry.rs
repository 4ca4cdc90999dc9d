//! Logs to standard error, and the recorder behind `/metrics`.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Every histogram counts seconds. These bounds are a batch's; downloads have their own.
const SECONDS_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// How often the recorder forgets what it has summed up already.
const UPKEEP: Duration = Duration::from_secs(5);

/// Sends logs to standard error; `RUST_LOG` chooses which.
pub fn start_logs(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colours are for people: a file or a collector gets the text alone.
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => logs.with_target(false).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
}

/// A panic anywhere ends the process: a half-dead pipeline would look alive.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Installs the recorder; its handle renders what `/metrics` answers.
pub fn start_metrics() -> anyhow::Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS_BUCKETS)
        .and_then(|builder| {
            let downloads = Matcher::Full(export::DURATION.into());
            builder.set_buckets_for_metric(downloads, &export::DURATION_BUCKETS_SECONDS)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .context("the metrics recorder does not start")?;
    let upkept = handle.clone();
    std::thread::Builder::new()
        .name("metrics-upkeep".into())
        .spawn(move || {
            loop {
                std::thread::sleep(UPKEEP);
                upkept.run_upkeep();
            }
        })
        .context("no thread for the upkeep of metrics")?;
    Ok(handle)
}
