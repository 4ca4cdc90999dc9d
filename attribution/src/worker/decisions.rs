//! The decisions of one batch, until they are committed.

use super::fact_cache::FactCache;
use crate::facts::keys::{FactKey, FactKeyMap, FactKeySet};
use crate::ledger::record::{CurrentRow, FactRecord, RowMeta};
use crate::ledger::{DecisionWrite, Facts, Ledger, Progress};
use crate::rules::build_row;
use crate::rules::classify::InstallChains;
use crate::rules::row::Row;
use crate::rules::winner::Decision;

#[derive(Default)]
pub struct Decisions {
    /// The rows to write, each with the row that it replaces.
    rows: FactKeyMap<(Row, Option<CurrentRow>)>,
    /// Activations whose row this batch has changed.
    pub changed: FactKeySet,
    /// Activations that already had a decision, which this batch has changed.
    pub redecided: Vec<FactKey>,
    /// Activations whose install chains this batch has changed.
    pub changed_chains: FactKeySet,
    /// See [`BatchReport::large_histories`](super::BatchReport::large_histories).
    pub large_histories: u64,
    /// True on a shared store: the worker that committed a decision may have crashed before it wrote the row, so the
    /// row of every decision is rewritten once, even if unchanged.
    is_shared: bool,
    /// Events that lost a race at the last commit: their decision was committed after they were read, possibly by this
    /// worker.
    conflicts: FactKeySet,
    /// Events whose row this batch has written.
    written: FactKeySet,
}

impl Decisions {
    pub fn new(is_shared: bool) -> Self {
        Self { is_shared, ..Self::default() }
    }

    /// Checks whether the row of an event is to be written.
    pub fn has_row(&self, key: &FactKey) -> bool {
        self.rows.contains_key(key)
    }

    /// Checks whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sets the install chains up to an activation. Returns whether this batch has changed them.
    pub fn set_chains<L: Facts>(
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

    /// Sets the decision on an activation. It is written if it differs from the current one or `must_write` is true.
    pub fn decide_activation<L: Facts>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        key: FactKey,
        decision: Decision,
        must_write: bool,
    ) {
        let Some(FactRecord::Activation(record)) = facts.record_mut(&key) else { return };
        let row = build_row::activation_row(&record.fact, &decision);
        let digest = build_row::digest(&(&row, &decision.original));
        let before = record.decision.replace(decision);
        if self.decide(key, row, digest, &mut record.current_row, must_write) {
            self.changed.insert(key);
            self.redecided.extend(before.is_some().then_some(key));
            record.previous = before;
        }
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

    /// Sets the row of an event and returns whether it differs from the current one.
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
                row_meta: RowMeta::default(),
            });
        } else if !self.may_lack_row(&key) {
            return false;
        }
        self.rows.insert(key, (row, replaced));
        is_new
    }

    /// Checks whether the row of a committed decision may be missing.
    fn may_lack_row(&self, key: &FactKey) -> bool {
        self.conflicts.contains(key) || (self.is_shared && !self.written.contains(key))
    }

    /// Takes the decisions to write, in key order, with their records.
    pub fn take<L: Facts>(&mut self, facts: &mut FactCache<'_, L>) -> Vec<DecisionWrite> {
        let write = |(key, (row, replaced))| {
            Some(DecisionWrite { key, record: facts.remove(&key)?, row, replaced })
        };
        let mut writes: Vec<_> = self.rows.drain().filter_map(write).collect();
        writes.sort_unstable_by_key(|write| write.key);
        writes
    }

    /// Commits the decisions. Returns the events whose decision another worker has changed since they were read.
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
        let conflicts = facts.ledger().commit(writes, progress)?;
        self.conflicts = conflicts.iter().copied().collect();
        self.written.extend(keys.into_iter().filter(|key| !self.conflicts.contains(key)));
        Ok(conflicts)
    }

    /// Clears the decisions, but not which rows are written.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.changed.clear();
        self.redecided.clear();
        self.changed_chains.clear();
    }
}
