//! Logs to standard error, and the recorder behind `/metrics`.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use attribution::facts::printable::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, WeakProgressBar};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use signal_hook::consts::SIGXFSZ;
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Every histogram counts seconds. These bounds are a batch's; downloads have their own.
const SECONDS_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// How often the recorder forgets what it has summed up already.
const UPKEEP: Duration = Duration::from_secs(5);

/// The bar that logs must not run into.
static BAR: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// Sends logs to standard error; `RUST_LOG` chooses which.
pub fn start_logs(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| AboveBar)
        // Colours are for people: a file or a collector gets the text alone.
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => logs.with_target(false).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
}

/// A bar on a terminal's standard error, nothing elsewhere; logs are written above it, as long as
/// there is one. `None`: nobody knows yet how long it is.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
    bar
}

/// Takes the bar away for good.
pub fn clear_bar() {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).take();
    bar.and_then(|bar| bar.upgrade()).into_iter().for_each(|bar| bar.finish_and_clear());
}

/// Tells people something on standard error. Whoever stops reading it must not stop the program.
/// What it repeats from outside does nothing to a terminal.
pub fn tell(text: std::fmt::Arguments<'_>) {
    let text = text.to_string();
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    let _ = io::stderr().write_all(lines.join("\n").as_bytes());
}

/// Standard error, with the bar taken away while something is written. That nobody reads it any
/// more is no error: the layer above would print one to the same place, and panic.
struct AboveBar;

impl Write for AboveBar {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
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

/// A panic anywhere ends the process: a half-dead pipeline would look alive.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A strange record, and not adtrail, is why; it is caught.
        if ingest::kafka::headers::are_being_read() {
            return;
        }
        report(panic);
        std::process::abort();
    }));
}

/// A file that may not grow any more (`ulimit -f`) is an error of whoever writes it, with a reason, and not a
/// signal that ends the process without a word.
pub fn tell_of_file_limits() {
    // Where it can not be handled it ends the process, as it did.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
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
