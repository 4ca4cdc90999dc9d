//! From a batch of facts to decisions, rows and positions.
//!
//! Facts first, then decide: the arriving facts are made readable, then all that they can change
//! is found, decided anew from what the ledger holds, and written where it differs. So the
//! outcome depends on the set of facts alone, and of two workers that receive two facts of one
//! device at the same moment at least one sees both.
//!
//! The steps, one module each: `admit` settles identities, `affected` finds what can change,
//! `activations` and `effects` decide. `desk` holds what has been loaded for the batch.

mod activations;
mod admit;
mod affected;
mod desk;
mod effects;
mod settled;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{Fact, Family};
use crate::ledger::{DecisionWrite, Ledger, Position, Scan};
use crate::policy::Policy;
use crate::row::Status;
use desk::Desk;

/// Decides over one ledger.
#[derive(Debug)]
pub struct Worker<L> {
    ledger: L,
    policy: Arc<Policy>,
    /// Room for the scans of a batch, kept from one to the next: it is a megabyte.
    scans: Vec<Scan>,
}

/// What has arrived together, and the positions after it.
#[derive(Debug, Default)]
pub struct Batch {
    pub facts: Vec<Fact>,
    pub positions: Vec<Position>,
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
}

impl<L: Ledger> Worker<L> {
    pub fn new(ledger: L, policy: Arc<Policy>) -> Self {
        Self { ledger, policy, scans: Vec::new() }
    }

    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    pub fn ledger_mut(&mut self) -> &mut L {
        &mut self.ledger
    }

    /// Decides on all that the facts can change and commits it together with the positions.
    /// Facts of apps that the policy does not know are the caller's bug; they are left out.
    pub fn process(&mut self, batch: Batch) -> Result<Report, L::Error> {
        let mut report = Report::default();
        let scans = std::mem::take(&mut self.scans);
        let mut desk = Desk::new(&mut self.ledger, &self.policy);
        let mut admitted = desk.admit(batch.facts, scans, &mut report)?;
        loop {
            let writes = desk.decide_all(&admitted)?;
            let is_last = !L::SHARED || writes.is_empty();
            let moves: Vec<_> = writes.iter().map(|write| (write.key, moved(write))).collect();
            let lost = desk.commit(writes, if is_last { &batch.positions } else { &[] })?;
            for (key, moved) in &moves {
                if !lost.contains(key) {
                    *report.decided.entry(*moved).or_default() += 1;
                }
            }
            if is_last {
                self.scans = admitted.touch_scans;
                return Ok(report);
            }
            admitted.revisit(moves.into_iter().map(|(key, _)| key));
            desk.clear();
        }
    }
}

fn moved(write: &DecisionWrite) -> (Option<Status>, Status) {
    (write.replaced.map(|present| present.status), write.row.status)
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

impl<L: Ledger> Desk<'_, L> {
    fn decide_all(&mut self, admitted: &settled::Settled) -> Result<Vec<DecisionWrite>, L::Error> {
        let activations = self.affected_activations(admitted)?;
        let changed = self.decide_activations(activations, admitted)?;
        let effects = self.affected_effects(admitted, &changed)?;
        self.decide_effects(effects)?;
        Ok(self.take_decisions())
    }
}
