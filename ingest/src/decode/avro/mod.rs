//! Avro → the fields of an event, as the schema has it that they were written with.
//!
//! A schema is made into a plan once: what to read one after the other, and which field of an event
//! that is. Then an event is read without a look at names.

mod primitives;
mod read;
mod reader_schema;

use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;

use self::read::{Amount, Reader};
use super::event::{self, Event, Revenue};
use super::field_error::FieldError;
use super::{DecodeError, ErrorCode, decimal};
use crate::kafka::topics::TopicKind;
pub use reader_schema::Schema;
use reader_schema::Target;

/// Decodes one event; see [`super::decode_avro`].
pub fn decode(
    datum: &[u8],
    schema: &Schema,
    topic: Option<TopicKind>,
    policy: &Policy,
) -> Result<Fact, DecodeError> {
    event::build(event(datum, schema)?, topic, policy).map_err(|fault| fault.told(""))
}

/// The fields of an event, borrowed.
pub fn event<'a>(
    datum: &'a [u8],
    schema: &Schema,
) -> Result<Event<'a, impl Revenue + use<'a>>, DecodeError> {
    let mut event: Event<'a, Amount<'a>> = Event::default();
    let mut reader = Reader::new(schema, datum);
    let record = reader.record().map_err(|problem| {
        not_avro(None, format!("no Avro of its schema: {problem} {}", reader.place()))
    })?;
    for field in record {
        let read = match field.meaning {
            Target::Nothing => reader.skip(field.kind),
            Target::Revenue => reader.amount(field.kind).map(|amount| event.revenue = amount),
            Target::Field(place) => reader.field(field).map(|value| event.set(place, value)),
        };
        if let Err(problem) = read {
            let (name, place) = (&field.name, reader.place());
            let message = format!("{name} is no Avro of its schema: {problem} {place}");
            return Err(not_avro(Some(name.to_string()), message));
        }
    }
    if !reader.is_at_end() {
        return Err(not_avro(None, format!("more follows the record {}", reader.place())));
    }
    Ok(event)
}

fn not_avro(field: Option<String>, message: String) -> DecodeError {
    DecodeError { code: ErrorCode::NotAvro, field, message }
}

impl Revenue for Amount<'_> {
    fn decimal(self) -> Result<Box<str>, FieldError> {
        match self {
            Self::Text(text) => decimal::checked(&text),
            Self::Other(value) => Err(FieldError::wrong_type("revenue", &value, decimal::ALLOWED)),
        }
    }
}
