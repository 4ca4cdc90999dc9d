//! The keys under which facts are stored and found.

use super::event::{Family, Pid};

/// A hash of a key's kind and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatchKey(pub u64);

/// The key of a fact record. `id` and `tag` are independent hashes of the fact's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactKey {
    pub family: Family,
    pub id: MatchKey,
    pub pid: Pid,
    /// 48 bits.
    pub tag: u64,
}
