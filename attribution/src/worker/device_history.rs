//! The activations with a device id, read newest first and only as far back as needed.
//!
//! Records can be large, and a device can have many. So they are read in parts, and the history keeps of each only what
//! classes depend on.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::batch_state::EventIds;
use super::fact_cache::{FactCache, NEXT_PAGE, scan};
use crate::facts::device_ids::{DeviceId, DeviceIds};
use crate::facts::event::{EventTime, Family, Pid};
use crate::facts::keys::{FactKey, FactKeyMap};
use crate::facts::match_keys;
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::ActivationRecord;
use crate::rules::classify::{ActivationKey, Class, InstallChains};
use crate::rules::winner::Decision;

/// The lists of activations by device id, as far as they are requested and read.
pub struct DeviceHistory<'s> {
    lists: Lists,
    activations: Activations<'s>,
}

type Lists = HashMap<ListKey, List, FixedState>;
pub type ListKey = (Pid, DeviceId);

/// The activations with one device id, as far as they are read.
struct List {
    scan: Scan,
    /// Positions in [`Activations::all`], newest first.
    found: Vec<usize>,
    /// The whole list is read.
    is_read: bool,
    is_requested: bool,
    /// The time back to which the list must be read.
    floor: EventTime,
}

/// The activations of all lists.
struct Activations<'s> {
    all: Vec<HistoryEntry>,
    positions: FactKeyMap<usize>,
    /// The ids of some.
    known_ids: &'s EventIds,
}

/// An activation of a device.
pub struct HistoryEntry {
    pub key: FactKey,
    pub activation_key: ActivationKey,
    pub ids: Arc<DeviceIds>,
    /// The stored install chains or, once it is classified, the new ones.
    pub chains: InstallChains,
    pub has_new_chains: bool,
    /// The class in the stored decision.
    pub decided_class: Option<Class>,
}

impl<'s> DeviceHistory<'s> {
    /// An empty history. `known_ids` are the ids of some activations.
    pub fn new(known_ids: &'s EventIds) -> Self {
        let (all, positions) = (Vec::new(), FactKeyMap::default());
        Self { lists: Lists::default(), activations: Activations { all, positions, known_ids } }
    }

    /// Loads activations by key.
    pub fn load<L: Facts>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        keys: impl IntoIterator<Item = FactKey>,
    ) -> Result<(), L::Error> {
        self.activations.load(facts, keys)
    }

    /// Requests the activations that follow a loaded one on a device, and the last one before it.
    pub fn request_followers(&mut self, key: &FactKey) {
        if let Some(entry) = self.activations.get(key) {
            let time = entry.activation_key.time;
            request(&mut self.lists, key.pid, &entry.ids, EventTime::MAX, time);
        }
    }

    /// Requests the activations that follow this time on a device, and the last one before it.
    pub fn request_since(&mut self, pid: Pid, ids: &DeviceIds, time: EventTime) {
        request(&mut self.lists, pid, ids, EventTime::MAX, time);
    }

    /// Requests the activations before a loaded one.
    pub fn request_predecessors(&mut self, key: &FactKey) {
        if let Some(entry) = self.activations.get(key) {
            let time = entry.activation_key.time;
            request(&mut self.lists, key.pid, &entry.ids, time, EventTime::MAX);
        }
    }

    /// Requests the next page of each list.
    pub fn request_pages(&mut self, keys: &[ListKey]) {
        for key in keys {
            if let Some(list) = self.lists.get_mut(key) {
                list.is_requested = !list.is_read;
            }
        }
    }

    /// Reads pages of all requested lists until no request is open.
    pub fn read<L: Facts>(&mut self, facts: &mut FactCache<'_, L>) -> Result<(), L::Error> {
        loop {
            let mut lists: Vec<(&ListKey, &mut List)> =
                self.lists.iter_mut().filter(|(_, list)| list.is_requested).collect();
            if lists.is_empty() {
                return Ok(());
            }
            let scans: Vec<Scan> = lists.iter().map(|(_, list)| list.scan).collect();
            let pages = facts.ledger().scan(&scans)?;
            self.activations.load(facts, pages.iter().flatten().map(|entry| entry.fact))?;
            for (((_, id), list), page) in lists.iter_mut().zip(pages) {
                let found = page.iter().filter_map(|entry| self.activations.position(entry, id));
                let found = found.collect();
                list.add_page(&page, found, &self.activations.all);
            }
        }
    }

    /// Returns the activations with an id before `end`, newest first, as far back as the list is read without gaps.
    pub fn before(&self, pid: Pid, id: &DeviceId, end: &ActivationKey) -> EntriesBefore<'_> {
        match self.lists.get(&(pid, id.clone())) {
            Some(list) => list.before(end, &self.activations.all),
            None => EntriesBefore { all: &[], known: &[], is_complete: true },
        }
    }

    /// Returns a loaded activation.
    pub fn get(&self, key: &FactKey) -> Option<&HistoryEntry> {
        self.activations.get(key)
    }

    /// Sets the install chains up to a loaded activation.
    pub fn set_chains(&mut self, key: &FactKey, chains: InstallChains) {
        if let Some(entry) = self.activations.get_mut(key) {
            entry.has_new_chains = entry.chains != chains;
            entry.chains = chains;
        }
    }

    /// Returns the activations that are not before the floor of their list.
    pub fn followers(&self) -> impl Iterator<Item = &HistoryEntry> {
        let all = &self.activations.all;
        self.lists.values().flat_map(move |list| {
            let entries = list.found.iter().map(move |position| &all[*position]);
            entries.take_while(move |entry| entry.activation_key.time >= list.floor)
        })
    }

    /// Returns all loaded activations.
    pub fn into_entries(self) -> Vec<HistoryEntry> {
        self.activations.all
    }
}

