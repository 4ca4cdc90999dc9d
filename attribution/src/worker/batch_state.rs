//! What the steps of a batch hand to each other.

use super::match_windows::MatchWindows;
use crate::facts::event::{Activation, EventTime, Fact, Family};
use crate::facts::keys::FactKey;
use crate::ledger::record::Cause;

/// What stands in the ledger after a batch was admitted, as far as decisions depend on it.
#[derive(Default)]
pub struct BatchState {
    /// Where the activations stand that the batch's touches can change.
    pub windows: MatchWindows,
    pub activations: Vec<FactKey>,
    pub effects: Vec<FactKey>,
    /// Activations that were replaced, as they were.
    pub outgoing_activations: Vec<(FactKey, Activation)>,
    /// Touches and activations that are new or took the place of what they were, in key order.
    pub arrived: Vec<Cause>,
    /// On a shared store another worker may have the same messages, before this one or after it, as one does
    /// that has lost its partitions and not noticed yet; and it can end between any two writes. So all that
    /// they reach is decided on, whatever stands.
    pub must_redecide_all: bool,
}

impl BatchState {
    /// Notes what came in, and says at which place: that which it has already, where it is settled again.
    pub fn arrive(&mut self, fact: FactKey, time: EventTime, is_update: bool) -> u32 {
        let cause = Cause { fact, time, is_update };
        let is_next = self.arrived.last().is_none_or(|last| last.fact < fact);
        let known = if is_next { None } else { self.place_of(&fact) };
        let place = known.unwrap_or(self.arrived.len());
        match self.arrived.get_mut(place) {
            Some(known) => *known = cause,
            None if fact.family == Family::Effect => {}
            None => self.arrived.push(cause),
        }
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Where it is among what arrived.
    pub fn place_of(&self, fact: &FactKey) -> Option<usize> {
        self.arrived.binary_search_by_key(fact, |cause| cause.fact).ok()
    }

    /// Notes what a fact took the place of.
    pub fn replace(&mut self, key: FactKey, outgoing: Fact) {
        if let Fact::Activation(outgoing) = outgoing {
            self.outgoing_activations.push((key, *outgoing));
        }
    }

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
