//! Events in Avro, compared with `apache-avro`.

use std::sync::LazyLock;

use apache_avro::reader::datum::GenericDatumReader;
use attribution::facts::event::Fact;
use serde_json::Value as Json;

use super::{POLICY, SEPARATOR, check_error};
use crate::decode::event::EVENT_BYTES_MAX;
use crate::decode::{self, DecodeError, ErrorCode, Schema};
use crate::kafka::topics::TopicKind;

/// The published schemas, in the order of [`TopicKind`].
pub const TEXTS: [&str; 3] = [
    include_str!("../../../schemas/avro/click.avsc"),
    include_str!("../../../schemas/avro/activation.avsc"),
    include_str!("../../../schemas/avro/effect.avsc"),
];

type SchemaPair = (Schema, apache_avro::Schema);

static SCHEMAS: LazyLock<Vec<SchemaPair>> = LazyLock::new(|| {
    let pairs = TEXTS
        .iter()
        .map(|text| Some((Schema::parse(text).ok()?, apache_avro::Schema::parse_str(text).ok()?)));
    pairs.collect::<Option<_>>().unwrap_or_default()
});

/// Input: a byte that selects a published schema, and a datum. If our decoder accepts the datum, `apache-avro` must
/// read all of it, and its value as JSON must decode to the same event.
pub fn published(input: &[u8]) {
    let Some((choice, datum)) = input.split_first() else { return };
    let index = usize::from(*choice) % TEXTS.len();
    let (ours, theirs) = &SCHEMAS[index];
    let found = decode::decode_avro(datum, ours, TopicKind::ALL.get(index).copied(), &POLICY);
    if let Err(error) = &found {
        check_error(error, datum);
        // `apache-avro` keeps one value of a kind of id that is present twice.
        let is_id_repeated = error.field.as_ref().is_some_and(|field| field.starts_with("ids."));
        if error.code == ErrorCode::NotAvro || is_id_repeated {
            return;
        }
    }
    let mut rest = datum;
    let value =
        GenericDatumReader::builder(theirs).build().and_then(|reader| reader.read_value(&mut rest));
    assert!(rest.is_empty(), "{} bytes remain", rest.len());
    let json = value.and_then(Json::try_from).map(|json| json.to_string());
    assert!(json.is_ok(), "apache-avro cannot read it: {json:?}");
    let json = json.unwrap_or_default();
    if json.len() <= EVENT_BYTES_MAX {
        let expected = decode::decode(json.as_bytes(), TopicKind::ALL.get(index).copied(), &POLICY);
        assert_eq!(outline(found), outline(expected), "{json}");
    }
}

/// Removes the message, which describes values in terms of the format.
pub fn outline(decoded: Result<Fact, DecodeError>) -> Result<Fact, (ErrorCode, Option<String>)> {
    decoded.map_err(|error| (error.code, error.field))
}

/// Input: a schema and a datum. Decoding must terminate with bounded memory, and give the same result twice.
pub fn any_schema(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == SEPARATOR);
    let text = parts.next().unwrap_or_default();
    let datum = parts.next().unwrap_or_default();
    let Some(schema) = std::str::from_utf8(text).ok().and_then(|text| Schema::parse(text).ok())
    else {
        return;
    };
    let found = decode::decode_avro(datum, &schema, None, &POLICY);
    assert_eq!(found, decode::decode_avro(datum, &schema, None, &POLICY));
}
