//! Classifies the activations whose class a batch can change.
//!
//! Every activation keeps the install chains that end with it, one per device id, so the next activation of the
//! device continues from the last one, however many there were. Only if the ids of one activation have different
//! chains must these be merged: from the oldest activation that the largest chain lacks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use foldhash::fast::FixedState;

use super::BatchContext;
use super::batch_state::BatchState;
use super::device_history::{DeviceHistory, HistoryEntry, ListKey};
use crate::facts::device_ids::DeviceId;
use crate::facts::keys::FactKey;
use crate::ledger::Facts;
use crate::rules::classify::{ActivationKey, Class, InstallChain, InstallChains};
use crate::rules::policy::AppPolicy;

/// An activation and its class.
pub struct Classified {
    pub key: FactKey,
    pub class: Class,
    /// The install chains have changed, so later activations of the device can change too.
    pub has_new_chains: bool,
}

/// Why an activation cannot be classified yet.
#[derive(Default)]
struct Blocked {
    /// Lists of which the next page must be read.
    lists: Vec<ListKey>,
    /// Earlier activations of the device that another worker has recorded and not decided yet.
    undecided: Vec<FactKey>,
}

/// The last activation before another one with one of its ids, and the index of that id's chain.
type Source = (FactKey, u8);

impl<L: Facts> BatchContext<'_, L> {
    /// Classifies the batch's activations, and all that follow one of them (or one that it replaced) on a device, in
    /// the order of time.
    pub fn classify(&mut self, state: &BatchState) -> Result<Vec<Classified>, L::Error> {
        let mut arrived = state.activations.clone();
        loop {
            let mut history = DeviceHistory::default();
            let open = self.pending_activations(&mut history, &arrived, state)?;
            let (classified, undecided) = self.classify_all(&mut history, open)?;
            if undecided.is_empty() {
                return Ok(classified);
            }
            arrived.extend(undecided);
        }
    }

    /// Classifies only these activations, each from the stored chains of those before it.
    pub fn classify_alone(&mut self, keys: &[FactKey]) -> Result<Vec<Classified>, L::Error> {
        let mut pending = keys.to_vec();
        loop {
            let mut history = DeviceHistory::default();
            self.load(pending.iter().copied())?;
            let open = self.in_order(&mut history, pending.iter().copied().collect());
            self.read_history(&mut history)?;
            let (classified, undecided) = self.classify_all(&mut history, open)?;
            if undecided.is_empty() {
                return Ok(classified);
            }
            pending.extend(undecided);
        }
    }

    /// Returns the install chain before a stored activation; `None` if it is the first of its devices.
    pub fn chain_before_activation(
        &mut self,
        key: FactKey,
    ) -> Result<Option<InstallChain>, L::Error> {
        let mut history = DeviceHistory::default();
        self.load([key])?;
        if let Some(activation) = self.activation(&key) {
            history.request_predecessors(&key, activation);
        }
        loop {
            self.read_history(&mut history)?;
            let Some(pending) = self.pending_activation(key, &history) else { return Ok(None) };
            let blocked = match self.chain_before(&pending) {
                Ok((before, _)) => return Ok(before),
                Err(blocked) => blocked,
            };
            if blocked.lists.is_empty() {
                return Ok(None);
            }
            blocked.lists.iter().for_each(|list| history.request_page(list));
        }
    }

    /// Returns the activations to classify, oldest first.
    fn pending_activations(
        &mut self,
        history: &mut DeviceHistory,
        arrived: &[FactKey],
        state: &BatchState,
    ) -> Result<Vec<FactKey>, L::Error> {
        self.load(arrived.iter().copied())?;
        for key in arrived {
            if let Some(activation) = self.activation(key) {
                history.request_followers(key, activation);
            }
        }
        for (key, activation) in &state.superseded_activations {
            history.request_followers(key, activation);
        }
        self.read_history(history)?;
        let followers = history.followers().filter(|key| {
            self.activation(key).is_some_and(|follower| self.is_changeable(key, follower.time))
        });
        let pending_activations = followers.chain(arrived.iter().copied()).collect();
        let pending_activations = self.in_order(history, pending_activations);
        self.read_history(history)?;
        Ok(pending_activations)
    }

    /// Sorts loaded activations, oldest first, and requests those before each.
    fn in_order(&self, history: &mut DeviceHistory, keys: BTreeSet<FactKey>) -> Vec<FactKey> {
        let mut pending_activations: Vec<(ActivationKey, FactKey)> = Vec::new();
        for key in keys {
            let Some(activation) = self.activation(&key) else { continue };
            history.request_predecessors(&key, activation);
            pending_activations.push((ActivationKey::of(activation), key));
        }
        pending_activations.sort_unstable();
        pending_activations.into_iter().map(|(_, key)| key).collect()
    }

    fn classify_all(
        &mut self,
        history: &mut DeviceHistory,
        mut open: Vec<FactKey>,
    ) -> Result<(Vec<Classified>, BTreeSet<FactKey>), L::Error> {
        let mut classified = Vec::with_capacity(open.len());
        let mut undecided = BTreeSet::new();
        while !open.is_empty() && undecided.is_empty() {
            let mut waiting: HashSet<FactKey, FixedState> = HashSet::default();
            for key in &open {
                let Some(mut pending) = self.pending_activation(*key, history) else { continue };
                pending.waiting = Some(&waiting);
                match self.classify_activation(&pending) {
                    Ok((class, chains)) => {
                        let has_new_chains = self.set_chains(key, chains);
                        classified.push(Classified { key: *key, class, has_new_chains });
                    }
                    Err(blocked) => {
                        waiting.insert(*key);
                        blocked.lists.iter().for_each(|list| history.request_page(list));
                        undecided.extend(blocked.undecided);
                    }
                }
            }
            open.retain(|key| waiting.contains(key));
            self.read_history(history)?;
        }
        Ok((classified, undecided))
    }

    /// Returns the class of one activation and the chains that end with it.
    fn classify_activation(
        &self,
        pending: &PendingActivation<'_>,
    ) -> Result<(Class, InstallChains), Blocked> {
        let (before, sources) = self.chain_before(pending)?;
        Ok((pending.step(before.as_ref()).1, self.chains(pending, &sources)?))
    }

    /// Returns the chain over all earlier activations with any id of the pending one, and the sources of its ids.
    fn chain_before(
        &self,
        pending: &PendingActivation<'_>,
    ) -> Result<(Option<InstallChain>, Vec<Option<Source>>), Blocked> {
        let sources = self.sources(pending)?;
        let mut distinct: Vec<(Source, &DeviceId)> = Vec::new();
        for (source, id) in sources.iter().zip(pending.ids()) {
            if let Some(source) = source
                && !distinct.iter().any(|(known, _)| known == source)
            {
                distinct.push((*source, id));
            }
        }
        let before = match distinct.as_slice() {
            [] => None,
            [(source, id)] => Some(self.chain_of(pending, &source.0, id)?.clone()),
            _ => self.merged_chain(pending, &distinct)?,
        };
        Ok((before, sources))
    }

    fn pending_activation<'p>(
        &'p self,
        key: FactKey,
        history: &'p DeviceHistory,
    ) -> Option<PendingActivation<'p>> {
        let (app, activation) = (self.app(&key)?, self.activation(&key)?);
        Some(PendingActivation {
            app,
            activation_key: ActivationKey::of(activation),
            key,
            history,
            waiting: None,
        })
    }

    /// Returns, per id of the activation, the activation just before it.
    fn sources(&self, pending: &PendingActivation<'_>) -> Result<Vec<Option<Source>>, Blocked> {
        let mut sources = Vec::new();
        let mut blocked = Blocked::default();
        for id in pending.ids() {
            match pending.last_before(id, &pending.activation_key) {
                Ok(None) => sources.push(None),
                Ok(Some(entry)) => match self.chain_index(pending, &entry.key, id) {
                    Ok(index) => sources.push(Some((entry.key, index))),
                    Err(other) => blocked.add(other),
                },
                Err(other) => blocked.add(other),
            }
        }
        let is_blocked = sources.len() < pending.ids().count();
        if is_blocked { Err(blocked) } else { Ok(sources) }
    }

    /// Returns each id's chain with the activation added.
    fn chains(
        &self,
        pending: &PendingActivation<'_>,
        sources: &[Option<Source>],
    ) -> Result<InstallChains, Blocked> {
        let mut chains = InstallChains::default();
        let mut indexes: BTreeMap<Option<Source>, u8> = BTreeMap::new();
        for (source, id) in sources.iter().zip(pending.ids()) {
            let next = u8::try_from(chains.chains.len()).unwrap_or(u8::MAX);
            let index = *indexes.entry(*source).or_insert(next);
            if index == next {
                let before = match source {
                    Some((entry, _)) => Some(self.chain_of(pending, entry, id)?),
                    None => None,
                };
                chains.chains.push(pending.step(before).0);
            }
            chains.places.push(index);
        }
        if chains.chains.len() < 2 {
            chains.places.clear();
        }
        Ok(chains)
    }

    /// Returns the chain over the activations of several ids together.
    fn merged_chain(
        &self,
        pending: &PendingActivation<'_>,
        distinct: &[(Source, &DeviceId)],
    ) -> Result<Option<InstallChain>, Blocked> {
        let mut main_ids: Vec<&DeviceId> = distinct.iter().map(|(_, id)| *id).collect();
        // The id with the most activations most likely has all of them.
        main_ids.sort_by_key(|id| Reverse(pending.older(id, &pending.activation_key).known.len()));
        let mut blocked = Blocked::default();
        for main_id in main_ids {
            match self.merged_chain_along(pending, main_id, distinct) {
                Ok(chain) => return Ok(chain),
                Err(other) => blocked.add(other),
            }
        }
        Err(blocked)
    }

    /// Merges the activations of the other ids into the chain of the main id.
    fn merged_chain_along(
        &self,
        pending: &PendingActivation<'_>,
        main_id: &DeviceId,
        distinct: &[(Source, &DeviceId)],
    ) -> Result<Option<InstallChain>, Blocked> {
        let mut entries: Vec<&HistoryEntry> = Vec::new();
        for (_, id) in distinct.iter().filter(|(_, id)| *id != main_id) {
            self.add_missing(pending, main_id, id, &mut entries)?;
        }
        let start = entries.iter().map(|missing| &missing.activation_key).min().cloned();
        let start = start.unwrap_or_else(|| pending.activation_key.clone());
        let mut chain = match pending.last_before(main_id, &start)? {
            Some(entry) => Some(self.chain_of(pending, &entry.key, main_id)?.clone()),
            None => None,
        };
        let along = pending.older(main_id, &pending.activation_key).known;
        entries.extend(along.iter().take_while(|entry| entry.activation_key > start));
        entries.sort_unstable();
        entries.dedup();
        for entry in entries {
            chain = Some(
                InstallChain::step(chain.as_ref(), pending.app, entry.activation_key.clone()).0,
            );
        }
        Ok(chain)
    }

    /// Adds the activations that have `id` but not the main id.
    fn add_missing<'p>(
        &self,
        pending: &PendingActivation<'p>,
        main_id: &DeviceId,
        id: &DeviceId,
        missing: &mut Vec<&'p HistoryEntry>,
    ) -> Result<(), Blocked> {
        let older = pending.older(id, &pending.activation_key);
        for entry in older.known {
            if !pending.history.ids(&entry.key).is_some_and(|ids| ids.contains(main_id)) {
                missing.push(entry);
            } else if self.chain_index(pending, &entry.key, main_id)?
                == self.chain_index(pending, &entry.key, id)?
            {
                // From here back both ids have the same activations.
                return Ok(());
            }
        }
        if older.is_complete { Ok(()) } else { Err(pending.unread(id)) }
    }

    fn chain_of(
        &self,
        pending: &PendingActivation<'_>,
        entry: &FactKey,
        id: &DeviceId,
    ) -> Result<&InstallChain, Blocked> {
        self.indexed_chain(pending, entry, id).map(|(_, chain)| chain)
    }

    fn chain_index(
        &self,
        pending: &PendingActivation<'_>,
        entry: &FactKey,
        id: &DeviceId,
    ) -> Result<u8, Blocked> {
        self.indexed_chain(pending, entry, id).map(|(index, _)| index)
    }

    fn indexed_chain(
        &self,
        pending: &PendingActivation<'_>,
        entry: &FactKey,
        id: &DeviceId,
    ) -> Result<(u8, &InstallChain), Blocked> {
        if pending.waiting.is_some_and(|waiting| waiting.contains(entry)) {
            return Err(Blocked::default());
        }
        self.chain_at(pending.history, entry, id)
            .ok_or_else(|| Blocked { undecided: vec![*entry], ..Blocked::default() })
    }
}

