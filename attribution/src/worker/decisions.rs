//! The decisions of one batch, until they are committed.

use super::fact_cache::FactCache;
use crate::facts::keys::{FactKey, FactKeyMap, FactKeySet};
use crate::ledger::record::{CurrentRow, FactRecord, RowRef};
use crate::ledger::{DecisionWrite, Facts, Ledger, Progress};
use crate::rules::build_row;
use crate::rules::classify::InstallChains;
use crate::rules::row::Row;
use crate::rules::winner::Decision;

#[derive(Default)]
pub struct Decisions {
    /// The rows to write, each with the one that it replaces.
    rows: FactKeyMap<(Row, Option<CurrentRow>)>,
    /// Activations whose earlier decision this batch has changed.
    pub redecided: Vec<FactKey>,
    /// Activations whose install chains this batch has changed.
    pub changed_chains: FactKeySet,
    concurrent: ConcurrentWrites,
}

/// Events of a shared store whose decision is committed, but whose row the deciding worker may not have written. Their
/// rows are rewritten even if unchanged.
#[derive(Default)]
struct ConcurrentWrites {
    /// All events that the batch can change, because another worker may have the same messages.
    covers_all: bool,
    /// Events that a worker, possibly this one, has decided since they were read.
    conflicts: FactKeySet,
    written: FactKeySet,
}

impl Decisions {
    /// `is_shared` is set if another worker may have the same messages.
    pub fn new(is_shared: bool) -> Self {
        let concurrent = ConcurrentWrites { covers_all: is_shared, ..ConcurrentWrites::default() };
        Self { concurrent, ..Self::default() }
    }

    /// Checks whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sets the install chains that end with an activation. Returns whether this batch has changed them.
    pub fn keep_chains<L: Facts>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        key: FactKey,
        chains: InstallChains,
    ) -> bool {
        let Some(FactRecord::Activation(record)) = facts.record_mut(&key) else { return false };
        if record.chains != chains {
            record.chains = chains;
            self.changed_chains.insert(key);
        }
        self.changed_chains.contains(&key)
    }

    /// Sets the decision on an activation and returns whether it differs from the current one. A decision is written
    /// if it differs or if `must_write` is set.
    pub fn decide_activation<L: Facts>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        key: FactKey,
        decision: Decision,
        must_write: bool,
    ) -> bool {
        let Some(FactRecord::Activation(record)) = facts.record_mut(&key) else { return false };
        let row = build_row::activation_row(&record.fact, &decision);
        let digest = build_row::digest(&(&row, &decision.original));
        let before = record.decision.replace(decision);
        let is_new = self.decide(key, row, digest, &mut record.current_row, must_write);
        if is_new {
            self.redecided.extend(before.is_some().then_some(key));
            record.previous = before;
        }
        is_new
    }

    /// Sets the row of an effect.
    pub fn decide_effect<L: Facts>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        key: FactKey,
        row: Row,
    ) {
        if let Some(FactRecord::Effect(record)) = facts.record_mut(&key) {
            let digest = build_row::digest(&row);
            self.decide(key, row, digest, &mut record.current_row, false);
        }
    }

    fn decide(
        &mut self,
        key: FactKey,
        mut row: Row,
        digest: u64,
        current_row: &mut Option<CurrentRow>,
        must_write: bool,
    ) -> bool {
        let replaced = *current_row;
        let is_new = replaced.is_none_or(|replaced| replaced.digest != digest);
        row.revision = replaced.map_or(0, |replaced| replaced.revision);
        if is_new || must_write {
            row.revision = row.revision.saturating_add(1);
            *current_row = Some(CurrentRow {
                revision: row.revision,
                event_time: row.event_time,
                spreadid: row.spreadid,
                status: row.status,
                digest,
                row_ref: RowRef::default(),
            });
            self.rows.insert(key, (row, replaced));
        } else if self.concurrent.has(&key) {
            self.rows.insert(key, (row, replaced));
        }
        is_new
    }

    /// Takes the decisions to be written, in key order, with their records.
    pub fn take<L: Facts>(&mut self, facts: &mut FactCache<'_, L>) -> Vec<DecisionWrite> {
        let write = |(key, (row, replaced))| {
            Some(DecisionWrite { key, record: facts.remove(&key)?, row, replaced })
        };
        let mut writes: Vec<_> = self.rows.drain().filter_map(write).collect();
        writes.sort_unstable_by_key(|write| write.key);
        writes
    }

    /// Returns the events that another worker has decided since they were read.
    pub fn commit<L: Ledger>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        writes: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, L::Error> {
        if !L::SHARED {
            return facts.ledger().commit(writes, progress);
        }
        let keys: Vec<_> = writes.iter().map(|write| write.key).collect();
        let conflicting = facts.ledger().commit(writes, progress)?;
        let ConcurrentWrites { conflicts, written, .. } = &mut self.concurrent;
        *conflicts = conflicting.iter().copied().collect();
        written.extend(keys.into_iter().filter(|key| !conflicts.contains(key)));
        Ok(conflicting)
    }

    /// Forgets what was decided, but not what was written.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.redecided.clear();
        self.changed_chains.clear();
    }
}

impl ConcurrentWrites {
    fn has(&self, key: &FactKey) -> bool {
        self.conflicts.contains(key) || (self.covers_all && !self.written.contains(key))
    }
}
