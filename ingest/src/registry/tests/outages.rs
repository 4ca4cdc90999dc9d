//! What is no answer holds a schema back, for as long as it takes, and is never its end.

use std::net::TcpListener;

use super::server::{Reply, Server, ok, schema, unknown};
use super::*;

/// The schema waits while this is answered, and is there once the registry is well.
#[track_caller]
fn check(what: &str, outcome: RegistryOutcome, broken: impl Fn() -> Reply + Send + Sync + 'static) {
    let server = Server::start(move |_| broken());
    let registry = Bed::of(&[&server]).start("timeout = \"200ms\"");
    check_waiting(&registry, id(7));
    until(what, || registry.health().requests(outcome) > 1);
    check_waiting(&registry, id(7));
    assert!(registry.health().is_needed_and_down(), "{what}");
    server.set(|_| schema("\"string\""));
    check_ready(&registry, id(7), "\"string\"");
    assert!(registry.health().is_answering, "{what}");
}

/// `response.rs` has every status.
#[test]
fn a_schema_waits_while_the_registry_fails_or_refuses() {
    check("status 500", RegistryOutcome::Failed, || Reply::Status(500, String::new()));
    check("status 401", RegistryOutcome::Refused, || Reply::Status(401, String::new()));
    // Whatever is asked for: there is no registry at this path.
    let nothing = r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#;
    check("status 404", RegistryOutcome::Refused, || Reply::Status(404, nothing.into()));
}

/// Answers that take longer than the timeout, and then one that does not.
#[test]
fn an_answer_that_takes_too_long_is_asked_for_again() {
    let server = Server::start(|_| {
        thread::sleep(Duration::from_millis(300));
        schema("\"int\"")
    });
    let registry = Bed::of(&[&server]).start("timeout = \"100ms\"");
    check_waiting(&registry, id(7));
    until("a timeout", || registry.health().requests(RegistryOutcome::Failed) > 0);
    check_waiting(&registry, id(7));
    server.set(|_| schema("\"string\""));
    check_ready(&registry, id(7), "\"string\"");
}

/// One that the system gives to nobody who asks for any: between two servers it would else be taken. The test
/// bed's are below.
fn own_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (30_000..32_768).find(is_free).expect("a free port")
}

#[test]
fn a_registry_that_comes_back_is_asked_again() {
    let port = own_port();
    let server = Server::start_at(port, |_| schema("\"string\""));
    let bed = Bed::of(&[&server]);
    drop(server);
    let registry = bed.start("");
    check_waiting(&registry, id(7));
    until("it fails", || registry.health().requests(RegistryOutcome::Failed) > 1);
    let _server = Server::start_at(port, |_| schema("\"string\""));
    check_ready(&registry, id(7), "\"string\"");
}

/// A registry that knows no such path, such as one without GUIDs, still says so of a schema.
#[test]
fn a_path_that_is_unknown_to_a_registry_is_an_unknown_schema() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/types" => ok("[\"AVRO\"]"),
        _ => Reply::Status(404, "<html>".into()),
    });
    let registry = Bed::of(&[&server]).start("");
    check_unusable(&registry, SchemaKey::Guid([1; 16]), UnusableKind::Unknown, "no such schema");
}

#[test]
fn the_urls_are_tried_in_turn() {
    let dead = Server::start(|_| Reply::Status(503, String::new()));
    let lagging = Server::start(|_| unknown());
    let good = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/9" => unknown(),
        _ => schema("\"string\""),
    });
    let registry = Bed::of(&[&dead, &lagging, &good]).start("");
    check_ready(&registry, id(1), "\"string\"");
    assert_eq!((dead.requests().len(), lagging.requests().len()), (1, 1));
    // From then on the one that answered is asked first.
    check_ready(&registry, id(2), "\"string\"");
    assert_eq!((dead.requests().len(), lagging.requests().len()), (1, 1));
    // Nobody has it: what is said counts, and who says nothing is not waited for.
    check_unusable(&registry, id(9), UnusableKind::Unknown, "");
    assert_eq!((dead.requests().len(), lagging.requests().len()), (1, 2));
    assert!(registry.health().is_answering);
    // The one that answered is gone.
    good.set(|_| Reply::Status(500, String::new()));
    dead.set(|_| schema("\"int\""));
    lagging.set(|_| Reply::Status(500, String::new()));
    check_ready(&registry, id(3), "\"int\"");
}

#[test]
fn a_start_from_disk_needs_no_registry() {
    let server = Server::start(|_| schema("\"string\""));
    let bed = Bed::of(&[&server]);
    check_ready(&bed.start(""), id(7), "\"string\"");
    drop(server);
    let registry = bed.start("");
    check_ready(&registry, id(7), "\"string\"");
    // Without an answer, the second comes from disk at once.
    check_ready(&registry, id(7), "\"string\"");
    check_waiting(&registry, id(8));
}

#[test]
fn the_registry_counts_before_what_was_kept() {
    let server = Server::start(|_| schema("\"string\""));
    let bed = Bed::of(&[&server]);
    check_ready(&bed.start(""), id(7), "\"string\"");
    // Set up anew, it gives the id to another schema, or to none.
    server.set(|_| schema("\"int\""));
    check_ready(&bed.start(""), id(7), "\"int\"");
    server.set(|_| unknown());
    check_unusable(&bed.start(""), id(7), UnusableKind::Unknown, "");
}

/// One schema for which there is no answer is no reason to go by old ones for others.
#[test]
fn kept_schemas_are_not_used_while_only_others_have_no_answer() {
    let server = Server::start(|_| schema("\"string\""));
    let bed = Bed::of(&[&server]);
    check_ready(&bed.start(""), id(7), "\"string\"");
    server.set(|request| match request.path.as_str() {
        "/schemas/ids/7" => schema("\"int\""),
        _ => Reply::Status(500, String::new()),
    });
    let registry = bed.start("");
    check_waiting(&registry, id(8));
    until("it fails", || registry.health().requests(RegistryOutcome::Failed) > 0);
    check_ready(&registry, id(7), "\"int\"");
    // And where it is the one itself.
    server.set(|_| Reply::Status(500, String::new()));
    check_ready(&bed.start(""), id(7), "\"int\"");
}

/// An answer for one schema is one, between all that there is none for.
#[test]
fn a_registry_that_answers_for_most_is_up() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/7" => schema("\"string\""),
        _ => Reply::Status(500, String::new()),
    });
    let registry = Bed::of(&[&server]).start("");
    check_ready(&registry, id(7), "\"string\"");
    check_waiting(&registry, id(8));
    until("it fails", || registry.health().requests(RegistryOutcome::Failed) > 0);
    assert!(registry.health().is_answering);
}

#[test]
fn only_good_answers_are_kept() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/1" => schema("5"),
        _ => unknown(),
    });
    let bed = Bed::of(&[&server]);
    let registry = bed.start("");
    check_unusable(&registry, id(1), UnusableKind::Bad, "");
    check_unusable(&registry, id(2), UnusableKind::Unknown, "");
    assert!(!bed.folder.path().join("cache").exists());
}