/// An activation that is being classified.
struct PendingActivation<'a> {
    app: &'a AppPolicy,
    activation_key: ActivationKey,
    key: FactKey,
    history: &'a DeviceHistory,
    /// Activations that are blocked themselves.
    waiting: Option<&'a HashSet<FactKey, FixedState>>,
}

impl<'a> PendingActivation<'a> {
    fn ids(&self) -> impl Iterator<Item = &'a DeviceId> {
        self.history.ids(&self.key).into_iter().flat_map(|ids| ids.iter())
    }

    fn step(&self, before: Option<&InstallChain>) -> (InstallChain, Class) {
        InstallChain::step(before, self.app, self.activation_key.clone())
    }

    fn older(
        &self,
        id: &DeviceId,
        than: &ActivationKey,
    ) -> super::device_history::EntriesBefore<'a> {
        match self.history.list(self.key.pid, id) {
            Some(list) => list.before(than),
            None => super::device_history::EntriesBefore { known: &[], is_complete: true },
        }
    }

    fn last_before(
        &self,
        id: &DeviceId,
        than: &ActivationKey,
    ) -> Result<Option<&'a HistoryEntry>, Blocked> {
        let older = self.older(id, than);
        match older.known.first() {
            None if !older.is_complete => Err(self.unread(id)),
            last => Ok(last),
        }
    }

    fn unread(&self, id: &DeviceId) -> Blocked {
        Blocked { lists: vec![(self.key.pid, id.clone())], ..Blocked::default() }
    }
}

impl Blocked {
    fn add(&mut self, other: Self) {
        self.lists.extend(other.lists);
        self.undecided.extend(other.undecided);
    }
}
