//! Decides which message is the fact (the contract's identity rule), and makes facts readable.

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

/// Messages of a batch, with the keys of their fact records.
type Unreconciled = Vec<(FactKey, Fact)>;

impl<L: Ledger> BatchContext<'_, L> {
    /// Deduplicates the facts against each other and the ledger, and records the new ones. `windows` is a buffer to
    /// reuse.
    pub fn deduplicate(
        &mut self,
        facts: Vec<Fact>,
        mut windows: MatchWindows,
        report: &mut Report,
    ) -> Result<BatchState, L::Error> {
        windows.clear();
        let mut state =
            BatchState { windows, must_redecide_all: L::SHARED, ..BatchState::default() };
        let mut pending = self.canonical_messages(facts, report);
        while !pending.is_empty() {
            let keys: Vec<FactKey> = pending.iter().map(|(key, _)| *key).collect();
            let known = self.ledger().lookup(&keys)?;
            let is_known: Vec<bool> = known.iter().map(|known| *known != Lookup::Missing).collect();
            let mut conflicting = Vec::new();
            let mut writes = Vec::with_capacity(keys.len());
            for ((key, fact), known) in pending.into_iter().zip(known) {
                let Some(app) = self.app(&key) else { continue };
                let known = match known {
                    Lookup::Missing => None,
                    Lookup::Found(record) => Some((record, Vec::new())),
                    Lookup::Superseded(record, superseded) => Some((record, superseded)),
                    Lookup::Tombstone => continue,
                };
                if known.as_ref().is_some_and(|(record, _)| !is_same_fact(record, &fact, app)) {
                    conflicting.push(key);
                }
                writes.extend(self.reconcile((key, fact), known, app, &mut state));
            }
            let rejected = self.ledger().record(writes)?;
            let rejected_keys: HashSet<FactKey, FixedState> =
                rejected.iter().map(|write| write.key).collect();
            let is_recorded =
                |key: &FactKey| rejected_keys.is_empty() || !rejected_keys.contains(key);
            for (key, is_known) in keys.into_iter().zip(is_known) {
                if is_recorded(&key) {
                    count(key, is_known, report);
                }
            }
            for key in conflicting.into_iter().filter(is_recorded) {
                report.admitted_mut(key.family).conflicting += 1;
            }
            pending = rejected.into_iter().map(|write| (write.key, write.record.into())).collect();
        }
        Ok(state)
    }

    /// Returns the least message of each id, in key order; the others are counted as redelivered.
    fn canonical_messages(&self, facts: Vec<Fact>, report: &mut Report) -> Unreconciled {
        let mut messages: Unreconciled = Vec::with_capacity(facts.len());
        let of_known_apps = facts.into_iter().filter(|fact| self.policy.app(fact.pid()).is_some());
        messages.extend(
            of_known_apps
                .map(|fact| (match_keys::fact_key(fact.family(), fact.pid(), fact.id()), fact)),
        );
        messages.sort_unstable_by_key(|(key, _)| *key);
        messages.dedup_by(|(key, fact), (kept_key, kept)| {
            let is_same = key == kept_key;
            if is_same {
                let app_key = self.app(key).map_or("", |app| &app.key);
                let order = canonical::compare(fact, kept, app_key);
                let admitted = report.admitted_mut(key.family);
                admitted.redelivered += 1;
                admitted.conflicting += u64::from(order.is_ne());
                if order.is_lt() {
                    std::mem::swap(fact, kept);
                }
            }
            is_same
        });
        messages
    }

    /// Compares a message with the known fact of its id. On a shared store known facts are decided again: if a worker
    /// crashed between fact and decision, the redelivery completes it.
    fn reconcile(
        &mut self,
        (key, fact): (FactKey, Fact),
        known: Option<(FactRecord, Vec<Fact>)>,
        app: &AppPolicy,
        state: &mut BatchState,
    ) -> Option<FactWrite> {
        let Some((known, superseded)) = known else {
            let arrival_index = state.add_arrival(key, fact.time(), false);
            let windows = (&mut state.windows, arrival_index, false);
            let index = index(&fact, self.policy, app, windows);
            let record = FactRecord::from(fact);
            self.add_undecided(key, &record, state);
            return Some(FactWrite {
                key,
                bucket_markers: bucket_markers(&record, app),
                record,
                index,
                stale: Vec::new(),
                outgoing: None,
            });
        };
        let known_fact = Fact::from(known.clone());
        let is_canonical = self.is_changeable(&key, known_fact.time())
            && canonical::compare(&fact, &known_fact, &app.key).is_lt();
        if !is_canonical && !L::SHARED {
            return None;
        }
        let accepted = if is_canonical { &fact } else { &known_fact };
        let arrival_index = state.add_arrival(key, accepted.time(), true);
        for fact in superseded {
            index(&fact, self.policy, app, (&mut state.windows, arrival_index, true));
            state.add_superseded(key, fact);
        }
        let before =
            index(&known_fact, self.policy, app, (&mut state.windows, arrival_index, true));
        if !is_canonical {
            // It is read again after recording: another worker may be deciding on it.
            state.revisit(std::iter::once(key));
            return None;
        }
        let after = index(&fact, self.policy, app, (&mut state.windows, arrival_index, false));
        let is_stale =
            |index_key: &MatchKey| known_fact.time() != fact.time() || !after.contains(index_key);
        let stale =
            before.into_iter().filter(is_stale).map(|key| (key, known_fact.time())).collect();
        let outgoing = L::SHARED.then(|| known_fact.clone());
        state.add_superseded(key, known_fact);
        let record = replace(known, fact);
        self.add_undecided(key, &record, state);
        Some(FactWrite {
            key,
            bucket_markers: bucket_markers(&record, app),
            record,
            index: after,
            stale,
            outgoing,
        })
    }

    /// Adds an activation or effect to the events to decide.
    fn add_undecided(&mut self, key: FactKey, record: &FactRecord, state: &mut BatchState) {
        match record {
            FactRecord::Touch(_) => return,
            FactRecord::Activation(_) => state.activations.push(key),
            FactRecord::Effect(_) => state.effects.push(key),
        }
        self.insert_record(key, record.clone());
    }
}

/// Checks whether the fact of a record equals this one.
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

/// Returns the keys under which a fact is indexed. For a touch, also adds the match windows in which it can change
/// activations, with its index in `arrived` and whether it is removed; one too many does no harm.
fn index(
    fact: &Fact,
    policy: &Policy,
    app: &AppPolicy,
    (windows, arrival_index, is_removed): (&mut MatchWindows, u32, bool),
) -> Vec<MatchKey> {
    match fact {
        Fact::Touch(touch) => {
            let ids = DeviceIds::new(&touch.ids);
            add_windows(windows, (touch, &ids), policy, app, (arrival_index, is_removed));
            match_keys::touch_index(touch, &ids, app.probabilistic)
        }
        Fact::Activation(activation) => {
            let ids = DeviceIds::new(&activation.ids);
            match_keys::activation_index(activation, &ids, app.probabilistic)
        }
        Fact::Effect(effect) => DeviceIds::new(&effect.ids).iter().map(match_keys::by_id).collect(),
    }
}

/// Returns the markers of the fact's probabilistic keys.
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

/// Returns the record with another fact. The current row stays until the new decision; the install chains are
/// cleared, so that no other activation continues them.
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
