//! Avro events, and the framing that refers to their schemas.

use apache_avro::types::Value as Datum;
use apache_avro::writer::datum::GenericDatumWriter;
use serde_json::Value;

use super::kafka::Message;
use super::registry::Registered;

pub const ACTIVATION: &str = include_str!("../../schemas/avro/activation.avsc");
pub const CLICK: &str = include_str!("../../schemas/avro/click.avsc");

pub fn schema(text: &str) -> Value {
    serde_json::from_str(text).expect("valid JSON")
}

/// Encodes an event with a schema. Missing fields are null or empty.
pub fn avro(schema: &Value, event: &Value) -> Vec<u8> {
    let fields = schema["fields"].as_array().expect("fields are a list").iter().map(|field| {
        let name = field["name"].as_str().expect("the name is a string");
        let text =
            |value: &Value| Datum::String(value.as_str().expect("it is a string").to_owned());
        let datum = match (&field["type"], &event[name]) {
            (Value::Array(_), Value::Null) => Datum::Union(0, Box::new(Datum::Null)),
            (Value::Array(_), value) => Datum::Union(1, Box::new(text(value))),
            (kind, Value::Object(members)) if kind["type"] == "map" => {
                Datum::Map(members.iter().map(|(key, value)| (key.clone(), text(value))).collect())
            }
            (kind, Value::Null) if kind["type"] == "map" => Datum::Map([].into()),
            (kind, Value::Number(number)) if kind.is_object() => {
                Datum::TimestampMillis(number.as_i64().expect("the number is an integer"))
            }
            (_, Value::Number(number)) => {
                Datum::Long(number.as_i64().expect("the number is an integer"))
            }
            (_, Value::Null) => text(&field["default"]),
            (_, value) => text(value),
        };
        (name.to_owned(), datum)
    });
    let datum = Datum::Record(fields.collect());
    let schema = apache_avro::Schema::parse(schema).expect("the schema is valid");
    let writer = GenericDatumWriter::builder(&schema).build().expect("the writer is built");
    writer.write_value_to_vec(datum).expect("the record fits the schema")
}

pub fn message(value: Vec<u8>) -> Message {
    Message::new("app-x", value)
}

/// Frames a value with a schema id, the default of Confluent's serializers.
pub fn by_id(registered: &Registered, datum: &[u8]) -> Message {
    message([&[0][..], &registered.id.to_be_bytes(), datum].concat())
}

/// Puts the schema GUID into a header, as Confluent's serializers can be configured to do.
pub fn by_header(registered: &Registered, datum: &[u8]) -> Message {
    let header = [&[1][..], &registered.guid].concat();
    let headers = vec![("__value_schema_id".to_owned(), header)];
    Message { headers, ..message(datum.to_vec()) }
}

/// Frames a value with a schema GUID.
pub fn by_guid(registered: &Registered, datum: &[u8]) -> Message {
    message([&[1][..], &registered.guid, datum].concat())
}
