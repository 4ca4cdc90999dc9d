//! The expected records and rows of damaged events, and their repair.

use std::collections::BTreeSet;

use attribution::facts::keys::FactKey;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::ledger::{DecisionWrite, Facts};
use attribution::rules::build_row;
use attribution::rules::row::Row;
use attribution::worker::limits::ReadLimits;
use attribution::worker::{Recomputed, recompute, recompute_with_later_activations};
use rocksdb::WriteBatch;

use super::event::{Event, IntactRow, is_consistent, row_key, seq_of};
use super::findings::Findings;
use super::report::{Problem, Report};
use super::snapshot::{Snapshot, SnapshotFacts};
use super::stored_row::{self, digest};
use super::table_scan::{Found, look_up};
use crate::StoreError;
use crate::apps::record::App;
use crate::embedded::open::column_families::EVENTS;
use crate::expiry::Expiry;
use crate::layout::codec;
use crate::layout::key::{self, KEY_BYTES, RowKey};
use crate::layout::row_meta::row_meta;

/// The record and the row that an event should have.
pub struct Expected {
    fact: FactKey,
    record: FactRecord,
    row: Row,
    replaced: Option<RowKey>,
    app: App,
}

impl Expected {
    /// Derives the expected record and row of an event whose decision is right or final; `None` if that is impossible.
    pub fn of(snapshot: &Snapshot<'_>, event: &Event, found: Option<&Found>) -> Option<Self> {
        let current_row = event.record.current_row().copied()?;
        let mut record = event.record.clone();
        let row = match &mut record {
            FactRecord::Touch(_) => None,
            FactRecord::Activation(stored) => {
                if !is_consistent(&event.record, &current_row) {
                    let IntactRow { row, original } = IntactRow::of(event, found)?;
                    stored.decision = stored_row::decision(row, original);
                }
                let row =
                    stored.decision.as_ref().map(|of| build_row::activation_row(&stored.fact, of));
                row.filter(|_| is_consistent(&record, &current_row))
            }
            FactRecord::Effect(_) => effect_row(snapshot, event, &current_row),
        };
        let row = Row { revision: current_row.revision, ..row? };
        Some(Self { fact: event.fact, record, row, replaced: event.row, app: event.app })
    }

    /// Puts the record and the row into a batch. A row with unchanged event time and campaign keeps its partition.
    pub fn put(self, snapshot: &Snapshot<'_>, batch: &mut WriteBatch) {
        let Self { fact, mut record, row, replaced, app } = self;
        let is_same = replaced
            .is_some_and(|old| (old.event_time, old.spreadid) == (row.event_time, row.spreadid));
        let fanout_bits =
            record.current_row().map_or(0, |current_row| current_row.row_meta.fanout_bits);
        let keeps_partition = is_same && fanout_bits <= app.fanout_bits_max;
        let fanout_bits = if keeps_partition { fanout_bits } else { app.fanout_bits };
        let key = RowKey::new(&row, app.base, fanout_bits, snapshot.settings.partitions);
        let mut value = Vec::with_capacity(384);
        codec::row::encode(&row, &mut value);
        if let Some(current_row) = record.current_row_mut() {
            current_row.row_meta = row_meta(&row, fanout_bits, KEY_BYTES + value.len());
        }
        let mut record_value = Vec::with_capacity(512);
        codec::fact_record::encode(&record, &mut record_value);
        let tables = &snapshot.tables;
        if let Some(replaced) = replaced.filter(|old| *old != key) {
            batch.delete_cf(&tables.events(), replaced.encode());
        }
        if row.event_time >= app.oldest {
            batch.put_cf(&tables.events(), key.encode(), value);
        }
        batch.put_cf(&tables.facts(fact.family), key::record(&fact), record_value);
    }
}

