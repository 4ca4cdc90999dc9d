//! Classifies the activations of a batch, and later activations whose class they can change.

use std::collections::BTreeSet;

use super::batch_state::{BatchState, EventIds, SupersededActivation};
use super::continue_chains::PendingActivation;
use super::device_history::{DeviceHistory, HistoryEntry};
use super::fact_cache::FactCache;
use crate::facts::keys::{FactKey, FactKeyMap, FactKeySet};
use crate::ledger::Facts;
use crate::rules::classify::{Class, InstallChain};
use crate::rules::policy::Policy;

/// An activation and its class.
pub struct Classified {
    /// The activation with its install chains. If these have changed, later activations of the device may change too.
    pub entry: HistoryEntry,
    pub class: Class,
}

/// Classifies the batch's activations, oldest first. If `with_later_activations` is true, also classifies the
/// activations that follow one of these, or its replaced version, on a device.
pub fn classify<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    state: &BatchState,
    with_later_activations: bool,
) -> Result<Vec<Classified>, L::Error> {
    let mut arrived: BTreeSet<FactKey> = state.activations.iter().copied().collect();
    loop {
        let mut history = DeviceHistory::new(&state.event_ids);
        history.load(facts, arrived.iter().copied())?;
        let mut keys = arrived.clone();
        if with_later_activations {
            keys.extend(followers(facts, policy, &mut history, &arrived, state)?);
        }
        let open = in_order(&mut history, &keys);
        history.read(facts)?;
        let (mut classes, undecided) = classify_all(facts, policy, &mut history, open)?;
        if undecided.is_empty() {
            let entries = history.into_entries().into_iter();
            let classified = entries
                .filter_map(|entry| Some(Classified { class: classes.remove(&entry.key)?, entry }));
            return Ok(classified.collect());
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
    let (no_ids, waiting) = (EventIds::default(), FactKeySet::default());
    let mut history = DeviceHistory::new(&no_ids);
    history.load(facts, [key])?;
    history.request_predecessors(&key);
    loop {
        history.read(facts)?;
        let pending = PendingActivation::new(policy, &history, &waiting, key);
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
    history: &mut DeviceHistory<'_>,
    arrived: &BTreeSet<FactKey>,
    state: &BatchState,
) -> Result<Vec<FactKey>, L::Error> {
    arrived.iter().for_each(|key| history.request_followers(key));
    for SupersededActivation { key, activation_key, ids } in &state.superseded_activations {
        history.request_since(key.pid, ids, activation_key.time);
    }
    history.read(facts)?;
    let is_changeable = |entry: &&HistoryEntry| {
        let app = policy.app(entry.key.pid);
        app.is_some_and(|app| facts.is_changeable(app, entry.activation_key.time))
    };
    Ok(history.followers().filter(is_changeable).map(|entry| entry.key).collect())
}

/// Sorts loaded activations, oldest first, and requests the activations before each.
fn in_order(history: &mut DeviceHistory<'_>, keys: &BTreeSet<FactKey>) -> Vec<FactKey> {
    let mut sorted: Vec<&HistoryEntry> = keys.iter().filter_map(|key| history.get(key)).collect();
    sorted.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
    let sorted: Vec<FactKey> = sorted.into_iter().map(|entry| entry.key).collect();
    sorted.iter().for_each(|key| history.request_predecessors(key));
    sorted
}

/// Classifies the activations, which are sorted, until an earlier activation on a device is undecided. Returns their
/// classes, and the undecided ones that block the rest.
fn classify_all<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    history: &mut DeviceHistory<'_>,
    mut open: Vec<FactKey>,
) -> Result<(FactKeyMap<Class>, BTreeSet<FactKey>), L::Error> {
    let mut classes = FactKeyMap::default();
    let mut undecided = BTreeSet::new();
    while !open.is_empty() && undecided.is_empty() {
        let mut waiting = FactKeySet::default();
        for key in &open {
            let pending = PendingActivation::new(policy, history, &waiting, *key);
            match pending.map(|pending| pending.classify()) {
                Some(Ok((class, chains))) => {
                    history.set_chains(key, chains);
                    classes.insert(*key, class);
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
    Ok((classes, undecided))
}
