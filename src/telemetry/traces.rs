//! The export of spans by OTLP, off unless the standard environment variables of OpenTelemetry name an endpoint. The SDK
//! reads them; those whose wrong values it would ignore are checked here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use config::TRACE_TARGET;
use opentelemetry::KeyValue;
use opentelemetry::global::set_text_map_propagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::Layer;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

/// Variables of which the first one counts that is set, and their allowed values.
const CHOICES: [(&[&str], &[&str]); 4] = [
    (&["OTEL_TRACES_EXPORTER"], &["otlp", "none"]),
    (&["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"], &["http/protobuf"]),
    (
        &["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"],
        &["none", "gzip"],
    ),
    (
        &["OTEL_TRACES_SAMPLER"],
        &[
            "always_on",
            "always_off",
            "traceidratio",
            "parentbased_always_on",
            "parentbased_always_off",
            "parentbased_traceidratio",
        ],
    ),
];

/// Numbers that the SDK would replace by its default, or with 0 would make it poll without a pause or drop all spans, and
/// their largest values: a day in milliseconds, and spans for which memory is reserved at start.
const NUMBERS: [(&str, u64); 5] = [
    ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", 86_400_000),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", 86_400_000),
    ("OTEL_BSP_SCHEDULE_DELAY", 86_400_000),
    ("OTEL_BSP_MAX_QUEUE_SIZE", 100_000),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 100_000),
];

/// The export of spans. By default there is none.
#[derive(Debug, Default)]
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Starts the export if the environment has an endpoint. A queue of 2,048 spans leads to a thread that sends them;
    /// spans that do not fit are dropped, so that nothing waits for a collector.
    ///
    /// # Errors
    /// Returns the variable with a wrong value, and what is expected.
    pub fn from_env() -> Result<Self, String> {
        if !is_wanted(&|name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()))? {
            return Ok(Self::default());
        }
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build();
        let exporter = exporter.map_err(|error| match error {
            // Without the URL, which may have a password.
            ExporterBuildError::InvalidConfiguration(_) => {
                format!("{}, {}: not a valid URL", ENDPOINTS[0], ENDPOINTS[1])
            }
            error => format!("spans cannot be exported: {error}"),
        })?;
        let exporter = Reporting { exporter, is_failing: AtomicBool::new(false) };
        let provider =
            SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(exporter);
        set_text_map_propagator(TraceContextPropagator::new());
        Ok(Self(Some(provider.build())))
    }

    /// Returns the layer that exports the spans of [`TRACE_TARGET`]. It gets no events, whose texts could be private.
    pub(super) fn layer(&self) -> Option<Box<dyn Layer<Registry> + Send + Sync>> {
        let tracer = self.0.as_ref()?.tracer("adtrail");
        let layer = OpenTelemetryLayer::<Registry, _>::new(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        let is_exported =
            filter_fn(|metadata| metadata.is_span() && metadata.target() == TRACE_TARGET);
        Some(layer.with_filter(is_exported.with_max_level_hint(LevelFilter::INFO)).boxed())
    }

    /// Exports the spans that have ended, and stops. Spans that are not exported within `timeout` are lost.
    pub fn flush(&self, timeout: Duration) {
        if let Some(provider) = &self.0 {
            // A failure has been logged.
            let _ = provider.shutdown_with_timeout(timeout);
        }
    }
}

/// Checks whether spans are to be exported. `variable` returns variables that are set.
fn is_wanted(variable: &dyn Fn(&str) -> Option<String>) -> Result<bool, String> {
    const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";
    let first = |names: &[&'static str]| {
        names.iter().find_map(|name| variable(name).map(|value| (*name, value)))
    };
    let is = |name: &str, expected: &str| {
        variable(name).is_some_and(|value| value.eq_ignore_ascii_case(expected))
    };
    let Some((name, endpoint)) = first(&ENDPOINTS) else { return Ok(false) };
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return Ok(false);
    }
    if !["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
        return Err(format!("{name}: expected a URL such as \"http://127.0.0.1:4318\""));
    }
    for (names, allowed) in CHOICES {
        if let Some((name, value)) = first(names)
            && !allowed.contains(&&*value)
        {
            return Err(format!("{name}: expected {}: {value:?}", allowed.join(", ")));
        }
    }
    for (name, max) in NUMBERS {
        if let Some(value) = variable(name)
            && !value.parse::<u64>().is_ok_and(|number| (1..=max).contains(&number))
        {
            return Err(format!("{name}: expected a whole number from 1 to {max}: {value:?}"));
        }
    }
    let has_ratio =
        variable("OTEL_TRACES_SAMPLER").is_some_and(|sampler| sampler.ends_with("ratio"));
    match variable(RATIO).filter(|_| has_ratio) {
        Some(ratio) if !ratio.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)) => {
            Err(format!("{RATIO}: expected a number from 0 to 1: {ratio:?}"))
        }
        _ => Ok(true),
    }
}

