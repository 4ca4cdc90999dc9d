//! Events from files: one JSON event of any type per line.

use std::io::{self, BufRead, Read};

use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;

use crate::decode::{self, DecodeError};

/// The UTF-8 byte order mark, which some editors write.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An iterator over the facts of a file. Lines have no broker timestamp, so no fact is too late.
pub struct Events<'p, R> {
    reader: R,
    policy: &'p Policy,
    event_bytes_max: usize,
    line: Vec<u8>,
    /// The number of the last line read, starting at 1.
    line_number: u64,
}

/// An error while reading a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// One invalid line; reading continues.
    #[error("line {line_number}: {error}")]
    Line { line_number: u64, error: DecodeError },
    /// The file cannot be read further.
    #[error("cannot read the file after line {line_number}: {error}")]
    Read { line_number: u64, error: io::Error },
}

impl<'p, R: BufRead> Events<'p, R> {
    /// Reads lines of up to `event_bytes_max` bytes; longer ones are invalid.
    pub fn new(reader: R, policy: &'p Policy, event_bytes_max: usize) -> Self {
        Self { reader, policy, event_bytes_max, line: Vec::new(), line_number: 0 }
    }

    /// Returns the line of the last event or error, without its line end. A line that is too long is truncated.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// Returns the number of that line, starting at 1.
    pub fn line_number(&self) -> u64 {
        self.line_number
    }

    /// Reads the next line, without its line end; returns false at the end of the file. A line that is too long is
    /// truncated to at least one byte above the limit.
    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        // Two more bytes for the line end, so that a line of the maximum length is read completely.
        let limit = self.event_bytes_max as u64 + 2;
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(false);
        }
        self.line_number += 1;
        if self.line.pop_if(|byte| *byte == b'\n').is_none() {
            self.reader.skip_until(b'\n')?;
        }
        self.line.pop_if(|byte| *byte == b'\r');
        if self.line_number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(true)
    }
}

impl<R: BufRead> Iterator for Events<'_, R> {
    type Item = Result<Fact, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read_line() {
                Ok(true) if self.line.trim_ascii().is_empty() => {}
                Ok(true) => break,
                Ok(false) => return None,
                Err(error) => {
                    return Some(Err(FileError::Read { line_number: self.line_number, error }));
                }
            }
        }
        let line_number = self.line_number;
        let fact = decode::check_length(&self.line, self.event_bytes_max)
            .and_then(|()| decode::decode(&self.line, None, self.policy));
        Some(fact.map_err(|error| FileError::Line { line_number, error }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;
    use crate::decode::ErrorCode;
    use crate::decode::event::EVENT_BYTES_MAX;
    use crate::fuzz::POLICY;

    const GOOD: &str = r#"{"type":"activation","app":"app-x","time":1773144000001}"#;

    /// Returns the outcome of each line: `None` for a fact, otherwise the line number and error code.
    fn read(text: &[u8]) -> Vec<Option<(u64, ErrorCode)>> {
        // A small buffer, so that lines span several.
        let reader = BufReader::with_capacity(7, text);
        let outcome = |event: Result<Fact, FileError>| match event {
            Ok(_) => None,
            Err(FileError::Line { line_number, error }) => Some((line_number, error.code)),
            Err(FileError::Read { error, .. }) => panic!("{error}"),
        };
        Events::new(reader, &POLICY, EVENT_BYTES_MAX).map(outcome).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &[Option<(u64, ErrorCode)>]) {
        assert_eq!(read(text.as_bytes()), expected);
    }

    #[test]
    fn each_line_is_a_fact_or_an_error() {
        check("", &[]);
        check("\n\r\n  \n", &[]);
        check(GOOD, &[None]);
        check(&format!("{GOOD}\n{GOOD}\r\n\n{GOOD}"), &[None, None, None]);
        check(&format!("\u{feff}{GOOD}\n{GOOD}"), &[None, None]);
        check(&format!("{GOOD}\n\u{feff}{GOOD}"), &[None, Some((2, ErrorCode::NotJson))]);
        check(&format!("\n{{}}\n{GOOD}\n"), &[Some((2, ErrorCode::MissingField)), None]);
        // A file has no default type.
        check(r#"{"app":"app-x","time":1773144000001}"#, &[Some((1, ErrorCode::MissingField))]);
        check(
            &format!("[]\n{GOOD}x"),
            &[Some((1, ErrorCode::NotAnObject)), Some((2, ErrorCode::NotJson))],
        );
    }

    #[test]
    fn only_the_line_that_is_too_long_is_refused() {
        let padded = |bytes: usize| format!("{GOOD}{}", " ".repeat(bytes - GOOD.len()));
        check(&format!("{}\n{GOOD}\n", padded(EVENT_BYTES_MAX)), &[None, None]);
        check(&format!("{}\r\n{GOOD}\n", padded(EVENT_BYTES_MAX)), &[None, None]);
        check(&padded(EVENT_BYTES_MAX), &[None]);
        let too_large = Some((1, ErrorCode::TooLarge));
        check(&format!("{}\n{GOOD}\n", padded(EVENT_BYTES_MAX + 1)), &[too_large, None]);
        check(&format!("{}\r\n{GOOD}\n", padded(EVENT_BYTES_MAX + 1)), &[too_large, None]);
        check(&format!("{}\n{GOOD}\n", padded(3 * EVENT_BYTES_MAX)), &[too_large, None]);
        check(&padded(3 * EVENT_BYTES_MAX), &[too_large]);
    }

    #[test]
    fn a_long_line_is_not_held_in_memory() {
        let text = format!("{}\n{GOOD}\n", "x".repeat(1 << 20));
        let mut events = Events::new(BufReader::new(text.as_bytes()), &POLICY, 1_000);
        let Some(Err(FileError::Line { line_number: 1, error })) = events.next() else {
            panic!("the line is too long");
        };
        let expected =
            "the event is too large; expected at most 1000 bytes (ingest.event_bytes_max)";
        assert_eq!((error.code, &*error.message), (ErrorCode::TooLarge, expected));
        assert!(events.line.capacity() <= 4_000, "{}", events.line.capacity());
        assert!(matches!(events.next(), Some(Ok(_))));
        assert!(events.next().is_none());
    }
}
