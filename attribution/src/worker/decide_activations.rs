//! Decides activations: those of the batch, those of another class now, and those that a touch
//! can change.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use super::BatchContext;
use super::batch_state::BatchState;
use super::classify_batch::Classified;
use super::touch_search::Case;
use crate::facts::keys::FactKey;
use crate::ledger::record::Home;
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
        let cases = self.cases(state, classified, touched);
        // Another worker may have written these very decisions and not their effects yet.
        let unsure: Vec<_> = cases.iter().filter(|_| L::SHARED).map(|case| case.key).collect();
        let mut changed = self.decide_cases(cases)?;
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
        mut cases: Vec<Case>,
    ) -> Result<HashSet<FactKey, FixedState>, L::Error> {
        let mut changed: HashSet<FactKey, FixedState> = HashSet::default();
        while !cases.is_empty() {
            let rest = cases.split_off(cases.len().min(TOGETHER));
            self.decide_together(std::mem::replace(&mut cases, rest), &mut changed)?;
            self.forget_touches();
        }
        Ok(changed)
    }

    fn decide_together(
        &mut self,
        cases: Vec<Case>,
        changed: &mut HashSet<FactKey, FixedState>,
    ) -> Result<(), L::Error> {
        let [mut open, crowded] = self.start_reading(cases)?;
        for _ in 0..PAGES_TOGETHER {
            self.read_touches(&mut open)?;
            open.retain(|case| !self.decide_if_settled(case, changed));
        }
        for case in open {
            self.forget_touches();
            self.take_up(&case)?;
            self.decide_alone(case, changed)?;
        }
        for mut case in crowded {
            self.forget_touches();
            self.start_reading_alone(&mut case)?;
            self.decide_alone(case, changed)?;
        }
        Ok(())
    }

    /// Reads a long history page by page and keeps of it what is needed.
    fn decide_alone(
        &mut self,
        mut case: Case,
        changed: &mut HashSet<FactKey, FixedState>,
    ) -> Result<(), L::Error> {
        loop {
            self.read_newest(&mut case)?;
            if self.decide_if_settled(&case, changed) {
                return Ok(());
            }
            self.prune(&mut case);
        }
    }

    fn decide_if_settled(
        &mut self,
        case: &Case,
        changed: &mut HashSet<FactKey, FixedState>,
    ) -> bool {
        let Some(decision) = self.decision(case) else { return false };
        if self.decide_activation(case.key, decision, case.has_new_chains) {
            changed.insert(case.key);
        }
        true
    }

    pub fn cases(
        &mut self,
        state: &BatchState,
        classified: &[Classified],
        touched: Vec<FactKey>,
    ) -> Vec<Case> {
        let arrived: HashSet<&FactKey, FixedState> = state.activations.iter().collect();
        let touched: HashSet<FactKey, FixedState> = touched.into_iter().collect();
        let mut cases = Vec::with_capacity(classified.len() + touched.len());
        let mut visited: HashSet<FactKey, FixedState> = HashSet::default();
        for Classified { key, class, has_new_chains } in classified {
            visited.insert(*key);
            let is_open = state.must_redecide_all
                || arrived.contains(key)
                || touched.contains(key)
                || self.class(key).as_ref() != Some(class);
            if is_open {
                cases.extend(self.case(*key, class.clone(), *has_new_chains));
            } else if let (true, Some(decision)) = (*has_new_chains, self.decision_on(key)) {
                self.decide_activation(*key, decision.clone(), true);
            }
        }
        let unwalked = touched.into_iter().filter(|key| !visited.contains(key));
        cases.extend(unwalked.filter_map(|key| self.case(key, self.class(&key)?, false)));
        cases
    }

    fn decision_on(&self, key: &FactKey) -> Option<&Decision> {
        match self.home(key)? {
            Home::Activation(home) => home.decision.as_ref(),
            _ => None,
        }
    }

    /// As it was decided last.
    fn class(&self, key: &FactKey) -> Option<Class> {
        let Decision { install_type, original, .. } = self.decision_on(key)?;
        Some(Class { install_type: *install_type, original: original.clone() })
    }
}
