//! Events in JSON, and files of them.

use std::io::BufReader;

use attribution::facts::event::Fact;
use serde::de::IgnoredAny;

use super::{POLICY, check_error};
use crate::decode::event::EVENT_BYTES_MAX;
use crate::decode::{self, DecodeError, ErrorCode};
use crate::files::compression;
use crate::files::ndjson::{Events, FileError};
use crate::kafka::topics::TopicKind;
use crate::peek::event::Event;

/// An accepted event must survive printing and decoding; an error must be consistent with the input.
pub fn json(input: &[u8]) {
    for topic in TopicKind::ALL.into_iter().map(Some).chain([None]) {
        match decode::decode(input, topic, &POLICY) {
            Ok(fact) => check_fact(&fact, input),
            Err(error) => {
                check_error(&error, input);
                if error.code == ErrorCode::NotAnObject {
                    assert!(serde_json::from_slice::<IgnoredAny>(input).is_ok());
                }
            }
        }
    }
}

fn check_fact(fact: &Fact, input: &[u8]) {
    assert!(serde_json::from_slice::<IgnoredAny>(input).is_ok());
    let printed = serde_json::to_vec(&Event::new(fact, &POLICY)).unwrap_or_default();
    if printed.len() <= EVENT_BYTES_MAX {
        let again = decode::decode(&printed, None, &POLICY);
        assert_eq!(again.as_ref(), Ok(fact), "{}", String::from_utf8_lossy(&printed));
    }
}

type Outcome = Result<Fact, (u64, DecodeError)>;

/// Reads a file as `replay` does. For plain text, the result must not depend on the buffer size and must equal decoding
/// each line.
pub fn lines(input: &[u8]) {
    let whole = read(compression::decompressed(input));
    let buffered = read(Ok(BufReader::with_capacity(3, input)));
    if compression::is_plain(input) {
        assert_eq!(whole.0, buffered.0);
        assert_eq!(whole.0, by_lines(input));
        assert!(whole.1 && buffered.1, "plain text is read to its end");
    }
    for outcome in &whole.0 {
        if let Err((_, error)) = outcome {
            check_error(error, input);
        }
    }
}

/// Returns the outcome of each line, and whether the file was read to its end.
fn read(reader: std::io::Result<impl std::io::BufRead>) -> (Vec<Outcome>, bool) {
    let mut outcomes = Vec::new();
    let Ok(reader) = reader else { return (outcomes, false) };
    for event in Events::new(reader, &POLICY, EVENT_BYTES_MAX) {
        match event {
            Ok(fact) => outcomes.push(Ok(fact)),
            Err(FileError::Line { line_number, error }) => outcomes.push(Err((line_number, error))),
            Err(FileError::Read { error, .. }) => {
                assert!(!error.to_string().is_empty());
                return (outcomes, false);
            }
        }
    }
    (outcomes, true)
}

/// Decodes each line of the whole text.
fn by_lines(text: &[u8]) -> Vec<Outcome> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.filter(|(line, _)| !line.trim_ascii().is_empty());
    let decoded = lines.map(|(line, number)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        decode::decode(line, None, &POLICY).map_err(|error| (number, error))
    });
    decoded.collect()
}
