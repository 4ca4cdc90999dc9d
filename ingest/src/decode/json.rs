//! Parses the JSON of an event into its fields, in one pass.

use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::event::{self, Event, Revenue};
use super::field_error::{FieldError, json_error};
use super::value::Value;
use super::{DecodeError, ErrorCode, decimal};
use crate::kafka::topics::TopicKind;

/// Decodes one event; see [`super::decode`].
pub fn decode(
    record: &[u8],
    topic: Option<TopicKind>,
    policy: &Policy,
) -> Result<Fact, DecodeError> {
    event::build(event(record)?, topic, policy).map_err(|error| error.in_json(record))
}

/// Parses the fields of an event, borrowed from the record.
pub fn event<'a>(record: &'a [u8]) -> Result<Event<'a, impl Revenue + use<'a>>, DecodeError> {
    if record.trim_ascii_start().first() != Some(&b'{') {
        return Err(not_an_object(record));
    }
    // Ignored fields must be UTF-8 too, so the whole record is checked.
    let text = std::str::from_utf8(record).map_err(|error| not_utf8(&error))?;
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

fn not_utf8(error: &std::str::Utf8Error) -> DecodeError {
    let message = format!("byte {} is not UTF-8; expected UTF-8 throughout", error.valid_up_to());
    DecodeError { code: ErrorCode::NotJson, field: None, message }
}

fn not_an_object(record: &[u8]) -> DecodeError {
    match serde_json::from_slice::<IgnoredAny>(record) {
        Ok(_) => DecodeError {
            code: ErrorCode::NotAnObject,
            field: None,
            message: "the event is JSON, but not an object".to_owned(),
        },
        Err(error) => {
            DecodeError { code: ErrorCode::NotJson, field: None, message: error.to_string() }
        }
    }
}
