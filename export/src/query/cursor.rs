//! Where a page of rows ends and the next begins.

use std::fmt;

use attribution::facts::event::{EventTime, Pid, SpreadId};
use store::layout::key::RowKey;

use super::cursor_text;
use super::parameter::{AFTER, expected};
use crate::ExportError;
use crate::query::ExportQuery;

/// A row that a page ended with, of one query. See [`cursor_text`] for its form in addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    event_time: EventTime,
    spreadid: SpreadId,
    seq: u64,
    hash: u32,
}

impl Cursor {
    /// After this row of a query.
    pub fn after(key: &RowKey, query: &ExportQuery) -> Self {
        let RowKey { event_time, spreadid, seq, .. } = *key;
        let cursor = Self { event_time, spreadid, seq, hash: 0 };
        Self { hash: cursor.hash(key.pid, query), ..cursor }
    }

    /// The row that a page ended with. Rows stand in one order whatever their partition.
    pub fn row(&self, pid: Pid) -> RowKey {
        let Self { event_time, spreadid, seq, .. } = *self;
        RowKey { partition: 0, pid, event_time, spreadid, seq }
    }

    /// # Errors
    /// The text is no cursor.
    pub(crate) fn parse(text: &str) -> Result<Self, ExportError> {
        let cursor = cursor_text::parse(text).and_then(|(place, hash)| Self::decode(&place, hash));
        cursor.ok_or_else(|| refused(text))
    }

    /// # Errors
    /// It is of another query.
    pub(crate) fn check(&self, pid: Pid, query: &ExportQuery) -> Result<(), ExportError> {
        let is_of_it = self.hash == self.hash(pid, query);
        if is_of_it { Ok(()) } else { Err(refused(&self.to_string())) }
    }

    fn decode(place: &[u8], hash: u32) -> Option<Self> {
        let (time, rest) = place.split_first_chunk()?;
        let (spreadid, seq) = rest.split_first_chunk()?;
        Some(Self {
            event_time: EventTime::from_millis(i64::from_be_bytes(*time))?,
            spreadid: SpreadId(u32::from_be_bytes(*spreadid)),
            seq: u64::from_be_bytes(seq.try_into().ok()?),
            hash,
        })
    }

    fn place(&self) -> Vec<u8> {
        let Self { event_time, spreadid, seq, .. } = self;
        let time = event_time.millis().to_be_bytes();
        [&time[..], &spreadid.0.to_be_bytes(), &seq.to_be_bytes()].concat()
    }

    /// Columns and dialects may change from page to page.
    fn hash(&self, pid: Pid, query: &ExportQuery) -> u32 {
        let mut asked = pid.0.to_be_bytes().to_vec();
        asked.extend(query.from.millis().to_be_bytes());
        asked.extend(query.to.millis().to_be_bytes());
        for (parameter, value) in query.filter.named() {
            asked.extend(format!("{parameter}={value}\0").into_bytes());
        }
        cursor_text::hash(&self.place(), &asked)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&cursor_text::text(&self.place(), self.hash))
    }
}

fn refused(text: &str) -> ExportError {
    expected(AFTER, "the after of a Link of the same app, range and filters", text)
}
