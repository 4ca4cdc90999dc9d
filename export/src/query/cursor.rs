//! Where a page of rows ends and the next begins.

use std::fmt;

use attribution::facts::event::{EventTime, Pid, SpreadId};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use store::layout::key::RowKey;
use xxhash_rust::xxh3::Xxh3Default;

use super::parameter::{AFTER, bad};
use crate::ExportError;
use crate::query::ExportQuery;

/// A row that a page ended with, of one query. As text it is base64 for addresses of: a version,
/// the row's event time, campaign and seq, and 32 bits of a hash of these and of what the query
/// asks for. Nobody gains by forging one: it only says where to go on among rows that may be read
/// anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    event_time: EventTime,
    spreadid: SpreadId,
    seq: u64,
    hash: u32,
}

const VERSION: u8 = 1;
const BYTES: usize = 1 + 8 + 4 + 8 + 4;

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
        let bytes: Option<[u8; BYTES]> =
            BASE64_URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.and_then(|bytes| Self::decode(&bytes)).ok_or_else(|| refused(text))
    }

    /// # Errors
    /// It is of another query.
    pub(crate) fn check(&self, pid: Pid, query: &ExportQuery) -> Result<(), ExportError> {
        let is_of_it = self.hash == self.hash(pid, query);
        if is_of_it { Ok(()) } else { Err(refused(&self.to_string())) }
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (time, rest) = rest.split_first_chunk()?;
        let (spreadid, rest) = rest.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let millis = i64::try_from(u64::from_be_bytes(*time)).ok()?;
        (*version == VERSION).then_some(Self {
            event_time: EventTime::from_millis(millis)?,
            spreadid: SpreadId(u32::from_be_bytes(*spreadid)),
            seq: u64::from_be_bytes(*seq),
            hash: u32::from_be_bytes(*rest.first_chunk()?),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.event_time.millis().to_be_bytes());
        bytes.extend_from_slice(&self.spreadid.0.to_be_bytes());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// Of the place and of which rows are asked for; columns and dialects may change from page to
    /// page.
    fn hash(&self, pid: Pid, query: &ExportQuery) -> u32 {
        let mut hasher = Xxh3Default::new();
        hasher.update(&self.encode());
        hasher.update(&pid.0.to_be_bytes());
        hasher.update(&query.from.millis().to_be_bytes());
        hasher.update(&query.to.millis().to_be_bytes());
        for text in query.filter.texts() {
            hasher.update(text.as_bytes());
            hasher.update(&[0]);
        }
        hasher.digest() as u32
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.encode();
        bytes.extend_from_slice(&self.hash.to_be_bytes());
        out.write_str(&BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

fn refused(text: &str) -> ExportError {
    const ALLOWED: &str = "the after of a Link of the same app, range and filters";
    bad(AFTER, format!("expected {ALLOWED}"), text, vec![ALLOWED])
}
