//! Formats one record as one line of JSON.

use attribution::facts::event::Fact;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rdkafka::message::Header;
use serde::{Serialize, Serializer};

use super::event::{self, Event};
use crate::dead_letters::letter::header;
use crate::dead_letters::producer::SUFFIX;
use crate::decode::decoder::{self, Decoder};
use crate::decode::{DecodeError, ErrorCode, framing};
use crate::kafka::headers::Unreadable;
use crate::kafka::topics::{TopicKind, TopicNames};

/// Maximum length of a key or invalid value that is printed whole, unless the output is raw; and of the headers of a
/// dead letter.
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// The parts of a record that are printed.
pub struct Record<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    pub broker_ms: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Result<Vec<Header<'a, &'a [u8]>>, Unreadable>,
}

/// How records are decoded and printed.
pub struct View {
    pub decoder: Decoder,
    pub names: TopicNames,
    pub raw: bool,
}

/// Returns the line, including the line end.
pub fn line(record: &Record<'_>, view: &mut View) -> String {
    let decoded = if view.raw { None } else { Some(decode(record, view)) };
    let mut line = Line {
        partition: record.partition,
        offset: record.offset,
        time: record.broker_ms.and_then(event::utc),
        key: record.key.map(|key| shown(key, view.raw)),
        schema: None,
        event: None,
        error: None,
        value: None,
        headers: None,
        dead_letter: dead_letter(record),
    };
    match &decoded {
        None => {
            line.value = Some(record.value.map(|value| shown(value, view.raw)));
            line.headers = Some(headers(record));
        }
        Some(Decoded { schema, fact, error }) => {
            line.schema = Some(schema.as_deref());
            line.event = Some(fact.as_ref().map(|fact| Event::new(fact, &view.decoder.policy)));
            line.error = error.as_ref().map(Problem::from);
            line.value = error.as_ref().map(|_| record.value.map(|value| shown(value, view.raw)));
        }
    }
    // Serialization fails only for maps with keys that are not strings; there are none.
    let mut text = serde_json::to_string(&line).unwrap_or_default();
    text.push('\n');
    text
}

/// The result of decoding a record's value.
struct Decoded {
    /// The format, and the schema if the value names one; `None` if unknown.
    schema: Option<String>,
    fact: Option<Fact>,
    /// The error for which the service would produce a dead letter.
    error: Option<DecodeError>,
}

/// Decodes the value as the service would.
fn decode(record: &Record<'_>, view: &mut View) -> Decoded {
    // The service counts empty records and skips them: neither an event nor an error.
    let Some(value) = record.value.filter(|value| !value.is_empty()) else {
        return Decoded { schema: None, fact: None, error: None };
    };
    let header = last_header(record, framing::HEADER);
    let topic = kind(record, &view.names);
    let (fact, error) = match view.decoder.decode(value, header, topic) {
        decoder::Decoded::Fact(built) => {
            let error = lateness_error(record, &built.fact, view);
            (Some(built.fact), error)
        }
        decoder::Decoded::Bad(error) => (None, Some(error)),
        decoder::Decoded::AwaitingSchema(_) => {
            let message = "the schema registry does not answer";
            (None, Some(DecodeError::new(ErrorCode::UnknownSchema, message)))
        }
    };
    let schema = view.decoder.format_name(value, header, topic);
    Decoded { schema, fact, error }
}

/// Returns the topic by which to decode the value: for a dead letter, its original topic.
fn kind(record: &Record<'_>, names: &TopicNames) -> Option<TopicKind> {
    let source = header_text(record, header::TOPIC).and_then(|topic| names.kind(&topic));
    let by_name = || names.kind(record.topic.strip_suffix(SUFFIX)?);
    names.kind(record.topic).or(source).or_else(by_name)
}

/// Returns the error if the event is too late or too early. Dead letters are not checked, because their broker
/// timestamp is not that of the original record.
fn lateness_error(record: &Record<'_>, fact: &Fact, view: &View) -> Option<DecodeError> {
    view.names.kind(record.topic)?;
    view.decoder.check_lateness(fact, record.broker_ms).err()
}

#[derive(Serialize)]
struct Line<'a> {
    partition: i32,
    offset: i64,
    time: Option<String>,
    key: Option<Bytes<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Option<Event<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Problem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Option<Bytes<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<HeaderJson<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<DeadLetterJson>,
}

#[derive(Serialize)]
struct Problem<'a> {
    code: &'static str,
    field: Option<&'a str>,
    message: &'a str,
}

impl<'a> From<&'a DecodeError> for Problem<'a> {
    fn from(error: &'a DecodeError) -> Self {
        let DecodeError { code, field, message } = error;
        Self { code: code.name(), field: field.as_deref(), message }
    }
}

