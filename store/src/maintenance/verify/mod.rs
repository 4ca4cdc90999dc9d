//! Verifies a store: files are readable, facts are found by their keys, decisions equal recomputed ones, rows match
//! their decisions, counts match the rows, and the outbox is whole.
//!
//! Tables are scanned in key order, and related keys are looked up a few thousand at a time, so memory does not grow
//! with the store. [`verify`] changes nothing and may run beside the writing process. [`repair`] rewrites derived data
//! and never changes a fact. Each step is a function that reads a `Snapshot` and adds to the `Findings`.

mod aggregates;
mod callbacks;
mod counts;
mod decisions;
mod event;
mod expected;
mod fact_tables;
mod files;
mod findings;
mod index;
mod meta;
mod report;
mod rows;
mod snapshot;
pub mod stored_row;
mod table_scan;
mod touches;

use attribution::facts::event::Family;
use attribution::rules::policy::Policy;
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::embedded::open::column_families::{EVENTS, OUTBOX};
use crate::embedded::open::meta::{self as stored_meta, Meta};
use crate::embedded::tables::Tables;
use crate::embedded::write::{expiry_floor, rebuild_aggregates};
use crate::expiry::floor::{self, ExpiryRecords};
use files::Files;
use findings::Findings;
pub use report::{Check, Finding, Problem, Remedy, Report, Times};
use snapshot::Snapshot;
use table_scan::scan_table;

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
    let mut snapshot = Snapshot::new(tables, settings, policy, options);
    let mut findings = Findings::new(report, files, watch);
    let loaded = load(&snapshot, &mut findings);
    match findings.unless_damaged(&snapshot.tables, loaded)? {
        Some(()) => check_all(&mut snapshot, &mut findings)?,
        None => read_all(&snapshot, &mut findings)?,
    }
    Ok(findings.finish())
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
    report.mark_log_repaired();
    let files = Files::of(&tables)?;
    let mut snapshot = Snapshot::new(tables, settings, policy, options);
    let mut findings = Findings::new(report, files, watch);
    read_all(&snapshot, &mut findings)?;
    if findings.report.wrong(Check::Files) > findings.report.repaired(Check::Files) {
        return Ok(findings.finish());
    }
    load(&snapshot, &mut findings)?;
    findings.fixes = Some(WriteBatch::default());
    check_all(&mut snapshot, &mut findings)?;
    if findings.report.repaired(Check::Counts) > 0 {
        rebuild_aggregates::all(&snapshot.tables, settings)?;
    }
    snapshot.tables.db.flush_wal(true)?;
    Ok(findings.finish())
}

/// Loads the metadata by which facts expire, and estimates the entries to read.
fn load(snapshot: &Snapshot<'_>, findings: &mut Findings<'_>) -> Result<(), StoreError> {
    let Snapshot { tables, settings, expiry, .. } = snapshot;
    Meta::check(tables, &settings.path, settings.partitions)?;
    let until = match stored_meta::consumed_until(tables) {
        // Reported by the check of metadata.
        Err(StoreError::Corrupt { .. } | StoreError::AheadOfClock { .. }) => {
            meta::derive_consumed_until(snapshot, findings)?
        }
        until => until?,
    };
    // Unreadable records are reported by the check of metadata, too.
    let records = match expiry_floor::records(tables) {
        Err(StoreError::Corrupt { .. }) => ExpiryRecords::new(),
        records => records?,
    };
    expiry.set_floors(&floor::under(&records, expiry, until));
    expiry.until().advance(until.unwrap_or_default());
    findings.total = estimate_all(tables)?;
    Ok(())
}

/// Only reads all tables, to find damaged files.
fn read_all(snapshot: &Snapshot<'_>, findings: &mut Findings<'_>) -> Result<(), StoreError> {
    snapshot
        .tables
        .names()
        .iter()
        .try_for_each(|table| scan_table(snapshot, findings, Check::Files, table, |_, _| Ok(())))
}

fn check_all(snapshot: &mut Snapshot<'_>, findings: &mut Findings<'_>) -> Result<(), StoreError> {
    snapshot.apps = meta::check_meta(snapshot, findings)?;
    index::check_index(snapshot, findings)?;
    let reported_rows = decisions::check_events(snapshot, findings)?;
    rows::check_rows(snapshot, &reported_rows, findings)?;
    counts::check_counts(snapshot, findings)?;
    callbacks::check_callbacks(snapshot, findings)
}

/// An estimate of the entries that all checks read.
fn estimate_all(tables: &Tables) -> Result<u64, StoreError> {
    let mut total = 2 * estimate(tables, EVENTS)? + estimate(tables, OUTBOX)?;
    for name in tables.touches.all_names() {
        total += estimate(tables, &name)?;
    }
    for family in [Family::Activation, Family::Effect] {
        total += 2 * estimate(tables, Tables::name_of(family))?;
    }
    Ok(total)
}

/// An estimate of the entries of a table.
fn estimate(tables: &Tables, table: &str) -> Result<u64, StoreError> {
    let property = rocksdb::properties::ESTIMATE_NUM_KEYS;
    Ok(tables.db.property_int_value_cf(&tables.table(table), property)?.unwrap_or(0))
}
