//! Logs to standard error, spans for a collector of traces, and the recorder behind `/metrics`.

mod log_level;
mod traces;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use attribution::facts::printable::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle, WeakProgressBar};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;
use signal_hook::consts::SIGXFSZ;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

use crate::cli::LogFormat;
pub use log_level::LOG_LEVEL;
pub use traces::Traces;

/// Buckets, in seconds, of every histogram except that of downloads.
const SECONDS_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Interval at which the recorder drops samples that it has summed.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The current progress bar. Log lines are written above it.
static BAR: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// Sends logs to standard error, filtered by `RUST_LOG`, and spans to a collector.
pub fn start_logs(format: LogFormat, traces: &Traces) {
    let logs = fmt::layer().with_writer(|| AboveBar).with_ansi(io::stderr().is_terminal());
    let logs: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => logs.with_target(false).boxed(),
        // Only requests have spans, and no request is part of another.
        LogFormat::Json => logs.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let mut layers = vec![logs.with_filter(log_level::start()).boxed()];
    layers.extend(traces.layer());
    tracing_subscriber::registry().with(layers).init();
}

/// Shows a progress bar on standard error if that is a terminal. It is cleared on drop. `None` is an unknown length.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr())
        .with_finish(ProgressFinish::AndClear);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    *BAR.lock() = Some(bar.downgrade());
    bar
}

pub fn set_progress(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total);
    bar.set_position(done);
}

/// Clears the current progress bar.
pub fn clear_progress_bar() {
    let bar = BAR.lock().take();
    bar.and_then(|bar| bar.upgrade()).into_iter().for_each(|bar| bar.finish_and_clear());
}

/// Writes a message to standard error, with control characters escaped. Errors are ignored: a closed standard error
/// must not end the program.
pub fn write_stderr(text: std::fmt::Arguments<'_>) {
    let text = text.to_string();
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    let _ = io::stderr().write_all(lines.join("\n").as_bytes());
}

/// Standard error, with the bar hidden during a write. Errors are ignored: the layer above would print them to the
/// same place, and panic.
struct AboveBar;

impl Write for AboveBar {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let bar = BAR.lock().clone();
        match bar.and_then(|bar| bar.upgrade()) {
            Some(bar) => bar.suspend(|| io::stderr().write_all(line)).unwrap_or_default(),
            None => io::stderr().write_all(line).unwrap_or_default(),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush().or(Ok(()))
    }
}

/// Makes a panic on any thread end the process. Otherwise a service without one of its threads would appear to run.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // librdkafka's wrapper panics on some headers; the caller catches the panic.
        if ingest::kafka::headers::are_being_read() {
            return;
        }
        report(panic);
        std::process::abort();
    }));
}

/// Makes a write beyond `ulimit -f` return an error, instead of raising a signal that ends the process.
pub fn handle_file_limits() {
    // If this fails, the signal still ends the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Installs the metrics recorder. The returned handle renders `/metrics`.
pub fn start_metrics() -> anyhow::Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS_BUCKETS)
        .and_then(|builder| {
            let downloads = Matcher::Full(export::DURATION.into());
            builder.set_buckets_for_metric(downloads, &export::DURATION_BUCKETS_SECONDS)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .context("the metrics recorder cannot be installed")?;
    let recorder = handle.clone();
    std::thread::Builder::new()
        .name("metrics-upkeep".into())
        .spawn(move || {
            loop {
                std::thread::sleep(UPKEEP_INTERVAL);
                recorder.run_upkeep();
            }
        })
        .context("the thread for metrics upkeep cannot be started")?;
    Ok(handle)
}
