//! Extends the install chains of a device by one activation.
//!
//! Every activation stores the states of its install chains, one per device id, so the next activation of the device
//! needs only the last one, however many precede it. Only if the ids of the activation have different chains, these
//! must be merged, starting at the oldest activation that is missing in the largest chain.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::device_history::{DeviceHistory, EntriesBefore, HistoryEntry, ListKey};
use crate::facts::device_ids::{DeviceId, DeviceIds};
use crate::facts::keys::{FactKey, FactKeySet};
use crate::rules::classify::{ActivationKey, Class, InstallChain, InstallChains};
use crate::rules::policy::{AppPolicy, Policy};

/// An activation that is being classified.
pub struct PendingActivation<'a> {
    history: &'a DeviceHistory<'a>,
    /// Activations that are blocked too.
    waiting: &'a FactKeySet,
    app: &'a AppPolicy,
    ids: &'a DeviceIds,
    activation_key: &'a ActivationKey,
}

/// Why an activation cannot be classified yet.
#[derive(Default)]
pub struct Blocked {
    /// Lists whose next page must be read.
    pub lists: Vec<ListKey>,
    /// Earlier activations of the device that another worker has recorded but not decided yet.
    pub undecided: Vec<FactKey>,
}

/// The activation just before the pending one on one of its device ids, and the index of the id's chain there.
type Source = (FactKey, u8);

impl<'a> PendingActivation<'a> {
    /// Returns `None` if the activation is not loaded or its app is not configured.
    pub fn new(
        policy: &'a Policy,
        history: &'a DeviceHistory<'a>,
        waiting: &'a FactKeySet,
        key: FactKey,
    ) -> Option<Self> {
        let HistoryEntry { activation_key, ids, .. } = history.get(&key)?;
        Some(Self { history, waiting, app: policy.app(key.pid)?, ids, activation_key })
    }

    /// Returns the class of the activation and its install chains.
    pub fn classify(&self) -> Result<(Class, InstallChains), Blocked> {
        let sources = self.sources()?;
        let before = self.chain_after(&sources)?;
        Ok((self.advance(before.as_ref()).1, self.chains(&sources)?))
    }

    /// Returns the chain of all earlier activations that share an id with it.
    pub fn chain_before(&self) -> Result<Option<InstallChain>, Blocked> {
        self.chain_after(&self.sources()?)
    }

    fn advance(&self, before: Option<&InstallChain>) -> (InstallChain, Class) {
        InstallChain::advance(before, self.app, self.activation_key.clone())
    }

    /// Returns the source for each id of the activation; `None` for an id without earlier activations.
    fn sources(&self) -> Result<Vec<Option<Source>>, Blocked> {
        let (mut sources, mut blocked) = (Vec::new(), None::<Blocked>);
        for id in self.ids.iter() {
            match self.source(id) {
                Ok(source) => sources.push(source),
                Err(more) => blocked.get_or_insert_default().add(more),
            }
        }
        blocked.map_or(Ok(sources), Err)
    }

    fn source(&self, id: &DeviceId) -> Result<Option<Source>, Blocked> {
        let last = self.last_before(id, self.activation_key)?;
        last.map(|last| Ok((last.key, self.chain(&last.key, id)?.0))).transpose()
    }

    /// Returns the chain of all activations up to the sources.
    fn chain_after(&self, sources: &[Option<Source>]) -> Result<Option<InstallChain>, Blocked> {
        let mut distinct: Vec<(Source, &DeviceId)> = Vec::new();
        for (source, id) in sources.iter().zip(self.ids.iter()) {
            if let Some(source) = source
                && !distinct.iter().any(|(known, _)| known == source)
            {
                distinct.push((*source, id));
            }
        }
        match distinct.as_slice() {
            [] => Ok(None),
            [(source, id)] => Ok(Some(self.chain(&source.0, id)?.1.clone())),
            _ => self.merged_chain(distinct.into_iter().map(|(_, id)| id).collect()),
        }
    }

