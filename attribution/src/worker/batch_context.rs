//! What one batch has loaded and decided so far, over the ledger.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use crate::facts::event::{EventTime, Family, Pid};
use crate::facts::keys::{FactKey, MatchKey};
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::{Causes, CurrentRow, FactRecord, RowRef};
use crate::ledger::{DecisionWrite, Facts, Ledger, Progress};
use crate::rules::classify::InstallChains;
use crate::rules::policy::{AppPolicy, Policy};
use crate::rules::row::Row;
use crate::rules::winner::Decision;
use crate::rules::{build_row, expiry};

/// Entries of the first page of an index scan: most keys have fewer.
pub const PAGE: usize = 16;
/// Entries of each further page.
pub const NEXT_PAGE: usize = 256;

pub struct BatchContext<'a, L> {
    ledger: &'a mut L,
    pub policy: &'a Policy,
    /// Records as loaded or, if decided in this batch, with the new decision.
    records: HashMap<FactKey, Option<FactRecord>, FixedState>,
    decided: HashMap<FactKey, Decided, FixedState>,
    /// Activations whose earlier decision this batch has changed.
    pub redecided: Vec<FactKey>,
    /// Activations whose install chains this batch has changed.
    pub changed_chains: HashSet<FactKey, FixedState>,
    /// Events whose rows are rewritten even if unchanged.
    pub concurrent: ConcurrentWrites,
}

/// Events of a shared store whose decision is committed, but whose row the deciding worker may not have written.
#[derive(Debug, Default)]
pub struct ConcurrentWrites {
    /// All events that the batch can change, because another worker may have the same messages.
    pub covers_all: bool,
    /// Events that a worker, possibly this one, has decided since they were read.
    conflicts: HashSet<FactKey, FixedState>,
    written: HashSet<FactKey, FixedState>,
}

/// A new row and the one that it replaces.
struct Decided {
    row: Row,
    replaced: Option<CurrentRow>,
}

impl<'a, L: Facts> BatchContext<'a, L> {
    pub fn new(ledger: &'a mut L, policy: &'a Policy) -> Self {
        let (records, decided) = (HashMap::default(), HashMap::default());
        let (redecided, changed_chains) = (Vec::new(), HashSet::default());
        let concurrent = ConcurrentWrites::default();
        Self { ledger, policy, records, decided, redecided, changed_chains, concurrent }
    }

    /// Makes the event undecided in this batch. Returns its stored record, if it has one.
    pub fn forget_decision(&mut self, key: &FactKey) -> Option<FactRecord> {
        let record = self.records.get_mut(key)?.as_mut()?;
        let stored = record.clone();
        match record {
            FactRecord::Touch(_) => return None,
            FactRecord::Activation(record) => record.current_row = None,
            FactRecord::Effect(record) => record.current_row = None,
        }
        Some(stored)
    }

    /// Drops everything loaded and decided, but not what was recorded.
    pub fn clear(&mut self) {
        self.records.clear();
        self.decided.clear();
        self.redecided.clear();
        self.changed_chains.clear();
    }

