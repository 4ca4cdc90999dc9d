//! Compares the document with the code. `answers` compares it with the responses of a service.

mod answers;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use attribution::explain::explanation::LISTED_MAX;
use attribution::facts::device_ids::IdKind;
use attribution::facts::event::TouchKind;
use attribution::ledger::record::CAUSES_MAX;
use attribution::rules::row::{EventType, InstallType, MatchType, RejectReason, Status};
use axum::response::IntoResponse;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::StoreError;

use super::TEXT;
use crate::ExportError;
use crate::api::summary::Dimension;
use crate::appsflyer::column::additional_names;
use crate::appsflyer::pull_api::CURRENCIES;
use crate::appsflyer::report::Kind;
use crate::download::state::State;
use crate::explain::{origin_names, reason_names, verdict_names};
use crate::format::columns::native::Column;
use crate::http::problem::{Problem, RETRY_AFTER_SECONDS};
use crate::http::refusal::Refusal;
use crate::http::router::{OPEN_ROUTES, ROUTES};
use crate::query::filter::TYPES;
use crate::query::raw_params::{PAGE_LIMIT, PAGE_LIMIT_MAX};
use crate::query::{DIALECTS, PRESETS};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(TEXT).unwrap());

fn at(pointer: &str) -> &'static Value {
    DOCUMENT.pointer(pointer).unwrap_or_else(|| panic!("the document has no {pointer}"))
}

/// Returns the component that a reference names; any other value as it is.
fn resolve(value: &'static Value) -> &'static Value {
    value["$ref"].as_str().map_or(value, |reference| at(reference.trim_start_matches('#')))
}

fn members(object: &'static Value) -> impl Iterator<Item = (&'static str, &'static Value)> {
    object.as_object().into_iter().flatten().map(|(name, value)| (&**name, value))
}

fn keys(object: &'static Value) -> BTreeSet<&'static str> {
    members(object).map(|(name, _)| name).collect()
}

/// A path of the document.
struct Path {
    name: &'static str,
    item: &'static Value,
}

impl Path {
    fn all() -> impl Iterator<Item = Self> {
        members(at("/paths")).map(|(name, item)| Self { name, item })
    }

    fn operations(&self) -> impl Iterator<Item = (&'static str, &'static Value)> {
        members(self.item).filter(|(name, _)| *name != "parameters")
    }

    /// The parameters in `path` or `query`.
    fn parameters(&self, location: &str) -> Vec<&'static Value> {
        let all = self.item["parameters"].as_array().into_iter().flatten().map(resolve);
        all.filter(|parameter| parameter["in"] == location).collect()
    }

    fn names(&self, location: &str) -> Vec<&'static str> {
        let parameters = self.parameters(location).into_iter();
        parameters.map(|parameter| parameter["name"].as_str().unwrap()).collect()
    }

    fn is_pull(&self) -> bool {
        self.name.starts_with("/api/")
    }
}

