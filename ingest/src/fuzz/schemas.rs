//! Responses of a schema registry, and schemas with references.

use super::SEPARATOR;
use crate::decode::Schema;
use crate::registry::inline_references::inline;
use crate::registry::response::{Body, interpret};

/// Input: a status of two bytes, a byte for whether the body is whole, and the body.
pub fn response(input: &[u8]) {
    let [high, low, is_whole, body @ ..] = input else { return };
    let status = u16::from_be_bytes([*high, *low]);
    let body = Body { bytes: body.to_vec(), is_whole: *is_whole != 0 };
    match interpret(status, &body) {
        // The text may be anything; parsing it as a schema must terminate.
        Some(Ok(schema)) => drop(Schema::parse(&schema.text)),
        Some(Err(failure)) => {
            let reason = failure.reason;
            assert!(!reason.is_empty() && reason.len() < 400, "{reason}");
        }
        None => assert_eq!(status, 404),
    }
}

/// Input: a schema and the schemas that it refers to. Inlining must not change a self-contained schema, and inlining
/// twice must equal inlining once.
pub fn references(input: &[u8]) {
    let mut texts = input
        .split(|byte| *byte == SEPARATOR)
        .map(|text| String::from_utf8_lossy(text).into_owned());
    let root = texts.next().unwrap_or_default();
    let referenced: Vec<String> = texts.collect();
    let Ok(whole) = inline(&root, &referenced) else { return };
    let again = inline(&whole, &[]);
    assert!(again.is_ok(), "{again:?}");
    let canonical = |text: &str| {
        let schema = apache_avro::Schema::parse_str(text).ok()?;
        Some(schema.canonical_form())
    };
    for (before, after) in [(&root, &whole), (&whole, &again.unwrap_or_default())] {
        if let Some(expected) = canonical(before) {
            assert_eq!(canonical(after), Some(expected), "{after}");
        }
    }
}
