//! The port through which the worker reaches a store.
//!
//! Every fact has one **fact record** under its identity. It contains the fact and, for an activation or effect, the
//! current decision. Small **index entries**, one per key, let other facts find it. An index entry whose time differs
//! from its record's is stale and ignored, so records and entries need no common transaction.
//! `docs/decisions/ledger-port.md` explains how an atomic local batch and HBase each keep this contract.

pub mod index;
pub mod record;

use std::sync::Arc;

use crate::facts::event::{EventTime, Fact, Pid};
use crate::facts::keys::{FactKey, MatchKey};
use crate::rules::expiry::ExpiryFloor;
use crate::rules::row::Row;
use index::{IndexEntry, Scan};
use record::{CurrentRow, FactRecord, Lookup};

/// Read access to the facts of a store.
pub trait Facts {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns the records of the keys, in their order, including facts that are recorded but not committed.
    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, Self::Error>;

    /// Returns the index entries of each scan, newest first, at most its limit, including facts that are recorded but
    /// not committed. Entries can be stale.
    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, Self::Error>;

    /// Returns the last committed [`Progress::consumed_until`]. Facts older than
    /// [`Needed`](crate::rules::expiry::Needed) says are gone.
    fn consumed_until(&self) -> Option<EventTime>;

    /// Returns how far an app has expired by earlier settings: these facts are gone as well, whatever the settings
    /// are now.
    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor;
}

/// A store of facts, decisions, rows and Kafka positions.
///
/// One worker calls one ledger from one thread. Other workers may write to the same store through their own ledgers.
pub trait Ledger: Facts {
    /// Set if other workers may write to the same store. What a worker has read can then be outdated when it commits,
    /// so it decides again until nothing changes, and passes the positions with the last commit.
    const SHARED: bool = false;

    /// Returns the committed positions of all partitions.
    fn positions(&mut self) -> Result<Vec<Position>, Self::Error>;

    /// Looks up the identities, in their order.
    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, Self::Error>;

    /// Makes facts readable, for this worker and, if the store is shared, for all workers. Returns the facts whose
    /// record another worker has changed since it was read; the caller must reconcile these again.
    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, Self::Error>;

    /// Makes decisions, their rows and then the progress durable, together with everything recorded before. Returns
    /// the events that another worker has decided, or whose fact it has replaced, since their records were read;
    /// nothing is written for these.
    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, Self::Error>;
}

/// How far Kafka has been consumed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Positions of the partitions that have advanced.
    pub positions: Vec<Position>,
    /// Broker time up to which all partitions have been consumed. Facts expire by it; with `None` nothing more
    /// expires.
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
    /// Fingerprint of the last record that was read, if known; `next_offset` follows it.
    pub last: Option<RecordFingerprint>,
}

/// The offset and a hash of a record of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordFingerprint {
    pub offset: i64,
    /// A hash of the record's timestamp, key and value.
    pub digest: u64,
}

/// A fact to make readable.
#[derive(Debug, Clone)]
pub struct FactWrite {
    pub key: FactKey,
    pub record: FactRecord,
    /// Keys under which other facts find this one, at its own time.
    pub index: Vec<MatchKey>,
    /// Entries that lead to no fact. They stay when the fact is deleted.
    pub bucket_markers: Vec<(MatchKey, IndexEntry)>,
    /// Index entries to delete, of the fact that this one replaces.
    pub stale: Vec<(MatchKey, EventTime)>,
    /// On a shared store, the fact that this one replaces. It is stored first, kept at least until the batch is
    /// committed, and returned with the record by [`Ledger::lookup`].
    pub superseded: Option<Fact>,
}

/// A decision to make durable.
#[derive(Debug, Clone)]
pub struct DecisionWrite {
    pub key: FactKey,
    /// The record with the new decision and the new row's [`CurrentRow`].
    pub record: FactRecord,
    pub row: Row,
    /// The row that is replaced. On a shared store it can be the current row itself: the worker that made the
    /// decision may have ended before it wrote the row.
    pub replaced: Option<CurrentRow>,
}

impl DecisionWrite {
    /// Checks whether the decision is unchanged and only its row is written again.
    pub fn is_rewrite(&self) -> bool {
        self.replaced.is_some_and(|replaced| replaced.revision == self.row.revision)
    }
}
