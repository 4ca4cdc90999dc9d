//! The AsyncAPI document, read by AsyncAPI's parser.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ingest::decode::ErrorCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{cache_dir, run_ok};

use super::{FAMILIES, in_project};

/// Returns the document with all references resolved.
fn asyncapi(file: &Path) -> Value {
    let dir = TempDir::with_prefix("adtrail-asyncapi-").expect("the folder is created");
    let packages = cache_dir().join("asyncapi/node_modules");
    assert!(packages.is_dir(), "no {packages:?}: scripts/install --tests installs it");
    symlink(packages, dir.path().join("node_modules")).expect("the link is created");
    let program = dir.path().join("parse.mjs");
    fs::copy(in_project("tests/commands/asyncapi/parse.mjs"), &program)
        .expect("the file is copied");
    let printed = run_ok(Command::new("node").args([&*program, file]), b"");
    serde_json::from_slice(&printed).expect("valid JSON")
}

#[test]
fn the_asyncapi_document_is_valid_and_matches_the_settings_and_schemas() {
    let document = asyncapi(&in_project("schemas/asyncapi.yaml"));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let example =
        fs::read_to_string(in_project("config/example.toml")).expect("the example can be read");
    let settings: toml::Value = toml::from_str(&example).expect("valid TOML");
    let channels = document["channels"].as_object().expect("the document has channels");
    assert_eq!(channels.len(), 6);
    let published = |path: String| -> Value {
        let text = fs::read_to_string(in_project(&path)).expect("the schema can be read");
        serde_json::from_str(&text).expect("valid JSON")
    };
    for (family, name) in FAMILIES.into_iter().zip(["clicks", "activations", "effects"]) {
        let topic = settings["kafka"][name].as_str().expect("the topic is a string");
        let (events, letters) = (&channels[name], &channels[&format!("{name}DeadLetters")]);
        assert_eq!(events["address"], topic);
        assert_eq!(letters["address"], format!("{topic}.dlq"));
        let title = |format: &str| events["messages"][format]["payload"]["schema"]["title"].clone();
        let json = published(format!("schemas/json/{family}.schema.json"));
        assert_eq!(title("json"), json["title"]);
        let avro = published(format!("schemas/avro/{family}.avsc"));
        // The parser replaces Avro schemas and keeps the original.
        let payload = &events["messages"]["avro"]["payload"];
        assert_eq!(payload["x-parser-original-payload"], avro, "{payload}");
        let headers = &letters["messages"]["letter"]["headers"];
        let codes = ErrorCode::ALL.map(ErrorCode::name);
        assert_eq!(headers["properties"]["adtrail.error.code"]["enum"], json!(codes));
    }
}
