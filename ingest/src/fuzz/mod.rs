//! What decodes what others send, for a fuzzer and for the inputs that are kept: see
//! `docs/fuzzing.md`. Each target takes any bytes, and panics where something does not hold.

mod avro;
mod events;
mod records;
mod schemas;

#[cfg(test)]
#[path = "../../../fuzz/kept.rs"]
mod kept;

use std::sync::LazyLock;

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};

use crate::decode::DecodeError;

/// By name, for any bytes.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("json", events::json),
    ("lines", events::lines),
    ("avro", avro::published),
    ("avro-schema", avro::any_schema),
    ("framing", records::framing),
    ("peek", records::peek),
    ("letter", records::letter),
    ("registry-answer", schemas::answer),
    ("references", schemas::references),
];

static POLICY: LazyLock<Policy> =
    LazyLock::new(|| Policy::new(vec![AppPolicy::new(Pid(1), "app-x")], vec![]));

/// Where one part ends and the next begins; in no text.
const BETWEEN: u8 = 0xff;

/// What a dead letter and a log say is one short line, and no device's id that was sent.
fn check_error(error: &DecodeError, sent: &[u8]) {
    /// 64 characters of a name, each escaped, and what is said of it.
    const BYTES_MAX: usize = 1_200;
    /// No number that is told has so many, and no id has fewer.
    const DIGITS_MIN: usize = 12;
    let DecodeError { message, field, .. } = error;
    assert!(!message.is_empty() && message.len() <= BYTES_MAX, "{message}");
    assert!(!message.contains(char::is_control), "{message:?}");
    for run in sent.split(|byte| !byte.is_ascii_alphanumeric()) {
        let digits = run.iter().filter(|byte| byte.is_ascii_digit()).count();
        let Some(id) = std::str::from_utf8(run).ok().filter(|_| digits >= DIGITS_MIN) else {
            continue;
        };
        let is_told =
            message.contains(id) || field.as_ref().is_some_and(|field| field.contains(id));
        assert!(!is_told, "{id} is told: {message}");
    }
}
