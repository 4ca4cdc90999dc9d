//! Without a conclusive response a schema waits, however long the outage, and never becomes unusable.

use super::server::{Reply, Server, ok, schema, unknown};
use super::*;

/// Checks that the schema waits while the registry replies with `broken`, and is ready once it recovers.
#[track_caller]
fn check(case: &str, outcome: RegistryOutcome, broken: impl Fn() -> Reply + Send + Sync + 'static) {
    let server = Server::start(move |_| broken());
    let registry = Fixture::for_servers(&[&server]).start("timeout = \"200ms\"");
    check_waiting(&registry, id(7));
    wait_until(case, || registry.health().requests(outcome) > 1);
    check_waiting(&registry, id(7));
    assert!(registry.health().is_blocking(), "{case}");
    server.set(|_| schema("\"string\""));
    check_ready(&registry, id(7), "\"string\"");
    assert!(registry.health().is_answering, "{case}");
}

/// The unit tests of `response.rs` cover every status.
#[test]
fn a_schema_waits_while_the_registry_fails_or_refuses() {
    check("status 500", RegistryOutcome::Failed, || Reply::Status(500, String::new()));
    check("status 401", RegistryOutcome::Refused, || Reply::Status(401, String::new()));
    // Every path is unknown: the URL has no registry.
    let nothing = r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#;
    check("status 404", RegistryOutcome::Refused, || Reply::Status(404, nothing.into()));
    // Longer than the timeout.
    check("a slow response", RegistryOutcome::Failed, || {
        thread::sleep(Duration::from_millis(400));
        schema("\"int\"")
    });
}

/// A registry that lacks the path of a request, such as one without GUIDs, does not know the schema.
#[test]
fn a_path_that_is_unknown_to_a_registry_is_an_unknown_schema() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/types" => ok("[\"AVRO\"]"),
        _ => Reply::Status(404, "<html>".into()),
    });
    let registry = Fixture::for_servers(&[&server]).start("");
    check_unusable(&registry, SchemaKey::Guid([1; 16]), UnusableKind::Unknown, "no such schema");
}

#[test]
fn urls_are_tried_in_turn() {
    let dead = Server::start(|_| Reply::Status(503, String::new()));
    let lagging = Server::start(|_| unknown());
    let good = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/9" => unknown(),
        _ => schema("\"string\""),
    });
    let registry = Fixture::for_servers(&[&dead, &lagging, &good]).start("");
    check_ready(&registry, id(1), "\"string\"");
    assert_eq!((dead.requests().len(), lagging.requests().len()), (1, 1));
    // The URL that answered is tried first from then on.
    check_ready(&registry, id(2), "\"string\"");
    assert_eq!((dead.requests().len(), lagging.requests().len()), (1, 1));
    // No URL has it: the conclusive response counts, and the unresponsive URL is skipped.
    check_unusable(&registry, id(9), UnusableKind::Unknown, "");
    assert_eq!((dead.requests().len(), lagging.requests().len()), (1, 2));
    assert!(registry.health().is_answering);
    // The URL that answered fails.
    good.set(|_| Reply::Status(500, String::new()));
    dead.set(|_| schema("\"int\""));
    lagging.set(|_| Reply::Status(500, String::new()));
    check_ready(&registry, id(3), "\"int\"");
}

#[test]
fn schemas_cached_on_disk_are_used_without_a_registry() {
    let server = Server::start(|_| schema("\"string\""));
    let fixture = Fixture::for_servers(&[&server]);
    check_ready(&fixture.start(""), id(7), "\"string\"");
    drop(server);
    let registry = fixture.start("");
    check_ready(&registry, id(7), "\"string\"");
    // The second lookup does not wait for the registry.
    check_ready(&registry, id(7), "\"string\"");
    check_waiting(&registry, id(8));
}

#[test]
fn the_registry_takes_precedence_over_cached_schemas() {
    let server = Server::start(|_| schema("\"string\""));
    let fixture = Fixture::for_servers(&[&server]);
    check_ready(&fixture.start(""), id(7), "\"string\"");
    // A recreated registry assigns the id to another schema, or to none.
    server.set(|_| schema("\"int\""));
    check_ready(&fixture.start(""), id(7), "\"int\"");
    server.set(|_| unknown());
    check_unusable(&fixture.start(""), id(7), UnusableKind::Unknown, "");
}

/// A failure for one schema does not switch the others to their cached versions.
#[test]
fn cached_schemas_are_not_used_while_only_other_schemas_fail() {
    let server = Server::start(|_| schema("\"string\""));
    let fixture = Fixture::for_servers(&[&server]);
    check_ready(&fixture.start(""), id(7), "\"string\"");
    server.set(|request| match request.path.as_str() {
        "/schemas/ids/7" => schema("\"int\""),
        _ => Reply::Status(500, String::new()),
    });
    let registry = fixture.start("");
    check_waiting(&registry, id(8));
    wait_until("a request fails", || registry.health().requests(RegistryOutcome::Failed) > 0);
    check_ready(&registry, id(7), "\"int\"");
    // If a schema fails itself, its cached version is used.
    server.set(|_| Reply::Status(500, String::new()));
    check_ready(&fixture.start(""), id(7), "\"int\"");
}

#[test]
fn only_usable_schemas_are_cached_on_disk() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/1" => schema("5"),
        _ => unknown(),
    });
    let fixture = Fixture::for_servers(&[&server]);
    let registry = fixture.start("");
    check_unusable(&registry, id(1), UnusableKind::Bad, "");
    check_unusable(&registry, id(2), UnusableKind::Unknown, "");
    assert!(!fixture.folder.path().join("cache").exists());
}
