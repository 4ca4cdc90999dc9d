//! The activations with a device id, read newest first and only as far back as needed.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::fact_cache::{FactCache, NEXT_PAGE, scan};
use crate::facts::device_ids::{DeviceId, DeviceIds};
use crate::facts::event::{Activation, EventTime, Family, Pid};
use crate::facts::keys::{FactKey, FactKeyMap};
use crate::facts::match_keys;
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::FactRecord;
use crate::rules::classify::ActivationKey;

/// The lists of activations by device id, as far as they are requested and read.
#[derive(Default)]
pub struct DeviceHistory {
    lists: HashMap<ListKey, List, FixedState>,
    ids: FactKeyMap<DeviceIds>,
}

pub type ListKey = (Pid, DeviceId);

/// The activations with one device id, as far as they are read.
struct List {
    scan: Scan,
    /// Newest first.
    found: Vec<HistoryEntry>,
    /// The whole list is read.
    is_read: bool,
    is_requested: bool,
    /// The time back to which the list must be read.
    floor: EventTime,
}

/// An activation of a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryEntry {
    pub activation_key: ActivationKey,
    pub key: FactKey,
}

impl DeviceHistory {
    /// Requests the activations that follow this one on a device, and the last one before it.
    pub fn request_followers(&mut self, activation: &Activation) {
        let ids = DeviceIds::of_app_event(&activation.ids);
        self.request(activation.pid, &ids, EventTime::MAX, activation.time);
    }

    /// Requests the activations before this one.
    pub fn request_predecessors(&mut self, key: &FactKey, activation: &Activation) {
        let ids = match self.ids.remove(key) {
            Some(ids) => ids,
            None => DeviceIds::of_app_event(&activation.ids),
        };
        self.request(key.pid, &ids, activation.time, EventTime::MAX);
        self.ids.insert(*key, ids);
    }

    fn request(&mut self, pid: Pid, ids: &DeviceIds, newest: EventTime, floor: EventTime) {
        for id in ids.iter() {
            let list = self.lists.entry((pid, id.clone())).or_insert_with(|| {
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
            facts.load(pages.iter().flatten().map(|entry| entry.fact))?;
            for (((_, id), list), page) in lists.iter_mut().zip(pages) {
                let found = page.iter().filter_map(|entry| {
                    let activation = &facts.at(entry).and_then(FactRecord::activation)?.fact;
                    let new = || DeviceIds::of_app_event(&activation.ids);
                    let has_id = self.ids.entry(entry.fact).or_insert_with(new).contains(id);
                    has_id.then(|| HistoryEntry {
                        activation_key: ActivationKey::of(activation),
                        key: entry.fact,
                    })
                });
                let found = found.collect();
                list.add_page(&page, found);
            }
        }
    }

    /// Returns the activations with an id before `end`, newest first, as far back as the list is read without gaps.
    pub fn before(&self, pid: Pid, id: &DeviceId, end: &ActivationKey) -> EntriesBefore<'_> {
        match self.lists.get(&(pid, id.clone())) {
            Some(list) => list.before(end),
            None => EntriesBefore { known: &[], is_complete: true },
        }
    }

    pub fn ids(&self, key: &FactKey) -> Option<&DeviceIds> {
        self.ids.get(key)
    }

    /// Returns the activations that are not before the floor of their list.
    pub fn followers(&self) -> impl Iterator<Item = FactKey> {
        self.lists.values().flat_map(|list| {
            list.found
                .iter()
                .take_while(|entry| entry.activation_key.time >= list.floor)
                .map(|entry| entry.key)
        })
    }
}

impl List {
    fn before(&self, end: &ActivationKey) -> EntriesBefore<'_> {
        let first = self.found.partition_point(|entry| entry.activation_key >= *end);
        let last = match self.read_down_to() {
            Some(floor) => self.found.partition_point(|entry| entry.activation_key.time > floor),
            None => self.found.len(),
        };
        EntriesBefore {
            known: self.found.get(first..last).unwrap_or_default(),
            is_complete: self.is_read,
        }
    }

    /// Returns the time after which the list is read without gaps; `None` if it is read completely.
    fn read_down_to(&self) -> Option<EventTime> {
        (!self.is_read).then(|| self.scan.after.map_or(EventTime::MAX, |last| last.time))
    }

    fn add_page(&mut self, page: &[IndexEntry], entries: Vec<HistoryEntry>) {
        self.is_read = page.len() < self.scan.limit;
        self.scan.after = page.last().copied().or(self.scan.after);
        self.scan.limit = NEXT_PAGE;
        self.found.extend(entries);
        // The store orders entries of equal time by a hash, the contract by id.
        if let Some(first) = page.first() {
            let start = self.found.partition_point(|entry| entry.activation_key.time > first.time);
            self.found[start..].sort_unstable_by(|a, b| b.cmp(a));
        }
        self.is_requested = self.read_down_to().is_some_and(|time| time >= self.floor);
    }
}

/// The part of a list before an activation.
pub struct EntriesBefore<'a> {
    pub known: &'a [HistoryEntry],
    /// There are no activations older than those in `known`.
    pub is_complete: bool,
}
