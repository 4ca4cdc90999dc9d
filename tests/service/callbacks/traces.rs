//! Spans, as a collector of OpenTelemetry receives them, and collectors that fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::TcpListener;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use prost::Message as _;
use testbed::site::{ONE_CAMPAIGN, Topics};
use testbed::{check_refused, eventually, http, run};

use super::*;

const TRACES: &str = "/v1/traces";
const EVENTS: &str = "/v1/apps/app-x/events.csv?from=2020-01-01&to=2100-01-01";

/// The parent of an export, in the example of W3C Trace Context.
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT_ID: &str = "b7ad6b7169203331";

struct Span {
    name: String,
    trace_id: String,
    parent_id: String,
    kind: otlp::span::SpanKind,
    attributes: BTreeMap<String, String>,
}

impl Span {
    fn new(span: otlp::Span) -> Self {
        let kind = span.kind();
        let [trace_id, parent_id] = [&span.trace_id, &span.parent_span_id].map(|id| hex(id));
        let attributes = attributes(&span.attributes);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano && span.events.is_empty());
        Self { name: span.name, trace_id, parent_id, kind, attributes }
    }

    #[track_caller]
    fn check(&self, expected: &[(&str, &str)]) {
        for (name, value) in expected {
            let found = self.attributes.get(*name).map(String::as_str);
            assert_eq!(found, Some(*value), "{name} of {}", self.name);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute
        .value
        .as_ref()
        .and_then(|value| value.value.as_ref())
    {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    all.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

/// Returns all spans that a collector has received. Checks the attributes of their process.
fn spans(collector: &Network) -> Vec<Span> {
    let mut spans = Vec::new();
    for request in collector.received(TRACES) {
        assert_eq!(request.headers["content-type"], "application/x-protobuf");
        let decoded = ExportTraceServiceRequest::decode(&*request.bytes).expect("protobuf");
        for of_process in decoded.resource_spans {
            let resource = attributes(&of_process.resource.expect("a resource").attributes);
            assert_eq!(resource["service.name"], "adtrail");
            assert_eq!(resource["deployment.environment.name"], "test");
            for of_scope in of_process.scope_spans {
                spans.extend(of_scope.spans.into_iter().map(Span::new));
            }
        }
    }
    spans
}

#[track_caller]
fn find<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span {name}"))
}

fn start(site: &Site, endpoint: &str, more: &[(&str, &str)]) -> Adtrail {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    let no_proxy = ("NO_PROXY", "localhost,127.0.0.1");
    let mut adtrail = site.spawn_with(&[&[endpoint, attributes, no_proxy], more].concat());
    adtrail.await_ready().expect("adtrail starts");
    adtrail
}

#[test]
fn batches_exports_and_callbacks_have_spans_without_private_values() {
    let network = Network::start();
    network.answer("/hook", 200, "");
    network.answer(TRACES, 200, "");
    let site = Site::new(Kafka::shared(), "traces.spans", 2, &settings(&webhook(&network, "")));
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret-header");
    let more = [("OTEL_BSP_SCHEDULE_DELAY", "100"), headers];
    let adtrail = start(&site, &network.url(""), &more);
    produce(&site, &click(1, "secret-click", 1, 30 * MINUTE_MS));
    produce(&site, &activation("secret-event", 1, 10 * MINUTE_MS));
    await_state(&adtrail, "hook", "sent", 1);
    let parent = format!("00-{TRACE_ID}-{PARENT_ID}-01");
    let of_request = [("traceparent", &*parent), ("X-Request-Id", "req-1")];
    let reply = http::request("GET", &adtrail.export, EVENTS, &of_request).unwrap();
    assert_eq!(reply.status, 200);
    let spans = eventually("all spans are received", || {
        let spans = spans(&network);
        let names: BTreeSet<_> = spans.iter().map(|span| span.name.clone()).collect();
        match (names.len(), sum(&spans, "facts")) {
            (3, 2) => Ok(spans),
            (_, facts) => Err(format!("{names:?} with {facts} facts")),
        }
    });

    let export = find(&spans, "export");
    assert_eq!((&*export.trace_id, &*export.parent_id), (TRACE_ID, PARENT_ID));
    assert_eq!(export.kind, otlp::span::SpanKind::Server);
    let (bytes, id) = (reply.body.len().to_string(), reply.header("adtrail-export-id").unwrap());
    let of_reply = [("bytes", &*bytes), ("export_id", id), ("request_id", "req-1")];
    export.check(&of_reply);
    export.check(&[("app", "app-x"), ("format", "csv"), ("rows", "1"), ("outcome", "complete")]);

    let callback = find(&spans, "callback");
    assert_eq!(callback.kind, otlp::span::SpanKind::Client);
    callback.check(&[("endpoint", "hook"), ("attempt", "1"), ("status", "200")]);
    callback.check(&[("outcome", "sent")]);

    assert_eq!(["touches", "activations"].map(|name| sum(&spans, name)), [1, 1]);
    assert!(sum(&spans, "rows_written") >= 1 && sum(&spans, "partitions") >= 2);
    let mut batches = spans.iter().filter(|span| span.name == "batch");
    assert!(batches.all(|batch| batch.attributes["outcome"] == "committed"));

    let private = ["secret-", "1fe9a970", "token-", "localhost", "whsec", "127.0.0.1"];
    for request in network.received(TRACES) {
        assert_eq!(request.headers["authorization"], "Bearer secret-header");
        assert!(!private.iter().any(|part| request.body.contains(part)), "{}", request.body);
    }
    assert!(!adtrail.stop().contains("secret-"));
}

/// Returns the sum of a count over all batches.
fn sum(spans: &[Span], name: &str) -> u64 {
    let batches = spans.iter().filter(|span| span.name == "batch");
    batches.map(|batch| batch.attributes[name].parse::<u64>().expect("a number")).sum()
}

#[test]
fn the_last_spans_are_exported_when_adtrail_stops() {
    let network = Network::start();
    network.answer(TRACES, 200, "");
    let site = Site::new(Kafka::shared(), "traces.flush", 1, ONE_CAMPAIGN);
    let adtrail = start(&site, &network.url(""), &[("OTEL_BSP_SCHEDULE_DELAY", "3600000")]);
    assert_eq!(adtrail.get(EVENTS).unwrap().status, 200);
    assert_eq!(network.received(TRACES).len(), 0);
    adtrail.stop();
    find(&spans(&network), "export");
}

/// Checks that the service works and stops although nobody takes its spans. Returns its log.
fn check_undisturbed(name: &str, endpoint: &str) -> String {
    const RECORDS: u64 = 3_000;
    let site = Site::new(Kafka::shared(), name, 1, ONE_CAMPAIGN);
    let an_hour = ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000");
    let adtrail = start(&site, endpoint, &[an_hour, ("OTEL_BSP_SCHEDULE_DELAY", "10")]);
    let message = |number| {
        let event = activation(&format!("a-{number}"), number, 10 * MINUTE_MS);
        Message::new("app-x", event.to_string())
    };
    Kafka::shared().produce(&site.topics.activations, (0..RECORDS).map(message));
    adtrail.await_read(RECORDS);
    let reply = adtrail.get(EVENTS).unwrap();
    assert_eq!(reply.trailer("adtrail-rows"), Some("3000"));
    adtrail.stop()
}

#[test]
fn a_collector_that_is_away_disturbs_nothing() {
    const LOGGED: &str = "spans cannot be exported";
    let refuses = check_undisturbed("traces.refused", "http://127.0.0.1:1");
    assert_eq!(refuses.matches(LOGGED).count(), 1, "{refuses}");
    // Connections are accepted by the kernel, and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    check_undisturbed("traces.silent", &endpoint);
}

#[test]
fn a_failing_collector_is_logged_once_until_it_answers() {
    let network = Network::start();
    let site = Site::new(Kafka::shared(), "traces.failing", 1, ONE_CAMPAIGN);
    let adtrail = start(&site, &network.url(""), &[("OTEL_BSP_SCHEDULE_DELAY", "10")]);
    for number in 1..=3 {
        assert_eq!(adtrail.get(EVENTS).unwrap().status, 200);
        network.await_requests(TRACES, number);
    }
    network.answer(TRACES, 200, "");
    assert_eq!(adtrail.get(EVENTS).unwrap().status, 200);
    adtrail.await_log("spans are exported again");
    let log = adtrail.stop();
    assert_eq!(log.matches("spans cannot be exported").count(), 1, "{log}");
}

#[test]
fn wrong_variables_of_opentelemetry_are_refused() {
    let topics = Topics::of("traces.refusals");
    let site = Site::on(topics, "127.0.0.1:1".to_owned(), ONE_CAMPAIGN);
    let mut command = site.command(&["run"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
    command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let expected = "OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf: \"grpc\"";
    check_refused(&run(&mut command, b""), 2, &[expected]);
    // Commands that export nothing do not care.
    let mut command = site.command(&["check-config"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318");
    assert!(run(&mut command, b"").status.success());
}
