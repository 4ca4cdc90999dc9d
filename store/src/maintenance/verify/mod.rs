//! Verifies a store: files are readable, facts are found by their keys, decisions equal recomputed ones, rows match
//! their decisions, and counts match the rows.
//!
//! Tables are scanned in key order, and related keys are looked up a few thousand at a time, so memory does not grow
//! with the store. [`verify`] changes nothing and may run beside the writing process, on a snapshot. [`repair`]
//! rewrites derived data and never changes a fact.

mod aggregates;
mod counts;
mod decisions;
mod event;
mod expected;
mod expected_entries;
mod files;
mod index;
mod meta;
mod report;
mod row_digest;
mod rows;
mod snapshot_facts;
pub mod stored_row;
mod table_scan;

use std::collections::{BTreeMap, BTreeSet};

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::Policy;
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::apps::record::App;
use crate::embedded::open::column_families::{EVENTS, TABLES};
use crate::embedded::open::meta::{self as stored_meta, Meta};
use crate::embedded::tables::Tables;
use crate::embedded::write::{expiry_floor, rebuild_aggregates};
use crate::expiry::Expiry;
use crate::expiry::floor::ExpiryRecords;
use crate::layout::key::Key;
use files::Files;
pub use report::{Check, Finding, Problem, Remedy, Report, Times};

/// The options of a verification.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Limit for the examples of each problem.
    pub examples_max: usize,
    /// True if attribution settings have changed since events were decided: a recomputed decision that differs is then
    /// not damage.
    pub have_settings_changed: bool,
}

/// The progress of a verification, in table entries.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub check: Check,
    pub done: u64,
    /// An estimate of the entries of all checks.
    pub total: u64,
}

/// Receives the progress.
pub type Watch<'a> = &'a mut dyn FnMut(Progress);

