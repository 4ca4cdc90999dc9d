//! The AsyncAPI document, by AsyncAPI's own parser.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ingest::decode::ErrorCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{cache_dir, run};

use super::{FAMILIES, in_project};

/// The document with what it refers to, all in one; else what is wrong with it.
fn asyncapi(file: &Path) -> Result<Value, String> {
    let dir = TempDir::with_prefix("adtrail-asyncapi-").expect("a temporary folder");
    let packages = cache_dir().join("asyncapi/node_modules");
    assert!(packages.is_dir(), "no {packages:?}: scripts/install --tests brings it");
    symlink(packages, dir.path().join("node_modules")).expect("a link");
    let program = dir.path().join("parse.mjs");
    fs::copy(in_project("tests/commands/asyncapi/parse.mjs"), &program).expect("a copy");
    let output = run(Command::new("node").args([&program, file]), b"");
    if output.status.success() {
        Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn the_asyncapi_document_is_one_and_tells_what_is_so() {
    let document =
        asyncapi(&in_project("schemas/asyncapi.yaml")).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let example = fs::read_to_string(in_project("config/example.toml")).expect("the example");
    let settings: toml::Value = toml::from_str(&example).expect("TOML");
    let channels = document["channels"].as_object().expect("channels");
    assert_eq!(channels.len(), 6);
    let published = |path: String| -> Value {
        let text = fs::read_to_string(in_project(&path)).expect("a schema");
        serde_json::from_str(&text).expect("JSON")
    };
    for (family, name) in FAMILIES.into_iter().zip(["clicks", "activations", "effects"]) {
        let topic = settings["kafka"][name].as_str().expect("a topic");
        let (events, letters) = (&channels[name], &channels[&format!("{name}DeadLetters")]);
        assert_eq!(events["address"], topic);
        assert_eq!(letters["address"], format!("{topic}.dlq"));
        let title = |format: &str| events["messages"][format]["payload"]["schema"]["title"].clone();
        let json = published(format!("schemas/json/{family}.schema.json"));
        assert_eq!(title("json"), json["title"]);
        let avro = published(format!("schemas/avro/{family}.avsc"));
        // The parser puts what it makes of Avro in its place.
        let payload = &events["messages"]["avro"]["payload"];
        assert_eq!(payload["x-parser-original-payload"], avro, "{payload}");
        let headers = &letters["messages"]["letter"]["headers"];
        let codes = ErrorCode::ALL.map(ErrorCode::name);
        assert_eq!(headers["properties"]["adtrail.error.code"]["enum"], json!(codes));
    }
}

/// By a word that is not allowed, a name that nothing has, and files that are not beside it: in one run, as starting
/// Node is what takes time.
#[test]
fn a_document_that_is_none_is_refused() {
    let dir = TempDir::with_prefix("adtrail-asyncapi-").expect("a temporary folder");
    let mut text = fs::read_to_string(in_project("schemas/asyncapi.yaml")).expect("the document");
    let mistakes =
        [("action: receive", "action: read"), ("messages/ClickAvro'", "messages/ClickArvo'")];
    for (from, to) in mistakes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let file = dir.path().join("asyncapi.yaml");
    fs::write(&file, text).expect("a file");
    let why = asyncapi(&file).expect_err("refused");
    for expected in ["action", "ClickArvo", "click.schema.json"] {
        assert!(why.contains(expected), "{expected}: {why}");
    }
}
