//! The span of a batch, for a collector of traces: from the queue to the commit, with counts only.

use attribution::worker::BatchReport;
use tracing::Span;
use tracing::field::Empty;

/// Begins the span of a received batch. It must not be entered: it ends when it is dropped.
pub fn begin(batch: &ingest::Batch) -> Span {
    tracing::info_span!(
        target: config::TRACE_TARGET,
        "batch",
        otel.status_code = Empty,
        facts = signed(batch.facts.len()),
        partitions = signed(batch.progress.positions.len()),
        touches = Empty,
        activations = Empty,
        effects = Empty,
        redelivered = Empty,
        rows_written = Empty,
        outcome = Empty,
    )
}

pub fn committed(span: &Span, report: &BatchReport) {
    let BatchReport { touches, activations, effects, rows_written, .. } = report;
    let redelivered = [touches, activations, effects].map(|counts| counts.redelivered);
    span.record("touches", signed(touches.accepted));
    span.record("activations", signed(activations.accepted));
    span.record("effects", signed(effects.accepted));
    span.record("redelivered", signed(redelivered.iter().sum::<u64>()));
    span.record("rows_written", signed(rows_written.values().sum::<u64>()));
    span.record("outcome", "committed");
}

pub fn failed(span: &Span) {
    span.record("outcome", "failed");
    span.record("otel.status_code", "ERROR");
}

/// Attributes of spans are signed.
fn signed(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