    pub fn app(&self, key: &FactKey) -> Option<&'a AppPolicy> {
        self.policy.app(key.pid)
    }

    /// Checks whether a fact of this time, or the decision about it, can still change.
    pub fn is_changeable(&self, key: &FactKey, time: EventTime) -> bool {
        self.app(key).is_some_and(|app| {
            let (until, floor) = (self.ledger.consumed_until(), self.ledger.expiry_floor(key.pid));
            time >= expiry::changeable_from(app, until, &floor)
        })
    }

    pub fn ledger(&mut self) -> &mut L {
        self.ledger
    }

    /// Inserts a record that is known without loading.
    pub fn insert_record(&mut self, key: FactKey, record: FactRecord) {
        self.records.insert(key, Some(record));
    }

    /// Frees memory: touches are read for a few decisions at a time.
    pub fn forget_touches(&mut self) {
        self.retain_records(|key| key.family != Family::Touch);
    }

    pub fn retain_records(&mut self, mut is_needed: impl FnMut(&FactKey) -> bool) {
        self.records.retain(|key, _| is_needed(key));
    }

    /// Loads the records of all keys, for [`BatchContext::record`].
    pub fn load(&mut self, keys: impl IntoIterator<Item = FactKey>) -> Result<(), L::Error> {
        let mut missing: Vec<FactKey> =
            keys.into_iter().filter(|key| !self.records.contains_key(key)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let records = self.ledger.records(&missing)?;
        self.records.extend(missing.into_iter().zip(records));
        Ok(())
    }

    /// Returns a loaded record.
    pub fn record(&self, key: &FactKey) -> Option<&FactRecord> {
        self.records.get(key)?.as_ref()
    }

    /// Returns the record that an index entry leads to, unless the entry is stale.
    pub fn at(&self, entry: &IndexEntry) -> Option<&FactRecord> {
        self.record(&entry.fact).filter(|record| record.time() == entry.time)
    }

    /// Calls `visit` with every entry of every scan, and the scan's index.
    pub fn scan_all(
        &mut self,
        scans: &[Scan],
        mut visit: impl FnMut(usize, IndexEntry),
    ) -> Result<(), L::Error> {
        let mut open: Vec<Scan> = Vec::new();
        let mut indexes: Vec<usize> = (0..scans.len()).collect();
        loop {
            let current = if open.is_empty() { scans } else { &open };
            let pages = self.ledger.scan(current)?;
            let mut remaining = Vec::new();
            let mut remaining_indexes = Vec::new();
            for ((scan, index), page) in current.iter().zip(indexes).zip(pages) {
                if page.len() >= scan.limit {
                    remaining.push(Scan { after: page.last().copied(), limit: NEXT_PAGE, ..*scan });
                    remaining_indexes.push(index);
                }
                page.into_iter().for_each(|entry| visit(index, entry));
            }
            if remaining.is_empty() {
                return Ok(());
            }
            (open, indexes) = (remaining, remaining_indexes);
        }
    }

    /// Sets the install chains that end with an activation. Returns whether this batch has changed them.
    pub fn set_chains(&mut self, key: &FactKey, chains: InstallChains) -> bool {
        let Some(Some(FactRecord::Activation(record))) = self.records.get_mut(key) else {
            return false;
        };
        if record.chains != chains {
            record.chains = chains;
            self.changed_chains.insert(*key);
        }
        self.changed_chains.contains(key)
    }

    /// Sets the decision on an activation and returns whether it differs from the current one. A decision is written
    /// if it differs or if `must_write` is set.
    pub fn decide_activation(
        &mut self,
        key: FactKey,
        decision: Decision,
        must_write: bool,
    ) -> bool {
        let Some(Some(FactRecord::Activation(record))) = self.records.get_mut(&key) else {
            return false;
        };
        let row = build_row::activation_row(&record.fact, &decision);
        let digest = build_row::digest(&(&row, &decision.original));
        let before = record.decision.replace(decision);
        let is_new = record.current_row.is_none_or(|current_row| current_row.digest != digest);
        if is_new {
            self.redecided.extend(before.is_some().then_some(key));
            record.previous = before;
        }
        if is_new || must_write {
            self.decided.insert(key, Decided::new(row, digest, &mut record.current_row));
        } else if self.concurrent.has(&key) {
            self.decided.insert(key, Decided::rewrite(row, record.current_row));
        }
        is_new
    }

    /// Sets the causes of the last change of an activation.
    pub fn set_causes(&mut self, key: &FactKey, causes: Causes) {
        if let Some(Some(FactRecord::Activation(record))) = self.records.get_mut(key) {
            record.changed_by = causes;
        }
    }

    /// Sets the row of an effect.
    pub fn decide_effect(&mut self, key: FactKey, row: Row) {
        let Some(Some(FactRecord::Effect(record))) = self.records.get_mut(&key) else { return };
        let digest = build_row::digest(&row);
        if record.current_row.is_none_or(|current_row| current_row.digest != digest) {
            self.decided.insert(key, Decided::new(row, digest, &mut record.current_row));
        } else if self.concurrent.has(&key) {
            self.decided.insert(key, Decided::rewrite(row, record.current_row));
        }
    }

    /// Checks whether any decision is to be written.
    pub fn has_decided(&self) -> bool {
        !self.decided.is_empty()
    }

    /// Takes the decisions to be written, in key order.
    pub fn take_decisions(&mut self) -> Vec<DecisionWrite> {
        let decided = std::mem::take(&mut self.decided);
        let mut writes: Vec<_> = decided
            .into_iter()
            .filter_map(|(key, Decided { row, replaced })| {
                let record = self.records.remove(&key)??;
                Some(DecisionWrite { key, record, row, replaced })
            })
            .collect();
        writes.sort_unstable_by_key(|write| write.key);
        writes
    }
}

impl<L: Ledger> BatchContext<'_, L> {
    pub fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, L::Error> {
        if !L::SHARED {
            return self.ledger.commit(decisions, progress);
        }
        let keys: Vec<_> = decisions.iter().map(|write| write.key).collect();
        let conflicting = self.ledger.commit(decisions, progress)?;
        let ConcurrentWrites { conflicts, written, .. } = &mut self.concurrent;
        *conflicts = conflicting.iter().copied().collect();
        written.extend(keys.into_iter().filter(|key| !conflicts.contains(key)));
        Ok(conflicting)
    }
}

impl ConcurrentWrites {
    fn has(&self, key: &FactKey) -> bool {
        self.conflicts.contains(key) || (self.covers_all && !self.written.contains(key))
    }
}

impl Decided {
    /// Rewrites the row of an unchanged decision.
    fn rewrite(mut row: Row, current_row: Option<CurrentRow>) -> Self {
        row.revision = current_row.map_or(0, |current_row| current_row.revision);
        Self { row, replaced: current_row }
    }

    fn new(mut row: Row, digest: u64, current_row: &mut Option<CurrentRow>) -> Self {
        let replaced = *current_row;
        row.revision = replaced.map_or(0, |current_row| current_row.revision).saturating_add(1);
        *current_row = Some(CurrentRow {
            revision: row.revision,
            event_time: row.event_time,
            spreadid: row.spreadid,
            status: row.status,
            digest,
            place: RowRef::default(),
        });
        Self { row, replaced }
    }
}

/// Returns the scan of one key between two times, both inclusive.
pub fn scan(
    pid: Pid,
    family: Family,
    key: MatchKey,
    (oldest, newest): (EventTime, EventTime),
) -> Scan {
    Scan { family, key, pid, oldest, newest, after: None, limit: PAGE }
}

/// Merges overlapping scans of the same key.
pub fn merged(mut scans: Vec<Scan>) -> Vec<Scan> {
    scans.sort_unstable_by_key(|scan| (scan.family, scan.pid, scan.key, scan.oldest));
    scans.dedup_by(|later, earlier| {
        let is_overlap = (later.family, later.pid, later.key)
            == (earlier.family, earlier.pid, earlier.key)
            && later.oldest <= earlier.newest;
        if is_overlap {
            earlier.newest = earlier.newest.max(later.newest);
        }
        is_overlap
    });
    scans
}
