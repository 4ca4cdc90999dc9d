//! That what is described is what there is.

use std::collections::BTreeSet;

use attribution::facts::event::Fact;

use super::parameters::Of;
use super::*;
use crate::http::router::{OPEN_ROUTES, ROUTES};
use crate::tests::bed::{Answer, Bed, DAY, MINUTE, activation, click, effect};

const RANGE: &str = "from=2026-03-10&to=2026-03-10";

fn bed() -> Bed {
    Bed::new(vec![
        click(9, "c-0", "d1", DAY - 3 * MINUTE),
        click(7, "c-1", "d1", DAY - MINUTE),
        Fact::Activation(activation("a-1", "d1", DAY + MINUTE)),
        Fact::Effect(effect("e-1", "purchase", "d1", DAY + 2 * MINUTE)),
        Fact::Activation(activation("a-2", "d2", DAY + 3 * MINUTE)),
        Fact::Activation(activation("a-3", "d1", DAY + 4 * MINUTE)),
    ])
}

/// A path with rows behind it, and what it can not be asked without.
fn target(operation: &Operation) -> String {
    let path = operation.path.replace("{app}", "app-x").replace("{spreadid}", "7");
    let path = path.replace("{kind}/{value}", "oaid/d1").replace("{id}", "1");
    let path = path.replace("{event_id}", "a-1").replace("{report}", "installs_report");
    let range = if operation.query.contains(&"from") { RANGE } else { "" };
    format!("{path}?{range}")
}

fn parameters_of(operation: &Operation) -> Vec<Value> {
    operation.query.iter().map(|name| parameters::of_query(name, operation.of)).collect()
}

fn status_without(bed: &Bed, operation: &Operation, name: &str, value: &str) -> u16 {
    let target = target(operation);
    let (path, range) = target.split_once('?').unwrap();
    // It is of these columns alone.
    let range = if name == "additional_fields" && operation.of == Of::Csv {
        format!("{range}&preset=appsflyer")
    } else {
        range.to_owned()
    };
    let kept = range.split('&').filter(|given| !given.starts_with(&format!("{name}=")));
    let query: Vec<_> = kept.map(str::to_owned).chain([format!("{name}={value}")]).collect();
    bed.get(&format!("{path}?{}", query.join("&"))).status
}

#[test]
fn every_route_is_described_and_no_other() {
    let routes = ROUTES.iter().chain(OPEN_ROUTES).map(|(path, _)| *path);
    let described: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.path).collect();
    assert_eq!(described, routes.collect::<BTreeSet<_>>());
    assert_eq!(described.len(), OPERATIONS.len());
    for operation in OPERATIONS {
        let is_open = OPEN_ROUTES.iter().any(|(path, _)| *path == operation.path);
        assert_eq!(operation.is_open, is_open, "{}", operation.path);
        for name in operation.path_parameters() {
            assert!(parameters::of_path(name).is_object(), "{name} of {}", operation.path);
        }
    }
    let ids: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), OPERATIONS.len());
}

/// What a route says that it takes is what is described.
#[test]
fn every_parameter_is_described_and_no_other() {
    let bed = bed();
    for operation in OPERATIONS {
        let target = target(operation);
        let answer = bed.get(&format!("{target}&nonsense=1"));
        assert_eq!(answer.status, 400, "{target}");
        let problem = answer.json();
        let described = parameters_of(operation);
        let described = described.iter().map(|parameter| parameter["name"].as_str().unwrap());
        let described: Vec<_> = described.collect();
        if operation.is_pull() {
            let known = described.join(", ");
            let expected = format!("unknown parameter, known are {known}: \"nonsense\"");
            assert_eq!(problem["message"], expected, "{target}");
            continue;
        }
        assert_eq!(problem["parameter"], "nonsense", "{target}");
        assert_eq!(problem["allowed"], Value::from(described), "{target}");
    }
}

