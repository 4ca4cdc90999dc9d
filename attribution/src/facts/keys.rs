//! The keys under which facts are stored and found.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::event::{Family, Pid};

/// The hash of a key that facts share: of its kind and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatchKey(pub u64);

/// The keys of one fact; of nearly every touch without an allocation.
pub type MatchKeys = SmallVec<[MatchKey; 4]>;

/// The key of a fact record. `id` and `tag` are independent hashes of the fact's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactKey {
    pub family: Family,
    pub id: MatchKey,
    pub pid: Pid,
    /// 48 bits.
    pub tag: u64,
}

/// A map by fact key; its order is the same in every run.
pub type FactKeyMap<V> = HashMap<FactKey, V, FixedState>;
pub type FactKeySet = HashSet<FactKey, FixedState>;
