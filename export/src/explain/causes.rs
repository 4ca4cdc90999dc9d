//! The facts that caused a decision to change. Facts that arrived together are listed together, because it is not
//! known which of them was the cause.

use attribution::explain::explanation::{ChangeCause, Explanation};
use attribution::facts::event::Family;
use attribution::facts::printable::printable;
use serde_json::{Value, json};

use super::time;

/// Describes the causes in words.
pub fn describe(explanation: &Explanation) -> String {
    let Explanation { activation, changed_by, changed_by_more, .. } = explanation;
    let mut facts: Vec<String> = Vec::new();
    for one in changed_by {
        let is_itself = one.family == Family::Activation && one.id.as_ref() == Some(&activation.id);
        facts.push(fact(one, is_itself));
    }
    let facts = facts.join("; ");
    match (changed_by.as_slice(), changed_by_more) {
        ([], _) => "The cause is not known.".into(),
        ([_], false) => format!("Caused by {facts}."),
        (_, false) => format!("Caused by facts that arrived together: {facts}."),
        (_, true) => format!("Caused by facts that arrived together: {facts}; and more."),
    }
}

fn fact(cause: &ChangeCause, is_itself: bool) -> String {
    let mut text = if is_itself { "this activation" } else { name(cause) }.to_owned();
    match &cause.id {
        Some(id) if !is_itself => text += &format!(" {}", printable(id)),
        _ => {}
    }
    text += &format!(" of {}", time(cause.time));
    if cause.is_update {
        text += ", known before and now with an earlier time or other content";
    }
    if cause.id.is_none() {
        text += ", which is no longer kept";
    }
    text
}

fn name(ChangeCause { kind, family, .. }: &ChangeCause) -> &'static str {
    match (family, kind) {
        (Family::Touch, Some(kind)) => kind.name(),
        (Family::Touch, None) => "touch",
        (Family::Activation, _) => "activation",
        (Family::Effect, _) => "effect",
    }
}

pub fn json(cause: &ChangeCause) -> Value {
    let ChangeCause { id, time: at, is_update, .. } = cause;
    json!({ "type": name(cause), "id": id.as_deref(), "time": time(*at), "again": is_update })
}
