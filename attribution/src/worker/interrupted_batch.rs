//! Finishes a batch that was committed in part when the process ended.

use super::BatchReport;
use super::affected::effect_searches;
use super::batch_state::BatchState;
use super::classify_batch::classify;
use super::decide_activations::decide_activations;
use super::decisions::Decisions;
use super::effect_pages::decide_affected_effects;
use super::fact_cache::FactCache;
use crate::ledger::{Ledger, Progress, Unfinished};
use crate::rules::policy::Policy;

/// Makes and commits the decisions that an interrupted batch has left.
pub fn finish_interrupted_batch<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    report: &mut BatchReport,
) -> Result<(), L::Error> {
    let unfinished = facts.ledger().unfinished();
    if unfinished.is_empty() {
        return Ok(());
    }
    let Unfinished { events, mut searches } = unfinished;
    let mut state = BatchState { is_interrupted: true, ..BatchState::default() };
    state.add_events(events);
    // Later activations keep their class, but the effects of a reinstall among them can carry a changed credit.
    let classified = classify(facts, policy, &state, true)?;
    decide_activations(facts, policy, decisions, report, &state, &classified, Vec::new())?;
    // Which of them were changed before the process ended is not known.
    decisions.changed.extend(state.activations.iter().copied());
    let changed = &decisions.changed;
    searches.extend(effect_searches(facts, policy, &state, &classified, changed)?);
    decide_affected_effects(facts, policy, decisions, report, &state, searches)?;
    decisions.commit(facts, &Progress::default(), report)?;
    facts.clear();
    decisions.clear();
    Ok(())
}