/// Rebuilds the row of an effect from its activations; `None` if the result is not the row that was decided.
fn effect_row(snapshot: &Snapshot<'_>, event: &Event, current_row: &CurrentRow) -> Option<Row> {
    let recomputed = event.recomputed.clone().or_else(|| {
        // Expired facts that still exist are used too. The digest shows whether any are missing.
        let mut facts = SnapshotFacts { tables: &snapshot.tables, expiry: &Expiry::default() };
        recompute(&mut facts, snapshot.policy, &[event.fact]).ok()?.pop()
    });
    let row = recomputed.map(|recomputed| recomputed.write.row);
    row.filter(|row| digest(row, None) == current_row.digest)
}

/// Recomputes and writes wrong decisions, and those that depend on them, page by page. `reported` has the events whose
/// intact rows were reported because they differ from recomputed decisions.
pub fn repair_decisions(
    snapshot: &Snapshot<'_>,
    wrong: &[FactKey],
    reported: &mut BTreeSet<FactKey>,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    if findings.fixes.is_none() || wrong.is_empty() {
        return Ok(());
    }
    findings.write_fixes(&snapshot.tables)?;
    let (mut facts, mut has_write_failed) = (snapshot.facts(), false);
    let use_page = |page| {
        let written = write_decisions(snapshot, page, reported, findings);
        has_write_failed = written.is_err();
        written
    };
    let (policy, limits) = (snapshot.policy, ReadLimits::default());
    let decided = recompute_with_later_activations(&mut facts, policy, wrong, limits, use_page);
    match decided {
        Err(failure) if has_write_failed => Err(failure),
        Err(_) => {
            // Facts that they need are damaged too.
            findings.report.unchecked += wrong.len() as u64;
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Writes recomputed decisions, except those that would replace an intact row.
fn write_decisions(
    snapshot: &Snapshot<'_>,
    decided: Vec<Recomputed>,
    reported: &mut BTreeSet<FactKey>,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let partitions = snapshot.settings.partitions;
    for recomputed in decided {
        if has_intact_row(snapshot, &recomputed, reported, findings)? {
            continue;
        }
        let DecisionWrite { key: fact, record, row, replaced, callbacks: _ } = recomputed.write;
        let app =
            snapshot.app(fact.pid).unwrap_or_else(|| App::new(key::partition("", partitions)));
        let replaced = replaced.and_then(|current_row| {
            row_key(&app, fact.pid, seq_of(&record), &current_row, partitions)
        });
        if let Some(batch) = &mut findings.fixes {
            Expected { fact, record, row, replaced, app }.put(snapshot, batch);
        }
    }
    findings.write_fixes(&snapshot.tables)
}

/// True if a decision that depends on a wrong one would replace an intact row. It is reported and not written, because
/// the row shows the decision that was right.
fn has_intact_row(
    snapshot: &Snapshot<'_>,
    recomputed: &Recomputed,
    reported: &mut BTreeSet<FactKey>,
    findings: &mut Findings<'_>,
) -> Result<bool, StoreError> {
    let fact = recomputed.write.key;
    let stored = match &recomputed.stored {
        Some(record) => Some(record.clone()),
        None => snapshot.facts().records(&[fact])?.pop().flatten(),
    };
    let digest_of =
        |record: &FactRecord| record.current_row().map(|current_row| current_row.digest);
    let standing = stored.filter(|record| digest_of(record) != digest_of(&recomputed.write.record));
    let (Some(record), Some(app)) = (standing, snapshot.app(fact.pid)) else { return Ok(false) };
    let event = Event::new(fact, record, app, snapshot.settings.partitions);
    let Some(row) = event.row.map(|row| row.encode()) else { return Ok(false) };
    let rows = look_up(snapshot, EVENTS, [row], findings)?;
    if IntactRow::of(&event, rows.get(&row)).is_none() {
        return Ok(false);
    }
    if reported.insert(fact) {
        let named = || snapshot.fact_name(&fact, &event.record);
        add_differing_row(snapshot, named, &mut findings.report);
    }
    Ok(true)
}

/// Adds an intact row that differs from the recomputed decision.
pub fn add_differing_row(
    snapshot: &Snapshot<'_>,
    named: impl FnOnce() -> String,
    report: &mut Report,
) {
    if snapshot.options.have_settings_changed {
        report.differing += 1;
    } else {
        report.add(Problem::DecisionDiffers, false, named);
    }
}
