//! The decisions of one batch, until they are committed.

use std::sync::Arc;

use super::fact_cache::FactCache;
use super::{BatchReport, RowOutcome};
use crate::facts::keys::{FactKey, FactKeyMap, FactKeySet};
use crate::ledger::record::{CurrentRow, FactRecord, RowMeta};
use crate::ledger::{DecisionWrite, Facts, Ledger, Progress};
use crate::outbox::interest::{Interests, PlannedCallback};
use crate::rules::build_row;
use crate::rules::row::{Row, Status};
use crate::rules::winner::Decision;

#[derive(Default)]
pub struct Decisions {
    /// The rows to write, each with the row that it replaces.
    rows: FactKeyMap<(Row, Option<CurrentRow>)>,
    /// Approximate size of the rows to write, and of their records.
    bytes: usize,
    /// The maximum of `bytes` at a commit.
    bytes_max: usize,
    /// Activations whose row this batch has changed.
    pub changed: FactKeySet,
    /// Activations that already had a decision, which this batch has changed.
    pub redecided: Vec<FactKey>,
    /// See [`BatchReport::large_histories`].
    pub large_histories: u64,
    /// True on a shared store: the worker that committed a decision may have crashed before it wrote the row, so the
    /// row of every decision is rewritten once, even if unchanged.
    is_shared: bool,
    /// The endpoints that are to know of decisions; none where decisions are only recomputed.
    interests: Arc<Interests>,
    /// Events that lost a race at their last commit: their decision was committed after they were read, possibly by
    /// this worker.
    conflicts: FactKeySet,
    /// Events whose row this batch has written.
    written: FactKeySet,
    /// Shared stores only: events that were committed since [`Decisions::take_committed`].
    committed: Vec<FactKey>,
}

impl Decisions {
    pub fn new(is_shared: bool, interests: Arc<Interests>) -> Self {
        Self { is_shared, interests, ..Self::default() }
    }

    /// Checks whether the row of an event is to be written.
    pub fn has_row(&self, key: &FactKey) -> bool {
        self.rows.contains_key(key)
    }

    /// Checks whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the approximate size of what is to be written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the maximum of [`Decisions::bytes`] at a commit.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Checks whether nothing was or is to be written since [`Decisions::take_committed`].
    pub fn is_settled(&self) -> bool {
        self.rows.is_empty() && self.committed.is_empty()
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
        let bytes_before = record.bytes();
        let record_bytes = bytes_before + decision.text_bytes();
        let row = build_row::activation_row(&record.fact, &decision);
        let digest = build_row::digest(&(&row, &decision.original));
        let before = record.decision.replace(decision);
        if self.decide(key, row, digest, &mut record.current_row, must_write, record_bytes) {
            self.changed.insert(key);
            self.redecided.extend(before.is_some().then_some(key));
            record.previous = before;
        }
        facts.recount(&key, bytes_before);
    }

    /// Sets the row of an effect.
    pub fn decide_effect<L: Facts>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        key: FactKey,
        row: Row,
    ) {
        let Some(record) = facts.record_mut(&key) else { return };
        let record_bytes = record.bytes();
        let FactRecord::Effect(record) = record else { return };
        let digest = build_row::digest(&row);
        self.decide(key, row, digest, &mut record.current_row, false, record_bytes);
    }

    /// Sets the row of an event and returns whether it differs from the current one.
    fn decide(
        &mut self,
        key: FactKey,
        mut row: Row,
        digest: u64,
        current_row: &mut Option<CurrentRow>,
        must_write: bool,
        record_bytes: usize,
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
        let bytes = row.bytes() + record_bytes;
        if self.rows.insert(key, (row, replaced)).is_none() {
            self.bytes += bytes;
        }
        is_new
    }

    /// Checks whether the row of a committed decision may be missing.
    fn may_lack_row(&self, key: &FactKey) -> bool {
        self.conflicts.contains(key) || (self.is_shared && !self.written.contains(key))
    }

    /// Takes the decisions to write, in key order, with their records and callbacks.
    pub fn take<L: Facts>(&mut self, facts: &mut FactCache<'_, L>) -> Vec<DecisionWrite> {
        let interests = &self.interests;
        let write = |(key, (row, replaced)): (FactKey, (Row, Option<CurrentRow>))| {
            let record = facts.remove(&key)?;
            let callbacks = callbacks(interests, &record, &row, replaced.as_ref());
            Some(DecisionWrite { key, record, row, replaced, callbacks })
        };
        self.bytes = 0;
        let mut writes: Vec<_> = self.rows.drain().filter_map(write).collect();
        writes.sort_unstable_by_key(|write| write.key);
        writes
    }

    /// Commits the decisions with the progress, and counts the rows.
    pub fn commit<L: Ledger>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        progress: &Progress,
        report: &mut BatchReport,
    ) -> Result<(), L::Error> {
        self.bytes_max = self.bytes_max.max(self.bytes);
        let writes = self.take(facts);
        let changes: Vec<_> = writes.iter().map(|write| (write.key, row_change(write))).collect();
        let lost_races = facts.ledger().commit(writes, progress)?;
        let lost_races: FactKeySet = lost_races.into_iter().collect();
        for (key, change) in &changes {
            let has_lost = lost_races.contains(key);
            if let (Some(change), false) = (change, has_lost) {
                let statuses = (change.before, change.after.status);
                *report.rows_written.entry(statuses).or_default() += 1;
                *report.row_outcomes.entry(change.after).or_default() += 1;
            }
            if L::SHARED {
                self.note_committed(*key, has_lost);
                facts.ledger().forget(key);
            }
        }
        Ok(())
    }

    fn note_committed(&mut self, key: FactKey, has_lost: bool) {
        self.committed.push(key);
        if has_lost {
            self.conflicts.insert(key);
        } else {
            self.conflicts.remove(&key);
            self.written.insert(key);
        }
    }

    /// Returns the events that were committed since the last call; empty unless the store is shared.
    pub fn take_committed(&mut self) -> Vec<FactKey> {
        std::mem::take(&mut self.committed)
    }

    /// Clears the decisions, but not which rows are written.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
        self.changed.clear();
        self.redecided.clear();
    }
}

/// Returns the callbacks about a decision.
fn callbacks(
    interests: &Interests,
    record: &FactRecord,
    row: &Row,
    replaced: Option<&CurrentRow>,
) -> Vec<PlannedCallback> {
    let previous = record.activation().and_then(|record| record.previous.as_ref());
    let before = previous.filter(|_| replaced.is_some()).map(|decision| &decision.credit);
    interests.plan(before, row)
}

/// A written row that differs from the one that it replaces.
struct RowChange {
    /// The status of the replaced row.
    before: Option<Status>,
    after: RowOutcome,
}

/// Returns `None` if the new row equals the replaced one.
fn row_change(write: &DecisionWrite) -> Option<RowChange> {
    let is_equal = |before: &CurrentRow| {
        write.record.current_row().map(|row| row.digest) == Some(before.digest)
    };
    if write.replaced.as_ref().is_some_and(is_equal) {
        return None;
    }
    let before = write.replaced.map(|current_row| current_row.status);
    Some(RowChange { before, after: RowOutcome::of(&write.row) })
}
