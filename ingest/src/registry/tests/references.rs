//! Schemas that refer to others. The inlined text itself is tested in `inline_references/tests.rs`.

use serde_json::{Value, json};

use super::server::{Reply, Request, Server, ok, unknown};
use super::*;

/// A reply with a record `name` with one field of type `kind`, and references to `subjects`.
fn record(name: &str, kind: &str, subjects: &[&str]) -> Reply {
    let text = json!({"type": "record", "name": name, "namespace": "n",
        "fields": [{"name": "f", "type": kind}]});
    let references: Vec<Value> = subjects
        .iter()
        .map(|subject| json!({"name": subject, "subject": subject, "version": 3}))
        .collect();
    ok(json!({"schema": text.to_string(), "references": references}))
}

#[track_caller]
fn check_bad(script: impl Fn(&Request) -> Reply + Send + Sync + 'static, reason: &str) {
    let server = Server::start(script);
    let registry = Fixture::for_servers(&[&server]).start("");
    check_unusable(&registry, id(1), UnusableKind::Bad, reason);
}

#[test]
fn references_are_fetched_and_inlined() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/1" => record("A", "n.B", &["b /%"]),
        "/subjects/b%20%2F%25/versions/3" => record("B", "n.C", &["c"]),
        "/subjects/c/versions/3" => record("C", "int", &[]),
        path => panic!("{path}"),
    });
    let fixture = Fixture::for_servers(&[&server]);
    let inlined = |registry: Texts| match registry.wait(id(1), TIMEOUT) {
        SchemaLookup::Ready(text) => serde_json::from_str::<Value>(&text).unwrap(),
        other => panic!("{other:?}"),
    };
    let nested = |name: &str, kind: Value| {
        json!({"type": "record", "name": name, "namespace": "n",
            "fields": [{"name": "f", "type": kind}]})
    };
    let expected = nested("A", nested("B", nested("C", json!("int"))));
    assert_eq!(inlined(fixture.start("")), expected);
    assert_eq!(server.requests().len(), 3);
    // The inlined schema is cached on disk.
    drop(server);
    assert_eq!(inlined(fixture.start("")), expected);
}

#[test]
fn circular_references_terminate() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/1" => record("A", "B", &["b"]),
        "/subjects/b/versions/3" => record("B", "A", &["a", "b"]),
        "/subjects/a/versions/3" => record("A", "B", &["b"]),
        path => panic!("{path}"),
    });
    let registry = Fixture::for_servers(&[&server]).start("");
    assert!(matches!(registry.wait(id(1), TIMEOUT), SchemaLookup::Ready(_)));
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn schemas_with_unusable_references_are_bad() {
    let to = |subject: &str, found: fn() -> Reply| {
        let subject = subject.to_owned();
        move |request: &Request| match request.path.as_str() {
            "/schemas/ids/1" => record("A", "B", &[&subject]),
            _ => found(),
        }
    };
    check_bad(
        to("b", unknown),
        "refers to version 3 of the subject \"b\": the registry has no such",
    );
    check_bad(to(&"b".repeat(2_000), unknown), "refers to version 3 of the subject \"bbb");
    check_bad(to("..", unknown), "refers to the subject \"..\"");
    let other = || ok(json!({"schema": "{}", "schemaType": "JSON"}));
    check_bad(to("b", other), "of the subject \"b\": it is a JSON Schema");
    check_bad(to("b", || ok(json!({"schema": "{"}))), "is not JSON");
    check_bad(to("b", || Reply::Huge(2 << 20)), "longer than 1 MiB");
}

/// Each schema refers to another one, without end.
#[test]
fn an_endless_chain_of_references_is_bad() {
    let chain = |request: &Request| {
        let number: u32 = request.path.split('/').find_map(|part| part.parse().ok()).unwrap();
        record("A", "B", &[&(number + 1).to_string()])
    };
    check_bad(chain, "more than 100 references");
}

/// The length limit of one schema applies to all its references together.
#[test]
fn references_longer_than_the_limit_are_bad() {
    let long = |request: &Request| {
        let subjects: Vec<String> = (0..9).map(|index| index.to_string()).collect();
        let subjects: Vec<&str> = subjects.iter().map(String::as_str).collect();
        match request.path.as_str() {
            "/schemas/ids/1" => record("A", "int", &subjects),
            _ => ok(json!({"schema": format!("\"{}\"", "x".repeat(200_000))})),
        }
    };
    check_bad(long, "longer than 1 MiB");
}

/// A failure between the schema and its references is not a result for either.
#[test]
fn an_outage_between_references_is_retried() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/1" => record("A", "B", &["b"]),
        _ => Reply::Status(500, String::new()),
    });
    let registry = Fixture::for_servers(&[&server]).start("");
    check_waiting(&registry, id(1));
    wait_until("a request fails", || registry.health().requests(RegistryOutcome::Failed) > 0);
    check_waiting(&registry, id(1));
    server.set(|request| match request.path.as_str() {
        "/schemas/ids/1" => record("A", "B", &["b"]),
        _ => record("B", "int", &[]),
    });
    assert!(matches!(registry.wait(id(1), TIMEOUT), SchemaLookup::Ready(_)));
}