#[derive(Serialize)]
struct HeaderJson<'a> {
    name: &'a str,
    value: Option<Bytes<'a>>,
}

/// Returns the headers; none if the name of any is not UTF-8.
fn headers<'a>(record: &Record<'a>) -> Vec<HeaderJson<'a>> {
    let headers = record.headers.as_deref().unwrap_or_default();
    let json = |header: &Header<'a, &'a [u8]>| HeaderJson {
        name: header.key,
        value: header.value.map(Bytes::Whole),
    };
    headers.iter().map(json).collect()
}

/// The headers that adtrail added to a dead letter.
#[derive(Serialize)]
struct DeadLetterJson {
    code: String,
    topic: Option<String>,
    partition: Option<String>,
    offset: Option<String>,
    message: Option<String>,
    /// Length and SHA-256 of the original value, if the letter lacks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_length: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_sha256: Option<String>,
}

fn dead_letter(record: &Record<'_>) -> Option<DeadLetterJson> {
    let omitted = |name: &str| record.value.is_none().then(|| header_text(record, name)).flatten();
    Some(DeadLetterJson {
        code: header_text(record, header::CODE)?,
        topic: header_text(record, header::TOPIC),
        partition: header_text(record, header::PARTITION),
        offset: header_text(record, header::OFFSET),
        message: header_text(record, header::MESSAGE),
        value_length: omitted(header::VALUE_LENGTH),
        value_sha256: omitted(header::VALUE_SHA256),
    })
}

fn header_text(record: &Record<'_>, name: &str) -> Option<String> {
    let value = last_header(record, name)?;
    let value = value.get(..SHOWN_BYTES_MAX).unwrap_or(value);
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Returns the value of the last header with this name.
fn last_header<'a>(record: &Record<'a>, name: &str) -> Option<&'a [u8]> {
    let headers = record.headers.as_deref().unwrap_or_default();
    headers.iter().rfind(|header| header.key == name)?.value
}

/// Serializes as a string, or as `{"base64":"…"}` if the bytes are not UTF-8.
enum Bytes<'a> {
    Whole(&'a [u8]),
    /// The beginning of a longer text, serialized as `{"length":…,"begin":…}`.
    Beginning {
        length: usize,
        begin: &'a [u8],
    },
}

