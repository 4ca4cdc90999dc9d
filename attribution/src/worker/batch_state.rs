//! The data that the steps of a batch share.

use std::sync::Arc;

use super::match_windows::MatchWindows;
use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{EventTime, Fact, Family};
use crate::facts::keys::{FactKey, FactKeyMap};
use crate::ledger::record::{Cause, FactRecord};
use crate::rules::classify::ActivationKey;

/// The state on which the decisions of a batch depend, after its facts are recorded.
#[derive(Default)]
pub struct BatchState {
    /// Match windows of the activations that the batch's touches can change.
    pub windows: MatchWindows,
    /// Activations of the batch, to be decided.
    pub activations: Vec<FactKey>,
    /// Effects of the batch, to be decided.
    pub effects: Vec<FactKey>,
    /// The ids of the batch's activations and effects. Empty on a shared store, where another worker may replace one
    /// meanwhile.
    pub event_ids: EventIds,
    /// Replaced activations, as they were before.
    pub superseded_activations: Vec<SupersededActivation>,
    /// New or replaced touches and activations, in key order.
    pub arrived: Vec<Cause>,
    /// True if an interrupted batch is finished, whose facts are no longer known.
    pub is_interrupted: bool,
    /// True on a shared store. A worker that has lost its partitions without noticing yet may process the same messages
    /// earlier or later, and it can crash between any two writes. So every decision that the messages can change is
    /// recomputed, whatever is stored.
    pub must_redecide_all: bool,
}

/// Normalised ids of activations and effects, which several steps need: their many forms take time.
#[derive(Default)]
pub struct EventIds(FactKeyMap<Arc<DeviceIds>>);

impl EventIds {
    pub fn insert(&mut self, key: FactKey, ids: Arc<DeviceIds>) {
        self.0.insert(key, ids);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the ids of a recorded fact.
    pub fn of(&self, key: &FactKey, record: &FactRecord) -> Arc<DeviceIds> {
        self.0.get(key).cloned().unwrap_or_else(|| Arc::new(record.device_ids()))
    }
}

/// An earlier version of an activation: what decides which other events depended on it.
pub struct SupersededActivation {
    pub key: FactKey,
    pub activation_key: ActivationKey,
    pub ids: DeviceIds,
}

impl BatchState {
    /// `windows` is a buffer to reuse.
    pub fn new(mut windows: MatchWindows, must_redecide_all: bool) -> Self {
        windows.clear();
        Self { windows, must_redecide_all, ..Self::default() }
    }

    /// Adds a fact to `arrived` and returns its index. A fact that is deduplicated again keeps its index.
    pub fn add_arrival(&mut self, fact: FactKey, time: EventTime, is_update: bool) -> u32 {
        let cause = Cause { fact, time, is_update };
        let is_next = self.arrived.last().is_none_or(|last| last.fact < fact);
        let known = if is_next { None } else { self.arrival_index(&fact) };
        let index = known.unwrap_or(self.arrived.len());
        match self.arrived.get_mut(index) {
            Some(known) => *known = cause,
            None if fact.family == Family::Effect => {}
            None => self.arrived.push(cause),
        }
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Returns the index of a fact in `arrived`.
    pub fn arrival_index(&self, fact: &FactKey) -> Option<usize> {
        self.arrived.binary_search_by_key(fact, |cause| cause.fact).ok()
    }

    /// Adds the previous version of an arrived fact.
    pub fn add_superseded(&mut self, key: FactKey, superseded: Fact) {
        if let Fact::Activation(superseded) = superseded {
            self.superseded_activations.push(SupersededActivation {
                key,
                activation_key: ActivationKey::of(&superseded),
                ids: DeviceIds::of_app_event(&superseded.ids),
            });
        }
    }

    /// Adds the activations and effects among these facts to the events to be decided.
    pub fn add_events(&mut self, facts: impl IntoIterator<Item = FactKey>) {
        for key in facts {
            match key.family {
                Family::Touch => {}
                Family::Activation => self.activations.push(key),
                Family::Effect => self.effects.push(key),
            }
        }
    }
}
