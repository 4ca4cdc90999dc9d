//! Events in Avro, against the library that reads schemas for us.

use std::sync::LazyLock;

use apache_avro::reader::datum::GenericDatumReader;
use attribution::facts::event::Fact;
use serde_json::Value as Json;

use super::{BETWEEN, POLICY, check_error};
use crate::decode::event::EVENT_BYTES_MAX;
use crate::decode::{self, DecodeError, ErrorCode, Schema};
use crate::kafka::topics::TopicKind;

const TEXTS: [&str; 3] = [
    include_str!("../../../schemas/avro/click.avsc"),
    include_str!("../../../schemas/avro/activation.avsc"),
    include_str!("../../../schemas/avro/effect.avsc"),
];

type Both = (Schema, apache_avro::Schema);

static SCHEMAS: LazyLock<Vec<Both>> = LazyLock::new(|| {
    let both = TEXTS
        .iter()
        .map(|text| Some((Schema::parse(text).ok()?, apache_avro::Schema::parse_str(text).ok()?)));
    both.collect::<Option<_>>().unwrap_or_default()
});

/// The first byte chooses one of the published schemas. What we read, the library reads to its end,
/// and what it reads is in JSON the same event.
pub fn published(input: &[u8]) {
    let Some((choice, datum)) = input.split_first() else { return };
    let place = usize::from(*choice) % TEXTS.len();
    let (ours, theirs) = &SCHEMAS[place];
    let found = decode::decode_avro(datum, ours, TopicKind::ALL.get(place).copied(), &POLICY);
    if let Err(error) = &found {
        check_error(error, datum);
        if error.code == ErrorCode::NotAvro {
            return;
        }
    }
    let mut rest = datum;
    let value =
        GenericDatumReader::builder(theirs).build().and_then(|reader| reader.read_value(&mut rest));
    assert!(rest.is_empty(), "{} bytes more", rest.len());
    let json = value.and_then(Json::try_from).map(|json| json.to_string());
    assert!(json.is_ok(), "they can not read it: {json:?}");
    let json = json.unwrap_or_default();
    if json.len() <= EVENT_BYTES_MAX {
        let expected = decode::decode(json.as_bytes(), TopicKind::ALL.get(place).copied(), &POLICY);
        assert_eq!(outline(found), outline(expected), "{json}");
    }
}

/// Without the message, which names what stands there in the words of the format.
fn outline(decoded: Result<Fact, DecodeError>) -> Result<Fact, (ErrorCode, Option<String>)> {
    decoded.map_err(|error| (error.code, error.field))
}

/// A schema, and what may be written with it. Reading ends, in little memory.
pub fn any_schema(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == BETWEEN);
    let text = parts.next().unwrap_or_default();
    let datum = parts.next().unwrap_or_default();
    let Some(schema) = std::str::from_utf8(text).ok().and_then(|text| Schema::parse(text).ok())
    else {
        return;
    };
    let found = decode::decode_avro(datum, &schema, None, &POLICY);
    assert_eq!(found, decode::decode_avro(datum, &schema, None, &POLICY));
}
