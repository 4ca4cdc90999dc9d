//! Schemas of values that several objects have.

use attribution::rules::row::{InstallType, Status};
use serde_json::{Map, Value, json};

/// Of these members, and no others; all are always there.
pub(super) fn object(members: Value) -> Value {
    let names: Vec<_> = members.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    json!({
        "type": "object",
        "properties": members,
        "required": names,
        "additionalProperties": false,
    })
}

pub(super) fn spreadid() -> Value {
    json!({ "$ref": "#/components/schemas/SpreadId" })
}

pub(super) fn instant() -> Value {
    json!({ "$ref": "#/components/schemas/Instant" })
}

pub(super) fn or_null(mut schema: Value) -> Value {
    match schema["type"].take() {
        Value::String(kind) => schema["type"] = json!([kind, "null"]),
        _ => return json!({ "anyOf": [{ "$ref": schema["$ref"] }, { "type": "null" }] }),
    }
    if let Some(allowed) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        allowed.push(Value::Null);
    }
    schema
}

pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

pub(super) fn status() -> Value {
    json!({ "type": "string", "enum": Status::ALL.map(Status::name) })
}

pub(super) fn install_type() -> Value {
    json!({ "type": "string", "enum": InstallType::ALL.map(InstallType::name) })
}

pub(super) fn touch_type() -> Value {
    json!({ "type": "string", "enum": ["click", "impression"] })
}
