//! Errors of single fields, with their location in the record.
//!
//! Locations are found only for invalid records, by parsing them a second time.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::value::{Text, Value};
use super::{DecodeError, ErrorCode};

/// An invalid field.
#[derive(Debug)]
pub struct FieldError {
    pub code: ErrorCode,
    pub field: String,
    /// Completes "field is …": `out of range`, `a string`.
    pub problem: String,
    /// Completes "expected …".
    pub expected: &'static str,
}

impl FieldError {
    pub fn missing(field: &str, expected: &'static str) -> Self {
        let problem = "missing or empty".to_owned();
        Self { code: ErrorCode::MissingField, field: field.to_owned(), problem, expected }
    }

    pub fn wrong_type(field: &str, value: &Value<'_>, expected: &'static str) -> Self {
        let problem = value.description().to_owned();
        Self { code: ErrorCode::WrongType, field: field.to_owned(), problem, expected }
    }

    pub fn bad_value(field: &str, problem: &str, expected: &'static str) -> Self {
        let problem = problem.to_owned();
        Self { code: ErrorCode::BadValue, field: field.to_owned(), problem, expected }
    }

    pub fn too_large(field: &str, problem: &str, expected: &'static str) -> Self {
        Self::bad_value(field, problem, expected).with_code(ErrorCode::TooLarge)
    }

    pub fn with_code(self, code: ErrorCode) -> Self {
        Self { code, ..self }
    }

    /// Adds the location of the field in the JSON, if it is present.
    pub fn in_json(self, record: &[u8]) -> DecodeError {
        let location = location_text(byte_offset(record, &self.field));
        self.into_decode_error(&location)
    }

    /// Formats the message; `location` follows the name of the field.
    pub fn into_decode_error(self, location: &str) -> DecodeError {
        let Self { code, field, problem, expected } = self;
        let message = format!("{field}{location} is {problem}; expected {expected}");
        DecodeError { code, field: Some(field), message }
    }
}

fn location_text(byte_offset: Option<usize>) -> String {
    byte_offset.map(|byte| format!(" at byte {byte}")).unwrap_or_default()
}

/// Makes a name from a record safe for a message: escapes and truncates it, and replaces it if it may be a device id.
pub fn printable_name(name: &str) -> String {
    const CHARS_MAX: usize = 64;
    if is_like_an_id(name) {
        return "(not shown)".to_owned();
    }
    name.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect()
}

/// Checks whether a name may be a device id in the wrong field: it has many digits.
pub fn is_like_an_id(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let hex = name.bytes().filter(u8::is_ascii_hexdigit).count();
    digits >= 8 || (digits >= 1 && hex >= 12)
}

/// Returns the error for a record that begins like an object and that serde_json rejected.
pub fn json_error(record: &[u8], error: &serde_json::Error) -> DecodeError {
    if let Some((name, reason)) = invalid_member(record) {
        let (problem, field) = (format!("invalid ({reason})"), printable_name(&name));
        let field_error =
            FieldError { code: ErrorCode::BadValue, field, problem, expected: "valid JSON" };
        return field_error.into_decode_error(&location_text(byte_offset(record, &name)));
    }
    // Every value is accepted, so the only data error is a repeated field; all others are syntax errors.
    let message = error.to_string();
    let code = if error.is_data() { ErrorCode::BadValue } else { ErrorCode::NotJson };
    let field = message.split('`').nth(1).filter(|_| error.is_data()).map(str::to_owned);
    DecodeError { code, field, message }
}

/// Returns the name of the first member, in the order of names, that is JSON but cannot be represented, and the reason:
/// a lone surrogate, or a number beyond the range of floats.
fn invalid_member(record: &[u8]) -> Option<(String, String)> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(record).ok()?;
    members.into_iter().find_map(|(name, value)| {
        let error = serde_json::from_str::<Value<'_>>(value.get()).err()?.to_string();
        let reason = error.split(" at line ").next().unwrap_or_default().to_owned();
        Some((name, reason))
    })
}

/// Returns the offset of the first byte of the value of a field, or of a member such as `props.level`.
fn byte_offset(record: &[u8], field: &str) -> Option<usize> {
    let (field, member) = match field.split_once('.') {
        Some((field, member)) => (field, Some(member)),
        None => (field, None),
    };
    let found = find(record, field)?;
    let found = match member {
        Some(member) => find(found.as_bytes(), member).unwrap_or(found),
        None => found,
    };
    found.as_ptr().addr().checked_sub(record.as_ptr().addr())
}

fn find<'a>(object: &'a [u8], name: &str) -> Option<&'a str> {
    let members: BTreeMap<Text<'_>, &'a RawValue> = serde_json::from_slice(object).ok()?;
    members.into_iter().find(|(key, _)| key.0 == name).map(|(_, value)| value.get())
}

#[cfg(test)]
mod tests {
    use super::is_like_an_id;

    #[test]
    fn ids_are_distinguished_from_names() {
        for id in ["867530900000001", "4b4c7a14-1d2e-4a6c", "d41d8cd98f00b204e9800998ecf8427e"] {
            assert!(is_like_an_id(id), "{id}");
        }
        for name in ["level", "app-x", "com.example.app2", "imei_md5", "id1234567"] {
            assert!(!is_like_an_id(name), "{name}");
        }
    }
}