/// Returns the bytes to print: all if `raw`, and otherwise at most [`SHOWN_BYTES_MAX`].
fn shown(bytes: &[u8], raw: bool) -> Bytes<'_> {
    match bytes.get(..SHOWN_BYTES_MAX) {
        Some(begin) if !raw && begin.len() < bytes.len() => {
            // Does not end within a character.
            let begin = match std::str::from_utf8(begin) {
                Err(error) if error.error_len().is_none() => {
                    begin.get(..error.valid_up_to()).unwrap_or(begin)
                }
                _ => begin,
            };
            Bytes::Beginning { length: bytes.len(), begin }
        }
        _ => Bytes::Whole(bytes),
    }
}

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Encoded {
            base64: String,
        }
        #[derive(Serialize)]
        struct Cut<'a> {
            length: usize,
            begin: Bytes<'a>,
        }
        match *self {
            Self::Whole(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => out.serialize_str(text),
                Err(_) => Encoded { base64: STANDARD.encode(bytes) }.serialize(out),
            },
            Self::Beginning { length, begin } => {
                Cut { length, begin: Bytes::Whole(begin) }.serialize(out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Timing;

    fn printed(record: &Record<'_>, raw: bool) -> String {
        let config =
            config::parse("[[apps]]\npid = 1\nkey = \"app-x\"\n").expect("the settings are valid");
        let decoder = Decoder::new(&config, std::time::Duration::ZERO, Timing::default())
            .expect("the decoder is created");
        line(record, &mut View { decoder, names: TopicNames::new(&config.kafka.topics), raw })
    }

    #[track_caller]
    fn check(record: &Record<'_>, raw: bool, expected: &str) {
        assert_eq!(printed(record, raw), format!("{expected}\n"));
    }

    fn record<'a>(topic: &'a str, value: &'a [u8]) -> Record<'a> {
        Record {
            topic,
            partition: 3,
            offset: 7,
            broker_ms: Some(1_741_608_000_000),
            key: Some(b"app-x"),
            value: Some(value),
            headers: Ok(vec![]),
        }
    }

    const START: &str =
        r#"{"partition":3,"offset":7,"time":"2025-03-10T12:00:00.000Z","key":"app-x""#;
    const EFFECT: &[u8] = br#"{"app":"app-x","name":"n","time":1741608000000,"event_id":"e"}"#;
    const SHOWN: &str = r#""event":{"type":"effect","app":"app-x","event_id":"e","name":"n","time":"2025-03-10T12:00:00.000Z"}"#;

    #[test]
    fn events_and_empty_records_are_printed() {
        let topic = "adtrail.effects";
        check(&record(topic, EFFECT), false, &format!(r#"{START},"schema":"json",{SHOWN}}}"#));
        check(&record(topic, b""), false, &format!(r#"{START},"schema":null,"event":null}}"#));
        let empty = Record { value: None, key: None, broker_ms: None, ..record(topic, b"") };
        check(
            &empty,
            false,
            r#"{"partition":3,"offset":7,"time":null,"key":null,"schema":null,"event":null}"#,
        );
    }

    #[test]
    fn invalid_records_are_printed_with_the_error() {
        check(
            &record("adtrail.effects", b"\xff\x00"),
            false,
            &format!(
                r#"{START},"schema":null,"event":null,"error":{{"code":"not_json","field":null,"message":"expected value at line 1 column 1"}},"value":{{"base64":"/wA="}}}}"#
            ),
        );
        check(
            &record("other", EFFECT),
            false,
            &format!(
                r#"{START},"schema":"json","event":null,"error":{{"code":"missing_field","field":"type","message":"type is missing or empty; expected \"click\", \"impression\", \"activation\" or \"effect\""}},"value":{}}}"#,
                serde_json::to_string(
                    std::str::from_utf8(EFFECT).expect("the text is valid UTF-8")
                )
                .expect("the JSON is valid")
            ),
        );
        let late =
            Record { broker_ms: Some(1_841_608_000_000), ..record("adtrail.effects", EFFECT) };
        let shown = printed(&late, false);
        assert!(shown.contains(SHOWN) && shown.contains(r#""code":"too_late""#), "{shown}");
    }

    #[test]
    fn a_dead_letter_is_decoded_by_its_original_topic() {
        let header = |key, value: &'static str| Header { key, value: Some(value.as_bytes()) };
        let letter = Record {
            headers: Ok(vec![
                header(header::CODE, "the record's own"),
                header(header::TOPIC, "adtrail.effects"),
                header(header::CODE, "unknown_app"),
            ]),
            ..record("letters", EFFECT)
        };
        let noted = r#""dead_letter":{"code":"unknown_app","topic":"adtrail.effects","partition":null,"offset":null,"message":null}"#;
        check(&letter, false, &format!(r#"{START},"schema":"json",{SHOWN},{noted}}}"#));
        let named = record("adtrail.effects.dlq", EFFECT);
        check(&named, false, &format!(r#"{START},"schema":"json",{SHOWN}}}"#));
    }

    #[test]
    fn a_dead_letter_without_its_value_is_printed_with_length_and_digest() {
        let header = |key, value: &'static str| Header { key, value: Some(value.as_bytes()) };
        let headers = vec![
            header(header::CODE, "too_large"),
            header(header::VALUE_LENGTH, "120000000"),
            header(header::VALUE_SHA256, "ab"),
        ];
        let letter = Record { headers: Ok(headers), value: None, ..record("letters", b"") };
        let text = printed(&letter, false);
        assert!(text.contains(r#""value_length":"120000000","value_sha256":"ab""#), "{text}");
    }

    #[test]
    fn long_values_are_cut_unless_the_output_is_raw() {
        let long = "\u{e9}".repeat(SHOWN_BYTES_MAX);
        let value = format!("x{long}");
        let record = record("adtrail.effects", value.as_bytes());
        let text = printed(&record, false);
        let length = format!("\"value\":{{\"length\":{},\"begin\":\"x\u{e9}", value.len());
        assert!(text.contains(&length), "{}", &text[..300]);
        assert!(text.len() < SHOWN_BYTES_MAX + 1_000, "{}", text.len());
        assert!(printed(&record, true).contains(&value));
    }

    #[test]
    fn raw_output_has_the_bytes_and_headers() {
        let header = |key, value| Header { key, value };
        let raw = Record {
            headers: Ok(vec![
                header("a", Some(&b"1"[..])),
                header("a", Some(b"\xff")),
                header("b", None),
            ]),
            ..record("other", b"{\"a\"")
        };
        check(
            &raw,
            true,
            &format!(
                r#"{START},"value":"{{\"a\"","headers":[{{"name":"a","value":"1"}},{{"name":"a","value":{{"base64":"/w=="}}}},{{"name":"b","value":null}}]}}"#
            ),
        );
        let strange = Record { headers: Err(Unreadable), value: None, ..record("other", b"") };
        check(&strange, true, &format!(r#"{START},"value":null,"headers":[]}}"#));
    }
}
