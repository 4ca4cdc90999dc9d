//! Makes the decisions on activations: on those of the batch, those with a changed class, and those that a touch can
//! change.

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
use crate::rules::policy::Policy;
use crate::rules::winner::Decision;

/// Number of activations that are decided together: enough to share each read, few enough that their touches fit into
/// memory.
const BATCH_SIZE: usize = 512;
/// Number of pages of touches that are read for all of them together: most activations need no more.
const BATCH_PAGES: usize = 2;

/// Makes the decisions on the batch's activations, those with a changed class, and `touched`, those that a touch can
/// change.
pub fn decide_activations<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    state: &BatchState,
    classified: &[Classified],
    touched: Vec<FactKey>,
) -> Result<(), L::Error> {
    let pending = pending_decisions(facts, policy, decisions, state, classified, touched);
    if L::SHARED {
        // Another worker may have written the same decisions, but not yet the decisions on their effects.
        decisions.changed.extend(pending.iter().map(|pending| pending.key));
    }
    // Even if the row of a replaced activation stays the same, its effects may change.
    decisions.changed.extend(state.superseded_activations.iter().map(|(key, _)| *key));
    decide_pending(facts, decisions, pending)
}

/// Returns the pending decisions. Rewrites the records of other activations whose chains have changed.
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
            || decision_on(facts, key).map(Decision::class).as_ref() != Some(class);
        if is_open {
            let pending = PendingDecision::new(facts, policy, *key, class.clone(), *has_new_chains);
            pending_decisions.extend(pending);
        } else if let (true, Some(decision)) = (*has_new_chains, decision_on(facts, key)) {
            decisions.decide_activation(facts, *key, decision.clone(), true);
        }
    }
    let unclassified = touched.into_iter().filter(|key| !visited.contains(key));
    pending_decisions.extend(unclassified.filter_map(|key| {
        PendingDecision::new(facts, policy, key, decision_on(facts, &key)?.class(), false)
    }));
    pending_decisions
}

pub fn decide_pending<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    mut pending_decisions: Vec<PendingDecision<'_>>,
) -> Result<(), L::Error> {
    while !pending_decisions.is_empty() {
        let remaining = pending_decisions.split_off(pending_decisions.len().min(BATCH_SIZE));
        let batch = std::mem::replace(&mut pending_decisions, remaining);
        decide_together(facts, decisions, batch)?;
        facts.forget_touches();
    }
    Ok(())
}

fn decide_together<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    pending_decisions: Vec<PendingDecision<'_>>,
) -> Result<(), L::Error> {
    let [mut open, crowded] = start_reading(facts, pending_decisions)?;
    for _ in 0..BATCH_PAGES {
        read_touches(facts, &mut open)?;
        open.retain(|pending| !decide_if_settled(facts, decisions, pending));
    }
    for pending in open {
        facts.forget_touches();
        reload(facts, &pending)?;
        decide_alone(facts, decisions, pending)?;
    }
    for mut pending in crowded {
        facts.forget_touches();
        start_reading_alone(facts, &mut pending)?;
        decide_alone(facts, decisions, pending)?;
    }
    Ok(())
}

/// Makes a decision with a long history: reads page by page and keeps only the touches that are still needed.
fn decide_alone<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    mut pending: PendingDecision<'_>,
) -> Result<(), L::Error> {
    loop {
        read_newest(facts, &mut pending)?;
        if decide_if_settled(facts, decisions, &pending) {
            decisions.large_histories += u64::from(pending.read >= facts.limits.large_history);
            return Ok(());
        }
        prune(facts, &mut pending);
    }
}

fn decide_if_settled<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    pending: &PendingDecision<'_>,
) -> bool {
    let Some(decision) = pending.decision(facts) else { return false };
    decisions.decide_activation(facts, pending.key, decision, pending.has_new_chains);
    true
}

fn decision_on<'a, L: Facts>(facts: &'a FactCache<'_, L>, key: &FactKey) -> Option<&'a Decision> {
    facts.activation(key)?.decision.as_ref()
}
