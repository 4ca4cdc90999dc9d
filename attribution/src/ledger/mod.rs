//! The port through which the worker reaches a store.
//!
//! Every fact has one **fact record** under its identity. It contains the fact and, for an activation or effect, the
//! current decision. Small **index entries**, one per match key of the fact, lead to the record: other facts with an
//! equal key find it by them. An entry whose time differs from its record's is stale and ignored, so a record and its
//! entries need not be written atomically.
//! `docs/decisions/ledger-port.md` explains how the embedded store and HBase implement this port.

pub mod index;
pub mod received_md5;
pub mod record;

use std::sync::Arc;

use crate::facts::device_ids::IdKindSet;
use crate::facts::event::{EventTime, Fact, Pid};
use crate::facts::keys::{FactKey, MatchKey, MatchKeys};
use crate::outbox::interest::PlannedCallback;
use crate::rules::expiry::ExpiryFloor;
use crate::rules::row::Row;
use index::{IndexEntry, Scan};
use received_md5::ReceivedMd5;
use record::{CurrentRow, FactRecord, Lookup};

/// Read access to the facts of a store.
pub trait Facts {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Number of records that [`Facts::records_up_to`] and [`Ledger::lookup_up_to`] read at once: enough to share a
    /// round trip, few enough that they fit into memory even if all are of the maximum size.
    const RECORDS_PER_READ: usize = 64;

    /// Returns the record of each key, in the order of the keys, including recorded but uncommitted facts.
    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, Self::Error>;

    /// Returns the records of the first keys: of as many as have a total size of at most `bytes_max`, but of at least
    /// one key, and of all keys if their records are not larger.
    fn records_up_to(
        &mut self,
        keys: &[FactKey],
        bytes_max: usize,
    ) -> Result<Vec<Option<FactRecord>>, Self::Error> {
        let (mut records, mut bytes) = (Vec::with_capacity(keys.len()), 0_usize);
        for keys in keys.chunks(Self::RECORDS_PER_READ) {
            for (index, record) in self.records(keys)?.into_iter().enumerate() {
                bytes += record.as_ref().map_or(0, FactRecord::bytes);
                if bytes > bytes_max && !records.is_empty() {
                    keys.iter().skip(index).for_each(|key| self.forget(key));
                    return Ok(records);
                }
                records.push(record);
            }
        }
        Ok(records)
    }

    /// Drops what the ledger keeps of a record that was read, so that it can be replaced. The caller reads the record
    /// again before it replaces it.
    fn forget(&mut self, _key: &FactKey) {}

    /// Returns the index entries of each scan, newest first, at most its limit, including those of recorded but
    /// uncommitted facts. Entries can be stale.
    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, Self::Error>;

    /// Returns the last committed [`Progress::consumed_until`]. Facts that by
    /// [`Needed`](crate::rules::expiry::Needed) are no longer needed at this time are gone.
    fn consumed_until(&self) -> Option<EventTime>;

    /// Returns how far an app's facts have expired by earlier settings. They are gone as well, whatever the current
    /// settings are.
    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor;

    /// Returns which ids the app's facts, including recorded but uncommitted ones, were received with as MD5; possibly
    /// more. A shared store cannot know them, because other workers write facts between two reads.
    fn received_md5(&self, _pid: Pid) -> ReceivedMd5 {
        ReceivedMd5::ANY
    }
}

/// A store of facts, decisions, rows and Kafka positions.
///
/// One worker calls one ledger from one thread. If the store is [`SHARED`](Self::SHARED), other workers may write to
/// it through their own ledgers.
pub trait Ledger: Facts {
    /// True if other workers may write to the same store. If so, what a worker has read can be outdated when it
    /// commits: it repeats the decisions until nothing changes, and passes the positions with the last commit.
    const SHARED: bool = false;

    /// Returns the committed positions of all partitions.
    fn positions(&mut self) -> Result<Vec<Position>, Self::Error>;

    /// Looks up the facts, in the order of the keys.
    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, Self::Error>;

    /// Looks up the first facts: as many as have a total size of at most `bytes_max`, but at least one, and all if they
    /// are not larger.
    fn lookup_up_to(
        &mut self,
        keys: &[FactKey],
        bytes_max: usize,
    ) -> Result<Vec<Lookup>, Self::Error> {
        lookup_in_parts(self, keys, bytes_max, Self::lookup)
    }

    /// Makes facts readable for this worker and, if the store is shared, for all workers. Returns the facts whose
    /// record another worker has changed since it was read; the caller must deduplicate these again.
    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, Self::Error>;

    /// Returns what an interrupted batch has left to be decided: as it was set before the last commit. Always empty on
    /// a shared store, where the redelivery of a batch repeats its decisions.
    fn unfinished(&self) -> Unfinished;

