//! Decides activations: those of the batch, those of another class now, and those that a touch
//! can change.

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

/// Activations that are decided together: as many as one round of reading should serve, and as
/// the touches of which fit into memory.
const TOGETHER: usize = 512;
/// Pages of touches that are read for so many: most need no more.
const PAGES_TOGETHER: usize = 2;

impl<L: Ledger> BatchContext<'_, L> {
    /// Decides on the batch's activations, on those whose class is another now and on those that
    /// a touch can change. Returns those whose effects can change.
    pub fn decide_activations(
        &mut self,
        state: &BatchState,
        classified: &[Classified],
        touched: Vec<FactKey>,
    ) -> Result<HashSet<FactKey, FixedState>, L::Error> {
        let pending_decisions = self.pending_decisions(state, classified, touched);
        // Another worker may have written these very decisions and not their effects yet.
        let unsure: Vec<_> =
            pending_decisions.iter().filter(|_| L::SHARED).map(|pending| pending.key).collect();
        let mut changed = self.decide_cases(pending_decisions)?;
        changed.extend(unsure);
        // A replaced activation may show the same row and still be another fact to its effects.
        changed.extend(state.outgoing_activations.iter().map(|(key, _)| *key));
        Ok(changed)
    }
}

impl<L: Facts> BatchContext<'_, L> {
    /// Decides on each, and returns those that are decided otherwise than before.
    pub fn decide_cases(
        &mut self,
        mut pending_decisions: Vec<PendingDecision>,
    ) -> Result<HashSet<FactKey, FixedState>, L::Error> {
        let mut changed: HashSet<FactKey, FixedState> = HashSet::default();
        while !pending_decisions.is_empty() {
            let rest = pending_decisions.split_off(pending_decisions.len().min(TOGETHER));
            self.decide_together(std::mem::replace(&mut pending_decisions, rest), &mut changed)?;
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
        for _ in 0..PAGES_TOGETHER {
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

    /// Reads a long history page by page and keeps of it what is needed.
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
        let unwalked = touched.into_iter().filter(|key| !visited.contains(key));
        pending_decisions.extend(
            unwalked.filter_map(|key| self.pending_decision(key, self.class(&key)?, false)),
        );
        pending_decisions
    }

    fn decision_on(&self, key: &FactKey) -> Option<&Decision> {
        match self.record(key)? {
            FactRecord::Activation(record) => record.decision.as_ref(),
            _ => None,
        }
    }

    /// As it was decided last.
    fn class(&self, key: &FactKey) -> Option<Class> {
        let Decision { install_type, original, .. } = self.decision_on(key)?;
        Some(Class { install_type: *install_type, original: original.clone() })
    }
}
