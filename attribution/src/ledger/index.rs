//! How facts are found by the keys that they share with others.

use crate::facts::event::{EventTime, Family, Pid};
use crate::facts::keys::{FactKey, MatchKey};

/// One page of the index of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    pub family: Family,
    pub key: MatchKey,
    pub pid: Pid,
    /// Inclusive.
    pub oldest: EventTime,
    /// Inclusive.
    pub newest: EventTime,
    /// The entry after which the page starts.
    pub after: Option<IndexEntry>,
    pub limit: usize,
}

/// A fact found through one of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    pub time: EventTime,
    pub fact: FactKey,
}
