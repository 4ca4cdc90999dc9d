//! What a verification reads.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::facts::printable::printable;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::FactRecord;
use attribution::ledger::{Facts, Unfinished};
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::Policy;

use super::Options;
use super::report::at;
use crate::StoreError;
use crate::apps::record::App;
use crate::embedded::read::index;
use crate::embedded::tables::Tables;
use crate::embedded::touches::filter::FilterView;
use crate::embedded::write::unfinished;
use crate::expiry::Expiry;
use crate::layout::key;

/// The tables of a store, and the settings that they are compared with. A repair reads what it has written.
pub struct Snapshot<'a> {
    pub tables: Tables,
    pub settings: &'a config::Store,
    pub policy: &'a Policy,
    pub options: &'a Options,
    pub expiry: Expiry,
    /// The valid records of apps; empty until the metadata has been checked.
    pub apps: BTreeMap<Pid, App>,
}

impl<'a> Snapshot<'a> {
    pub fn new(
        tables: Tables,
        settings: &'a config::Store,
        policy: &'a Policy,
        options: &'a Options,
    ) -> Self {
        let expiry = Expiry::new(policy, |pid| settings.retention_of(pid));
        Self { tables, settings, policy, options, expiry, apps: BTreeMap::new() }
    }

    pub fn app(&self, pid: Pid) -> Option<App> {
        self.apps.get(&pid).copied()
    }

    /// True if retention has passed the rows of an app at a time.
    pub fn is_past_retention(&self, pid: Pid, time: EventTime) -> bool {
        self.apps.get(&pid).is_some_and(|app| time < app.oldest)
    }

    /// What an interrupted batch has left to be decided; nothing if it is unreadable, which the check of metadata
    /// reports.
    pub fn unfinished(&self) -> Result<Unfinished, StoreError> {
        match unfinished::load(&self.tables) {
            Err(StoreError::Corrupt { .. }) => Ok(Unfinished::default()),
            unfinished => unfinished,
        }
    }

    /// The facts from which decisions are recomputed.
    pub fn facts(&self) -> SnapshotFacts<'_> {
        SnapshotFacts { tables: &self.tables, expiry: &self.expiry }
    }

    pub fn app_name(&self, pid: Pid) -> String {
        self.policy.app(pid).map_or(format!("pid {}", pid.0), |app| app.key.to_string())
    }

    /// Names a fact: an event by the app's key and the event id, a touch by its key, because its id may be a click id.
    pub fn fact_name(&self, fact: &FactKey, record: &FactRecord) -> String {
        let of_app =
            |kind| format!("{} {kind} {}", self.app_name(fact.pid), printable(record.id()));
        match record {
            FactRecord::Touch(_) => at(Tables::name_of(fact.family), &key::record(fact)),
            FactRecord::Activation(_) => of_app("activation"),
            FactRecord::Effect(_) => of_app("effect"),
        }
    }
}

/// The facts of a store as the writing process sees them: without expired ones that no compaction has removed yet.
pub struct SnapshotFacts<'s> {
    pub tables: &'s Tables,
    pub expiry: &'s Expiry,
}

impl Facts for SnapshotFacts<'_> {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let mut records = self.tables.records(keys)?;
        for (fact, record) in keys.iter().zip(&mut records) {
            record.take_if(|record| self.expiry.has_expired(fact.pid, record));
        }
        Ok(records)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        index::scan(self.tables, [], &FilterView::default(), scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.expiry.until().get()
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.expiry.floor(pid)
    }
}