    /// Returns the chain of each id, extended by the activation.
    fn chains(&self, sources: &[Option<Source>]) -> Result<InstallChains, Blocked> {
        let mut chains = InstallChains::default();
        let mut indexes: BTreeMap<Option<Source>, u8> = BTreeMap::new();
        for (source, id) in sources.iter().zip(self.ids.iter()) {
            let next = u8::try_from(chains.chains.len()).unwrap_or(u8::MAX);
            let index = *indexes.entry(*source).or_insert(next);
            if index == next {
                let before = match source {
                    Some((last, _)) => Some(self.chain(last, id)?.1),
                    None => None,
                };
                chains.chains.push(self.advance(before).0);
            }
            chains.chain_indexes.push(index);
        }
        if chains.chains.len() < 2 {
            chains.chain_indexes.clear();
        }
        Ok(chains)
    }

    /// Returns the chain of all activations with any of several ids.
    fn merged_chain(&self, mut ids: Vec<&DeviceId>) -> Result<Option<InstallChain>, Blocked> {
        // The id with the most activations is the most likely to have all of them.
        ids.sort_by_key(|id| Reverse(self.before(id, self.activation_key).known().len()));
        let mut blocked = Blocked::default();
        for main_id in &ids {
            match self.merged_chain_along(main_id, &ids) {
                Ok(chain) => return Ok(chain),
                Err(more) => blocked.add(more),
            }
        }
        Err(blocked)
    }

    /// Merges the activations of the other ids into the chain of the main id.
    fn merged_chain_along(
        &self,
        main_id: &DeviceId,
        ids: &[&DeviceId],
    ) -> Result<Option<InstallChain>, Blocked> {
        let mut entries: Vec<&HistoryEntry> = Vec::new();
        for id in ids.iter().filter(|id| **id != main_id) {
            self.add_missing(main_id, id, &mut entries)?;
        }
        let start = entries.iter().copied().map(|missing| &missing.activation_key).min();
        let start = start.unwrap_or(self.activation_key);
        let mut chain = match self.last_before(main_id, start)? {
            Some(last) => Some(self.chain(&last.key, main_id)?.1.clone()),
            None => None,
        };
        let along = self.before(main_id, self.activation_key).known();
        entries.extend(along.take_while(|entry| entry.activation_key > *start));
        entries.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        entries.dedup_by_key(|entry| entry.key);
        for entry in entries {
            let key = entry.activation_key.clone();
            chain = Some(InstallChain::advance(chain.as_ref(), self.app, key).0);
        }
        Ok(chain)
    }

    /// Adds the activations that have `id` but not the main id.
    fn add_missing(
        &self,
        main_id: &DeviceId,
        id: &DeviceId,
        missing: &mut Vec<&'a HistoryEntry>,
    ) -> Result<(), Blocked> {
        let before = self.before(id, self.activation_key);
        for entry in before.known() {
            if !entry.ids.contains(main_id) {
                missing.push(entry);
            } else if self.chain(&entry.key, main_id)?.0 == self.chain(&entry.key, id)?.0 {
                // Up to this activation, both ids have the same activations.
                return Ok(());
            }
        }
        if before.is_complete { Ok(()) } else { Err(self.blocked_by_unread(id)) }
    }

    /// Returns the chain of an id after an activation, and the chain's index.
    fn chain(&self, key: &FactKey, id: &DeviceId) -> Result<(u8, &'a InstallChain), Blocked> {
        if self.waiting.contains(key) {
            return Err(Blocked::default());
        }
        let entry = self.history.get(key);
        let chain = entry.and_then(|entry| entry.chains.at(entry.ids.position(id)?));
        chain.ok_or_else(|| Blocked { undecided: vec![*key], ..Blocked::default() })
    }

    fn before(&self, id: &DeviceId, than: &ActivationKey) -> EntriesBefore<'a> {
        self.history.before(self.app.pid, id, than)
    }

    fn last_before(
        &self,
        id: &DeviceId,
        than: &ActivationKey,
    ) -> Result<Option<&'a HistoryEntry>, Blocked> {
        let before = self.before(id, than);
        match before.known().next() {
            None if !before.is_complete => Err(self.blocked_by_unread(id)),
            last => Ok(last),
        }
    }

    fn blocked_by_unread(&self, id: &DeviceId) -> Blocked {
        Blocked { lists: vec![(self.app.pid, id.clone())], ..Blocked::default() }
    }
}

impl Blocked {
    fn add(&mut self, other: Self) {
        self.lists.extend(other.lists);
        self.undecided.extend(other.undecided);
    }
}
