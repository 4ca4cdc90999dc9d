//! The cursor of a timeline: where a page ends and the next begins.

use std::fmt;

use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys;
use attribution::ledger::index::IndexEntry;

use crate::ExportError;
use crate::query::cursor_text;
use crate::query::parameter::{AFTER, expected};

/// The last fact of a page, for one device. See [`cursor_text`] for its form in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimelineCursor {
    time: EventTime,
    family: Family,
    id: u64,
    tag: u64,
    hash: u32,
}

impl TimelineCursor {
    pub fn after(entry: IndexEntry, pid: Pid, ids: &DeviceIds) -> Self {
        let FactKey { family, id, tag, .. } = entry.fact;
        let cursor = Self { time: entry.time, family, id: id.0, tag, hash: 0 };
        Self { hash: cursor.hash(pid, ids), ..cursor }
    }

    pub fn entry(&self, pid: Pid) -> IndexEntry {
        let Self { time, family, id, tag, .. } = *self;
        IndexEntry { time, fact: FactKey { family, id: MatchKey(id), pid, tag } }
    }

    /// Parses a cursor.
    pub fn parse(text: &str) -> Result<Self, ExportError> {
        let cursor =
            cursor_text::parse(text).and_then(|(position, hash)| Self::decode(&position, hash));
        cursor.ok_or_else(|| refused(text))
    }

    /// Checks that the cursor was issued for this device.
    pub fn check(&self, pid: Pid, ids: &DeviceIds) -> Result<(), ExportError> {
        let is_same = self.hash == self.hash(pid, ids);
        if is_same { Ok(()) } else { Err(refused(&self.to_string())) }
    }

    fn decode(position: &[u8], hash: u32) -> Option<Self> {
        let (time, rest) = position.split_first_chunk()?;
        let (family, rest) = rest.split_first()?;
        let (id, tag) = rest.split_first_chunk()?;
        Some(Self {
            time: EventTime::from_millis(i64::from_be_bytes(*time))?,
            family: *Family::ALL.get(usize::from(*family))?,
            id: u64::from_be_bytes(*id),
            tag: u64::from_be_bytes(tag.try_into().ok()?),
            hash,
        })
    }

    fn position(&self) -> Vec<u8> {
        let Self { time, family, id, tag, .. } = self;
        let time = time.millis().to_be_bytes();
        [&time[..], &[*family as u8], &id.to_be_bytes(), &tag.to_be_bytes()].concat()
    }

    fn hash(&self, pid: Pid, ids: &DeviceIds) -> u32 {
        let keys = ids.iter().flat_map(|id| match_keys::by_id(id).0.to_be_bytes());
        let query: Vec<u8> = pid.0.to_be_bytes().into_iter().chain(keys).collect();
        cursor_text::hash(&self.position(), &query)
    }
}

impl fmt::Display for TimelineCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&cursor_text::text(&self.position(), self.hash))
    }
}

fn refused(text: &str) -> ExportError {
    expected(AFTER, "the after of a Link of the same app and device", text)
}
