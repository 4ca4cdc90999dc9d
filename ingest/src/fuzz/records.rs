//! Records: framing, printing by `peek`, and dead letters.

use std::cell::RefCell;
use std::str::FromStr;
use std::time::Duration;

use rdkafka::message::Header;
use serde_json::Value as Json;

use super::{SEPARATOR, check_error};
use crate::dead_letters::letter::header;
use crate::dead_letters::replay::dead_letter::Source;
use crate::decode::decoder::Decoder;
use crate::decode::framing::{Framed, HEADER, unframed};
use crate::kafka::topics::TopicNames;
use crate::peek::record_json::{Record, View, line};
use crate::registry::SchemaKey;
use crate::timing::Timing;

/// Input: a byte with the length of a header plus 1, or 0 for none, the header and the value. Framing the result again
/// must give the input.
pub fn framing(input: &[u8]) {
    let Some((length, rest)) = input.split_first() else { return };
    let (header, value) = match length.checked_sub(1) {
        None => (None, rest),
        Some(length) => {
            let (header, value) = rest.split_at(usize::from(length).min(rest.len()));
            (Some(header), value)
        }
    };
    match unframed(value, header) {
        Err(error) => check_error(&error, value),
        Ok(Framed::Bare(bare)) => assert!(header.is_none() && bare == value),
        Ok(Framed::Named(key, datum)) => {
            let frame = match key {
                SchemaKey::Id(id) => [&[0][..], &id.to_be_bytes()].concat(),
                SchemaKey::Guid(guid) => [&[1][..], &guid].concat(),
            };
            match header {
                Some(header) => assert!(header == frame && datum == value),
                None => assert_eq!(value, [&frame, datum].concat()),
            }
        }
    }
}

thread_local! {
    static VIEWS: RefCell<Vec<View>> = RefCell::new(
        [false, true].into_iter().filter_map(view).collect());
}

fn view(raw: bool) -> Option<View> {
    let config = config::parse("[[apps]]\npid = 1\nkey = \"app-x\"\n").ok()?;
    Some(View {
        decoder: Decoder::new(&config, Duration::ZERO, Timing::default()).ok()?,
        names: TopicNames::of_settings(),
        raw,
    })
}

/// Input: a value, a key, and headers, each a name and a value. Every record must be printed as one line of JSON.
pub fn peek(input: &[u8]) {
    let mut parts = input.split(|byte| *byte == SEPARATOR);
    let value = parts.next();
    let key = parts.next();
    let mut headers = Vec::new();
    while let Some(name) = parts.next() {
        let name = match name {
            b"" => HEADER,
            // One byte selects a header of dead letters, which the fuzzer would not guess.
            [index] if usize::from(*index) < header::ALL.len() => header::ALL[usize::from(*index)],
            name => std::str::from_utf8(name).unwrap_or("x"),
        };
        headers.push(Header { key: name, value: parts.next() });
    }
    VIEWS.with_borrow_mut(|views| {
        assert_eq!(views.len(), 2);
        for (view, topic) in views.iter_mut().zip(["kafka.clicks", "kafka.effects.dlq"]) {
            let record = Record {
                topic,
                partition: 0,
                offset: 1,
                broker_ms: Some(i64::from(input.first().copied().unwrap_or_default())),
                key,
                value,
                headers: Ok(headers.clone()),
            };
            let line = line(&record, view);
            let json = line.strip_suffix('\n').map(Json::from_str);
            assert!(matches!(json, Some(Ok(Json::Object(_)))), "{line}");
            assert!(!line.trim_end().contains('\n'), "{line}");
        }
    });
}

/// Input: the source of a dead letter as written in the journal. Formatting and parsing it must give the same source.
pub fn letter(input: &[u8]) {
    let names = TopicNames::of_settings();
    if let Some(source) = Source::parse(input, &names) {
        assert_eq!(Source::parse(source.key(&names).as_bytes(), &names), Some(source));
    }
}
