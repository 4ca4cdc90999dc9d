//! The registry client against a real registry: Apicurio. A proxy in front of it adds GUIDs, which Apicurio does not
//! support.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows them in tests but not in their helpers"
)]

use std::time::Duration;

use ingest::registry::{Lookup, Registry, RegistryOutcome, SchemaKey, UnusableKind};
use serde_json::{Value, json};
use testbed::eventually;
use testbed::registry::Registry as RealRegistry;

const DEADLINE: Duration = testbed::DEADLINE;

/// Starts a client of the registry at this URL, with a folder for cached schemas.
fn client(url: &str, folder: &tempfile::TempDir) -> Registry<Value> {
    let text = format!("[registry]\nurls = [{url:?}]\ncache = {:?}\n", folder.path());
    let settings = config::parse(&text).unwrap().registry.unwrap();
    let compile = |text: &str| serde_json::from_str(text).map_err(|error| error.to_string());
    Registry::start(&settings, compile, ingest::Timing::default()).unwrap()
}

#[track_caller]
fn check_ready(client: &Registry<Value>, key: SchemaKey, expected: &Value) {
    match client.wait(key, DEADLINE) {
        Lookup::Ready(schema) => assert_eq!(*schema, *expected, "{key}"),
        other => panic!("{key}: {other:?}"),
    }
}

#[track_caller]
fn check_unusable(client: &Registry<Value>, key: SchemaKey, kind: UnusableKind) {
    match client.wait(key, DEADLINE) {
        Lookup::Unusable(why) => assert_eq!(why.kind, kind, "{key}: {}", why.reason),
        other => panic!("{key}: {other:?}"),
    }
}

#[track_caller]
fn check_waiting(client: &Registry<Value>, key: SchemaKey, outcome: RegistryOutcome) {
    eventually("the request fails", || {
        let health = client.health();
        let has_failed = health.requests(outcome) > 0 && health.is_blocking();
        match client.look_up(key) {
            Lookup::Waiting if has_failed => Ok(Ok(())),
            Lookup::Waiting => Err("waiting"),
            other => Ok(Err(other)),
        }
    })
    .unwrap();
}

fn record(name: &str, kind: &Value) -> Value {
    json!({"type": "record", "name": name, "namespace": "shop",
        "fields": [{"name": "f", "type": kind}]})
}

#[test]
fn schemas_are_found_by_id_and_guid_with_their_references() {
    let (real, folder) = (RealRegistry::shared(), tempfile::tempdir().unwrap());
    let address = record("Address", &json!("string"));
    real.register("addresses", &address, &[]);
    let order = record("Order", &json!("shop.Address"));
    let order = real.register("orders-value", &order, &[("shop.Address", "addresses")]);
    let client = client(&real.url(), &folder);
    let expected = record("Order", &address);
    check_ready(&client, SchemaKey::Id(order.id), &expected);
    check_ready(&client, SchemaKey::Guid(order.guid), &expected);
    assert_eq!(client.health().requests(RegistryOutcome::Found), 4);
}

#[test]
fn unknown_and_foreign_schemas_are_unusable() {
    let (real, folder) = (RealRegistry::shared(), tempfile::tempdir().unwrap());
    let schema = "syntax = \"proto3\"; message Page { string name = 1; }";
    let other = real.register_as("PROTOBUF", "pages-value", schema, &[]);
    for url in [real.url(), real.url_without_guids()] {
        let client = client(&url, &folder);
        check_unusable(&client, SchemaKey::Id(999_999), UnusableKind::Unknown);
        check_unusable(&client, SchemaKey::Guid([7; 16]), UnusableKind::Unknown);
        check_unusable(&client, SchemaKey::Id(other.id), UnusableKind::Bad);
        assert!(client.health().is_answering);
    }
}

/// A wrong URL in the settings must not cause dead letters.
#[test]
fn records_wait_if_the_url_is_not_a_registry() {
    let (real, folder) = (RealRegistry::shared(), tempfile::tempdir().unwrap());
    let url = real.url().replace("/apis/ccompat/v7", "");
    check_waiting(&client(&url, &folder), SchemaKey::Id(1), RegistryOutcome::Refused);
}
