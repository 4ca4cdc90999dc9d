//! The keys under which facts are stored and found.

use super::event::{Family, Pid};

/// A hash of a kind of key and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatchKey(pub u64);

/// Where a fact lives: the two hashes are of its identity and independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactKey {
    pub family: Family,
    pub id: MatchKey,
    pub pid: Pid,
    /// 48 bits.
    pub tag: u64,
}
