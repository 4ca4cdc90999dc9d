//! Turns a batch of facts into decisions, rows and positions.
//!
//! The facts of a batch are recorded first. Then everything that they can change is found, decided from the ledger's
//! facts, and written if it differs. So the outcome depends on the set of facts alone, and if two workers receive two
//! facts of one device at the same time, at least one of them sees both.
//!
//! The steps are functions, one module each: `deduplicate` decides which message is the fact, `affected` finds what
//! can change, `classify_batch` classifies activations (`continue_chains` over `device_history`), `decide_activations`
//! (`pending_decision` over `touch_search`, and `prune_touches`) and `decide_effects` decide, and `change_causes` finds
//! what can have changed a decision. `recompute` decides stored events again.
//!
//! They work on three values: the `FactCache` has the records that were loaded, the `BatchState` what the facts of the
//! batch can change, and the `Decisions` what is to be written. A signature shows which of them a step changes.

mod affected;
mod batch_state;
mod change_causes;
pub(crate) mod classify_batch;
mod continue_chains;
mod decide_activations;
mod decide_effects;
mod decisions;
mod deduplicate;
mod device_history;
pub(crate) mod fact_cache;
mod match_windows;
pub(crate) mod pending_decision;
pub(crate) mod prune_touches;
mod recompute;
pub(crate) mod touch_search;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::event::{Fact, Family};
use crate::ledger::record::CurrentRow;
use crate::ledger::{DecisionWrite, Ledger, Progress};
use crate::rules::policy::Policy;
use crate::rules::row::Status;
use affected::{affected_effects, touched_activations};
use batch_state::BatchState;
use change_causes::note_causes;
use classify_batch::classify;
use decide_activations::decide_activations;
use decide_effects::{decide_effects, decide_effects_with_fresh_activations};
use decisions::Decisions;
use deduplicate::deduplicate;
use fact_cache::FactCache;
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
pub struct BatchReport {
    pub touches: MessageCounts,
    pub activations: MessageCounts,
    pub effects: MessageCounts,
    /// Rows written, by the status of the row that they replace (`None` for a new event) and their own.
    pub decided: BTreeMap<(Option<Status>, Status), u64>,
}

/// Message counts of one family.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MessageCounts {
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
    pub fn process(&mut self, batch: Batch) -> Result<BatchReport, L::Error> {
        let (mut report, nothing) = (BatchReport::default(), Progress::default());
        let mut state = BatchState::new(std::mem::take(&mut self.windows), L::SHARED);
        let mut decisions = Decisions::new(L::SHARED);
        let facts = &mut FactCache::new(&mut self.ledger);
        deduplicate(facts, &self.policy, batch.facts, &mut state, &mut report)?;
        loop {
            let writes = decide_all(facts, &self.policy, &mut decisions, &mut state)?;
            let is_last = !L::SHARED || writes.is_empty();
            let changes: Vec<_> =
                writes.iter().map(|write| (write.key, status_change(write))).collect();
            let progress = if is_last { &batch.progress } else { &nothing };
            let conflicts = decisions.commit(facts, writes, progress)?;
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
            state.add_undecided(changes.into_iter().map(|(key, _)| key));
            facts.clear();
            decisions.clear();
        }
    }
}

/// Decides everything that the recorded facts can change.
fn decide_all<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    state: &mut BatchState,
) -> Result<Vec<DecisionWrite>, L::Error> {
    let touched = touched_activations(facts, policy, state)?;
    let classified = classify(facts, policy, decisions, state, true)?;
    decide_activations(facts, policy, decisions, state, &classified, touched)?;
    note_causes(facts, policy, decisions, state);
    if L::SHARED && !decisions.is_empty() {
        // Effects follow after these are committed: a commit that lost a race would leave them outdated.
        return Ok(decisions.take(facts));
    }
    let effects = affected_effects(facts, policy, state, &classified, &decisions.changed)?;
    if L::SHARED {
        decide_effects_with_fresh_activations(facts, policy, decisions, &effects)?;
    } else {
        decide_effects(facts, policy, decisions, &effects)?;
    }
    Ok(decisions.take(facts))
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

impl BatchReport {
    pub fn counts(&self, family: Family) -> MessageCounts {
        match family {
            Family::Touch => self.touches,
            Family::Activation => self.activations,
            Family::Effect => self.effects,
        }
    }

    fn counts_mut(&mut self, family: Family) -> &mut MessageCounts {
        match family {
            Family::Touch => &mut self.touches,
            Family::Activation => &mut self.activations,
            Family::Effect => &mut self.effects,
        }
    }
}
