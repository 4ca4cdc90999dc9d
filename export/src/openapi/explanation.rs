//! The form of an explanation.

use attribution::explain::explanation::LISTED_MAX;
use attribution::ledger::record::CAUSES_MAX;
use attribution::rules::row::{MatchType, RejectReason};
use serde_json::{Value, json};

use super::types::{install_type, instant, object, or_null, spreadid, status, text, touch_type};
use crate::explain::{origin_names, reason_names, verdict_names};

pub(super) fn explanation() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let member = || or_null(object(json!({ "event_id": text(), "event_time": instant() })));
    let came_in = json!({ "type": "array", "items": came_in(), "maxItems": CAUSES_MAX });
    let touches = json!({
        "type": "array", "items": touch(), "maxItems": LISTED_MAX, "description": "Best first",
    });
    let told = |description: &str, mut schema: Value| {
        schema["description"] = description.into();
        schema
    };
    object(json!({
        "app": text(),
        "event_id": text(),
        "event_time": instant(),
        "decision": decision(),
        "decision_with_these_settings": told(
            "Another than the decision, which was made with other settings",
            or_null(decision()),
        ),
        "previous_decision": told("As it was before, on fewer facts", or_null(decision())),
        "changed_by": told("What came in when that one changed, the likeliest first", came_in),
        "changed_by_more": { "type": "boolean", "description": "Whether more came in then" },
        "revision": told("How often it was decided", count.clone()),
        "last_install": told("The device's last install before it", member()),
        "last_not_duplicate": told("Its last activation before it that is no duplicate", member()),
        "touches": touches,
        "touches_unlisted": told("Of those that were counted", count),
        "has_uncounted_touches": {
            "type": "boolean", "description": "Whether there may be more that were not counted",
        },
        "has_unread_runner_up": {
            "type": "boolean", "description": "Whether one that was not read may have come second",
        },
        "touches_expired_before": told(
            "Touches before this that it could have been credited to are no longer kept",
            or_null(instant()),
        ),
        "settings_version": { "type": "string", "pattern": "^[0-9a-f]{16}$" },
    }))
}

/// With the values of columns of the export.
fn decision() -> Value {
    object(json!({
        "status": status(),
        "install_type": install_type(),
        "spreadid": spreadid(),
        "campaign": text(),
        "channel": text(),
        "match_type": or_null(match_type()),
        "touch_type": or_null(touch_type()),
        "touch_time": or_null(instant()),
        "click_id": or_null(text()),
        "reject_reason": or_null(
            json!({ "type": "string", "enum": RejectReason::ALL.map(RejectReason::name) }),
        ),
    }))
}

fn came_in() -> Value {
    let types = ["click", "impression", "touch", "activation"];
    object(json!({
        "type": { "type": "string", "enum": types },
        "id": or_null(json!({ "type": "string", "description": "null if it is no longer kept" })),
        "time": instant(),
        "again": {
            "type": "boolean",
            "description": "Whether it was known, and came with an earlier time or other content",
        },
    }))
}

fn touch() -> Value {
    object(json!({
        "verdict": { "type": "string", "enum": verdict_names() },
        "reason": or_null(json!({ "type": "string", "enum": reason_names() })),
        "touch_type": touch_type(),
        "click_id": text(),
        "touch_time": instant(),
        "age_ms": { "type": "integer", "description": "Negative if it came after the activation" },
        "spreadid": spreadid(),
        "channel": text(),
        "match_type": or_null(match_type()),
        "tier": or_null(json!({ "type": "integer", "enum": [1, 2, 3, 4] })),
        "window_ms": or_null(json!({ "type": "integer", "minimum": 0 })),
        "window_from": or_null(json!({ "type": "string", "enum": origin_names() })),
    }))
}

fn match_type() -> Value {
    json!({ "type": "string", "enum": MatchType::ALL.map(MatchType::name) })
}
