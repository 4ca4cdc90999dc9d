//! A ledger that measures the time spent in the store, and can collect the commits.

use std::time::Instant;

use adtrail_store::StoreError;
use adtrail_store::embedded::Embedded;
use adtrail_store::layout::codec;
use adtrail_store::layout::key::{self, Key, RowKey};
use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::received_md5::ReceivedMd5;
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{
    DecisionWrite, FactWrite, Facts, Ledger, Position, Progress, Unfinished,
};
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::Policy;

use crate::thread_seconds;

pub struct TimedLedger {
    pub store: Embedded,
    pub writing: TimeSpent,
    pub reading: TimeSpent,
    /// The commits so far; `None` if they are not collected.
    pub commits: Option<Vec<Commit>>,
    /// The partition of each app, by pid.
    partitions: Vec<u16>,
}

/// A key and its value.
pub type Entry = (Key, Vec<u8>);

/// The rows and facts of one commit, without positions and aggregates.
#[derive(Debug, Default)]
pub struct Commit {
    pub rows: Vec<Entry>,
    /// Records and index entries by family, in key order.
    pub facts: [Vec<Entry>; 3],
}

/// Time spent in calls, in seconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct TimeSpent {
    pub wall: f64,
    /// CPU seconds of the calling thread.
    pub cpu: f64,
}

impl TimeSpent {
    pub fn time<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let (wall, cpu) = (Instant::now(), thread_seconds());
        let outcome = act();
        self.wall += wall.elapsed().as_secs_f64();
        self.cpu += thread_seconds() - cpu;
        outcome
    }
}

impl TimedLedger {
    pub fn new(store: Embedded, policy: &Policy, partitions: u16) -> Self {
        let mut by_pid =
            vec![0; 1 + policy.apps().map(|app| app.pid.0).max().unwrap_or(0) as usize];
        for app in policy.apps() {
            by_pid[app.pid.0 as usize] = key::partition(&app.key, partitions);
        }
        let (writing, reading) = Default::default();
        Self { store, writing, reading, commits: None, partitions: by_pid }
    }

    fn collect_index_entries(&mut self, facts: &[FactWrite]) {
        let Some(commits) = &mut self.commits else { return };
        let mut commit = Commit::default();
        for fact in facts {
            let entries = &mut commit.facts[fact.key.family as usize];
            let entry = |by: &MatchKey| {
                let key = key::index(*by, &fact.key, fact.record.time());
                (key, fact.key.id.0.to_be_bytes().to_vec())
            };
            entries.extend(fact.index.iter().map(entry));
        }
        commits.push(commit);
    }

    fn collect_decisions(&mut self, decisions: &[DecisionWrite]) {
        let Some(commit) = self.commits.as_mut().and_then(|commits| commits.last_mut()) else {
            return;
        };
        for DecisionWrite { key, record, row, .. } in decisions {
            let row_key = RowKey {
                partition: self.partitions[row.pid.0 as usize],
                pid: row.pid,
                event_time: row.event_time,
                spreadid: row.spreadid,
                seq: row.seq,
            };
            let (mut row_value, mut record_value) = (Vec::new(), Vec::new());
            codec::row::encode(row, &mut row_value);
            codec::fact_record::encode(record, &mut record_value);
            commit.rows.push((row_key.encode(), row_value));
            commit.facts[key.family as usize].push((key::record(key), record_value));
        }
        commit.facts.iter_mut().for_each(|entries| entries.sort());
    }
}

impl Facts for TimedLedger {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        self.reading.time(|| self.store.records(keys))
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        self.reading.time(|| self.store.scan(scans))
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.store.consumed_until()
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.store.expiry_floor(pid)
    }

    fn received_md5(&self, pid: Pid) -> ReceivedMd5 {
        self.store.received_md5(pid)
    }
}

impl Ledger for TimedLedger {
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        self.store.positions()
    }

    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        self.reading.time(|| self.store.lookup(keys))
    }

    fn lookup_up_to(
        &mut self,
        keys: &[FactKey],
        bytes_max: usize,
    ) -> Result<Vec<Lookup>, StoreError> {
        self.reading.time(|| self.store.lookup_up_to(keys, bytes_max))
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        self.collect_index_entries(&facts);
        self.writing.time(|| self.store.record(facts))
    }

    fn unfinished(&self) -> Unfinished {
        self.store.unfinished()
    }

    fn set_unfinished(&mut self, unfinished: Unfinished) {
        self.store.set_unfinished(unfinished);
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        self.collect_decisions(&decisions);
        self.writing.time(|| self.store.commit(decisions, progress))
    }

    fn wait_for_commit(&mut self) -> Result<(), StoreError> {
        self.writing.time(|| self.store.wait_for_commit())
    }
}
