//! Which message is the fact (the contract's identity rule), and making facts readable.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use super::batch_state::BatchState;
use super::match_windows::{MatchWindows, add_windows};
use super::{BatchContext, Report};
use crate::facts::device_ids::DeviceIds;
use crate::facts::event::Fact;
use crate::facts::keys::{FactKey, MatchKey};
use crate::facts::{canonical, match_keys};
use crate::ledger::index::IndexEntry;
use crate::ledger::record::{ActivationRecord, EffectRecord, FactRecord, Lookup};
use crate::ledger::{FactWrite, Ledger};
use crate::rules::classify::InstallChains;
use crate::rules::policy::{AppPolicy, Policy};

/// One message of a batch, and the place of its fact.
type Unreconciled = Vec<(FactKey, Fact)>;

impl<L: Ledger> BatchContext<'_, L> {
    /// Settles identities among the facts and against the ledger, and records what is new.
    /// `windows` is room to write in.
    pub fn deduplicate(
        &mut self,
        facts: Vec<Fact>,
        mut windows: MatchWindows,
        report: &mut Report,
    ) -> Result<BatchState, L::Error> {
        windows.clear();
        let mut state =
            BatchState { windows, must_redecide_all: L::SHARED, ..BatchState::default() };
        let mut waiting = self.canonical_messages(facts, report);
        while !waiting.is_empty() {
            let keys: Vec<FactKey> = waiting.iter().map(|(key, _)| *key).collect();
            let known = self.ledger().lookup(&keys)?;
            let is_known: Vec<bool> = known.iter().map(|known| *known != Lookup::Missing).collect();
            let mut conflicting = Vec::new();
            let mut writes = Vec::with_capacity(keys.len());
            for ((key, fact), known) in waiting.into_iter().zip(known) {
                let Some(app) = self.app(&key) else { continue };
                let known = match known {
                    Lookup::Missing => None,
                    Lookup::Found(record) => Some((record, Vec::new())),
                    Lookup::Superseded(record, outgoing) => Some((record, outgoing)),
                    Lookup::Tombstone => continue,
                };
                if known.as_ref().is_some_and(|(record, _)| !is_same_fact(record, &fact, app)) {
                    conflicting.push(key);
                }
                writes.extend(self.reconcile((key, fact), known, app, &mut state));
            }
            let lost = self.ledger().record(writes)?;
            let lost_keys: HashSet<FactKey, FixedState> =
                lost.iter().map(|write| write.key).collect();
            let is_recorded = |key: &FactKey| lost_keys.is_empty() || !lost_keys.contains(key);
            for (key, is_known) in keys.into_iter().zip(is_known) {
                if is_recorded(&key) {
                    count(key, is_known, report);
                }
            }
            for key in conflicting.into_iter().filter(is_recorded) {
                report.admitted_mut(key.family).conflicting += 1;
            }
            waiting = lost.into_iter().map(|write| (write.key, write.record.into())).collect();
        }
        Ok(state)
    }

    /// Of the messages with one id, the least, in key order; the others are redelivered.
    fn canonical_messages(&self, facts: Vec<Fact>, report: &mut Report) -> Unreconciled {
        let mut canonical_messages: Unreconciled = Vec::with_capacity(facts.len());
        let known = facts.into_iter().filter(|fact| self.policy.app(fact.pid()).is_some());
        canonical_messages.extend(
            known.map(|fact| (match_keys::fact_key(fact.family(), fact.pid(), fact.id()), fact)),
        );
        canonical_messages.sort_unstable_by_key(|(key, _)| *key);
        canonical_messages.dedup_by(|(key, fact), (standing_key, standing)| {
            let is_same = key == standing_key;
            if is_same {
                let app_key = self.app(key).map_or("", |app| &app.key);
                let order = canonical::compare(fact, standing, app_key);
                let admitted = report.admitted_mut(key.family);
                admitted.redelivered += 1;
                admitted.conflicting += u64::from(order.is_ne());
                if order.is_lt() {
                    std::mem::swap(fact, standing);
                }
            }
            is_same
        });
        canonical_messages
    }

    /// Holds a message against what its id stands for already. On a shared store what is known
    /// is decided on again: after a crash between fact and decision its redelivery completes it.
    fn reconcile(
        &mut self,
        (key, fact): (FactKey, Fact),
        known: Option<(FactRecord, Vec<Fact>)>,
        app: &AppPolicy,
        state: &mut BatchState,
    ) -> Option<FactWrite> {
        let Some((known, outgoing)) = known else {
            let place = state.arrive(key, fact.time(), false);
            let windows = (&mut state.windows, place, false);
            let index = index(&fact, self.policy, app, windows);
            let record = FactRecord::from(fact);
            self.note_for_decision(key, &record, state);
            return Some(FactWrite {
                key,
                bucket_markers: bucket_markers(&record, app),
                record,
                index,
                stale: Vec::new(),
                outgoing: None,
            });
        };
        let standing = Fact::from(known.clone());
        let is_canonical = self.is_changeable(&key, standing.time())
            && canonical::compare(&fact, &standing, &app.key).is_lt();
        if !is_canonical && !L::SHARED {
            return None;
        }
        let canonical_messages = if is_canonical { &fact } else { &standing };
        let place = state.arrive(key, canonical_messages.time(), true);
        for outgoing in outgoing {
            index(&outgoing, self.policy, app, (&mut state.windows, place, true));
            state.replace(key, outgoing);
        }
        let before = index(&standing, self.policy, app, (&mut state.windows, place, true));
        if !is_canonical {
            // Read once more after recording: another worker may be deciding on it.
            state.revisit(std::iter::once(key));
            return None;
        }
        let after = index(&fact, self.policy, app, (&mut state.windows, place, false));
        let is_stale =
            |found_by: &MatchKey| standing.time() != fact.time() || !after.contains(found_by);
        let stale = before.into_iter().filter(is_stale).map(|by| (by, standing.time())).collect();
        let outgoing = L::SHARED.then(|| standing.clone());
        state.replace(key, standing);
        let record = replace(known, fact);
        self.note_for_decision(key, &record, state);
        Some(FactWrite {
            key,
            bucket_markers: bucket_markers(&record, app),
            record,
            index: after,
            stale,
            outgoing,
        })
    }

    /// Notes an activation or effect that is to be decided on.
    fn note_for_decision(&mut self, key: FactKey, record: &FactRecord, state: &mut BatchState) {
        match record {
            FactRecord::Touch(_) => return,
            FactRecord::Activation(_) => state.activations.push(key),
            FactRecord::Effect(_) => state.effects.push(key),
        }
        self.put(key, record.clone());
    }
}