    /// Replaces what is left to be decided. It becomes durable with the next commit. Never called on a shared store.
    fn set_unfinished(&mut self, unfinished: Unfinished);

    /// Makes the decisions, their rows and the entries of their callbacks, and then the progress, durable, together
    /// with everything recorded before. A shared store may ignore the progress, because the offsets of Kafka's group
    /// hold it. Returns the events whose decision or fact another worker has changed since their records were read;
    /// nothing is written for these.
    ///
    /// Unless the store is shared, the commit may still be in flight afterwards: this ledger reads what it wrote, but
    /// readers may not see it yet, and a crash may undo it. Commits are written one after the other: the next one
    /// waits for this one, returns its error, and then writes nothing.
    ///
    /// # Errors
    /// If this commit or the one before has failed. Unless the store is shared, all further commits then fail too.
    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, Self::Error>;

    /// Waits until the last commit that has begun is durable and readers see it.
    ///
    /// # Errors
    /// If that commit cannot be written; then each further call fails too. Once, if it is durable but what follows it
    /// has failed. In both cases all further commits fail.
    fn wait_for_commit(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// [`Ledger::lookup_up_to`] by calls of `lookup`, which does what [`Ledger::lookup`] does.
pub fn lookup_in_parts<L: Ledger + ?Sized>(
    ledger: &mut L,
    keys: &[FactKey],
    bytes_max: usize,
    mut lookup: impl FnMut(&mut L, &[FactKey]) -> Result<Vec<Lookup>, L::Error>,
) -> Result<Vec<Lookup>, L::Error> {
    let (mut lookups, mut bytes) = (Vec::with_capacity(keys.len()), 0_usize);
    for keys in keys.chunks(L::RECORDS_PER_READ) {
        for (index, found) in lookup(ledger, keys)?.into_iter().enumerate() {
            bytes += found.bytes();
            if bytes > bytes_max && !lookups.is_empty() {
                keys.iter().skip(index).for_each(|key| ledger.forget(key));
                return Ok(lookups);
            }
            lookups.push(found);
        }
    }
    Ok(lookups)
}

/// What a batch that is committed in parts has left to be decided. Everything can be decided again, because a decision
/// depends on the recorded facts only, and an unchanged one is not written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Until all activations that the batch can change are committed: these, and the batch's own effects. All effects
    /// of these activations are left too.
    pub events: Vec<FactKey>,
    /// Searches for further effects.
    pub searches: Vec<Scan>,
}

impl Unfinished {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.searches.is_empty()
    }
}

/// How far Kafka has been consumed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Positions of the partitions that have advanced.
    pub positions: Vec<Position>,
    /// Broker time up to which all partitions have been consumed. Facts expire by it; with `None`, nothing further
    /// expires.
    pub consumed_until: Option<EventTime>,
}

/// The next offset to read of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub topic: Arc<str>,
    pub partition: i32,
    pub next_offset: i64,
    /// Fingerprint of a record that a check found unchanged in Kafka or, without one, of the record to check next. Used
    /// to detect a recreated topic.
    pub known: Option<RecordFingerprint>,
    /// Fingerprint of the last record read, if known: the one before `next_offset`.
    pub last: Option<RecordFingerprint>,
}

/// The offset and a hash of a Kafka record.
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
    /// Keys under which other facts find this one. Their index entries have the time of this fact.
    pub index: MatchKeys,
    /// The kinds of device id that the fact was received with as MD5.
    pub received_md5: IdKindSet,
    /// Markers of the fact. They stay when the fact is deleted.
    pub bucket_markers: Vec<(MatchKey, IndexEntry)>,
    /// Index entries of the replaced fact, to be deleted.
    pub stale: Vec<(MatchKey, EventTime)>,
    /// The replaced fact; shared stores only. It is stored before the record, kept at least until the batch is
    /// committed, and returned by [`Ledger::lookup`].
    pub superseded: Option<Fact>,
}

/// A decision to make durable.
#[derive(Debug, Clone)]
pub struct DecisionWrite {
    pub key: FactKey,
    /// The record with the new decision and the new row's [`CurrentRow`].
    pub record: FactRecord,
    pub row: Row,
    /// The replaced row. On a shared store it can have the revision of `row`, which is then written once more: the
    /// worker that committed the decision may have crashed before it wrote the row.
    pub replaced: Option<CurrentRow>,
    /// The callbacks about the decision. A ledger makes their entries with the decision or, on a shared store, before
    /// the row: what completes a row after a crash also completes its entries. An unchanged decision has them, too.
    pub callbacks: Vec<PlannedCallback>,
}

impl DecisionWrite {
    /// Checks whether the decision is unchanged and only its row is rewritten.
    pub fn is_rewrite(&self) -> bool {
        self.replaced.is_some_and(|replaced| replaced.revision == self.row.revision)
    }
}
