//! The metrics of this crate. None is updated per row.

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

config::describe_metrics! {
    /// Responses of the data listener, by status.
    describe_counter REQUESTS = "adtrail_export_requests_total";
    /// Rows written into downloads, counted when a scan succeeds; a failed scan counts none.
    describe_counter ROWS = "adtrail_export_rows_total";
    /// Rejected requests, by reason: `no_token`, `bad_token` (malformed or unknown), `expired`, `session` (ended),
    /// `app` (not readable with this token), `origin` (a form of another site), `host` (another name than
    /// `export.allowed_hosts` allows), `downloads` (too many at a time) and `connections` (closed at once, because the
    /// client has `export.connections_per_client_max`).
    describe_counter REFUSED = "adtrail_export_refused_total";
    /// Bytes of CSV or NDJSON passed to clients' connections.
    describe_counter BYTES = "adtrail_export_bytes_total";
    /// Downloads that ended before they were complete.
    describe_counter ABORTED = "adtrail_export_aborted_total";
    /// Time from a download's start to its end, complete or not.
    describe_histogram pub DURATION = "adtrail_export_duration_seconds";
    /// Downloads in progress.
    describe_gauge ACTIVE = "adtrail_export_active";
}

/// Upper bounds of the buckets of [`DURATION`], for the recorder.
pub const DURATION_BUCKETS_SECONDS: [f64; 10] =
    [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0];

/// Statuses of which every series exists from the start.
const STATUSES: [StatusCode; 11] = [
    StatusCode::OK,
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::HTTP_VERSION_NOT_SUPPORTED,
];

/// Values of the label `reason` of [`REFUSED`].
const REASONS: [&str; 9] = [
    "no_token",
    "bad_token",
    "expired",
    "session",
    "app",
    "origin",
    "host",
    "downloads",
    "connections",
];

/// All metrics of the crate.
pub struct Metrics {
    rows: Counter,
    bytes: Counter,
    aborted: Counter,
    duration: Histogram,
    active: Gauge,
}

/// A download in progress. If it is dropped before [`Active::complete`], it counts as aborted.
pub(crate) struct Active {
    metrics: Arc<Metrics>,
    started: Instant,
    complete: bool,
}

impl Metrics {
    /// Registers all series with the installed recorder, at 0.
    pub fn new() -> Self {
        describe();
        let metrics = Self {
            rows: counter!(ROWS),
            bytes: counter!(BYTES),
            aborted: counter!(ABORTED),
            duration: histogram!(DURATION),
            active: gauge!(ACTIVE),
        };
        for counter in [&metrics.rows, &metrics.bytes, &metrics.aborted] {
            counter.increment(0);
        }
        STATUSES.into_iter().for_each(|status| requests(status).increment(0));
        REASONS.into_iter().for_each(|reason| refused(reason).increment(0));
        metrics.active.set(0.0);
        metrics
    }

    pub(crate) fn answered(&self, status: StatusCode) {
        requests(status).increment(1);
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        refused(reason).increment(1);
    }

    pub(crate) fn rows_written(&self, rows: u64) {
        self.rows.increment(rows);
    }

    pub(crate) fn download_started(self: &Arc<Self>) -> Active {
        self.active.increment(1.0);
        Active { metrics: Arc::clone(self), started: Instant::now(), complete: false }
    }
}

fn requests(status: StatusCode) -> Counter {
    counter!(REQUESTS, "status" => status.as_u16().to_string())
}

fn refused(reason: &'static str) -> Counter {
    counter!(REFUSED, "reason" => reason)
}

impl Active {
    pub fn sent(&self, bytes: usize) {
        self.metrics.bytes.increment(bytes as u64);
    }

    pub fn complete(mut self) {
        self.complete = true;
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.metrics.active.decrement(1.0);
        self.metrics.duration.record(self.started.elapsed());
        if !self.complete {
            self.metrics.aborted.increment(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

    use super::*;

    fn recorded(act: impl FnOnce(&Arc<Metrics>)) -> String {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(DURATION.into()), &DURATION_BUCKETS_SECONDS)
            .unwrap()
            .build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || act(&Arc::new(Metrics::new())));
        handle.render()
    }

    #[track_caller]
    fn check(scrape: &str, line: &str) {
        assert!(scrape.lines().any(|found| found == line), "{line} is not in\n{scrape}");
    }

    #[test]
    fn every_series_exists_from_the_start() {
        let scrape = recorded(|_| {});
        for status in STATUSES {
            check(&scrape, &format!("{REQUESTS}{{status=\"{}\"}} 0", status.as_u16()));
        }
        for reason in REASONS {
            check(&scrape, &format!("{REFUSED}{{reason=\"{reason}\"}} 0"));
        }
        for name in [ROWS, BYTES, ABORTED, ACTIVE] {
            check(&scrape, &format!("{name} 0"));
        }
        check(&scrape, &format!("{DURATION}_count 0"));
        check(&scrape, &format!("{DURATION}_bucket{{le=\"1800\"}} 0"));
        check(&scrape, &format!("# HELP {ACTIVE} Downloads in progress."));
    }

    #[test]
    fn downloads_are_counted() {
        let scrape = recorded(|metrics| {
            let complete = metrics.download_started();
            complete.sent(7);
            complete.complete();
            drop(metrics.download_started());
            let _running = std::mem::ManuallyDrop::new(metrics.download_started());
            metrics.rows_written(3);
            metrics.answered(StatusCode::OK);
            metrics.refused("no_token");
            metrics.refused("downloads");
        });
        check(&scrape, &format!("{BYTES} 7"));
        check(&scrape, &format!("{ROWS} 3"));
        check(&scrape, &format!("{ABORTED} 1"));
        check(&scrape, &format!("{ACTIVE} 1"));
        check(&scrape, &format!("{DURATION}_count 2"));
        check(&scrape, &format!("{REQUESTS}{{status=\"200\"}} 1"));
        check(&scrape, &format!("{REFUSED}{{reason=\"no_token\"}} 1"));
        check(&scrape, &format!("{REFUSED}{{reason=\"downloads\"}} 1"));
    }
}
