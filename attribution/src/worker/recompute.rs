//! Recomputes the decisions of stored events from the facts alone, to compare them with the stored ones.

use std::collections::BTreeMap;

use super::BatchContext;
use super::batch_state::BatchState;
use super::classify_batch::Classified;
use crate::facts::keys::FactKey;
use crate::ledger::record::{Causes, FactRecord};
use crate::ledger::{DecisionWrite, Facts};
use crate::rules::policy::Policy;

/// The recomputed decision of an event, and the stored one.
#[derive(Debug, Clone)]
pub struct Recomputed {
    /// The stored record; `None` for an activation that is only written because an earlier one changed.
    pub standing: Option<FactRecord>,
    /// The write that replaces it. If the row is the same, it keeps its revision.
    pub write: DecisionWrite,
}

impl Recomputed {
    /// Checks whether the row differs or does not exist yet.
    pub fn has_other_row(&self) -> bool {
        let digest =
            |record: &FactRecord| record.current_row().map(|current_row| current_row.digest);
        self.standing.as_ref().and_then(digest) != digest(&self.write.record)
    }

    /// Checks whether the decision, or the state that later activations continue from, differs.
    pub fn is_other(&self) -> bool {
        self.has_other_row()
            || match (&self.standing, &self.write.record) {
                (Some(FactRecord::Activation(standing)), FactRecord::Activation(record)) => {
                    standing.decision != record.decision
                        || !standing.chains.same_result(&record.chains)
                }
                _ => false,
            }
    }
}

/// Recomputes these events. Skips events without a record, and those of unknown apps.
pub fn recompute<L: Facts>(
    facts: &mut L,
    policy: &Policy,
    events: &[FactKey],
) -> Result<Vec<Recomputed>, L::Error> {
    decide(facts, policy, events, |context, state| context.classify_alone(&state.activations))
}

/// Like [`recompute`], and also recomputes the activations that follow these on a device and get another class.
pub fn recompute_with_followers<L: Facts>(
    facts: &mut L,
    policy: &Policy,
    events: &[FactKey],
) -> Result<Vec<Recomputed>, L::Error> {
    decide(facts, policy, events, |context, state| context.classify(state))
}

fn decide<'a, L: Facts>(
    facts: &'a mut L,
    policy: &'a Policy,
    events: &[FactKey],
    classify: impl FnOnce(&mut BatchContext<'a, L>, &BatchState) -> Result<Vec<Classified>, L::Error>,
) -> Result<Vec<Recomputed>, L::Error> {
    let mut context = BatchContext::new(facts, policy);
    let known = events.iter().copied().filter(|key| policy.app(key.pid).is_some());
    let mut state = BatchState::default();
    state.revisit(known);
    context.load(state.activations.iter().chain(&state.effects).copied())?;
    let mut stored: BTreeMap<FactKey, FactRecord> = BTreeMap::new();
    for key in state.activations.iter().chain(&state.effects) {
        stored.extend(context.forget_decision(key).map(|record| (*key, record)));
    }
    let classified = classify(&mut context, &state)?;
    let pending_decisions = context.pending_decisions(&state, &classified, Vec::new());
    context.decide_pending(pending_decisions)?;
    context.decide_effects(std::mem::take(&mut state.effects))?;
    let decided = context.take_decisions().into_iter();
    Ok(decided.map(|write| with_stored(stored.remove(&write.key), write)).collect())
}

fn with_stored(stored: Option<FactRecord>, mut write: DecisionWrite) -> Recomputed {
    let Some(before) = &stored else { return Recomputed { standing: stored, write } };
    write.replaced = before.current_row().copied();
    let revision = write.replaced.map_or(0, |current_row| current_row.revision);
    let digest = write.replaced.map(|current_row| current_row.digest);
    if let Some(current_row) = write.record.current_row_mut() {
        let is_same = Some(current_row.digest) == digest;
        current_row.revision = if is_same { revision } else { revision.saturating_add(1) };
        write.row.revision = current_row.revision;
    }
    if let (FactRecord::Activation(before), FactRecord::Activation(record)) =
        (before, &mut write.record)
    {
        if before.decision == record.decision {
            record.previous = before.previous.clone();
        } else {
            // No fact has arrived, and the stored causes belong to another change.
            record.changed_by = Causes { facts: Vec::new(), has_more: true };
        }
    }
    Recomputed { standing: stored, write }
}