/// The types of the problems that a response may have.
fn problem_types(response: &'static Value) -> impl Iterator<Item = &'static str> {
    let content = members(&resolve(response)["content"]).next();
    let types =
        content.and_then(|(_, body)| body["schema"]["properties"]["type"]["enum"].as_array());
    types.into_iter().flatten().filter_map(Value::as_str)
}

#[test]
fn paths_are_those_of_the_router() {
    let routes = ROUTES.iter().chain(OPEN_ROUTES).map(|(path, _)| *path);
    assert_eq!(keys(at("/paths")), routes.collect());
    let mut ids = BTreeSet::new();
    for path in Path::all() {
        let in_braces = path.name.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        assert_eq!(path.names("path"), in_braces.collect::<Vec<_>>(), "{}", path.name);
        let is_open = OPEN_ROUTES.iter().any(|(open, _)| *open == path.name);
        for (method, operation) in path.operations() {
            assert_eq!(operation["security"] == json!([]), is_open, "{method} {}", path.name);
            let statuses = keys(&operation["responses"]);
            assert_eq!(statuses, keys(&path.item["get"]["responses"]), "{method} {}", path.name);
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{operation}");
        }
    }
}

#[test]
fn listed_values_and_limits_are_those_of_the_code() {
    fn names<T>(named: &[(&'static str, T)]) -> Value {
        named.iter().map(|(name, _)| *name).collect()
    }
    let states = [State::Running, State::Complete, State::Aborted, State::Failed];
    let touch_types = [TouchKind::Click, TouchKind::Impression].map(TouchKind::name);
    let ids = IdKind::ALL.map(IdKind::name);
    let id_kinds = ids.iter().flat_map(|id| [(*id).to_owned(), format!("{id}_md5")]);
    for (pointer, expected) in [
        ("schemas/Status/enum", json!(Status::ALL.map(Status::name))),
        ("schemas/InstallType/enum", json!(InstallType::ALL.map(InstallType::name))),
        ("schemas/TouchType/enum", json!(touch_types)),
        ("schemas/MatchType/enum", json!(MatchType::ALL.map(MatchType::name))),
        ("schemas/RejectReason/enum", json!(RejectReason::ALL.map(RejectReason::name))),
        ("schemas/Dimension/enum", Dimension::names().collect()),
        ("schemas/Column/enum", Column::known().collect()),
        ("schemas/AdditionalField/enum", json!(additional_names())),
        ("schemas/Event/properties/event_type/enum", json!(EventType::ALL.map(EventType::name))),
        ("schemas/Event/properties/pid/maximum", json!(u32::MAX)),
        ("schemas/Export/properties/state/enum", json!(states.map(State::name))),
        ("schemas/Explanation/properties/changed_by/maxItems", json!(CAUSES_MAX)),
        ("schemas/Explanation/properties/touches/maxItems", json!(LISTED_MAX)),
        ("schemas/EvaluatedTouch/properties/verdict/enum", json!(verdict_names())),
        ("schemas/EvaluatedTouch/properties/reason/anyOf/0/enum", json!(reason_names())),
        ("schemas/EvaluatedTouch/properties/window_from/anyOf/0/enum", json!(origin_names())),
        ("parameters/Type/schema/enum", names(&TYPES)),
        ("parameters/Preset/schema/enum", names(&PRESETS)),
        ("parameters/NdjsonPreset/schema/enum", names(&PRESETS[..1])),
        ("parameters/Dialect/schema/enum", names(&DIALECTS)),
        ("parameters/NdjsonDialect/schema/enum", names(&DIALECTS[..1])),
        ("parameters/Currency/schema/enum", names(&CURRENCIES)),
        ("parameters/Report/schema/enum", json!(Kind::names())),
        ("parameters/DeviceKind/schema/enum", id_kinds.collect()),
        ("parameters/PageLimit/schema/default", json!(PAGE_LIMIT)),
        ("parameters/PageLimit/schema/maximum", json!(PAGE_LIMIT_MAX)),
        ("headers/Retry-After/schema/examples/0", json!(RETRY_AFTER_SECONDS)),
    ] {
        assert_eq!(*at(&format!("/components/{pointer}")), expected, "{pointer}");
    }
    let schema = |name: &str| keys(at(&format!("/components/schemas/{name}/properties")));
    assert_eq!(schema("Event"), Column::known().collect());
    assert_eq!(schema("DeviceIds"), ids.into());
    let sums = ["count", "revenue"];
    assert_eq!(schema("SummaryGroup"), Dimension::names().chain(sums).collect());
}

/// One problem of each kind that a described request can get.
fn problems() -> Vec<Problem> {
    let parameter = "from";
    let errors = [
        ExportError::MissingParameter { parameter, allowed: &[] },
        ExportError::BadParameter {
            parameter,
            problem: "".into(),
            value: "".into(),
            allowed: vec![],
        },
        ExportError::RepeatedParameter { parameter },
        ExportError::UnknownParameter { parameter: "x".into(), known: &[] },
        ExportError::UnknownReport { report: "x".into(), known: String::new() },
        ExportError::UnknownApp("x".into()),
        ExportError::UnknownActivation("x".into()),
        ExportError::UnknownExport("x".into()),
        ExportError::Busy { scans_max: 1 },
        ExportError::Store(StoreError::Waiting),
        ExportError::BrokenOff,
    ];
    let refusals = [
        Refusal::NoToken,
        Refusal::Expired(Timestamp::UNIX_EPOCH),
        Refusal::Downloads { downloads_max: 1 },
        Refusal::Host,
    ];
    let others = [Problem::bad_query(), Problem::http_version(), Problem::path_not_found("/")];
    let errors = errors.into_iter().map(Problem::from);
    errors.chain(refusals.map(Problem::from)).chain(others).collect()
}

#[test]
fn problems_are_those_of_the_code() {
    const PULL_ONLY: [&str; 1] = ["/problems/unknown-report"];
    const NEVER_PULL: [&str; 2] = ["/problems/unknown-activation", "/problems/unknown-export"];
    /// Responses to forms of pages, and to methods that the document does not have.
    const NOT_DESCRIBED: [&str; 4] = [
        "/problems/bad-form",
        "/problems/request-timeout",
        "/problems/page",
        "/problems/method-not-allowed",
    ];
    let described = |is_pull: bool| -> BTreeSet<(u16, &str)> {
        let paths = Path::all().filter(|path| path.is_pull() == is_pull);
        let responses = paths.flat_map(|path| members(&path.item["get"]["responses"]));
        responses
            .flat_map(|(status, response)| {
                problem_types(response).map(move |kind| (status.parse().unwrap(), kind))
            })
            .collect()
    };
    let problems = problems().into_iter().map(|problem| {
        let kind = problem.kind();
        (problem.into_response().status().as_u16(), kind)
    });
    let problems: Vec<_> = problems.collect();
    let but = |kinds: &'static [&'static str]| {
        problems.iter().copied().filter(move |(_, kind)| !kinds.contains(kind))
    };
    assert_eq!(described(false), but(&PULL_ONLY).collect());
    // AppsFlyer's clients retry after 429 only.
    let pull =
        but(&NEVER_PULL).map(|(status, kind)| (if status == 503 { 429 } else { status }, kind));
    assert_eq!(described(true), pull.collect());

    let source = include_str!("../../http/problem.rs").split('"');
    let in_source: BTreeSet<_> = source.filter(|text| text.starts_with("/problems/")).collect();
    let kinds = problems.iter().map(|(_, kind)| *kind).chain(NOT_DESCRIBED);
    assert_eq!(in_source, kinds.collect());
}

#[test]
fn every_component_is_used_and_every_reference_has_one() {
    let components = members(at("/components")).filter(|(kind, _)| *kind != "securitySchemes");
    let defined = components.flat_map(|(kind, components)| {
        members(components).map(move |(name, _)| format!("#/components/{kind}/{name}"))
    });
    // OpenAPI 3.1 cannot describe the lines of NDJSON; a description names this schema.
    let mut used = BTreeSet::from(["#/components/schemas/Event".to_owned()]);
    collect_references(&DOCUMENT, &mut used);
    assert_eq!(used, defined.collect());
}

fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| collect_references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        _ => {}
    }
}

/// A parser keeps the last of several members with one name, so the parsed document would be shorter.
#[test]
fn no_member_is_written_twice() {
    let bytes = |text: &str| text.bytes().filter(|byte| !byte.is_ascii_whitespace()).count();
    assert_eq!(bytes(TEXT), bytes(&DOCUMENT.to_string()));
}

#[test]
fn the_version_is_that_of_the_program() {
    assert_eq!(DOCUMENT["openapi"], "3.1.1");
    assert_eq!(DOCUMENT["info"]["version"], env!("CARGO_PKG_VERSION"));
}
