//! Checks that each published schema has exactly the fields that the decoder reads for its family, and that the
//! AsyncAPI document has the headers of a dead letter.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::event::FIELDS;
use super::*;
use crate::dead_letters::letter::header;
use crate::fuzz::POLICY;
use crate::fuzz::avro::TEXTS as AVRO_SCHEMAS;

const ASYNCAPI: &str = include_str!("../../../schemas/asyncapi.yaml");

/// The JSON schemas, in the order of [`TopicKind`].
const JSON_SCHEMAS: [&str; 3] = [
    include_str!("../../../schemas/json/click.schema.json"),
    include_str!("../../../schemas/json/activation.schema.json"),
    include_str!("../../../schemas/json/effect.schema.json"),
];

/// Checks whether the decoder reads a field: no field may be a boolean, so a boolean is accepted only if ignored.
fn is_read(topic: TopicKind, field: &str) -> bool {
    let mut event = json!({"app": "app-x", "time": 1_773_144_000_000_u64, "spreadid": 7, "click_id": "c",
        "name": "n"});
    assert!(decode(event.to_string().as_bytes(), Some(topic), &POLICY).is_ok());
    event[field] = json!(true);
    match decode(event.to_string().as_bytes(), Some(topic), &POLICY) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.field.as_deref(), Some(field), "{error}");
            true
        }
    }
}

#[test]
fn published_schemas_have_the_fields_that_are_read() {
    let schemas = JSON_SCHEMAS.into_iter().zip(AVRO_SCHEMAS);
    for (topic, (json, avro)) in TopicKind::ALL.into_iter().zip(schemas) {
        let read: BTreeSet<String> =
            FIELDS.into_iter().filter(|field| is_read(topic, field)).map(str::to_owned).collect();
        let json: Value = serde_json::from_str(json).unwrap();
        let properties = json["properties"].as_object().unwrap();
        assert_eq!(properties.keys().cloned().collect::<BTreeSet<_>>(), read, "JSON, {topic:?}");
        let avro: Value = serde_json::from_str(avro).unwrap();
        let fields = avro["fields"].as_array().unwrap().iter();
        let names = fields.map(|field| field["name"].as_str().unwrap().to_owned());
        assert_eq!(names.collect::<BTreeSet<_>>(), read, "Avro, {topic:?}");
    }
}

#[test]
fn the_asyncapi_document_has_the_headers_of_dead_letters() {
    let lines: Vec<&str> = ASYNCAPI.lines().map(str::trim).collect();
    // Each header is described, and required.
    for name in header::ALL {
        assert!(lines.contains(&&*format!("{name}:")), "{name} is not described");
        assert!(lines.contains(&&*format!("- {name}")), "{name} is not required");
    }
    for name in [header::VALUE_LENGTH, header::VALUE_SHA256] {
        assert!(lines.contains(&&*format!("{name}:")), "{name} is not described");
    }
    let required = lines.iter().filter(|line| line.starts_with("- __connect.errors.")).count();
    assert_eq!(required + 1, header::ALL.len());
}
