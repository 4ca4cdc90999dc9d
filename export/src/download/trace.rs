//! The span of an export, for a collector of traces. Like the audit log, it has no values of filters.

use axum::extract::Request;
use listener::RequestId;
use opentelemetry::global::get_text_map_propagator;
use opentelemetry_http::HeaderExtractor;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::audit::{ExportOutcome, ExportRequest};
use super::state::State;

/// Begins the span, as a child of the one that the request names in `traceparent` (W3C Trace Context). Does nothing if no
/// spans are exported.
pub(super) fn start(export: &ExportRequest, export_id: &str, request: &Request) -> Span {
    let span = tracing::info_span!(
        target: config::TRACE_TARGET,
        "export",
        otel.kind = "server",
        otel.status_code = Empty,
        app = &*export.app,
        format = export.format,
        export_id,
        request_id = request.extensions().get::<RequestId>().map(RequestId::as_str),
        rows = Empty,
        bytes = Empty,
        outcome = Empty,
    );
    if !span.is_disabled() {
        let headers = HeaderExtractor(request.headers());
        // Fails only if nothing exports the span.
        let _ = span.set_parent(get_text_map_propagator(|propagator| propagator.extract(&headers)));
    }
    span
}

/// Records what became of the export.
pub(super) fn end(span: &Span, &ExportOutcome { rows, bytes, state, .. }: &ExportOutcome<'_>) {
    // Attributes of spans are signed.
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    span.record("rows", signed(rows));
    span.record("bytes", signed(bytes));
    span.record("outcome", state.name());
    if state == State::Failed {
        span.record("otel.status_code", "ERROR");
    }
}
