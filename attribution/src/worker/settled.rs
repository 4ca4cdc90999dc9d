//! What the steps of a batch hand to each other.

use super::affected::Reaches;
use crate::event::{Activation, Family};
use crate::ledger::FactKey;

/// What stands in the ledger after a batch was admitted, as far as decisions depend on it.
#[derive(Default)]
pub struct Settled {
    /// Where the activations stand that the batch's touches can change.
    pub reaches: Reaches,
    pub activations: Vec<FactKey>,
    pub effects: Vec<FactKey>,
    /// Activations that were replaced, as they were.
    pub outgoing_activations: Vec<(FactKey, Activation)>,
}

impl Settled {
    /// Has these events decided on once more.
    pub fn revisit(&mut self, events: impl Iterator<Item = FactKey>) {
        for key in events {
            match key.family {
                Family::Touch => {}
                Family::Activation => self.activations.push(key),
                Family::Effect => self.effects.push(key),
            }
        }
    }
}