fn request(lists: &mut Lists, pid: Pid, ids: &DeviceIds, newest: EventTime, floor: EventTime) {
    for id in ids.iter() {
        let list = lists.entry((pid, id.clone())).or_insert_with(|| {
            let times = (EventTime::default(), newest);
            List {
                scan: scan(pid, Family::Activation, match_keys::by_id(id), times),
                found: Vec::new(),
                is_read: false,
                is_requested: true,
                floor,
            }
        });
        list.floor = list.floor.min(floor);
        if list.scan.after.is_none() {
            list.scan.newest = list.scan.newest.max(newest);
        }
    }
}

impl Activations<'_> {
    fn load<L: Facts>(
        &mut self,
        facts: &mut FactCache<'_, L>,
        keys: impl IntoIterator<Item = FactKey>,
    ) -> Result<(), L::Error> {
        let is_missing = |key: &FactKey| !self.positions.contains_key(key);
        let missing: Vec<FactKey> = keys.into_iter().filter(is_missing).collect();
        facts.visit(missing, |_, key, record| {
            if let Some(activation) = record.activation() {
                let ids = self.known_ids.of(key, record);
                self.positions.insert(*key, self.all.len());
                self.all.push(HistoryEntry::new(*key, activation, ids));
            }
        })
    }

    fn get(&self, key: &FactKey) -> Option<&HistoryEntry> {
        self.all.get(*self.positions.get(key)?)
    }

    fn get_mut(&mut self, key: &FactKey) -> Option<&mut HistoryEntry> {
        self.all.get_mut(*self.positions.get(key)?)
    }

    /// Returns the position of the activation that an index entry leads to, unless the entry is stale or of another id
    /// with the same hash.
    fn position(&self, entry: &IndexEntry, id: &DeviceId) -> Option<usize> {
        let position = *self.positions.get(&entry.fact)?;
        let found = self.all.get(position)?;
        let is_found = found.activation_key.time == entry.time && found.ids.contains(id);
        is_found.then_some(position)
    }
}

impl HistoryEntry {
    fn new(key: FactKey, record: &ActivationRecord, ids: Arc<DeviceIds>) -> Self {
        Self {
            key,
            activation_key: ActivationKey::of(&record.fact),
            ids,
            chains: record.chains.clone(),
            has_new_chains: false,
            decided_class: record.decision.as_ref().map(Decision::class),
        }
    }

    /// Returns the sort key: the order of the contract.
    pub fn order(&self) -> (&ActivationKey, FactKey) {
        (&self.activation_key, self.key)
    }
}

impl List {
    fn before<'a>(&'a self, end: &ActivationKey, all: &'a [HistoryEntry]) -> EntriesBefore<'a> {
        let key = |position: &usize| &all[*position].activation_key;
        let first = self.found.partition_point(|position| key(position) >= end);
        let last = match self.read_down_to() {
            Some(floor) => self.found.partition_point(|position| key(position).time > floor),
            None => self.found.len(),
        };
        EntriesBefore {
            all,
            known: self.found.get(first..last).unwrap_or_default(),
            is_complete: self.is_read,
        }
    }

    /// Returns the time after which the list is read without gaps; `None` if it is read completely.
    fn read_down_to(&self) -> Option<EventTime> {
        (!self.is_read).then(|| self.scan.after.map_or(EventTime::MAX, |last| last.time))
    }

    fn add_page(&mut self, page: &[IndexEntry], entries: Vec<usize>, all: &[HistoryEntry]) {
        self.is_read = page.len() < self.scan.limit;
        self.scan.after = page.last().copied().or(self.scan.after);
        self.scan.limit = NEXT_PAGE;
        self.found.extend(entries);
        // The store orders entries of equal time by a hash, the contract by id.
        if let Some(first) = page.first() {
            let is_newer = |position: &usize| all[*position].activation_key.time > first.time;
            let start = self.found.partition_point(is_newer);
            self.found[start..].sort_unstable_by(|a, b| all[*b].order().cmp(&all[*a].order()));
        }
        self.is_requested = self.read_down_to().is_some_and(|time| time >= self.floor);
    }
}

/// The part of a list before an activation.
pub struct EntriesBefore<'a> {
    all: &'a [HistoryEntry],
    /// Positions in `all`, newest first.
    known: &'a [usize],
    /// There are no activations older than the known ones.
    pub is_complete: bool,
}

impl<'a> EntriesBefore<'a> {
    /// Returns the known activations, newest first.
    pub fn known(&self) -> impl ExactSizeIterator<Item = &'a HistoryEntry> + use<'a> {
        let all = self.all;
        self.known.iter().map(move |position| &all[*position])
    }
}
