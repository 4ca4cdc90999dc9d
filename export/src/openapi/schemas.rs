//! The forms of what is answered in JSON.

use attribution::facts::device_ids::IdKind;
use serde_json::{Map, Value, json};

use super::{explanation, pull};
use crate::api::summary::Dimension;
use crate::download::state::State;
use crate::format::column::Column;
use crate::openapi::types::{
    install_type, instant, object, or_null, spreadid, status, text, touch_type,
};

/// The components.
pub(super) fn all() -> Value {
    json!({
        "Description": { "type": "object", "required": ["openapi", "info", "paths"] },
        "Problem": problem(),
        "Instant": {
            "type": "string",
            "format": "date-time",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}(Z|[+-][0-9]{2}:[0-9]{2})$",
        },
        "ExportId": { "type": "string", "pattern": "^[1-9a-f][0-9a-f]{0,15}$" },
        "SpreadId": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
        "Apps": { "type": "array", "items": object(json!({
            "key": { "type": "string" },
            "pid": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
            "name": { "type": "string" },
        })) },
        "Campaigns": { "type": "array", "items": object(json!({
            "spreadid": spreadid(),
            "name": { "type": "string" },
            "channel": { "type": "string" },
        })) },
        "Export": export(),
        "Summary": summary(),
        "Brought": brought(),
        "Timeline": timeline(),
        "Event": event(),
        "Explanation": explanation::explanation(),
        "PullError": pull::error(),
    })
}

fn problem() -> Value {
    json!({
        "type": "object",
        "description": "RFC 9457",
        "properties": {
            "type": { "type": "string", "description": "Stable; what a program looks at" },
            "title": text(),
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string", "description": "For people" },
            "parameter": { "type": "string", "description": "Which is to blame" },
            "allowed": {
                "type": "array", "items": text(), "description": "What there may be in its place",
            },
        },
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": false,
    })
}

fn export() -> Value {
    let states = [State::Running, State::Complete, State::Aborted, State::Failed].map(State::name);
    object(json!({
        "id": { "$ref": "#/components/schemas/ExportId" },
        "app": text(),
        "request": { "type": "string", "description": "The address that it was asked for with" },
        "file": text(),
        "started": instant(),
        "ended": or_null(instant()),
        "state": { "type": "string", "enum": states },
        "rows": { "type": "integer", "minimum": 0, "description": "Handed to the client so far" },
        "bytes": { "type": "integer", "minimum": 0, "description": "Before compression" },
        "sha256": or_null(json!({
            "type": "string", "pattern": "^[0-9a-f]{64}$", "description": "Of a complete one",
        })),
    }))
}

fn summary() -> Value {
    let dimension = |name: &str| match name {
        "day" => json!({ "type": "string", "format": "date" }),
        "spreadid" => spreadid(),
        _ => or_null(text()),
    };
    let mut members: Map<String, Value> =
        Dimension::names().map(|name| (name.to_owned(), dimension(name))).collect();
    members.insert("count".into(), json!({ "type": "integer", "minimum": 0 }));
    members.insert(
        "revenue".into(),
        json!({
            "type": "object",
            "description": "Exact sums by currency",
            "additionalProperties": { "type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?$" },
        }),
    );
    let names: Vec<_> = Dimension::names().collect();
    let group = json!({
        "type": "object",
        "properties": members,
        "required": ["count", "revenue"],
        "additionalProperties": false,
    });
    object(json!({
        "app": text(),
        "from": instant(),
        "to": instant(),
        "timezone": text(),
        "by": { "type": "array", "items": { "type": "string", "enum": names } },
        "groups": { "type": "array", "items": group },
    }))
}

fn brought() -> Value {
    let ids: Map<String, Value> =
        IdKind::ALL.iter().map(|kind| (kind.name().to_owned(), text())).collect();
    let activation = object(json!({
        "event_id": text(),
        "event_time": instant(),
        "install_type": or_null(install_type()),
        "ids": { "type": "object", "properties": ids, "additionalProperties": false },
        "match_type": or_null(text()),
        "touch_type": or_null(touch_type()),
        "touch_time": or_null(instant()),
        "click_id": or_null(text()),
    }));
    object(json!({
        "app": text(),
        "spreadid": spreadid(),
        "campaign": or_null(text()),
        "channel": text(),
        "activations": { "type": "array", "items": activation },
    }))
}

fn timeline() -> Value {
    let credited = json!({
        "time": instant(),
        "spreadid": spreadid(),
        "campaign": or_null(text()),
        "channel": or_null(text()),
    });
    let with = |more: Value| {
        let mut members = credited.clone();
        for (name, schema) in more.as_object().into_iter().flatten() {
            members[name] = schema.clone();
        }
        object(members)
    };
    let touch = with(json!({
        "type": touch_type(),
        "click_id": or_null(text()),
        "purpose": { "type": "string", "enum": ["ua", "retargeting"] },
        "site": or_null(text()),
    }));
    let activation = with(json!({
        "type": { "type": "string", "const": "activation" },
        "event_id": text(),
        "status": or_null(status()),
        "install_type": or_null(install_type()),
        "match_type": or_null(text()),
        "touch_time": or_null(instant()),
        "click_id": or_null(text()),
    }));
    let effect = with(json!({
        "type": { "type": "string", "const": "effect" },
        "event_id": text(),
        "event_name": text(),
        "status": or_null(status()),
        "revenue": or_null(text()),
        "currency": or_null(text()),
    }));
    object(json!({
        "app": text(),
        "complete_since": object(json!({
            "touches": or_null(instant()),
            "activations": or_null(instant()),
            "effects": or_null(instant()),
        })),
        "events": { "type": "array", "items": { "oneOf": [touch, activation, effect] } },
    }))
}

/// A row in JSON.
fn event() -> Value {
    let column = |name: &str| match name {
        "pid" => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        "spreadid" => spreadid(),
        "event_type" => json!({ "type": "string", "enum": ["activation", "effect"] }),
        "event_time" => instant(),
        "status" => status(),
        "install_type" => or_null(install_type()),
        "props" => or_null(json!({ "type": "object", "additionalProperties": text() })),
        _ if name.ends_with("spreadid") => or_null(spreadid()),
        _ if name.ends_with("touch_type") => or_null(touch_type()),
        _ if name.ends_with("_time") => or_null(instant()),
        _ => or_null(text()),
    };
    let members: Map<String, Value> =
        Column::names().map(|name| (name.to_owned(), column(name))).collect();
    json!({
        "type": "object",
        "description": "A row: the columns that were asked for, null where there is nothing",
        "properties": members,
        "patternProperties": { "^props\\.": or_null(text()) },
        "additionalProperties": false,
    })
}
