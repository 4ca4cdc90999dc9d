//! The port through which the worker reaches a store.
//!
//! Every fact has one **home** under its identity, which holds the fact and, of an activation or
//! effect, the present decision; and small **index entries** under each key by which other facts
//! find it. An index entry whose time is not its home's is stale and means nothing, so homes and
//! entries need no common transaction. How an atomic local batch and HBase each keep this
//! contract is laid out in `docs/decisions/ledger-port.md`.

use std::sync::Arc;

use crate::attribute::Decision;
use crate::classify::Walks;
use crate::event::{Activation, Effect, EventTime, Fact, Family, Pid, SpreadId, Touch};
use crate::expiry::Expired;
pub use crate::matching::FactKey;
use crate::matching::MatchKey;
use crate::row::{InstallType, Row, RowForm, Status};

/// The facts of a store, and how they are found.
pub trait Facts {
    type Error: std::error::Error + Send + Sync + 'static;

    /// The homes of the keys, in their order, recorded but uncommitted facts included.
    fn homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, Self::Error>;

    /// The index entries of each scan, newest first, at most its limit; recorded but uncommitted
    /// facts included. Entries can be stale.
    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, Self::Error>;

    /// The last committed [`Progress::consumed_until`]. What is older than
    /// [`Needed`](crate::expiry::Needed) says is gone.
    fn consumed_until(&self) -> Option<EventTime>;

    /// What of an app has expired by settings that it no longer has: gone as well, whatever the settings
    /// are now.
    fn held(&self, pid: Pid) -> Expired;
}

/// A store of facts, decisions, rows and Kafka positions.
///
/// One worker calls one ledger from one thread; other workers may write the same store through
/// ledgers of their own.
pub trait Ledger: Facts {
    /// Whether other workers may write the same store meanwhile. What a worker has read can then
    /// be outdated when it commits, so it decides again until nothing differs any more, and
    /// gives the positions with the last commit.
    const SHARED: bool = false;

    /// The next offset to read of every partition that was ever committed.
    fn positions(&mut self) -> Result<Vec<Position>, Self::Error>;

    /// What is known by the identities, in their order.
    fn known(&mut self, keys: &[FactKey]) -> Result<Vec<Known>, Self::Error>;

    /// Makes facts readable, for this worker and, where the store is shared, for all. Gives back
    /// the facts whose home another worker changed since it was read: settle these again.
    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, Self::Error>;

    /// Makes decisions, their rows and then the progress durable, with all that was recorded
    /// before. Returns the events about which another worker decided, or whose fact it replaced,
    /// since their homes were read: of these nothing is written.
    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, Self::Error>;
}

/// How far Kafka has been consumed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Of the partitions that have moved.
    pub positions: Vec<Position>,
    /// Everything that the broker took before this time has been consumed, of all partitions. By
    /// it facts expire; `None` expires nothing more.
    pub consumed_until: Option<EventTime>,
}

/// The next offset to read of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub topic: Arc<str>,
    pub partition: i32,
    pub next_offset: i64,
    /// By which a topic that was made anew is told from the one that was read: it was there when that was
    /// looked at.
    pub mark: Option<Mark>,
    /// The last one that was read, as far as that is known: what comes after it is what follows it.
    pub last: Option<Mark>,
}

/// A record that was read of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mark {
    pub offset: i64,
    /// A hash of its time, key and value.
    pub digest: u64,
}

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

/// What a store keeps under a fact's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    Touch(Box<Touch>),
    Activation(Box<ActivationHome>),
    Effect(Box<EffectHome>),
}