/// Whether a home's fact is this one.
fn is_same_fact(record: &FactRecord, fact: &Fact, app: &AppPolicy) -> bool {
    canonical::compare(fact, &record.clone().into(), &app.key).is_eq()
}

fn count(key: FactKey, is_known: bool, report: &mut Report) {
    let admitted = report.admitted_mut(key.family);
    if is_known {
        admitted.redelivered += 1;
    } else {
        admitted.accepted += 1;
    }
}

/// The keys that a fact is found by. Where the activations stand that a touch can change is
/// added to the reaches, with its place among what arrived and whether it goes; one too many does
/// no harm.
fn index(
    fact: &Fact,
    policy: &Policy,
    app: &AppPolicy,
    (windows, place, is_removed): (&mut MatchWindows, u32, bool),
) -> Vec<MatchKey> {
    match fact {
        Fact::Touch(touch) => {
            let ids = DeviceIds::new(&touch.ids);
            add_windows(windows, (touch, &ids), policy, app, (place, is_removed));
            match_keys::touch_index(touch, &ids, app.probabilistic)
        }
        Fact::Activation(activation) => {
            let ids = DeviceIds::new(&activation.ids);
            match_keys::activation_index(activation, &ids, app.probabilistic)
        }
        Fact::Effect(effect) => DeviceIds::new(&effect.ids).iter().map(match_keys::by_id).collect(),
    }
}

/// What the fact leaves at its places.
fn bucket_markers(record: &FactRecord, app: &AppPolicy) -> Vec<(MatchKey, IndexEntry)> {
    match record {
        FactRecord::Touch(touch) if app.probabilistic => {
            match_keys::touch_bucket_markers(touch, &DeviceIds::new(&touch.ids))
        }
        FactRecord::Activation(record) if app.probabilistic => {
            match_keys::activation_bucket_markers(&record.fact, &DeviceIds::new(&record.fact.ids))
        }
        _ => Vec::new(),
    }
}

/// The home with another fact in it; its present row stays until the new decision, and nobody
/// goes on from its walks.
fn replace(known: FactRecord, fact: Fact) -> FactRecord {
    match (known, fact) {
        (FactRecord::Activation(record), Fact::Activation(fact)) => {
            let chains = InstallChains::default();
            FactRecord::Activation(Box::new(ActivationRecord { fact: *fact, chains, ..*record }))
        }
        (FactRecord::Effect(record), Fact::Effect(fact)) => {
            FactRecord::Effect(Box::new(EffectRecord { fact: *fact, ..*record }))
        }
        (_, fact) => FactRecord::from(fact),
    }
}
