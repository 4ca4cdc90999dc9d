//! What a request may say.

use attribution::facts::device_ids::IdKind;
use attribution::rules::row::{InstallType, Status};
use serde_json::{Value, json};

use super::pull;
use crate::api::summary::Dimension;
use crate::appsflyer::report::Kind;
use crate::format::column::Column;
use crate::openapi::parts::{ITEM, TIME, additional_fields, list, names};
use crate::query::parameter::{
    ADDITIONAL_FIELDS, AFTER, BY, CHANNEL, DIALECT, EVENT_NAME, EXPORT_ID, FIELDS, FROM,
    INSTALL_TYPE, LIMIT, PRESET, SPREADID, STATUS, TIMEZONE, TO, TYPE,
};
use crate::query::{DIALECTS, PAGE_LIMIT, PAGE_LIMIT_MAX, PRESETS, TYPES};

/// Where a parameter is, as some differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Nothing,
    Csv,
    Ndjson,
    /// A short answer, a page at a time.
    Page,
    /// The Pull API.
    Pull,
}

pub(super) fn of_path(name: &str) -> Value {
    let (description, schema, example) = match name {
        "app" => ("The app's key", json!({ "type": "string", "minLength": 1 }), "app-x"),
        "spreadid" => {
            ("The campaign's number", json!({ "$ref": "#/components/schemas/SpreadId" }), "7")
        }
        "kind" => {
            ("Of the id; with _md5 its MD5", json!({ "type": "string", "enum": kinds() }), "oaid")
        }
        "value" => (
            "An id as events may carry it, whatever its case and dashes, or its MD5",
            json!({ "type": "string", "minLength": 1 }),
            "a1b2c3d4-1111-4222-8333-444444444444",
        ),
        "event_id" => ("As the export has it", json!({ "type": "string", "minLength": 1 }), "a-1"),
        "report" => (
            "Which rows: docs/appsflyer.md",
            json!({ "type": "string", "enum": Kind::names() }),
            "installs_report",
        ),
        "id" => (
            "As Adtrail-Export-Id has it",
            json!({ "$ref": "#/components/schemas/ExportId" }),
            "6436d1f4d9a3c",
        ),
        _ => return Value::Null,
    };
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": description,
        "schema": schema,
        "example": if name == "spreadid" { json!(7) } else { json!(example) },
    })
}

fn kinds() -> Vec<String> {
    let names = IdKind::ALL.map(IdKind::name);
    names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}_md5")]).collect()
}

pub(super) fn of_query(name: &str, of: Of) -> Value {
    let own = || range(name).or_else(|| filter(name)).or_else(|| form(name, of));
    let found = if of == Of::Pull { pull::of_query(name).or_else(own) } else { own() };
    let Some(mut parameter) = found else { return Value::Null };
    parameter["name"] = name.into();
    parameter["in"] = "query".into();
    parameter
}

/// Of when.
fn range(name: &str) -> Option<Value> {
    Some(match name {
        FROM => json!({
            "description": "First event time: an RFC 3339 instant, or a date or date-time in timezone",
            "required": true,
            "schema": { "type": "string", "pattern": TIME },
            "example": "2026-03-10",
        }),
        TO => json!({
            "description": "The first event time after the range; one that is only a date includes that \
                whole day, and 9999-12-31 is the last. Not before from.",
            "required": true,
            "schema": { "type": "string", "pattern": TIME },
            "example": "2026-03-11T08:00:00+08:00",
        }),
        TIMEZONE => json!({
            "description": "IANA name, in which local times are read and times are written",
            "schema": { "type": "string", "default": "UTC" },
            "example": "Asia/Shanghai",
        }),
        _ => return None,
    })
}

/// Which rows.
fn filter(name: &str) -> Option<Value> {
    Some(match name {
        TYPE => json!({
            "description": "Only rows of these",
            "schema": { "type": "string", "enum": names(&TYPES), "default": TYPES[0].0 },
        }),
        EVENT_NAME => list(
            "Only events of these names; that of activations is activation",
            json!({ "type": "string", "pattern": ITEM }),
            json!(["activation", "purchase"]),
        ),
        STATUS => list(
            "Only rows of these",
            json!({ "type": "string", "enum": Status::ALL.map(Status::name) }),
            json!(["attributed", "organic"]),
        ),
        CHANNEL => list(
            "Only rows that these channels are credited with: of campaigns of the app, or unknown",
            json!({ "type": "string", "pattern": ITEM }),
            json!(["unknown"]),
        ),
        SPREADID => list(
            "Only rows that these campaigns are credited with; 0 is none",
            json!({ "$ref": "#/components/schemas/SpreadId" }),
            json!([0, 7]),
        ),
        INSTALL_TYPE => list(
            "Only rows of these",
            json!({ "type": "string", "enum": InstallType::ALL.map(InstallType::name) }),
            json!(["install"]),
        ),
        _ => return None,
    })
}

/// How they are told.
fn form(name: &str, of: Of) -> Option<Value> {
    Some(match name {
        FIELDS => unique(list(
            "Columns, in the order in which they are to come; without it all of the native ones. \
             props. and the name of a prop is one too.",
            json!({ "anyOf": [
                { "type": "string", "enum": Column::names().collect::<Vec<_>>() },
                { "type": "string", "pattern": "^props\\.[^,\"]+$" },
            ] }),
            json!(["event_time", "channel", "props.level"]),
        )),
        PRESET => json!({
            "description": "Whose columns, and whose forms of times: adtrail's or AppsFlyer's. With \
                appsflyer there is no fields.",
            "schema": {
                "type": "string",
                "enum": if of == Of::Ndjson { names(&PRESETS[..1]) } else { names(&PRESETS) },
                "default": PRESETS[0].0,
            },
        }),
        ADDITIONAL_FIELDS => additional_fields(
            "With preset=appsflyer alone: more of its columns, in the order in which they are to come",
        ),
        EXPORT_ID => json!({
            "description": "An id for the export, in place of one that is given: for who wants to ask \
                /v1/exports/{id} while it runs. No other export has it. HEAD makes no use of it.",
            "schema": { "type": "string", "pattern": "^[1-9a-f][0-9a-f]{15}$" },
        }),
        DIALECT => json!({
            "description": "For programs, or for spreadsheets",
            "schema": {
                "type": "string",
                "enum": if of == Of::Ndjson { names(&DIALECTS[..1]) } else { names(&DIALECTS) },
                "default": DIALECTS[0].0,
            },
        }),
        LIMIT if of == Of::Page => json!({
            "description": "Of a page",
            "schema": {
                "type": "integer", "minimum": 1, "maximum": PAGE_LIMIT_MAX, "default": PAGE_LIMIT,
            },
        }),
        LIMIT => json!({
            "description": "Rows at most; without it all",
            "schema": { "type": "integer", "minimum": 1, "maximum": u64::MAX },
            "example": 1000,
        }),
        AFTER => json!({
            "description": "Where the page before ended: that of its Link. It is of the same app, range \
                and filters.",
            "schema": { "type": "string", "pattern": "^[A-Za-z0-9_-]+$" },
        }),
        BY => unique(list(
            "What groups are told apart by; without it all are one",
            json!({ "type": "string", "enum": Dimension::names().collect::<Vec<_>>() }),
            json!(["day", "channel"]),
        )),
        _ => return None,
    })
}

fn unique(mut list: Value) -> Value {
    list["schema"]["uniqueItems"] = true.into();
    list
}
