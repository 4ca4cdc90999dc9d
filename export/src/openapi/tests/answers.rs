//! Requests to a service, made from the document, and their responses compared with it.

use std::collections::BTreeSet;

use attribution::facts::event::Fact;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::runtime::Builder;

use super::{Path, TEXT, at, keys, problem_types, resolve};
use crate::format::columns::native::Column;
use crate::http::access::ANSWERS_PER_TOKEN_MAX;
use crate::http::hosts::Hosts;
use crate::http::router::router;
use crate::http::state::SCANS_MAX;
use crate::tests::facts;
use crate::tests::fixture::{Answer, Bed, DAY, EVENTS, MINUTE, activation, entry};

const RANGE: &str = "from=2026-03-10&to=2026-03-10";

/// The facts that most tests use, and a reinstall.
fn bed() -> Bed {
    let mut facts = facts();
    facts.push(Fact::Activation(activation("a-3", "d1", DAY + 4 * MINUTE)));
    Bed::new(facts)
}

impl Path {
    /// A request target that has rows, with the required parameters.
    fn target(&self) -> String {
        let path = self.name.replace("{app}", "app-x").replace("{spreadid}", "7");
        let path = path.replace("{kind}/{value}", "oaid/d1").replace("{id}", "1");
        let path = path.replace("{event_id}", "a-1").replace("{report}", "installs_report");
        let range = if self.names("query").contains(&"from") { RANGE } else { "" };
        format!("{path}?{range}")
    }

    /// The target with this value of a parameter.
    fn target_with(&self, name: &str, value: &str) -> String {
        let target = self.target();
        let (path, range) = target.split_once('?').unwrap();
        let others = range.split('&').filter(|pair| !pair.starts_with(&format!("{name}=")));
        let preset = (name == "additional_fields" && !self.is_pull()).then_some("preset=appsflyer");
        let others = others.chain(preset).map(|pair| format!("{pair}&")).collect::<String>();
        format!("{path}?{others}{name}={value}")
    }
}

#[test]
fn the_document_is_served() {
    let bed = bed();
    let answer = bed.get("/openapi.json");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_eq!(answer.text(), TEXT);
}

#[test]
fn methods_are_those_of_the_router() {
    let bed = bed();
    for path in Path::all() {
        let methods: Vec<_> = path.operations().map(|(name, _)| name.to_uppercase()).collect();
        let refused = bed.send(&format!("POST {} HTTP/1.1", path.target()));
        assert_eq!(refused.status, 405, "{}", path.name);
        assert_eq!(refused.header("allow"), Some(&*methods.join(",")), "{}", path.name);
    }
}

/// The error of an unknown parameter lists those that a route accepts.
#[test]
fn parameters_are_those_that_routes_accept() {
    let bed = bed();
    for path in Path::all() {
        let target = format!("{}&nonsense=1", path.target());
        let answer = bed.get(&target);
        assert_eq!(answer.status, 400, "{target}");
        let (problem, described) = (answer.json(), path.names("query"));
        if path.is_pull() {
            let known = described.join(", ");
            let expected = format!("unknown parameter (allowed: {known}): \"nonsense\"");
            assert_eq!(problem["message"], expected, "{target}");
        } else {
            assert_eq!(problem["parameter"], "nonsense", "{target}");
            assert_eq!(problem["allowed"], Value::from(described), "{target}");
        }
    }
}

