//! Decodes Avro into the fields of an event, by its writer's schema.
//!
//! A schema is compiled once into a sequence of types to read, each with the field of an event that it fills. So
//! reading an event needs no lookup of names.

mod primitives;
mod read;
mod reader_schema;
#[cfg(test)]
mod tests;

use self::read::{Amount, Reader};
use super::event::{Event, Revenue};
use super::field_error::FieldError;
use super::{DecodeError, ErrorCode, decimal};
pub use reader_schema::Schema;
use reader_schema::Target;

/// Decodes the fields of an event, borrowed from the datum.
pub fn event<'a>(
    datum: &'a [u8],
    schema: &'a Schema,
) -> Result<Event<'a, impl Revenue + use<'a>>, DecodeError> {
    let mut event: Event<'a, Amount<'a>> = Event::default();
    let mut reader = Reader::new(schema, datum);
    let record = reader.record().map_err(|problem| {
        not_avro(None, format!("not valid Avro for its schema: {problem} {}", reader.position()))
    })?;
    for field in record {
        let read = match field.target {
            Target::Nothing => reader.skip(field.kind),
            Target::Revenue => reader.amount(field.kind).map(|amount| event.revenue = amount),
            Target::Field(index) => reader.field(field).map(|value| event.set(index, value)),
        };
        if let Err(problem) = read {
            let (name, position) = (&field.name, reader.position());
            let message = format!("{name} is not valid Avro for its schema: {problem} {position}");
            return Err(not_avro(Some(name.to_string()), message));
        }
    }
    if !reader.is_at_end() {
        return Err(not_avro(
            None,
            format!("further bytes follow the record {}", reader.position()),
        ));
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
