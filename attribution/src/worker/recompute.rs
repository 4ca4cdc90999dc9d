//! Recomputes the decisions of stored events from the facts alone, to compare them with the stored ones.

use std::collections::BTreeMap;

use super::batch_state::BatchState;
use super::classify_batch::classify;
use super::decide_activations::{decide_open, open_activations};
use super::decide_effects::decide_effects;
use super::decisions::Decisions;
use super::fact_cache::FactCache;
use super::limits::ReadLimits;
use crate::facts::keys::FactKey;
use crate::ledger::record::{Causes, FactRecord};
use crate::ledger::{DecisionWrite, Facts};
use crate::rules::policy::Policy;

/// The recomputed decision of an event, and the stored one.
#[derive(Debug, Clone)]
pub struct Recomputed {
    /// The stored record; `None` for an activation that is recomputed only because an earlier one changed.
    pub stored: Option<FactRecord>,
    /// The write that replaces the record. An unchanged row keeps its revision.
    pub write: DecisionWrite,
}

impl Recomputed {
    /// Checks whether the row differs from the stored one or is new.
    pub fn has_row_change(&self) -> bool {
        let digest =
            |record: &FactRecord| record.current_row().map(|current_row| current_row.digest);
        self.stored.as_ref().and_then(digest) != digest(&self.write.record)
    }

    /// Checks whether the decision, or the install chains for later activations, differ.
    pub fn has_changed(&self) -> bool {
        self.has_row_change()
            || match (&self.stored, &self.write.record) {
                (Some(FactRecord::Activation(stored)), FactRecord::Activation(record)) => {
                    stored.decision != record.decision
                        || !stored.chains.is_equivalent_to(&record.chains)
                }
                _ => false,
            }
    }
}

/// Recomputes the decisions for these events. Skips events without a record, and those of unknown apps.
pub fn recompute<L: Facts>(
    facts: &mut L,
    policy: &Policy,
    events: &[FactKey],
) -> Result<Vec<Recomputed>, L::Error> {
    let facts = &mut FactCache::new(facts);
    let mut all = Vec::new();
    recompute_events(facts, policy, events, false, usize::MAX, |page| {
        all.extend(page);
        Ok(())
    })?;
    Ok(all)
}

/// Like [`recompute`], but also recomputes later activations on the same devices whose class changes. A device can have
/// any number of them, so `use_page` gets those that have reached [`ReadLimits::bytes`], until it has got all.
pub fn recompute_with_later_activations<L: Facts>(
    facts: &mut L,
    policy: &Policy,
    events: &[FactKey],
    limits: ReadLimits,
    use_page: impl FnMut(Vec<Recomputed>) -> Result<(), L::Error>,
) -> Result<(), L::Error> {
    let facts = &mut FactCache::with_limits(facts, limits);
    recompute_events(facts, policy, events, true, limits.bytes, use_page)
}

fn recompute_events<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    events: &[FactKey],
    with_later_activations: bool,
    page_bytes: usize,
    mut use_page: impl FnMut(Vec<Recomputed>) -> Result<(), L::Error>,
) -> Result<(), L::Error> {
    let (mut state, mut decisions) = (BatchState::default(), Decisions::default());
    state.add_events(events.iter().copied().filter(|key| policy.app(key.pid).is_some()));
    facts.load(state.activations.iter().chain(&state.effects).copied())?;
    let mut stored: BTreeMap<FactKey, FactRecord> = BTreeMap::new();
    for key in state.activations.iter().chain(&state.effects) {
        stored.extend(forget_decision(facts, key).map(|record| (*key, record)));
    }
    let classified = classify(facts, policy, &state, with_later_activations)?;
    let open = open_activations(&state, &classified, Vec::new());
    decide_open(facts, policy, &mut decisions, &open, |facts, decisions| {
        if decisions.bytes() < page_bytes {
            return Ok(());
        }
        use_page(take_page(facts, decisions, &mut stored))
    })?;
    decide_effects(facts, policy, &state.event_ids, &mut decisions, &state.effects)?;
    use_page(take_page(facts, &mut decisions, &mut stored))
}

/// Takes the decisions so far.
fn take_page<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    stored: &mut BTreeMap<FactKey, FactRecord>,
) -> Vec<Recomputed> {
    let writes = decisions.take(facts).into_iter();
    writes.map(|write| with_stored(stored.remove(&write.key), write)).collect()
}

/// Clears the current row of a loaded event, so that the event counts as new. Returns the stored record.
fn forget_decision<L: Facts>(facts: &mut FactCache<'_, L>, key: &FactKey) -> Option<FactRecord> {
    let record = facts.record_mut(key)?;
    let stored = record.clone();
    match record {
        FactRecord::Touch(_) => return None,
        FactRecord::Activation(record) => record.current_row = None,
        FactRecord::Effect(record) => record.current_row = None,
    }
    Some(stored)
}

fn with_stored(stored: Option<FactRecord>, mut write: DecisionWrite) -> Recomputed {
    let Some(before) = &stored else { return Recomputed { stored, write } };
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
            // No fact caused this change, and the stored causes belong to an earlier one.
            record.changed_by = Causes { facts: Vec::new(), may_have_more: true };
        }
    }
    Recomputed { stored, write }
}