/// Listed values, defaults, examples and limits are accepted; values beyond a limit or outside a list are not.
#[test]
fn values_are_those_that_routes_accept() {
    const ANY_TEXT: [&str; 2] = ["event_name", "additional_fields"];
    let bed = bed();
    let mut checked = 0;
    for path in Path::all() {
        for parameter in path.parameters("query") {
            let name = parameter["name"].as_str().unwrap();
            let mut check = |value: &str, status: u16| {
                let target = path.target_with(name, value);
                assert_eq!(bed.get(&target).status, status, "{target}");
                checked += 1;
            };
            let schema = resolve(&parameter["schema"]);
            let items = schema.get("items").map_or(schema, resolve);
            let choices = items.get("anyOf").map_or(items, |choices| resolve(&choices[0]));
            let listed = choices["enum"].as_array().into_iter().flatten();
            for value in listed.chain(schema.get("default")).chain(parameter.get("example")) {
                check(&in_query(value), 200);
            }
            if let [Some(least), Some(most)] =
                [&items["minimum"], &items["maximum"]].map(Value::as_u64)
            {
                let beyond = [i128::from(least) - 1, i128::from(most) + 1];
                [least, most].iter().for_each(|value| check(&value.to_string(), 200));
                beyond.iter().for_each(|value| check(&value.to_string(), 400));
            }
            if !ANY_TEXT.contains(&name) {
                check("(", 400);
            }
            let value = parameter.get("example").or(schema.get("default"));
            let value = value.map(in_query).unwrap_or_default();
            let twice = format!("{}&{name}={value}&{name}={value}", path.target());
            let is_refused = bed.get(&twice).text().contains("/problems/repeated-parameter");
            let is_list =
                parameter["description"].as_str().unwrap().contains("repeat the parameter");
            assert_eq!(is_refused, !is_list, "{twice}");
        }
    }
    assert!(checked > 200, "{checked}");
}

fn in_query(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(in_query).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    text.replace('+', "%2B").replace(' ', "%20")
}

#[test]
fn responses_are_described() {
    let bed = bed();
    for path in Path::all() {
        let whole = path.target();
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
            format!("http://other.example{whole}"),
        ] {
            for (method, operation) in path.operations() {
                let request = format!("{} {target}", method.to_uppercase());
                let answer = bed.send(&format!("{request} HTTP/1.1"));
                let response = &operation["responses"][answer.status.to_string()];
                assert!(response.is_object(), "{} of {request}", answer.status);
                check_response(resolve(response), &request, &answer);
            }
        }
    }
}

/// Services that refuse requests for one reason each.
struct Refusing {
    anonymous: Bed,
    downloads: Bed,
    scans: Bed,
    answers: Bed,
}

impl Refusing {
    fn new() -> Self {
        let refusing = Self {
            anonymous: Bed::with(vec![], |config| config.tokens = vec![entry("x", None, None)]),
            downloads: Bed::with(vec![], |config| config.downloads_per_token_max = 0),
            scans: Bed::new(vec![]),
            answers: Bed::new(vec![]),
        };
        for Bed { state, .. } in [&refusing.scans, &refusing.answers] {
            state.scans.try_acquire_many(SCANS_MAX as u32).unwrap().forget();
        }
        refusing
    }

    /// Returns the status of a request whose caller has all of its answers.
    fn with_answers(&self, target: &str) -> u16 {
        let Bed { state, .. } = &self.answers;
        let service = TowerToHyperService::new(router(state.clone(), Hosts::any()));
        // The request waits before it gets a response.
        let runtime =
            Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let caller = state.access.known(&HeaderMap::new()).unwrap();
            let mut unsent = Vec::new();
            for _ in 0..ANSWERS_PER_TOKEN_MAX {
                unsent.push(caller.start_answer().await.unwrap());
            }
            let request = Request::get(target).body(Body::empty()).unwrap();
            service.call(request).await.unwrap().status().as_u16()
        })
    }
}

/// Each path has exactly the statuses that a request can get. No described request has a body that is awaited (408).
#[test]
fn statuses_are_those_that_requests_can_get() {
    let (bed, refusing) = (bed(), Refusing::new());
    let id = bed.get(EVENTS).header("adtrail-export-id").unwrap().to_owned();
    let many_headers = vec!["X: y"; 101];
    for path in Path::all() {
        let target = path.target().replace("exports/1", &format!("exports/{id}"));
        let unknown = target.replace("app-x", "app-q").replace(&id, "1");
        let status = |bed: &Bed, target: &str| bed.get(target).status;
        let mut found = BTreeSet::from([
            status(&bed, &target),
            status(&bed, &format!("{target}&nonsense=1")),
            status(&bed, &unknown),
            status(&bed, &format!("{target}&{}", "y".repeat(65_535))),
            status(&bed, &format!("http://other.example{target}")),
            status(&refusing.anonymous, &target),
            status(&refusing.downloads, &target),
            refusing.with_answers(&target),
            bed.send(&format!("GET {target} HTTP/1.0")).status,
            bed.send_with(&format!("GET {target} HTTP/1.1"), &many_headers).status,
        ]);
        // Whatever reads the store can fail.
        let of_scans = status(&refusing.scans, &target);
        if matches!(of_scans, 429 | 503) {
            found.extend([of_scans, 500]);
        }
        let described = keys(&path.item["get"]["responses"]);
        let described: BTreeSet<u16> =
            described.into_iter().map(|status| status.parse().unwrap()).collect();
        assert_eq!(described, found, "{}", path.name);
    }
}