/// Looks for damage in the configured store.
///
/// # Errors
/// If the store is missing or does not match the settings. Damage is not an error but in the report.
pub fn verify(
    settings: &config::Store,
    policy: &Policy,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Report, StoreError> {
    let mut report = Report::new(options.examples_max);
    let Some((tables, files)) = files::open(settings, &mut report)? else {
        return Ok(report);
    };
    let mut checker = Checker::new(tables, (settings, policy, options), (report, files), watch);
    match checker.load() {
        Ok(()) => checker.check_all()?,
        Err(failure) => checker.read_all(failure)?,
    }
    Ok(checker.finish())
}

/// Rewrites damaged derived data. If a file is damaged, nothing is written.
///
/// # Errors
/// Errors of [`verify`], and a store that another process has open.
pub fn repair(
    settings: &config::Store,
    policy: &Policy,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Report, StoreError> {
    let mut report = Report::new(options.examples_max);
    let mut before = files::open(settings, &mut report)?;
    before.iter_mut().for_each(|(_, files)| files.note_failure(&mut report));
    let is_log_only = report.found.keys().all(|problem| *problem == Problem::LogDamaged);
    if before.is_none() || !is_log_only {
        return Ok(report);
    }
    drop(before);
    let tables = Tables::open_for_repair(&settings.path, settings.memory_bytes)?;
    report.repaired_log();
    let files = Files::of(&tables)?;
    let parts = (settings, policy, options);
    let mut checker = Checker::new(tables, parts, (report, files), watch);
    checker.read_all(None)?;
    if checker.report.wrong(Check::Files) > checker.report.repaired(Check::Files) {
        return Ok(checker.finish());
    }
    checker.load()?;
    checker.fixes = Some(WriteBatch::default());
    checker.check_all()?;
    if checker.must_recount {
        rebuild_aggregates::all(&checker.tables, settings)?;
    }
    checker.tables.db.flush_wal(true)?;
    Ok(checker.finish())
}

/// The state of one verification.
struct Checker<'a> {
    tables: Tables,
    settings: &'a config::Store,
    policy: &'a Policy,
    options: &'a Options,
    apps: BTreeMap<Pid, App>,
    expiry: Expiry,
    files: Files,
    report: Report,
    /// Repairs to write; `None` if the store must not be changed.
    fixes: Option<WriteBatch>,
    /// Wrong rows that were reported with their events.
    reported_rows: BTreeSet<Key>,
    /// Events that were reported before their own check.
    reported_events: BTreeSet<FactKey>,
    must_recount: bool,
    done: u64,
    total: u64,
    watch: Watch<'a>,
}

impl<'a> Checker<'a> {
    fn new(
        tables: Tables,
        (settings, policy, options): (&'a config::Store, &'a Policy, &'a Options),
        (report, files): (Report, Files),
        watch: Watch<'a>,
    ) -> Self {
        Self {
            tables,
            settings,
            policy,
            options,
            apps: BTreeMap::new(),
            expiry: Expiry::new(policy, |pid| settings.retention_of(pid)),
            files,
            report,
            fixes: None,
            reported_rows: BTreeSet::new(),
            reported_events: BTreeSet::new(),
            must_recount: false,
            done: 0,
            total: 0,
            watch,
        }
    }

    /// Loads the metadata.
    fn load(&mut self) -> Result<(), StoreError> {
        let Self { tables, settings, .. } = self;
        Meta::load_uncounted(tables, &settings.path, settings.partitions)?;
        let until = match stored_meta::consumed_until(&self.tables) {
            // Reported by the check of metadata.
            Err(StoreError::Corrupt { .. } | StoreError::AheadOfClock { .. }) => {
                self.derive_consumed_until()?
            }
            until => until?,
        };
        // Unreadable records are reported by the check of metadata, too.
        let records = match expiry_floor::records(&self.tables) {
            Err(StoreError::Corrupt { .. }) => ExpiryRecords::new(),
            records => records?,
        };
        let until = Some(until).filter(|until| *until > EventTime::default());
        self.expiry.set_floors(&crate::expiry::floor::under(&records, &self.expiry, until));
        self.expiry.until().advance(until.unwrap_or_default());
        self.total = self.estimate_all()?;
        Ok(())
    }

    /// Only reads all tables, to find damaged files; for a store whose metadata cannot be loaded.
    fn read_all(&mut self, failure: impl Into<Option<StoreError>>) -> Result<(), StoreError> {
        match failure.into() {
            Some(StoreError::Engine(failure)) => drop(self.note_failure(failure)?),
            Some(failure) => return Err(failure),
            None => {}
        }
        TABLES.into_iter().try_for_each(|table| self.scan_table(Check::Files, table, |_, _| Ok(())))
    }

    fn check_all(&mut self) -> Result<(), StoreError> {
        self.check_meta()?;
        self.check_index()?;
        self.check_events()?;
        self.check_rows()?;
        self.check_counts()
    }

    fn finish(mut self) -> Report {
        self.files.note_failure(&mut self.report);
        self.report.add_checked(Check::Files, self.files.count());
        self.report
    }

    /// An estimate of the entries that all checks read.
    fn estimate_all(&self) -> Result<u64, StoreError> {
        let mut total = 0;
        for family in Family::ALL {
            let times = if family == Family::Touch { 1 } else { 2 };
            total += times * self.estimate(Tables::name_of(family))?;
        }
        Ok(total + 2 * self.estimate(EVENTS)?)
    }

    /// An estimate of the entries of a table.
    fn estimate(&self, table: &str) -> Result<u64, StoreError> {
        let property = rocksdb::properties::ESTIMATE_NUM_KEYS;
        Ok(self.tables.db.property_int_value_cf(self.tables.table(table), property)?.unwrap_or(0))
    }

    /// Reports a problem that cannot be repaired.
    fn find(&mut self, problem: Problem, at: impl FnOnce() -> String) {
        self.report.find(problem, false, at);
    }

    /// Reports a problem, and repairs it by `fix` if repairs are to be written.
    fn find_and(
        &mut self,
        problem: Problem,
        at: impl FnOnce() -> String,
        fix: impl FnOnce(&mut WriteBatch, &Tables),
    ) {
        self.report.find(problem, self.fixes.is_some(), at);
        if let Some(batch) = &mut self.fixes {
            fix(batch, &self.tables);
        }
    }

    /// Writes the repairs so far.
    fn write_fixes(&mut self) -> Result<(), StoreError> {
        if let Some(batch) = self.fixes.as_mut().filter(|batch| !batch.is_empty()) {
            self.tables.db.write(std::mem::take(batch))?;
        }
        Ok(())
    }

    /// Names a fact: an event by the app's key and the event id, a touch by its key, because its id may be a click id.
    fn named(&self, fact: &FactKey, record: &FactRecord) -> String {
        let key = crate::layout::key::record(fact);
        match record {
            FactRecord::Touch(_) => at(Tables::name_of(fact.family), &key),
            FactRecord::Activation(_) => {
                format!("{} activation {}", self.app_name(fact.pid), id(record))
            }
            FactRecord::Effect(_) => format!("{} effect {}", self.app_name(fact.pid), id(record)),
        }
    }

    fn app_name(&self, pid: Pid) -> String {
        self.policy.app(pid).map_or(format!("pid {}", pid.0), |app| app.key.to_string())
    }
}

fn id(record: &FactRecord) -> String {
    attribution::facts::printable::printable(record.id()).to_string()
}

/// A table and a key in hexadecimal.
fn at(table: &str, key: &[u8]) -> String {
    format!("{table} {}", attribution::facts::device_ids::hex(key))
}
