//! Schemas with references in a real registry: Apicurio. A proxy in front of it adds GUIDs, which Apicurio does not
//! support. Tests of unknown and unusable schemas are in `avro`.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows them in tests but not in their helpers"
)]

use ingest::registry::{Registry, RegistryOutcome, SchemaKey, SchemaLookup};
use serde_json::{Value, json};
use testbed::registry::Registry as RealRegistry;

/// Starts a client of the registry at this URL, with a folder for cached schemas.
fn client(url: &str, folder: &tempfile::TempDir) -> Registry<Value> {
    let text = format!("[registry]\nurls = [{url:?}]\ncache = {:?}\n", folder.path());
    let settings = config::parse(&text).unwrap().registry.unwrap();
    let compile = |text: &str| serde_json::from_str(text).map_err(|error| error.to_string());
    Registry::start(&settings, compile, ingest::Timing::default()).unwrap()
}

#[track_caller]
fn check_ready(client: &Registry<Value>, key: SchemaKey, expected: &Value) {
    match client.wait(key, testbed::DEADLINE) {
        SchemaLookup::Ready(schema) => assert_eq!(*schema, *expected, "{key}"),
        other => panic!("{key}: {other:?}"),
    }
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
