//! Which ids the facts of each app were received with as MD5: in memory, and in the table `meta`.

use std::collections::{BTreeSet, HashMap};

use attribution::facts::device_ids::IdKindSet;
use attribution::facts::event::Pid;
use attribution::ledger::received_md5::ReceivedMd5;
use attribution::ledger::record::FactRecord;
use foldhash::fast::FixedState;
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::embedded::open::meta::RECEIVED_MD5;
use crate::embedded::tables::Tables;
use crate::layout::key;

#[derive(Debug, Default)]
pub struct ReceivedMd5ByApp {
    by_app: HashMap<Pid, ReceivedMd5, FixedState>,
    /// Apps whose entry in `meta` is outdated.
    changed: BTreeSet<Pid>,
}

impl ReceivedMd5ByApp {
    /// # Errors
    /// [`StoreError::Corrupt`] if an entry is damaged.
    pub fn load(tables: &Tables) -> Result<Self, StoreError> {
        let mut loaded = Self::default();
        for (pid, value) in tables.meta_entries(RECEIVED_MD5)? {
            let entry = key::decode_pid(&pid).zip(ReceivedMd5::decode(&value));
            let (pid, received) =
                entry.ok_or_else(|| StoreError::corrupt("the ids that an app received as MD5"))?;
            loaded.by_app.insert(pid, received);
        }
        Ok(loaded)
    }

    pub fn put(&mut self, pid: Pid, received: ReceivedMd5) {
        self.by_app.insert(pid, received);
        self.changed.insert(pid);
    }

    /// Returns the apps with an entry.
    pub fn apps(&self) -> impl Iterator<Item = Pid> {
        self.by_app.keys().copied()
    }

    pub fn of(&self, pid: Pid) -> ReceivedMd5 {
        self.by_app.get(&pid).copied().unwrap_or_default()
    }

    /// Adds the kinds of a fact. Returns whether one of them is new.
    pub fn add(&mut self, pid: Pid, record: &FactRecord, kinds: IdKindSet) -> bool {
        let is_new = !kinds.is_empty() && self.by_app.entry(pid).or_default().add(record, kinds);
        if is_new {
            self.changed.insert(pid);
        }
        is_new
    }

    /// Adds the changed entries to a batch.
    pub fn put_changes(&self, batch: &mut WriteBatch, tables: &Tables) {
        for pid in &self.changed {
            batch.put_cf(&tables.meta(), key::with_pid(RECEIVED_MD5, *pid), self.of(*pid).encode());
        }
    }

    /// Must be called once the changed entries are in a batch to write: if that fails, no later batch is written.
    pub fn clear_changes(&mut self) {
        self.changed.clear();
    }
}
