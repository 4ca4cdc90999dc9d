//! Decides activations: those of the batch, those whose class has changed, and those that a touch can change.

use super::batch_state::BatchState;
use super::classify_batch::Classified;
use super::decisions::Decisions;
use super::fact_cache::FactCache;
use super::pending_decision::{
    PendingDecision, read_newest, read_touches, reload, start_reading, start_reading_alone,
};
use super::prune_touches::prune;
use crate::facts::keys::{FactKey, FactKeySet};
use crate::ledger::{Facts, Ledger};
use crate::rules::classify::Class;
use crate::rules::policy::Policy;
use crate::rules::winner::Decision;

/// Activations that are decided together: enough to share each read, and few enough that their touches fit into
/// memory.
const BATCH_SIZE: usize = 512;
/// Pages of touches that are read for all of them together: most activations need no more.
const BATCH_PAGES: usize = 2;

/// Decides the batch's activations, those whose class has changed, and those that a touch can change. Returns the
/// activations whose effects can change.
pub fn decide_activations<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    state: &BatchState,
    classified: &[Classified],
    touched: Vec<FactKey>,
) -> Result<FactKeySet, L::Error> {
    let pending = pending_decisions(facts, policy, decisions, state, classified, touched);
    // Another worker may have written the same decisions, but not yet their effects.
    let unconfirmed: Vec<FactKey> =
        pending.iter().filter(|_| L::SHARED).map(|pending| pending.key).collect();
    let mut changed = decide_pending(facts, decisions, pending)?;
    changed.extend(unconfirmed);
    // A replaced activation may have the same row and still be another fact for its effects.
    changed.extend(state.superseded_activations.iter().map(|(key, _)| *key));
    Ok(changed)
}

/// Returns the decisions to make. Of the other activations, writes those with new chains again.
pub fn pending_decisions<'p, L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &'p Policy,
    decisions: &mut Decisions,
    state: &BatchState,
    classified: &[Classified],
    touched: Vec<FactKey>,
) -> Vec<PendingDecision<'p>> {
    let mut pending_decisions = Vec::with_capacity(classified.len() + touched.len());
    let arrived: FactKeySet = state.activations.iter().copied().collect();
    let touched: FactKeySet = touched.into_iter().collect();
    let mut visited = FactKeySet::default();
    for Classified { key, class, has_new_chains } in classified {
        visited.insert(*key);
        let is_open = state.must_redecide_all
            || arrived.contains(key)
            || touched.contains(key)
            || current_class(facts, key).as_ref() != Some(class);
        if is_open {
            let class = class.clone();
            pending_decisions.extend(PendingDecision::new(
                facts,
                policy,
                *key,
                class,
                *has_new_chains,
            ));
        } else if let (true, Some(decision)) = (*has_new_chains, decision_on(facts, key)) {
            decisions.decide_activation(facts, *key, decision.clone(), true);
        }
    }
    let unclassified = touched.into_iter().filter(|key| !visited.contains(key));
    pending_decisions.extend(unclassified.filter_map(|key| {
        PendingDecision::new(facts, policy, key, current_class(facts, &key)?, false)
    }));
    pending_decisions
}

/// Decides each, and returns those whose decision has changed.
pub fn decide_pending<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    mut pending_decisions: Vec<PendingDecision<'_>>,
) -> Result<FactKeySet, L::Error> {
    let mut changed = FactKeySet::default();
    while !pending_decisions.is_empty() {
        let remaining = pending_decisions.split_off(pending_decisions.len().min(BATCH_SIZE));
        let batch = std::mem::replace(&mut pending_decisions, remaining);
        decide_together(facts, decisions, batch, &mut changed)?;
        facts.forget_touches();
    }
    Ok(changed)
}

fn decide_together<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    pending_decisions: Vec<PendingDecision<'_>>,
    changed: &mut FactKeySet,
) -> Result<(), L::Error> {
    let [mut open, crowded] = start_reading(facts, pending_decisions)?;
    for _ in 0..BATCH_PAGES {
        read_touches(facts, &mut open)?;
        open.retain(|pending| !decide_if_settled(facts, decisions, pending, changed));
    }
    for pending in open {
        facts.forget_touches();
        reload(facts, &pending)?;
        decide_alone(facts, decisions, pending, changed)?;
    }
    for mut pending in crowded {
        facts.forget_touches();
        start_reading_alone(facts, &mut pending)?;
        decide_alone(facts, decisions, pending, changed)?;
    }
    Ok(())
}

/// Reads a long history page by page and keeps only the touches that are still needed.
fn decide_alone<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    mut pending: PendingDecision<'_>,
    changed: &mut FactKeySet,
) -> Result<(), L::Error> {
    loop {
        read_newest(facts, &mut pending)?;
        if decide_if_settled(facts, decisions, &pending, changed) {
            return Ok(());
        }
        prune(facts, &mut pending);
    }
}

fn decide_if_settled<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    pending: &PendingDecision<'_>,
    changed: &mut FactKeySet,
) -> bool {
    let Some(decision) = pending.decision(facts) else { return false };
    if decisions.decide_activation(facts, pending.key, decision, pending.has_new_chains) {
        changed.insert(pending.key);
    }
    true
}

fn decision_on<'a, L: Facts>(facts: &'a FactCache<'_, L>, key: &FactKey) -> Option<&'a Decision> {
    facts.activation(key)?.decision.as_ref()
}

/// Returns the class of the current decision.
fn current_class<L: Facts>(facts: &FactCache<'_, L>, key: &FactKey) -> Option<Class> {
    let Decision { install_type, original, .. } = decision_on(facts, key)?;
    Some(Class { install_type: *install_type, original: original.clone() })
}