/// Each value that is listed is taken, and others are refused; so are those at the ends of numbers.
#[test]
fn values_are_those_described() {
    let bed = bed();
    let mut checked = 0;
    for operation in OPERATIONS {
        for parameter in parameters_of(operation) {
            let name = parameter["name"].as_str().unwrap();
            let schema = &parameter["schema"];
            let items = if schema["type"] == "array" { &schema["items"] } else { schema };
            if items["$ref"] == "#/components/schemas/SpreadId" {
                checked += check_numbers(&bed, operation, name, &schemas::all()["SpreadId"]);
                continue;
            }
            let listed = items["anyOf"][0]["enum"].as_array().or(items["enum"].as_array());
            let listed = listed.into_iter().flatten().chain(schema.get("default"));
            for value in listed {
                let value = value.as_str().map_or(value.to_string(), str::to_owned);
                let status = status_without(&bed, operation, name, &value);
                assert_eq!(status, 200, "{name}={value} of {}", operation.path);
                checked += 1;
            }
            checked += check_numbers(&bed, operation, name, items);
            if !["event_name", "additional_fields"].contains(&name) {
                let status = status_without(&bed, operation, name, "(");
                assert_eq!(status, 400, "{name} of {}", operation.path);
            }
            let may_repeat = parameter["description"].as_str().unwrap().contains("repeat it");
            let is_once = schema["type"] != "array" && !may_repeat;
            let value = example(&parameter);
            let twice = format!("{}&{name}={value}&{name}={value}", target(operation));
            let kind = bed.get(&twice).json_or_null()["type"].clone();
            assert_eq!(
                kind == "/problems/repeated-parameter",
                is_once,
                "{name} of {}",
                operation.path
            );
        }
    }
    assert!(checked > 150, "{checked}");
}

fn check_numbers(bed: &Bed, operation: &Operation, name: &str, schema: &Value) -> usize {
    let [Some(least), Some(most)] = [&schema["minimum"], &schema["maximum"]].map(Value::as_u64)
    else {
        return 0;
    };
    let least = i128::from(least);
    for (value, status) in
        [(least - 1, 400), (least, 200), (most.into(), 200), (i128::from(most) + 1, 400)]
    {
        let found = status_without(bed, operation, name, &value.to_string());
        assert_eq!(found, status, "{name}={value} of {}", operation.path);
    }
    4
}

