//! Decodes events, as producers send them, into facts.

pub mod avro;
mod decimal;
mod error;
pub(crate) mod event;
mod field;
mod field_error;
pub mod framing;
pub mod json;
mod limits;
mod time;
mod value;

pub(crate) mod decoder;
pub mod lateness;
#[cfg(test)]
mod published_schemas;
#[cfg(test)]
mod tests;

pub use attribution::facts::addresses::parse_address;
use attribution::facts::event::Fact;
pub use attribution::facts::placeholders::{ignored_click_id, without_macro};
use attribution::rules::policy::Policy;

pub use self::avro::Schema;
pub use self::error::{DecodeError, ErrorCode};
use crate::kafka::topics::TopicKind;
use event::{Built, EVENT_BYTES_MAX};

/// Decodes one JSON event and computes its identity. Callers check the configured length first.
/// `topic` determines which types are allowed, and the default if
/// `type` is absent. In a file of mixed events it is `None`, and every event must have a `type`.
pub fn decode(
    value: &[u8],
    topic: Option<TopicKind>,
    policy: &Policy,
) -> Result<Fact, DecodeError> {
    build(value, topic, policy).map(|built| built.fact)
}

/// Like [`decode`], for an event in Avro with its writer's schema.
pub fn decode_avro(
    datum: &[u8],
    schema: &Schema,
    topic: Option<TopicKind>,
    policy: &Policy,
) -> Result<Fact, DecodeError> {
    build_avro(datum, schema, topic, policy).map(|built| built.fact)
}

fn build(value: &[u8], topic: Option<TopicKind>, policy: &Policy) -> Result<Built, DecodeError> {
    check_length(value, EVENT_BYTES_MAX)?;
    event::build(json::event(value)?, topic, policy).map_err(|error| error.in_json(value))
}

fn build_avro(
    datum: &[u8],
    schema: &Schema,
    topic: Option<TopicKind>,
    policy: &Policy,
) -> Result<Built, DecodeError> {
    check_length(datum, EVENT_BYTES_MAX)?;
    event::build(avro::event(datum, schema)?, topic, policy)
        .map_err(|error| error.into_decode_error(""))
}

/// Checks the length of an event. The limit is that of the settings, or [`EVENT_BYTES_MAX`].
pub(crate) fn check_length(value: &[u8], bytes_max: usize) -> Result<(), DecodeError> {
    if value.len() <= bytes_max {
        return Ok(());
    }
    let message = format!(
        "the event is too large; expected at most {bytes_max} bytes (ingest.event_bytes_max)"
    );
    Err(DecodeError::new(ErrorCode::TooLarge, message))
}
