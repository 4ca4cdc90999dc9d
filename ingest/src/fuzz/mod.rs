//! Fuzz targets for the decoders of bytes from outside; see `docs/fuzzing.md`. Each target takes arbitrary bytes and
//! panics if a property is violated.

pub(crate) mod avro;
mod events;
mod records;
mod schemas;

#[cfg(test)]
#[path = "../../../fuzz/stored_inputs.rs"]
mod stored_inputs;

use std::sync::LazyLock;

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};

use crate::decode::DecodeError;

/// The name and function of a target.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("json", events::json),
    ("lines", events::lines),
    ("avro", avro::published),
    ("avro-schema", avro::any_schema),
    ("framing", records::framing),
    ("peek", records::peek),
    ("letter", records::letter),
    ("registry-answer", schemas::response),
    ("references", schemas::references),
];

/// Settings with a single app, `app-x`.
pub(crate) static POLICY: LazyLock<Policy> =
    LazyLock::new(|| Policy::new(vec![AppPolicy::new(Pid(1), "app-x")], vec![]));

/// Separates the parts of an input; does not occur in UTF-8.
const SEPARATOR: u8 = 0xff;

/// Checks that a message for logs and dead letters is one short line without a device id from the input.
fn check_error(error: &DecodeError, sent: &[u8]) {
    /// 64 escaped characters of a name, and the rest of the message.
    const BYTES_MAX: usize = 1_200;
    /// More digits than any number in a message has, and no more than a device id has.
    const DIGITS_MIN: usize = 12;
    let DecodeError { message, field, .. } = error;
    assert!(!message.is_empty() && message.len() <= BYTES_MAX, "{message}");
    assert!(!message.contains(char::is_control), "{message:?}");
    for run in sent.split(|byte| !byte.is_ascii_alphanumeric()) {
        let digits = run.iter().filter(|byte| byte.is_ascii_digit()).count();
        let Some(id) = std::str::from_utf8(run).ok().filter(|_| digits >= DIGITS_MIN) else {
            continue;
        };
        let is_contained =
            message.contains(id) || field.as_ref().is_some_and(|field| field.contains(id));
        assert!(!is_contained, "{id} is in the message: {message}");
    }
}
