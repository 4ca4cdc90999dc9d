//! An index of the activations credited to each campaign, newest first.
//!
//! An entry is a permutation of a row's key, so the row takes one lookup.

use attribution::facts::event::{EventTime, Pid, SpreadId};
use attribution::rules::row::{EventType, Status};

use super::codec::event_time;
use super::key::{RowKey, U48_MAX};

/// pid u32 · spreadid u32 · inverted time u48 · seq u64.
pub const CAMPAIGN_KEY_BYTES: usize = 22;

pub type CampaignKey = [u8; CAMPAIGN_KEY_BYTES];

/// An activation that is credited to a campaign: the key of an entry. The value is the partition of the row, u16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreditedActivation {
    pub pid: Pid,
    pub spreadid: SpreadId,
    pub event_time: EventTime,
    pub seq: u64,
}

impl CreditedActivation {
    /// The entry of a row.
    pub fn of(row: &RowKey) -> Self {
        let RowKey { pid, event_time, spreadid, seq, .. } = *row;
        Self { pid, spreadid, event_time, seq }
    }

    /// True if rows of this type and status have an entry.
    pub fn has(event_type: EventType, status: Status) -> bool {
        event_type == EventType::Activation && status == Status::Attributed
    }

    pub fn encode(&self) -> CampaignKey {
        let mut key = from(self.pid, self.spreadid, self.event_time);
        key[14..].copy_from_slice(&self.seq.to_be_bytes());
        key
    }

    /// `None` if the bytes are not such a key.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let key: &CampaignKey = key.try_into().ok()?;
        let number = |at: usize, len: usize| {
            key[at..at + len].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        Some(Self {
            pid: Pid(number(0, 4) as u32),
            spreadid: SpreadId(number(4, 4) as u32),
            event_time: event_time(U48_MAX - number(8, 6))?,
            seq: number(14, 8),
        })
    }

    /// The key of the row.
    pub fn row(&self, partition: u16) -> RowKey {
        let Self { pid, spreadid, event_time, seq } = *self;
        RowKey { partition, pid, event_time, spreadid, seq }
    }
}

/// The first key of a campaign at or before a time.
pub fn from(pid: Pid, spreadid: SpreadId, newest: EventTime) -> CampaignKey {
    let mut key = [0; CAMPAIGN_KEY_BYTES];
    key[..4].copy_from_slice(&pid.0.to_be_bytes());
    key[4..8].copy_from_slice(&spreadid.0.to_be_bytes());
    let [_, _, inverted @ ..] = (U48_MAX - newest.millis()).to_be_bytes();
    key[8..14].copy_from_slice(&inverted);
    key
}

/// An exclusive upper bound of the keys of a campaign.
pub fn end(pid: Pid, spreadid: SpreadId) -> Vec<u8> {
    let mut end = from(pid, spreadid, EventTime::MAX)[..8].to_vec();
    end.resize(CAMPAIGN_KEY_BYTES + 1, 0xff);
    end
}
