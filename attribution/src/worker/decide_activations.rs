//! Makes the decisions on activations: on those of the batch, those with a changed class, and those that a touch can
//! change.
//!
//! A device can have any number of activations that one event changes. So when the decisions on them have reached the
//! limit of bytes, they are committed, with everything that was recorded before, but without the batch's progress. On a
//! store that is not shared, the list of all activations to decide becomes durable with the first such commit, and the
//! next process after a crash decides these and their effects first (`interrupted_batch`).

use std::sync::Arc;

use super::BatchReport;
use super::affected::superseded_effect_searches;
use super::batch_state::BatchState;
use super::change_causes::note_causes;
use super::classify_batch::Classified;
use super::decisions::Decisions;
use super::device_history::HistoryEntry;
use super::fact_cache::FactCache;
use super::pending_decision::{
    PendingDecision, read_newest, read_touches, reload, start_reading, start_reading_alone,
};
use super::prune_touches::prune;
use crate::facts::keys::{FactKey, FactKeySet};
use crate::ledger::record::FactRecord;
use crate::ledger::{Facts, Ledger, Progress, Unfinished};
use crate::rules::classify::InstallChains;
use crate::rules::policy::Policy;
use crate::rules::winner::Decision;

/// Number of activations that are decided together: enough to share each read, few enough that their touches fit into
/// memory.
const BATCH_SIZE: usize = 512;
/// Number of pages of touches that are read for all of them together: most activations need no more.
const BATCH_PAGES: usize = 2;

/// An activation whose decision is made or, with new install chains only, written again.
pub struct OpenActivation<'c> {
    key: FactKey,
    /// `None` if no activation of its device has arrived: it keeps its class.
    classified: Option<&'c Classified>,
    keeps_decision: bool,
}

/// Commits the decisions on activations page by page.
struct ActivationPages<'a> {
    policy: &'a Policy,
    report: &'a mut BatchReport,
    state: &'a BatchState,
    classified: &'a [Classified],
    /// All activations to decide.
    open: [&'a [OpenActivation<'a>]; 2],
    /// Size of the decisions from which on they are committed.
    bytes_max: usize,
}

/// Makes the decisions on the batch's activations, those with a changed class, and `touched`, those that a touch can
/// change. The last ones are left to be committed.
pub fn decide_activations<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    report: &mut BatchReport,
    state: &BatchState,
    classified: &[Classified],
    touched: Vec<FactKey>,
) -> Result<(), L::Error> {
    let open = open_activations(state, classified, touched);
    if L::SHARED {
        // Another worker may have written the same decisions, but not yet the decisions on their effects.
        decisions.changed.extend(open.iter().filter(|it| !it.keeps_decision).map(|it| it.key));
    }
    // Even if the row of a replaced activation stays the same, its effects may change.
    decisions.changed.extend(state.superseded_activations.iter().map(|superseded| superseded.key));
    // The batch's own activations are as many as the batch has, so they are committed with it.
    let arrived: FactKeySet = state.activations.iter().copied().collect();
    let (own, others): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|it| arrived.contains(&it.key));
    let bytes = facts.limits.bytes;
    let has_pages = L::SHARED || state.is_interrupted;
    let bytes_max = if has_pages { bytes } else { usize::MAX };
    let mut pages =
        ActivationPages { policy, report, state, classified, open: [&own, &others], bytes_max };
    decide_open(facts, policy, decisions, &own, |facts, decisions| {
        pages.commit_if_full(facts, decisions)
    })?;
    pages.bytes_max = decisions.bytes().saturating_add(bytes);
    decide_open(facts, policy, decisions, &others, |facts, decisions| {
        pages.commit_if_full(facts, decisions)
    })?;
    note_causes(facts, policy, decisions, state, classified);
    Ok(())
}