/// As it stands in an address.
fn example(parameter: &Value) -> String {
    let value = parameter.get("example").or(parameter["schema"].get("default"));
    let items = |list: &Vec<Value>| list.iter().map(text).collect::<Vec<_>>().join(",");
    let value =
        value.map_or_else(String::new, |value| value.as_array().map_or_else(|| text(value), items));
    value.replace('+', "%2B").replace(' ', "%20")
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn examples_are_taken() {
    let bed = bed();
    // Each goes with columns of its own.
    for (operation, left_out) in OPERATIONS
        .iter()
        .flat_map(|operation| ["fields", "additional_fields"].map(|left_out| (operation, left_out)))
    {
        let mut examples = parameters_of(operation);
        if left_out == "fields" {
            let preset = examples.iter_mut().find(|parameter| parameter["name"] == "preset");
            preset.into_iter().for_each(|preset| {
                preset["example"] =
                    preset["schema"]["enum"].as_array().unwrap().last().cloned().unwrap();
            });
        }
        let is_left_out = |name: &Value| *name == "after" || *name == left_out;
        let examples = examples.iter().filter(|parameter| !is_left_out(&parameter["name"]));
        let query: Vec<_> = examples
            .map(|parameter| (parameter["name"].as_str().unwrap(), example(parameter)))
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let target = target(operation);
        let target = format!("{}?{}", target.split_once('?').unwrap().0, query.join("&"));
        let expected = if operation.path == "/v1/exports/{id}" { 404 } else { 200 };
        assert_eq!(bed.get(&target).status, expected, "{target}");
    }
}

/// What HTTP itself has, and what is of no interest to a program.
const OF_HTTP: [&str; 8] = [
    "date",
    "content-type",
    "content-length",
    "transfer-encoding",
    "trailer",
    "vary",
    "cache-control",
    "x-content-type-options",
];

#[track_caller]
fn check_described(operation: &Operation, target: &str, method: &str, answer: &Answer) {
    let described = described(operation, method == "HEAD");
    let mut response = described["responses"][answer.status.to_string()].clone();
    if let Some(name) = response["$ref"].as_str() {
        response = responses::all()[name.rsplit('/').next().unwrap()].clone();
    }
    assert!(response.is_object(), "{} by {method} {target}", answer.status);
    let headers = response["headers"].as_object().cloned().unwrap_or_default();
    let known: BTreeSet<_> = headers.keys().map(|name| name.to_lowercase()).collect();
    for (name, _) in &answer.headers {
        let is_known = known.contains(name) || OF_HTTP.contains(&&**name) || name == "connection";
        assert!(is_known, "{name} by {method} {target}");
    }
    for name in headers.keys() {
        let is_required = responses::headers()[name]["required"] == true;
        assert!(
            !is_required || answer.header(&name.to_lowercase()).is_some(),
            "{name} by {target}"
        );
    }
    let media_type = answer.header("content-type").map(|text| text.split(';').next().unwrap());
    let content = response["content"].as_object();
    match content.and_then(|content| content.keys().next()) {
        Some(described) => assert_eq!(media_type, Some(&**described), "{method} {target}"),
        None => assert!(answer.body.is_empty(), "{method} {target}"),
    }
    if let Some(kinds) = content.and_then(|content| {
        content.values().next()?["schema"]["properties"]["type"]["enum"].as_array()
    }) {
        assert!(kinds.contains(&answer.json()["type"]), "{} by {target}", answer.text());
    }
}

/// Whatever is asked, the answer is one that is described.
#[test]
fn answers_are_those_described() {
    let bed = bed();
    for operation in OPERATIONS {
        let whole = target(operation);
        for target in [
            whole.clone(),
            format!("{whole}&limit=1"),
            format!("{whole}&x=1"),
            format!("{whole}&%ff=%ff"),
            whole.split_once('?').unwrap().0.to_owned(),
            whole.replace("app-x", "app-q"),
            whole.replace("app-x", "%ff"),
            whole.replace("/a-1/", "/a-9/"),
            whole.replace("installs_report", "x"),
            whole.replace("/7/", "/x/"),
            whole.replace("/oaid/", "/x/"),
            whole.replace("d1", "%00"),
            whole.replace("exports/1", "exports/%ff"),
        ] {
            for method in ["GET", "HEAD"] {
                let answer = bed.send(&format!("{method} {target} HTTP/1.1"));
                check_described(operation, &target, method, &answer);
            }
        }
    }
}

#[test]
fn a_row_has_the_members_described() {
    let bed = bed();
    let rows = bed.get(&format!("/v1/apps/app-x/events.ndjson?{RANGE}"));
    let described = schemas::all()["Event"]["properties"].as_object().unwrap().clone();
    for row in rows.text().lines() {
        let row: Map<String, Value> = serde_json::from_str(row).unwrap();
        assert_eq!(row.keys().collect::<BTreeSet<_>>(), described.keys().collect());
    }
    assert_eq!(rows.text().lines().count(), 4);
}

/// And no others, at any depth.
#[test]
fn an_explanation_has_the_members_described() {
    let schemas = schemas::all();
    let bed = bed();
    let told = bed.get("/v1/apps/app-x/activations/a-1/explain").json();
    check_members(&told, &schemas["Explanation"]);
    assert_eq!(told["touches"].as_array().map(Vec::len), Some(2));
    let again = bed.get("/v1/apps/app-x/activations/a-3/explain").json();
    assert_eq!(again["last_install"]["event_id"], "a-1");
    check_members(&again, &schemas["Explanation"]);
}

#[track_caller]
fn check_members(value: &Value, schema: &Value) {
    match value {
        Value::Object(members) => {
            let described = schema["properties"].as_object().unwrap();
            assert_eq!(members.keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>());
            members.iter().for_each(|(name, member)| check_members(member, &described[name]));
        }
        Value::Array(items) => items.iter().for_each(|item| check_members(item, &schema["items"])),
        _ => {
            let listed = schema["enum"].as_array();
            assert!(
                listed.is_none_or(|listed| listed.contains(value)),
                "{value} is not in {schema}"
            );
        }
    }
}

#[test]
fn the_description_is_there_for_everybody() {
    let bed = bed();
    let answer = bed.get("/openapi.json");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let description = answer.json();
    assert_eq!(description["openapi"], "3.1.1");
    for reference in references(&description) {
        let place = reference.strip_prefix('#').unwrap();
        assert!(description.pointer(place).is_some(), "{reference} is nowhere");
    }
    assert!(!answer.text().contains("\"parameters\":[null"), "a parameter is not described");
    assert_eq!(bed.send("POST /openapi.json HTTP/1.1").status, 405);
}

fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) => {
            let own = members.get("$ref").and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(members.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => vec![],
    }
}
