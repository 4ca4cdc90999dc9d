//! What is wrong with a record's field, and where in the record that stands.
//!
//! Places are looked up only once something is wrong: by reading the record a second time.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::value::{Text, Value};
use super::{DecodeError, ErrorCode};

/// A field that is not as it should be.
#[derive(Debug)]
pub struct FieldError {
    pub code: ErrorCode,
    pub field: String,
    /// What the field is: `out of range`, `a string`.
    pub what: String,
    /// What it should be.
    pub expected: &'static str,
}

impl FieldError {
    pub fn missing(field: &str, expected: &'static str) -> Self {
        let what = "missing or empty".to_owned();
        Self { code: ErrorCode::MissingField, field: field.to_owned(), what, expected }
    }

    pub fn wrong_type(field: &str, value: &Value<'_>, expected: &'static str) -> Self {
        let what = value.described().to_owned();
        Self { code: ErrorCode::WrongType, field: field.to_owned(), what, expected }
    }

    pub fn bad_value(field: &str, what: &str, expected: &'static str) -> Self {
        let what = what.to_owned();
        Self { code: ErrorCode::BadValue, field: field.to_owned(), what, expected }
    }

    /// With the field's place in the JSON, if the field is there.
    pub fn placed(self, record: &[u8]) -> DecodeError {
        let place = place(record, &self.field);
        self.told(&told_place(place))
    }

    /// `place` follows the field's name.
    pub fn told(self, place: &str) -> DecodeError {
        let Self { code, field, what, expected } = self;
        let message = format!("{field}{place} is {what}; expected {expected}");
        DecodeError { code, field: Some(field), message }
    }
}

fn told_place(place: Option<usize>) -> String {
    place.map(|byte| format!(" at byte {byte}")).unwrap_or_default()
}

/// A name of somebody else's, as it may stand in a message: in one line, not too long, and none that
/// may be a device's id.
pub fn shown_name(name: &str) -> String {
    const CHARS_MAX: usize = 64;
    if is_like_an_id(name) {
        return "(not shown)".to_owned();
    }
    name.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect()
}

/// Whether a name may be a device's id that stands where none belongs: it has many digits.
pub fn is_like_an_id(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let hex = name.bytes().filter(u8::is_ascii_hexdigit).count();
    digits >= 8 || (digits >= 1 && hex >= 12)
}

/// The error for a record that serde_json refused although it begins as an object.
pub fn unreadable(record: &[u8], error: &serde_json::Error) -> DecodeError {
    if let Some((name, reason)) = unreadable_member(record) {
        let (what, field) = (format!("unreadable ({reason})"), shown_name(&name));
        let fault =
            FieldError { code: ErrorCode::BadValue, field, what, expected: "readable JSON" };
        return fault.told(&told_place(place(record, &name)));
    }
    // With every value accepted, a repeated field is the one thing left that is no syntax error.
    let message = error.to_string();
    let code = if error.is_data() { ErrorCode::BadValue } else { ErrorCode::NotJson };
    let field = message.split('`').nth(1).filter(|_| error.is_data()).map(str::to_owned);
    DecodeError { code, field, message }
}

/// The first member, by name, that is JSON but no text or number that can be held: a lone
/// surrogate, a number beyond all floats.
fn unreadable_member(record: &[u8]) -> Option<(String, String)> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(record).ok()?;
    members.into_iter().find_map(|(name, value)| {
        let error = serde_json::from_str::<Value<'_>>(value.get()).err()?.to_string();
        let reason = error.split(" at line ").next().unwrap_or_default().to_owned();
        Some((name, reason))
    })
}

/// The byte at which the value of a field, or of a member such as `props.level`, begins.
fn place(record: &[u8], field: &str) -> Option<usize> {
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
    fn ids_are_told_from_names() {
        for id in ["867530900000001", "4b4c7a14-1d2e-4a6c", "d41d8cd98f00b204e9800998ecf8427e"] {
            assert!(is_like_an_id(id), "{id}");
        }
        for name in ["level", "app-x", "com.example.app2", "imei_md5", "id1234567"] {
            assert!(!is_like_an_id(name), "{name}");
        }
    }
}
