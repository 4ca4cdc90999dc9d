//! The index, which finds facts by the keys that they share with other facts.

use crate::facts::event::{EventTime, Family, Pid};
use crate::facts::keys::{FactKey, MatchKey};

/// A request for one page of the index entries of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    pub family: Family,
    pub key: MatchKey,
    pub pid: Pid,
    /// Inclusive.
    pub oldest: EventTime,
    /// Inclusive.
    pub newest: EventTime,
    /// The last entry of the previous page; `None` for the first page.
    pub after: Option<IndexEntry>,
    pub limit: usize,
}

/// An index entry: a fact found under one of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    pub time: EventTime,
    pub fact: FactKey,
}