/// What is known by a fact's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    Nothing,
    Home(Home),
    /// On a shared store: a home and the facts that its own took the place of, in batches that are not
    /// committed. Whoever had them may be gone, so what these reached is decided on again.
    Replaced(Home, Vec<Fact>),
    /// An activation or effect that has expired: no decision depends on it any more, and its row
    /// stands as long as rows are kept.
    Row,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivationHome {
    pub fact: Activation,
    /// What the next activations of its devices go on from; none before the first decision.
    pub walks: Walks,
    pub decision: Option<Decision>,
    /// The decision that this one took the place of, for whoever asks why; nothing depends on it.
    pub previous: Option<Decision>,
    /// What came in when it did; nothing depends on this either.
    pub changed_by: Causes,
    pub present: Option<Present>,
}

/// The facts that came in together and can have changed a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Causes {
    /// At most [`CAUSES_MAX`].
    pub facts: Vec<Cause>,
    /// Whether there may have been others.
    pub has_more: bool,
}

/// Causes that are kept of one change.
pub const CAUSES_MAX: usize = 3;

/// A touch or an activation as it came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    pub fact: FactKey,
    pub time: EventTime,
    /// Whether it was known, and came once more with an earlier time or other content.
    pub again: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectHome {
    pub fact: Effect,
    pub present: Option<Present>,
}

/// The row that shows an event now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    pub revision: u32,
    pub event_time: EventTime,
    pub spreadid: SpreadId,
    pub status: Status,
    /// Of all that was decided, as the row tells it: what is equal is no correction.
    pub digest: u64,
    pub form: RowForm,
    pub place: RowPlace,
}

/// What a ledger notes of a row, when it commits it, to take it back without reading it; the worker hands it back with
/// the decision that replaces it, and knows nothing of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowPlace {
    /// Over how many partitions the app's rows were spread, as a power of two.
    pub fan_bits: u8,
    /// Of key and value; 0 if it is not known.
    pub bytes: u32,
    pub install_type: Option<InstallType>,
    /// A hash of what is counted of the fact; 0 if it is not known.
    pub fact_hash: u64,
}

/// A fact to make readable.
#[derive(Debug, Clone)]
pub struct FactWrite {
    pub key: FactKey,
    pub home: Home,
    /// Keys under which the fact is found at its own time.
    pub index: Vec<MatchKey>,
    /// Entries that lead to no fact. They stay when the fact goes.
    pub marks: Vec<(MatchKey, IndexEntry)>,
    /// Entries of the fact that this one replaces.
    pub stale: Vec<(MatchKey, EventTime)>,
    /// The fact that this one replaces, where the store is shared: kept before this one stands, at least
    /// until the batch is committed, and told with the home by [`Ledger::known`].
    pub outgoing: Option<Fact>,
}

/// A decision to make durable.
#[derive(Debug, Clone)]
pub struct DecisionWrite {
    pub key: FactKey,
    /// With the new decision and the new row's [`Present`].
    pub home: Home,
    pub row: Row,
    /// The row that goes. On a shared store it can be the very row, of a decision that stands: whoever
    /// has decided may have ended before it was put.
    pub replaced: Option<Present>,
}

impl DecisionWrite {
    /// Whether the decision stands, and its row alone is put once more.
    pub fn is_again(&self) -> bool {
        self.replaced.is_some_and(|replaced| replaced.revision == self.row.revision)
    }
}

impl Home {
    pub fn present_mut(&mut self) -> Option<&mut Present> {
        match self {
            Self::Touch(_) => None,
            Self::Activation(home) => home.present.as_mut(),
            Self::Effect(home) => home.present.as_mut(),
        }
    }

    pub fn time(&self) -> EventTime {
        match self {
            Self::Touch(touch) => touch.time,
            Self::Activation(home) => home.fact.time,
            Self::Effect(home) => home.fact.time,
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Touch(touch) => &touch.id,
            Self::Activation(home) => &home.fact.id,
            Self::Effect(home) => &home.fact.id,
        }
    }

    pub fn present(&self) -> Option<&Present> {
        match self {
            Self::Touch(_) => None,
            Self::Activation(home) => home.present.as_ref(),
            Self::Effect(home) => home.present.as_ref(),
        }
    }
}
