//! Classifies the activations of a batch, and later activations whose class they can change.

use std::collections::BTreeSet;

use super::batch_state::BatchState;
use super::continue_chains::PendingActivation;
use super::decisions::Decisions;
use super::device_history::DeviceHistory;
use super::fact_cache::FactCache;
use crate::facts::keys::{FactKey, FactKeySet};
use crate::ledger::Facts;
use crate::rules::classify::{ActivationKey, Class, InstallChain};
use crate::rules::policy::Policy;

/// An activation and its class.
pub struct Classified {
    pub key: FactKey,
    pub class: Class,
    /// The install chains have changed, so later activations of the device may change too.
    pub has_new_chains: bool,
}

/// Classifies the batch's activations, oldest first. If `with_later_activations` is true, also classifies the
/// activations that follow one of these, or its replaced version, on a device.
pub fn classify<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    state: &BatchState,
    with_later_activations: bool,
) -> Result<Vec<Classified>, L::Error> {
    let mut arrived: BTreeSet<FactKey> = state.activations.iter().copied().collect();
    loop {
        let mut history = DeviceHistory::default();
        facts.load(arrived.iter().copied())?;
        let mut keys = arrived.clone();
        if with_later_activations {
            keys.extend(followers(facts, policy, &mut history, &arrived, state)?);
        }
        let open = in_order(facts, &mut history, &keys);
        history.read(facts)?;
        let (classified, undecided) = classify_all(facts, policy, decisions, &mut history, open)?;
        if undecided.is_empty() {
            return Ok(classified);
        }
        arrived.extend(undecided);
    }
}

/// Returns the state of the install chain before a stored activation; `None` if it is the first of its device.
pub fn chain_before_activation<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    key: FactKey,
) -> Result<Option<InstallChain>, L::Error> {
    let (mut history, waiting) = (DeviceHistory::default(), FactKeySet::default());
    facts.load([key])?;
    if let Some(record) = facts.activation(&key) {
        history.request_predecessors(&key, &record.fact);
    }
    loop {
        history.read(facts)?;
        let pending = PendingActivation::new(facts, policy, &history, &waiting, key);
        let Some(before) = pending.map(|pending| pending.chain_before()) else { return Ok(None) };
        match before {
            Ok(before) => return Ok(before),
            Err(blocked) if blocked.lists.is_empty() => return Ok(None),
            Err(blocked) => history.request_pages(&blocked.lists),
        }
    }
}

/// Returns the activations that follow the arrived ones on a device and can still change.
fn followers<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    history: &mut DeviceHistory,
    arrived: &BTreeSet<FactKey>,
    state: &BatchState,
) -> Result<Vec<FactKey>, L::Error> {
    for record in arrived.iter().filter_map(|key| facts.activation(key)) {
        history.request_followers(&record.fact);
    }
    for (_, activation) in &state.superseded_activations {
        history.request_followers(activation);
    }
    history.read(facts)?;
    let is_changeable = |key: &FactKey| {
        let time = facts.activation(key).map(|record| record.fact.time);
        time.zip(policy.app(key.pid)).is_some_and(|(time, app)| facts.is_changeable(app, time))
    };
    Ok(history.followers().filter(is_changeable).collect())
}

/// Sorts loaded activations, oldest first, and requests the activations before each.
fn in_order<L: Facts>(
    facts: &FactCache<'_, L>,
    history: &mut DeviceHistory,
    keys: &BTreeSet<FactKey>,
) -> Vec<FactKey> {
    let mut sorted: Vec<(ActivationKey, FactKey)> = Vec::new();
    for key in keys {
        let Some(record) = facts.activation(key) else { continue };
        history.request_predecessors(key, &record.fact);
        sorted.push((ActivationKey::of(&record.fact), *key));
    }
    sorted.sort_unstable();
    sorted.into_iter().map(|(_, key)| key).collect()
}

/// Classifies the activations, which are sorted, until an earlier activation on a device is undecided. Returns the
/// classified activations, and the undecided ones that block the rest.
fn classify_all<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    history: &mut DeviceHistory,
    mut open: Vec<FactKey>,
) -> Result<(Vec<Classified>, BTreeSet<FactKey>), L::Error> {
    let mut classified = Vec::with_capacity(open.len());
    let mut undecided = BTreeSet::new();
    while !open.is_empty() && undecided.is_empty() {
        let mut waiting = FactKeySet::default();
        for key in &open {
            let pending = PendingActivation::new(facts, policy, history, &waiting, *key);
            match pending.map(|pending| pending.classify()) {
                Some(Ok((class, chains))) => {
                    let has_new_chains = decisions.set_chains(facts, *key, chains);
                    classified.push(Classified { key: *key, class, has_new_chains });
                }
                Some(Err(blocked)) => {
                    waiting.insert(*key);
                    history.request_pages(&blocked.lists);
                    undecided.extend(blocked.undecided);
                }
                None => {}
            }
        }
        open.retain(|key| waiting.contains(key));
        history.read(facts)?;
    }
    Ok((classified, undecided))
}
