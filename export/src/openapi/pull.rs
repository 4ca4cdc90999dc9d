//! AppsFlyer's Pull API: its own parameters, and its own form of refusals.

use serde_json::{Value, json};

use super::parts::{ITEM, TIME, additional_fields, names};
use crate::appsflyer::pull_api::CURRENCIES;
use crate::query::parameter::{
    ADDITIONAL_FIELDS, CURRENCY, EVENT_NAME, MAXIMUM_ROWS, MEDIA_SOURCE, TO,
};

/// What addresses of it begin with.
pub(super) const BEGINNING: &str = "/api/";

/// Those that are other than adtrail's own.
pub(super) fn of_query(name: &str) -> Option<Value> {
    Some(match name {
        TO => json!({
            "description": "The end of the range, which is in it: the day, the minute or the second. Not \
                before from.",
            "required": true,
            "schema": { "type": "string", "pattern": TIME.replace("[Tt]", "[Tt ]") },
            "example": "2026-03-10 08:00:30",
        }),
        MEDIA_SOURCE => list(
            "Only rows of these: channels of the app's campaigns, unknown, organic",
            "unknown,organic",
        ),
        EVENT_NAME => list(
            "Only events of these names; those of activations are install and reinstall",
            "install,purchase",
        ),
        ADDITIONAL_FIELDS => {
            additional_fields("More columns, in the order in which they are to come")
        }
        MAXIMUM_ROWS => json!({
            "description": "Rows at most; without it all",
            "schema": { "type": "integer", "minimum": 1, "maximum": u64::MAX },
            "example": 1000,
        }),
        CURRENCY => json!({
            "description": "Amounts are those that were sent, whichever is asked for",
            "schema": { "type": "string", "enum": names(&CURRENCIES) },
        }),
        _ => return None,
    })
}

/// A list that may be empty, which an array in an address can not be.
fn list(description: &str, example: &str) -> Value {
    let item = ITEM.trim_start_matches('^').trim_end_matches('$');
    json!({
        "description": format!(
            "{description}. Several have commas between, or repeat it; empty is as if it were not there."
        ),
        "schema": { "type": "string", "pattern": format!("^({item}(,{item})*)?$") },
        "example": example,
    })
}

/// What is wrong, as its clients read it.
pub(super) fn error() -> Value {
    let text = json!({ "type": "string", "description": "For people" });
    json!({
        "type": "object",
        "description": "What went wrong, as clients of AppsFlyer read it",
        "properties": {
            "error": text,
            "message": text,
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "type": { "type": "string", "description": "Stable; what a program looks at" },
        },
        "required": ["error", "message", "status", "type"],
        "additionalProperties": false,
    })
}
