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

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use tracing_subscriber::fmt::format::FmtSpan;

    use crate::service::attribution_thread::tests::outcome_of;

    /// Checks how many of these batches, the second of which fails, have spans that say `committed` and `failed`.
    #[track_caller]
    fn check(batches: i64, first_fails: bool, expected: [usize; 2]) {
        let mut file = tempfile::tempfile().unwrap();
        let logs = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(file.try_clone().unwrap())
            .finish();
        tracing::subscriber::with_default(logs, || outcome_of(batches, first_fails));
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let found = ["committed", "failed"]
            .map(|outcome| text.matches(&format!("outcome=\"{outcome}\"")).count());
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn each_span_has_an_outcome() {
        check(2, false, [1, 1]);
        check(2, true, [0, 2]);
        check(1, true, [0, 1]);
    }
}