#[track_caller]
fn check_response(response: &'static Value, request: &str, answer: &Answer) {
    /// Headers of HTTP itself, and one that the description mentions.
    const STANDARD: [&str; 10] = [
        "date",
        "connection",
        "content-type",
        "content-length",
        "transfer-encoding",
        "trailer",
        "vary",
        "cache-control",
        "x-content-type-options",
        "x-request-id",
    ];
    let headers = keys(&response["headers"]);
    let known: BTreeSet<_> = headers.iter().map(|name| name.to_lowercase()).collect();
    for (name, _) in &answer.headers {
        let is_known = known.contains(name) || STANDARD.contains(&&**name);
        assert!(is_known, "{name} of {request}");
    }
    for name in headers {
        let is_optional = at(&format!("/components/headers/{name}"))["required"] != true;
        let is_there = answer.header(&name.to_lowercase()).is_some();
        assert!(is_optional || is_there, "{name} of {request}");
    }
    match keys(&response["content"]).first() {
        Some(media_type) => {
            let found = answer.header("content-type").and_then(|text| text.split(';').next());
            assert_eq!(found, Some(*media_type), "{request}");
        }
        None => assert!(answer.body.is_empty(), "{request}"),
    }
    let types: Vec<_> = problem_types(response).collect();
    let is_described = |kind: &Value| types.iter().any(|described| kind == described);
    assert!(types.is_empty() || is_described(&answer.json()["type"]), "{}", answer.text());
}

#[test]
fn a_row_has_the_members_described() {
    let bed = bed();
    let columns = Column::known().collect::<Vec<_>>().join(",");
    let rows = bed.get(&format!("/v1/apps/app-x/events.ndjson?{RANGE}&fields={columns}"));
    let schema = at("/components/schemas/Event");
    for row in rows.text().lines() {
        check_members(&serde_json::from_str(row).unwrap(), schema);
    }
    assert_eq!(rows.text().lines().count(), 5);
}

#[test]
fn an_explanation_has_the_members_described() {
    let bed = bed();
    let schema = at("/components/schemas/Explanation");
    let explanation = bed.get("/v1/apps/app-x/activations/a-1/explain").json();
    check_members(&explanation, schema);
    assert_eq!(explanation["touches"].as_array().map(Vec::len), Some(2));
    let duplicate = bed.get("/v1/apps/app-x/activations/a-3/explain").json();
    assert_eq!(duplicate["last_install"]["event_id"], "a-1");
    check_members(&duplicate, schema);
}

/// Checks that a value has exactly the members of its schema, at any depth.
#[track_caller]
fn check_members(value: &Value, schema: &'static Value) {
    let schema = resolve(schema);
    if let Some(nullable) = schema.get("anyOf") {
        if !value.is_null() {
            check_members(value, &nullable[0]);
        }
        return;
    }
    match (value, schema["properties"].as_object()) {
        (Value::Object(members), Some(described)) => {
            assert!(members.keys().eq(described.keys()), "{value}");
            members.iter().for_each(|(name, member)| check_members(member, &described[name]));
        }
        (Value::Array(items), _) => {
            items.iter().for_each(|item| check_members(item, &schema["items"]));
        }
        _ => {
            let listed = schema["enum"].as_array();
            assert!(listed.is_none_or(|listed| listed.contains(value)), "{value}: {schema}");
        }
    }
}
