//! The cursor of an export: where a page ends and the next begins.

use std::fmt;

use attribution::facts::event::{EventTime, Pid, SpreadId};
use store::layout::key::RowKey;

use super::cursor_text;
use super::parameter::{AFTER, expected};
use crate::ExportError;
use crate::query::ExportQuery;

/// The last row of a page, for one query. See [`cursor_text`] for its form in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    event_time: EventTime,
    spreadid: SpreadId,
    seq: u64,
    hash: u32,
}

impl Cursor {
    /// Returns the cursor after this row of a query.
    pub fn after(key: &RowKey, query: &ExportQuery) -> Self {
        let RowKey { event_time, spreadid, seq, .. } = *key;
        let cursor = Self { event_time, spreadid, seq, hash: 0 };
        Self { hash: cursor.hash(key.pid, query), ..cursor }
    }

    /// Returns the key of the last row of the page. Its partition is arbitrary, because the order of rows does not
    /// depend on it.
    pub fn row(&self, pid: Pid) -> RowKey {
        let Self { event_time, spreadid, seq, .. } = *self;
        RowKey { partition: 0, pid, event_time, spreadid, seq }
    }

    /// Parses a cursor.
    pub(crate) fn parse(text: &str) -> Result<Self, ExportError> {
        let cursor =
            cursor_text::parse(text).and_then(|(position, hash)| Self::decode(&position, hash));
        cursor.ok_or_else(|| refused(text))
    }

    /// Checks that the cursor was issued for this query.
    pub(crate) fn check(&self, pid: Pid, query: &ExportQuery) -> Result<(), ExportError> {
        let is_same = self.hash == self.hash(pid, query);
        if is_same { Ok(()) } else { Err(refused(&self.to_string())) }
    }

    fn decode(position: &[u8], hash: u32) -> Option<Self> {
        let (time, rest) = position.split_first_chunk()?;
        let (spreadid, seq) = rest.split_first_chunk()?;
        Some(Self {
            event_time: EventTime::from_millis(i64::from_be_bytes(*time))?,
            spreadid: SpreadId(u32::from_be_bytes(*spreadid)),
            seq: u64::from_be_bytes(seq.try_into().ok()?),
            hash,
        })
    }

    fn position(&self) -> Vec<u8> {
        let Self { event_time, spreadid, seq, .. } = self;
        let time = event_time.millis().to_be_bytes();
        [&time[..], &spreadid.0.to_be_bytes(), &seq.to_be_bytes()].concat()
    }

    /// Covers app, range and filters; columns and dialect may change from page to page.
    fn hash(&self, pid: Pid, query: &ExportQuery) -> u32 {
        let mut selection = pid.0.to_be_bytes().to_vec();
        selection.extend(query.from.millis().to_be_bytes());
        selection.extend(query.to.millis().to_be_bytes());
        for (parameter, value) in query.filter.named() {
            selection.extend(format!("{parameter}={value}\0").into_bytes());
        }
        cursor_text::hash(&self.position(), &selection)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&cursor_text::text(&self.position(), self.hash))
    }
}

fn refused(text: &str) -> ExportError {
    expected(AFTER, "the after of a Link of the same app, range and filters", text)
}
