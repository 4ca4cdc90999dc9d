//! Converts field values to the types of a fact. Each error names the expected values.

use attribution::facts::event::{self, EventTime, Pairs, Purpose, SpreadId};

use super::field_error::{FieldError, printable_name};
use super::time::{self, TIME_ALLOWED};
use super::value::Value;

const STRING: &str = "a string";
const MAP: &str = "an object whose values are strings";
const SPREADID: &str = "a whole number from 1 to 4294967295";
const MILLISECONDS: &str = "milliseconds as a whole number, not below 0";
/// Equals the maximum of Avro's `long`, so that JSON and Avro have the same limit.
const LOOKBACK_READ_MAX_MS: u64 = i64::MAX as u64;
const PURPOSE: &str = "\"ua\" or \"retargeting\"";

/// Returns a text; empty if absent.
pub fn text(value: Value<'_>, field: &'static str) -> Result<Box<str>, FieldError> {
    match value {
        Value::Absent => Ok(Box::default()),
        Value::Text(text) => Ok(text.into()),
        Value::Resolved(text) => Ok(text),
        other => Err(FieldError::wrong_type(field, &other, STRING)),
    }
}

/// Returns a text that must be present and not empty.
pub fn required_text(value: Value<'_>, field: &'static str) -> Result<Box<str>, FieldError> {
    let text = text(value, field)?;
    if text.is_empty() { Err(FieldError::missing(field, STRING)) } else { Ok(text) }
}

/// Returns the members of an object of texts, sorted.
pub fn pairs(value: Value<'_>, field: &'static str) -> Result<Pairs, FieldError> {
    let members = match value {
        absent if absent.is_absent() => return Ok(Pairs::new()),
        Value::Object(members) => members,
        other => return Err(FieldError::wrong_type(field, &other, MAP)),
    };
    if let Some((key, problem)) = members.other {
        let key = printable_name(&key);
        let error = FieldError::bad_value(&format!("{field}.{key}"), problem, STRING);
        return Err(error.with_code(super::ErrorCode::WrongType));
    }
    let mut pairs = members.texts;
    event::sort_pairs(&mut pairs);
    Ok(pairs)
}

pub fn required_time(value: &Value<'_>, field: &'static str) -> Result<EventTime, FieldError> {
    optional_time(value, field)?.ok_or_else(|| FieldError::missing(field, TIME_ALLOWED))
}

pub fn optional_time(
    value: &Value<'_>,
    field: &'static str,
) -> Result<Option<EventTime>, FieldError> {
    if value.is_absent() {
        return Ok(None);
    }
    time::read(value).map(Some).map_err(|(code, problem)| {
        FieldError::bad_value(field, problem, TIME_ALLOWED).with_code(code)
    })
}

pub fn spreadid(value: &Value<'_>) -> Result<SpreadId, FieldError> {
    match value {
        absent if absent.is_absent() => Err(FieldError::missing("spreadid", SPREADID)),
        Value::Unsigned(number) => u32::try_from(*number)
            .ok()
            .filter(|number| *number > 0)
            .map(SpreadId)
            .ok_or_else(|| FieldError::bad_value("spreadid", "out of range", SPREADID)),
        Value::Negative => Err(FieldError::bad_value("spreadid", "out of range", SPREADID)),
        other => Err(FieldError::wrong_type("spreadid", other, SPREADID)),
    }
}

pub fn lookback_ms(value: &Value<'_>) -> Result<Option<u64>, FieldError> {
    match value {
        absent if absent.is_absent() => Ok(None),
        // The limit exceeds every effective lookback and the retention of the store.
        Value::Unsigned(number) => Ok(Some((*number).min(LOOKBACK_READ_MAX_MS))),
        Value::Negative => Err(FieldError::bad_value("lookback_ms", "out of range", MILLISECONDS)),
        other => Err(FieldError::wrong_type("lookback_ms", other, MILLISECONDS)),
    }
}

pub fn purpose(value: &Value<'_>) -> Result<Purpose, FieldError> {
    match value.text() {
        _ if value.is_absent() => Ok(Purpose::Ua),
        Some("ua") => Ok(Purpose::Ua),
        Some("retargeting") => Ok(Purpose::Retargeting),
        Some(_) => Err(FieldError::bad_value("purpose", "unknown", PURPOSE)),
        None => Err(FieldError::wrong_type("purpose", value, PURPOSE)),
    }
}
