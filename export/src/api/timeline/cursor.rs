//! Where a page of a timeline ends and the next begins.

use std::fmt;

use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys;
use attribution::ledger::index::IndexEntry;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use xxhash_rust::xxh3::Xxh3Default;

use crate::ExportError;
use crate::query::parameter::{AFTER, bad};

/// A fact that a page ended with, of one device. As text it is base64 for addresses of: a version,
/// the fact's time, family, and the halves of its hash, and 32 bits of a hash of these, the app and
/// the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlaceCursor {
    time: EventTime,
    family: Family,
    id: u64,
    tag: u64,
    hash: u32,
}

const VERSION: u8 = 1;
const BYTES: usize = 1 + 8 + 1 + 8 + 8 + 4;

impl PlaceCursor {
    pub fn after(place: IndexEntry, pid: Pid, ids: &DeviceIds) -> Self {
        let FactKey { family, id, tag, .. } = place.fact;
        let cursor = Self { time: place.time, family, id: id.0, tag, hash: 0 };
        Self { hash: cursor.hash(pid, ids), ..cursor }
    }

    pub fn place(&self, pid: Pid) -> IndexEntry {
        let Self { time, family, id, tag, .. } = *self;
        IndexEntry { time, fact: FactKey { family, id: MatchKey(id), pid, tag } }
    }

    /// # Errors
    /// The text is no cursor.
    pub fn parse(text: &str) -> Result<Self, ExportError> {
        let bytes: Option<[u8; BYTES]> =
            BASE64_URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.and_then(|bytes| Self::decode(&bytes)).ok_or_else(|| refused(text))
    }

    /// # Errors
    /// It is of another device.
    pub fn check(&self, pid: Pid, ids: &DeviceIds) -> Result<(), ExportError> {
        let is_of_it = self.hash == self.hash(pid, ids);
        if is_of_it { Ok(()) } else { Err(refused(&self.to_string())) }
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (time, rest) = rest.split_first_chunk()?;
        let (family, rest) = rest.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        let millis = i64::try_from(u64::from_be_bytes(*time)).ok()?;
        (*version == VERSION).then_some(Self {
            time: EventTime::from_millis(millis)?,
            family: *Family::ALL.get(usize::from(*family))?,
            id: u64::from_be_bytes(*id),
            tag: u64::from_be_bytes(*tag),
            hash: u32::from_be_bytes(*rest.first_chunk()?),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.time.millis().to_be_bytes());
        bytes.push(self.family as u8);
        bytes.extend_from_slice(&self.id.to_be_bytes());
        bytes.extend_from_slice(&self.tag.to_be_bytes());
        bytes
    }

    fn hash(&self, pid: Pid, ids: &DeviceIds) -> u32 {
        let mut hasher = Xxh3Default::new();
        hasher.update(&self.encode());
        hasher.update(&pid.0.to_be_bytes());
        for id in ids.iter() {
            hasher.update(&match_keys::by_id(id).0.to_be_bytes());
        }
        hasher.digest() as u32
    }
}

impl fmt::Display for PlaceCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.encode();
        bytes.extend_from_slice(&self.hash.to_be_bytes());
        out.write_str(&BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

fn refused(text: &str) -> ExportError {
    const ALLOWED: &str = "the after of a Link of the same app and device";
    bad(AFTER, format!("expected {ALLOWED}"), text, vec![ALLOWED])
}
