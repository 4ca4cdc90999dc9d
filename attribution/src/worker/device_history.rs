//! The activations that share a device id, read newest first and only as far as needed.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::BatchContext;
use super::batch_context::{NEXT_PAGE, scan};
use crate::facts::device_ids::{DeviceId, DeviceIds};
use crate::facts::event::{Activation, EventTime, Family, Pid};
use crate::facts::keys::FactKey;
use crate::facts::match_keys;
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::FactRecord;
use crate::rules::classify::{ActivationKey, InstallChain};

/// The device ids whose activations were requested, and what was read of each.
#[derive(Default)]
pub struct DeviceHistory {
    lists: HashMap<ListKey, List, FixedState>,
    ids: HashMap<FactKey, DeviceIds, FixedState>,
}

pub type ListKey = (Pid, DeviceId);

/// The activations with one device id, as far as they are read.
pub struct List {
    scan: Scan,
    /// Newest first.
    found: Vec<HistoryEntry>,
    is_read: bool,
    is_requested: bool,
    /// The time down to which the list must be read.
    floor: EventTime,
}

/// An activation of a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryEntry {
    pub activation_key: ActivationKey,
    pub key: FactKey,
}

impl DeviceHistory {
    /// Requests the activations that follow one on a device, and the last one before it.
    pub fn request_followers(&mut self, key: &FactKey, activation: &Activation) {
        let ids = DeviceIds::new(&activation.ids);
        self.request(key.pid, &ids, EventTime::MAX, activation.time);
    }

    /// Requests the activations before one.
    pub fn request_predecessors(&mut self, key: &FactKey, activation: &Activation) {
        let ids = match self.ids.remove(key) {
            Some(ids) => ids,
            None => DeviceIds::new(&activation.ids),
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

    pub fn request_page(&mut self, key: &ListKey) {
        if let Some(list) = self.lists.get_mut(key) {
            list.is_requested = !list.is_read;
        }
    }

    pub fn list(&self, pid: Pid, id: &DeviceId) -> Option<&List> {
        self.lists.get(&(pid, id.clone()))
    }

    pub fn ids(&self, key: &FactKey) -> Option<&DeviceIds> {
        self.ids.get(key)
    }

    /// Returns the activations at or after the floor of their list.
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
    /// Returns the entries before an activation, newest first, as far as none is missing.
    pub fn before(&self, activation_key: &ActivationKey) -> EntriesBefore<'_> {
        let start = self.found.partition_point(|entry| entry.activation_key >= *activation_key);
        let end = match self.read_down_to() {
            Some(floor) => self.found.partition_point(|entry| entry.activation_key.time > floor),
            None => self.found.len(),
        };
        EntriesBefore {
            known: self.found.get(start..end).unwrap_or_default(),
            is_complete: self.is_read,
        }
    }

    /// Returns the time after which no entry is missing; `None` if the list is complete.
    fn read_down_to(&self) -> Option<EventTime> {
        (!self.is_read).then(|| self.scan.after.map_or(EventTime::MAX, |last| last.time))
    }

    fn add_page(&mut self, page: &[IndexEntry], entries: Vec<HistoryEntry>) {
        self.is_read = page.len() < self.scan.limit;
        self.scan.after = page.last().copied().or(self.scan.after);
        self.scan.limit = NEXT_PAGE;
        self.found.extend(entries);
        // The store orders equal times by a hash, the contract by id.
        if let Some(first) = page.first() {
            let start = self.found.partition_point(|entry| entry.activation_key.time > first.time);
            self.found[start..].sort_unstable_by(|a, b| b.cmp(a));
        }
        self.is_requested = self.read_down_to().is_some_and(|time| time >= self.floor);
    }
}

/// The part of a list before an activation.
#[derive(Clone, Copy)]
pub struct EntriesBefore<'a> {
    pub known: &'a [HistoryEntry],
    /// No older activations exist beyond `known`.
    pub is_complete: bool,
}

impl<L: Facts> BatchContext<'_, L> {
    /// Reads pages of all requested lists until no request is open.
    pub fn read_history(&mut self, history: &mut DeviceHistory) -> Result<(), L::Error> {
        loop {
            let mut lists: Vec<(&ListKey, &mut List)> =
                history.lists.iter_mut().filter(|(_, list)| list.is_requested).collect();
            if lists.is_empty() {
                return Ok(());
            }
            let scans: Vec<Scan> = lists.iter().map(|(_, list)| list.scan).collect();
            let pages = self.ledger().scan(&scans)?;
            self.load(pages.iter().flatten().map(|entry| entry.fact))?;
            for ((key, list), page) in lists.iter_mut().zip(pages) {
                let found = page.iter().filter_map(|entry| {
                    let entry = self.history_entry(entry)?;
                    let ids =
                        history.ids.entry(entry.key).or_insert_with(|| self.ids_of(&entry.key));
                    ids.contains(&key.1).then_some(entry)
                });
                let found = found.collect();
                list.add_page(&page, found);
            }
        }
    }

    fn history_entry(&self, entry: &IndexEntry) -> Option<HistoryEntry> {
        let FactRecord::Activation(record) = self.at(entry)? else { return None };
        Some(HistoryEntry { activation_key: ActivationKey::of(&record.fact), key: entry.fact })
    }

    fn ids_of(&self, key: &FactKey) -> DeviceIds {
        match self.record(key) {
            Some(FactRecord::Activation(record)) => DeviceIds::new(&record.fact.ids),
            _ => DeviceIds::default(),
        }
    }

    /// Returns the index and the chain of one id of an activation that end with that activation; `None` if it was
    /// never decided.
    pub fn chain_at(
        &self,
        history: &DeviceHistory,
        key: &FactKey,
        id: &DeviceId,
    ) -> Option<(u8, &InstallChain)> {
        let FactRecord::Activation(record) = self.record(key)? else { return None };
        record.chains.at(history.ids(key)?.position(id)?)
    }
}
