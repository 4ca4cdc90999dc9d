//! From a batch of facts to decisions, rows and positions.
//!
//! The facts of a batch are recorded first; then everything that they can change is found, decided from what the ledger
//! holds, and written where it differs. So the outcome depends on the set of facts alone, and when two workers receive
//! two facts of one device at the same moment, at least one of them sees both.
//!
//! The steps, one module each: `deduplicate` decides which message is the fact, `affected` finds what can change,
//! `classify_batch` classifies activations (over `device_history`), `decide_activations` (over `touch_search`) and
//! `decide_effects` decide, `change_causes` notes what can have changed a decision. `recompute` decides stored events again.
//! `batch_context` holds what the batch has loaded, `batch_state` what one step hands to the next.

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

/// Decides over one ledger.
#[derive(Debug)]
pub struct Worker<L> {
    ledger: L,
    policy: Arc<Policy>,
    /// Room for a batch's reaches, kept from one to the next: it is a megabyte.
    windows: MatchWindows,
}

/// What has arrived together, and how far that brings us.
#[derive(Debug, Default)]
pub struct Batch {
    pub facts: Vec<Fact>,
    pub progress: Progress,
}

/// What became of a batch, for counters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    pub touches: Admitted,
    pub activations: Admitted,
    pub effects: Admitted,
    /// Rows written, by the status that they replace (none for a new event) and their own.
    pub decided: BTreeMap<(Option<Status>, Status), u64>,
}

/// Messages of one family.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// Facts that were not known before.
    pub accepted: u64,
    /// Messages that repeat a fact, or take its place.
    pub redelivered: u64,
    /// Of these, the ones that say something else: either an event was sent again in other words, or two
    /// events have one id, and only the lesser of them stands.
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

    /// Decides on all that the facts can change and commits it together with the progress.
    /// Facts of apps that the policy does not know are the caller's bug; they are left out.
    pub fn process(&mut self, batch: Batch) -> Result<Report, L::Error> {
        let (mut report, nothing) = (Report::default(), Progress::default());
        let windows = std::mem::take(&mut self.windows);
        let mut context = BatchContext::new(&mut self.ledger, &self.policy);
        let mut admitted = context.deduplicate(batch.facts, windows, &mut report)?;
        context.concurrent.covers_all = admitted.must_redecide_all;
        loop {
            let writes = context.decide_all(&mut admitted)?;
            let is_last = !L::SHARED || writes.is_empty();
            let moves: Vec<_> = writes.iter().map(|write| (write.key, moved(write))).collect();
            let lost = context.commit(writes, if is_last { &batch.progress } else { &nothing })?;
            for (key, moved) in &moves {
                if let Some(moved) = moved
                    && !lost.contains(key)
                {
                    *report.decided.entry(*moved).or_default() += 1;
                }
            }
            if is_last {
                self.windows = admitted.windows;
                return Ok(report);
            }
            admitted.revisit(moves.into_iter().map(|(key, _)| key));
            context.clear();
        }
    }
}

/// The statuses that a row leaves and enters, if it shows another decision than before.
fn moved(write: &DecisionWrite) -> Option<(Option<Status>, Status)> {
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
            // Effects follow once these stand: one that came too late would leave them outdated.
            return Ok(self.take_decisions());
        }
        let effects = self.affected_effects(state, &classified, &changed)?;
        if L::SHARED {
            self.decide_effects_from_fresh(effects)?;
        } else {
            self.decide_effects(effects)?;
        }
        Ok(self.take_decisions())
    }

    /// Reads the activations of each effect after the effect itself. So a decision from activations
    /// that another worker has changed since is compared with an effect of before that, and loses.
    fn decide_effects_from_fresh(&mut self, effects: Vec<FactKey>) -> Result<(), L::Error> {
        for some in effects.chunks(decide_effects::TOGETHER) {
            self.load(some.iter().copied())?;
            self.retain_records(|key| key.family == Family::Effect);
            self.decide_effects(some.to_vec())?;
        }
        Ok(())
    }
}
