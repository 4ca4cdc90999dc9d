//! Decides activations: those of the batch, those whose class has changed, and those that a touch can change.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use super::BatchContext;
use super::batch_state::BatchState;
use super::classify_batch::Classified;
use super::touch_search::PendingDecision;
use crate::facts::keys::FactKey;
use crate::ledger::record::FactRecord;
use crate::ledger::{Facts, Ledger};
use crate::rules::classify::Class;
use crate::rules::winner::Decision;

/// Activations that are decided together: enough to share each read, and few enough that their touches fit into
/// memory.
const BATCH_SIZE: usize = 512;
/// Pages of touches that are read for all of them together: most activations need no more.
const BATCH_PAGES: usize = 2;

impl<L: Ledger> BatchContext<'_, L> {
    /// Decides the batch's activations, those whose class has changed, and those that a touch can change. Returns the
    /// activations whose effects can change.
    pub fn decide_activations(
        &mut self,
        state: &BatchState,
        classified: &[Classified],
        touched: Vec<FactKey>,
    ) -> Result<HashSet<FactKey, FixedState>, L::Error> {
        let pending_decisions = self.pending_decisions(state, classified, touched);
        // Another worker may have written the same decisions, but not yet their effects.
        let unconfirmed: Vec<_> =
            pending_decisions.iter().filter(|_| L::SHARED).map(|pending| pending.key).collect();
        let mut changed = self.decide_pending(pending_decisions)?;
        changed.extend(unconfirmed);
        // A replaced activation may have the same row and still be another fact for its effects.
        changed.extend(state.superseded_activations.iter().map(|(key, _)| *key));
        Ok(changed)
    }
}

impl<L: Facts> BatchContext<'_, L> {
    /// Decides each, and returns those whose decision has changed.
    pub fn decide_pending(
        &mut self,
        mut pending_decisions: Vec<PendingDecision>,
    ) -> Result<HashSet<FactKey, FixedState>, L::Error> {
        let mut changed: HashSet<FactKey, FixedState> = HashSet::default();
        while !pending_decisions.is_empty() {
            let remaining = pending_decisions.split_off(pending_decisions.len().min(BATCH_SIZE));
            self.decide_together(
                std::mem::replace(&mut pending_decisions, remaining),
                &mut changed,
            )?;
            self.forget_touches();
        }
        Ok(changed)
    }

    fn decide_together(
        &mut self,
        pending_decisions: Vec<PendingDecision>,
        changed: &mut HashSet<FactKey, FixedState>,
    ) -> Result<(), L::Error> {
        let [mut open, crowded] = self.start_reading(pending_decisions)?;
        for _ in 0..BATCH_PAGES {
            self.read_touches(&mut open)?;
            open.retain(|pending| !self.decide_if_settled(pending, changed));
        }
        for pending in open {
            self.forget_touches();
            self.reload(&pending)?;
            self.decide_alone(pending, changed)?;
        }
        for mut pending in crowded {
            self.forget_touches();
            self.start_reading_alone(&mut pending)?;
            self.decide_alone(pending, changed)?;
        }
        Ok(())
    }

    /// Reads a long history page by page and keeps only the touches that are still needed.
    fn decide_alone(
        &mut self,
        mut pending: PendingDecision,
        changed: &mut HashSet<FactKey, FixedState>,
    ) -> Result<(), L::Error> {
        loop {
            self.read_newest(&mut pending)?;
            if self.decide_if_settled(&pending, changed) {
                return Ok(());
            }
            self.prune(&mut pending);
        }
    }

    fn decide_if_settled(
        &mut self,
        pending: &PendingDecision,
        changed: &mut HashSet<FactKey, FixedState>,
    ) -> bool {
        let Some(decision) = self.decision(pending) else { return false };
        if self.decide_activation(pending.key, decision, pending.has_new_chains) {
            changed.insert(pending.key);
        }
        true
    }

    pub fn pending_decisions(
        &mut self,
        state: &BatchState,
        classified: &[Classified],
        touched: Vec<FactKey>,
    ) -> Vec<PendingDecision> {
        let arrived: HashSet<&FactKey, FixedState> = state.activations.iter().collect();
        let touched: HashSet<FactKey, FixedState> = touched.into_iter().collect();
        let mut pending_decisions = Vec::with_capacity(classified.len() + touched.len());
        let mut visited: HashSet<FactKey, FixedState> = HashSet::default();
        for Classified { key, class, has_new_chains } in classified {
            visited.insert(*key);
            let is_open = state.must_redecide_all
                || arrived.contains(key)
                || touched.contains(key)
                || self.class(key).as_ref() != Some(class);
            if is_open {
                pending_decisions.extend(self.pending_decision(
                    *key,
                    class.clone(),
                    *has_new_chains,
                ));
            } else if let (true, Some(decision)) = (*has_new_chains, self.decision_on(key)) {
                self.decide_activation(*key, decision.clone(), true);
            }
        }
        let unclassified = touched.into_iter().filter(|key| !visited.contains(key));
        pending_decisions.extend(
            unclassified.filter_map(|key| self.pending_decision(key, self.class(&key)?, false)),
        );
        pending_decisions
    }

    fn decision_on(&self, key: &FactKey) -> Option<&Decision> {
        match self.record(key)? {
            FactRecord::Activation(record) => record.decision.as_ref(),
            _ => None,
        }
    }

    /// Returns the class of the current decision.
    fn class(&self, key: &FactKey) -> Option<Class> {
        let Decision { install_type, original, .. } = self.decision_on(key)?;
        Some(Class { install_type: *install_type, original: original.clone() })
    }
}
