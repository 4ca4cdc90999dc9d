//! Parses the JSON of an event into its fields, in one pass.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::event::{Event, Revenue};
use super::field_error::{FieldError, json_error};
use super::value::Value;
use super::{DecodeError, ErrorCode, decimal};

/// Parses the fields of an event, borrowed from the record.
pub fn event<'a>(record: &'a [u8]) -> Result<Event<'a, impl Revenue + use<'a>>, DecodeError> {
    if record.trim_ascii_start().first() != Some(&b'{') {
        return Err(not_an_object(record));
    }
    // Ignored fields must be UTF-8 too, so the whole record is checked.
    let text = std::str::from_utf8(record).map_err(|error| {
        let valid = error.valid_up_to();
        let message = format!("byte {valid} is not UTF-8; expected UTF-8 throughout");
        DecodeError::new(ErrorCode::NotJson, message)
    })?;
    let event: Event<'a, Option<&'a RawValue>> =
        serde_json::from_str(text).map_err(|error| json_error(record, &error))?;
    Ok(event)
}

/// The raw JSON, because the text of a number matters and not its value.
impl Revenue for Option<&RawValue> {
    fn decimal(self) -> Result<Box<str>, FieldError> {
        let Some(raw) = self.map(RawValue::get) else { return Ok(Box::default()) };
        let value: Value<'_> = serde_json::from_str(raw)
            .map_err(|_| FieldError::bad_value("revenue", "invalid", decimal::ALLOWED))?;
        match &value {
            Value::Absent => Ok(Box::default()),
            Value::Unsigned(_) | Value::Negative | Value::Float => decimal::checked(raw),
            other => match other.text() {
                Some(text) => decimal::checked(text),
                None => Err(FieldError::wrong_type("revenue", other, decimal::ALLOWED)),
            },
        }
    }
}

fn not_an_object(record: &[u8]) -> DecodeError {
    match serde_json::from_slice::<IgnoredAny>(record) {
        Ok(_) => DecodeError::new(ErrorCode::NotAnObject, "the event is JSON, but not an object"),
        Err(error) => DecodeError::new(ErrorCode::NotJson, error.to_string()),
    }
}