impl ActivationPages<'_> {
    fn commit_if_full<L: Ledger>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        decisions: &mut Decisions,
    ) -> Result<(), L::Error> {
        if decisions.bytes() < self.bytes_max || decisions.is_empty() {
            return Ok(());
        }
        note_causes(facts, self.policy, decisions, self.state, self.classified);
        if !L::SHARED && facts.ledger().unfinished().is_empty() {
            let searches = superseded_effect_searches(facts.ledger(), self.policy, self.state);
            let activations = self.open.into_iter().flatten().map(|it| it.key);
            let events = activations.chain(self.state.effects.iter().copied()).collect();
            facts.ledger().set_unfinished(Unfinished { events, searches });
        }
        decisions.commit(facts, &Progress::default(), self.report)?;
        facts.clear();
        self.bytes_max = facts.limits.bytes;
        Ok(())
    }
}

/// Returns the activations to decide, in key order.
pub fn open_activations<'c>(
    state: &BatchState,
    classified: &'c [Classified],
    touched: Vec<FactKey>,
) -> Vec<OpenActivation<'c>> {
    let mut open = Vec::with_capacity(classified.len() + touched.len());
    let arrived: FactKeySet = state.activations.iter().copied().collect();
    let mut touched: FactKeySet = touched.into_iter().collect();
    for classified in classified {
        let HistoryEntry { key, has_new_chains, decided_class, .. } = &classified.entry;
        let is_touched = touched.remove(key);
        let keeps_decision = !state.must_redecide_all
            && !arrived.contains(key)
            && !is_touched
            && decided_class.as_ref() == Some(&classified.class);
        if !keeps_decision || *has_new_chains {
            open.push(OpenActivation { key: *key, classified: Some(classified), keeps_decision });
        }
    }
    let unclassified = touched.into_iter().map(|key| OpenActivation {
        key,
        classified: None,
        keeps_decision: false,
    });
    open.extend(unclassified);
    open.sort_unstable_by_key(|it| it.key);
    open
}

/// Makes the decisions in parts, each of as many activations as may be loaded together. Calls `after_part` after each.
pub fn decide_open<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    open: &[OpenActivation<'_>],
    mut after_part: impl FnMut(&mut FactCache<'_, L>, &mut Decisions) -> Result<(), L::Error>,
) -> Result<(), L::Error> {
    let mut rest = open;
    while !rest.is_empty() {
        let chunk = rest.get(..BATCH_SIZE).unwrap_or(rest);
        let is_complete = facts.load_up_to(chunk.iter().map(|it| it.key))?;
        let loaded = chunk.iter().take_while(|it| facts.is_loaded(&it.key)).count();
        let (now, later) = rest.split_at(loaded);
        let pending = now.iter().filter_map(|it| it.pending(facts, policy, decisions)).collect();
        decide_together(facts, decisions, pending)?;
        facts.forget_touches();
        if !is_complete || facts.is_full() {
            for key in now.iter().map(|it| it.key).filter(|key| !decisions.has_row(key)) {
                facts.forget(&key);
            }
        }
        after_part(facts, decisions)?;
        rest = later;
    }
    Ok(())
}

impl OpenActivation<'_> {
    /// Returns the pending decision on the loaded activation; `None` if there is nothing to decide. Sets its new
    /// install chains.
    fn pending<'p, L: Facts>(
        &self,
        facts: &mut FactCache<'_, L>,
        policy: &'p Policy,
        decisions: &mut Decisions,
    ) -> Option<PendingDecision<'p>> {
        let Some(Classified { entry, class }) = self.classified else {
            let class = decision_on(facts, &self.key)?.class();
            return PendingDecision::new(facts, policy, self.key, class, false);
        };
        let has_new_chains = set_chains(facts, &self.key, &entry.chains);
        if !self.keeps_decision {
            let (class, ids) = (class.clone(), Arc::clone(&entry.ids));
            return PendingDecision::with_ids(facts, policy, self.key, class, has_new_chains, ids);
        }
        let decision = decision_on(facts, &self.key)?.clone();
        decisions.decide_activation(facts, self.key, decision, has_new_chains);
        None
    }
}

/// Sets the install chains up to a loaded activation. Returns whether they have changed.
fn set_chains<L: Facts>(
    facts: &mut FactCache<'_, L>,
    key: &FactKey,
    chains: &InstallChains,
) -> bool {
    let Some(FactRecord::Activation(record)) = facts.record_mut(key) else { return false };
    let has_changed = record.chains != *chains;
    if has_changed {
        record.chains = chains.clone();
    }
    has_changed
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
