//! The port through which the worker reaches a store.
//!
//! Every fact has one **home** under its identity, which holds the fact and, of an activation or
//! effect, the present decision; and small **index entries** under each key by which other facts
//! find it. An index entry whose time is not its home's is stale and means nothing, so homes and
//! entries need no common transaction. How an atomic local batch and HBase each keep this
//! contract is laid out in `docs/decisions/ledger-port.md`.

pub mod index;
pub mod record;

use std::sync::Arc;

use crate::facts::event::{EventTime, Fact, Pid};
use crate::facts::keys::{FactKey, MatchKey};
use crate::rules::expiry::ExpiryFloor;
use crate::rules::row::Row;
use index::{IndexEntry, Scan};
use record::{CurrentRow, FactRecord, Lookup};

/// The facts of a store, and how they are found.
pub trait Facts {
    type Error: std::error::Error + Send + Sync + 'static;

    /// The homes of the keys, in their order, recorded but uncommitted facts included.
    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, Self::Error>;

    /// The index entries of each scan, newest first, at most its limit; recorded but uncommitted
    /// facts included. Entries can be stale.
    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, Self::Error>;

    /// The last committed [`Progress::consumed_until`]. What is older than
    /// [`Needed`](crate::rules::expiry::Needed) says is gone.
    fn consumed_until(&self) -> Option<EventTime>;

    /// What of an app has expired by settings that it no longer has: gone as well, whatever the settings
    /// are now.
    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor;
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
    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, Self::Error>;

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
    /// Fingerprint of a verified record, used to detect a recreated topic.
    pub mark: Option<RecordFingerprint>,
    /// The last one that was read, as far as that is known: what comes after it is what follows it.
    pub last: Option<RecordFingerprint>,
}

/// A record that was read of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordFingerprint {
    pub offset: i64,
    /// A hash of its time, key and value.
    pub digest: u64,
}

/// A fact to make readable.
#[derive(Debug, Clone)]
pub struct FactWrite {
    pub key: FactKey,
    pub record: FactRecord,
    /// Keys under which the fact is found at its own time.
    pub index: Vec<MatchKey>,
    /// Entries that lead to no fact. They stay when the fact goes.
    pub bucket_markers: Vec<(MatchKey, IndexEntry)>,
    /// Entries of the fact that this one replaces.
    pub stale: Vec<(MatchKey, EventTime)>,
    /// On a shared store, the fact that this one replaces. It is stored first, kept at least until the batch is
    /// committed, and returned with the record by [`Ledger::lookup`].
    pub outgoing: Option<Fact>,
}

/// A decision to make durable.
#[derive(Debug, Clone)]
pub struct DecisionWrite {
    pub key: FactKey,
    /// With the new decision and the new row's [`CurrentRow`].
    pub record: FactRecord,
    pub row: Row,
    /// The row that is replaced. On a shared store it can be the current row itself: the worker that made the
    /// decision may have ended before it wrote the row.
    pub replaced: Option<CurrentRow>,
}

impl DecisionWrite {
    /// Whether the decision stands, and its row alone is put once more.
    pub fn is_rewrite(&self) -> bool {
        self.replaced.is_some_and(|replaced| replaced.revision == self.row.revision)
    }
}