/// Returns the attributes of the process: those of the environment, and by default the name `adtrail`.
fn resource() -> Resource {
    let resource = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_service_name("adtrail")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match std::env::var(SERVICE_NAME) {
        Ok(name) if !name.is_empty() => resource.with_service_name(name).build(),
        _ => resource.build(),
    }
}

/// Logs when exports begin to fail, and when they succeed again.
#[derive(Debug)]
struct Reporting {
    exporter: opentelemetry_otlp::SpanExporter,
    is_failing: AtomicBool,
}

impl SpanExporter for Reporting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let outcome = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::Relaxed);
        match &outcome {
            Err(error) if !was_failing => {
                tracing::warn!(%error, "spans cannot be exported, and are dropped until the collector takes them");
            }
            Ok(()) if was_failing => tracing::info!("spans are exported again"),
            _ => {}
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

    fn is_wanted_with(variables: &[(&str, &str)]) -> Result<bool, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        is_wanted(&|name: &str| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[track_caller]
    fn check(more: &[(&str, &str)], expected: bool) {
        assert_eq!(is_wanted_with(&[&[ENDPOINT], more].concat()), Ok(expected));
    }

    #[track_caller]
    fn check_wrong(more: &[(&str, &str)], expected: &str) {
        let error = is_wanted_with(&[&[ENDPOINT], more].concat()).unwrap_err();
        assert_eq!(error, expected);
    }

    #[test]
    fn spans_are_exported_to_an_endpoint_unless_they_are_off() {
        assert_eq!(is_wanted_with(&[]), Ok(false));
        assert_eq!(is_wanted_with(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), Ok(false));
        let only_traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector.example/v1/x");
        assert_eq!(is_wanted_with(&[only_traces]), Ok(true));
        check(&[], true);
        check(&[("OTEL_SDK_DISABLED", "TRUE")], false);
        check(&[("OTEL_SDK_DISABLED", "false")], true);
        check(&[("OTEL_TRACES_EXPORTER", "none")], false);
        check(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")], true);
        let generic = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        check(&[generic, ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")], true);
        check(&[("OTEL_BSP_SCHEDULE_DELAY", "86400000")], true);
        check(&[("OTEL_TRACES_SAMPLER", "traceidratio")], true);
        check(&[("OTEL_TRACES_SAMPLER", "always_on"), ("OTEL_TRACES_SAMPLER_ARG", "x")], true);
    }

    #[test]
    fn wrong_variables_are_named() {
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        check_wrong(&[grpc], "OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf: \"grpc\"");
        let console = ("OTEL_TRACES_EXPORTER", "console");
        check_wrong(&[console], "OTEL_TRACES_EXPORTER: expected otlp, none: \"console\"");
        let zstd = ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd");
        let expected = "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: expected none, gzip: \"zstd\"";
        check_wrong(&[zstd], expected);
        let error = is_wanted_with(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "xray")]).unwrap_err();
        assert!(error.starts_with("OTEL_TRACES_SAMPLER: expected always_on, "), "{error}");
        let sampler = ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
        for ratio in ["1.1", "-0.1", "NaN", "x"] {
            let expected =
                format!("OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1: {ratio:?}");
            check_wrong(&[sampler, ("OTEL_TRACES_SAMPLER_ARG", ratio)], &expected);
        }
        let delay = ("OTEL_BSP_SCHEDULE_DELAY", "0");
        let expected = "OTEL_BSP_SCHEDULE_DELAY: expected a whole number from 1 to 86400000: \"0\"";
        check_wrong(&[delay], expected);
        let queue = ("OTEL_BSP_MAX_QUEUE_SIZE", "100001");
        let expected =
            "OTEL_BSP_MAX_QUEUE_SIZE: expected a whole number from 1 to 100000: \"100001\"";
        check_wrong(&[queue], expected);
        let timeout = ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s");
        let expected =
            "OTEL_EXPORTER_OTLP_TIMEOUT: expected a whole number from 1 to 86400000: \"10s\"";
        check_wrong(&[timeout], expected);
        let secret = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "user:password@collector:4318");
        let expected =
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: expected a URL such as \"http://127.0.0.1:4318\"";
        check_wrong(&[secret], expected);
    }
}
