//! Turns a batch of facts into decisions, rows and positions.
//!
//! The facts of a batch are recorded first. Then everything that they can change is found, decided from the ledger's
//! facts, and written if it differs. So the outcome depends on the set of facts alone, and if two workers receive two
//! facts of one device at the same time, at least one of them sees both.
//!
//! The steps, one module each: `deduplicate` decides which message is the fact, `affected` finds what can change,
//! `classify_batch` classifies activations (over `device_history`), `decide_activations` (over `touch_search`) and
//! `decide_effects` decide, and `change_causes` finds what can have changed a decision. `recompute` decides stored
//! events again. `batch_context` holds what the batch has loaded, `batch_state` what the steps pass on.

mod affected;
pub(crate) mod batch_context;
mod batch_state;
mod change_causes;
mod classify_batch;
mod decide_activations;
mod decide_effects;
mod deduplicate;
mod device_history;
mod match_windows;
mod prune_touches;
mod recompute;
pub(crate) mod touch_search;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::event::{Fact, Family};
use crate::facts::keys::FactKey;
use crate::ledger::record::CurrentRow;
use crate::ledger::{DecisionWrite, Ledger, Progress};
use crate::rules::policy::Policy;
use crate::rules::row::Status;
pub(crate) use batch_context::BatchContext;
use batch_state::BatchState;
use match_windows::MatchWindows;
pub use recompute::{Recomputed, recompute, recompute_with_followers};

/// Decides batches over one ledger.
#[derive(Debug)]
pub struct Worker<L> {
    ledger: L,
    policy: Arc<Policy>,
    /// Buffer for the match windows of a batch (about a megabyte), reused by the next batch.
    windows: MatchWindows,
}

/// Facts that arrived together, and the progress to commit with them.
#[derive(Debug, Default)]
pub struct Batch {
    pub facts: Vec<Fact>,
    pub progress: Progress,
}

/// The outcome of a batch, for counters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    pub touches: Admitted,
    pub activations: Admitted,
    pub effects: Admitted,
    /// Rows written, by the status of the row that they replace (`None` for a new event) and their own.
    pub decided: BTreeMap<(Option<Status>, Status), u64>,
}

/// Message counts of one family.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// New facts.
    pub accepted: u64,
    /// Messages with a known id, including those that replace the fact.
    pub redelivered: u64,
    /// Redelivered messages with another time or content: either an event was sent again with changes, or two events
    /// have the same id and only the lesser one is kept.
    pub conflicting: u64,
}

impl<L: Ledger> Worker<L> {
    pub fn new(ledger: L, policy: Arc<Policy>) -> Self {
        Self { ledger, policy, windows: MatchWindows::default() }
    }

    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    pub fn ledger_mut(&mut self) -> &mut L {
        &mut self.ledger
    }

    /// Decides everything that the facts can change, and commits it together with the progress. Facts of unknown apps
    /// are skipped; the caller must not pass them.
    pub fn process(&mut self, batch: Batch) -> Result<Report, L::Error> {
        let (mut report, nothing) = (Report::default(), Progress::default());
        let windows = std::mem::take(&mut self.windows);
        let mut context = BatchContext::new(&mut self.ledger, &self.policy);
        let mut state = context.deduplicate(batch.facts, windows, &mut report)?;
        context.concurrent.covers_all = state.must_redecide_all;
        loop {
            let writes = context.decide_all(&mut state)?;
            let is_last = !L::SHARED || writes.is_empty();
            let changes: Vec<_> =
                writes.iter().map(|write| (write.key, status_change(write))).collect();
            let conflicts =
                context.commit(writes, if is_last { &batch.progress } else { &nothing })?;
            for (key, change) in &changes {
                if let Some(change) = change
                    && !conflicts.contains(key)
                {
                    *report.decided.entry(*change).or_default() += 1;
                }
            }
            if is_last {
                self.windows = state.windows;
                return Ok(report);
            }
            state.revisit(changes.into_iter().map(|(key, _)| key));
            context.clear();
        }
    }
}

/// Returns the status before and after, if the row differs from the one that it replaces.
fn status_change(write: &DecisionWrite) -> Option<(Option<Status>, Status)> {
    let is_equal =
        |before: &CurrentRow| write.record.current_row().map(|p| p.digest) == Some(before.digest);
    if write.replaced.as_ref().is_some_and(is_equal) {
        return None;
    }
    Some((write.replaced.map(|current_row| current_row.status), write.row.status))
}

impl Report {
    pub fn admitted(&self, family: Family) -> Admitted {
        match family {
            Family::Touch => self.touches,
            Family::Activation => self.activations,
            Family::Effect => self.effects,
        }
    }

    fn admitted_mut(&mut self, family: Family) -> &mut Admitted {
        match family {
            Family::Touch => &mut self.touches,
            Family::Activation => &mut self.activations,
            Family::Effect => &mut self.effects,
        }
    }
}

impl<L: Ledger> BatchContext<'_, L> {
    fn decide_all(&mut self, state: &mut BatchState) -> Result<Vec<DecisionWrite>, L::Error> {
        let touched = self.touched_activations(state)?;
        let classified = self.classify(state)?;
        let changed = self.decide_activations(state, &classified, touched)?;
        self.note_causes(state);
        if L::SHARED && self.has_decided() {
            // Effects follow after these are committed: a commit that lost a race would leave them outdated.
            return Ok(self.take_decisions());
        }
        let effects = self.affected_effects(state, &classified, &changed)?;
        if L::SHARED {
            self.decide_effects_with_fresh_activations(effects)?;
        } else {
            self.decide_effects(effects)?;
        }
        Ok(self.take_decisions())
    }

    /// Reads the activations of each effect after the effect itself. So a decision from activations that another
    /// worker has changed in between is compared with an effect record from before that change, and is rejected at
    /// commit.
    fn decide_effects_with_fresh_activations(
        &mut self,
        effects: Vec<FactKey>,
    ) -> Result<(), L::Error> {
        for chunk in effects.chunks(decide_effects::BATCH_SIZE) {
            self.load(chunk.iter().copied())?;
            self.retain_records(|key| key.family == Family::Effect);
            self.decide_effects(chunk.to_vec())?;
        }
        Ok(())
    }
}
