//! Checks that each row is the current row of an event, and its only one.

use std::collections::BTreeSet;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys;
use attribution::facts::printable::printable;
use attribution::ledger::record::FactRecord;
use attribution::rules::row::seq;

use super::event::row_key;
use super::findings::Findings;
use super::report::{Check, Problem, at};
use super::snapshot::Snapshot;
use super::table_scan::{Entry, Found, look_up, scan_table};
use crate::StoreError;
use crate::embedded::open::column_families::EVENTS;
use crate::embedded::tables::Tables;
use crate::layout::codec;
use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::key::{self, Key, RowKey};

/// A readable row, and the event that it belongs to.
struct Row<'c> {
    key: RowKey,
    bytes: &'c [u8],
    fact: FactKey,
    event_id: &'c str,
}

/// The seqs of rows without a fact record, of one app and millisecond, to detect second rows.
#[derive(Default)]
struct RowsWithoutFact {
    moment: Option<(Pid, EventTime)>,
    seqs: BTreeSet<u64>,
}

/// Checks all rows. Those of `reported` were reported with their events.
pub fn check_rows(
    snapshot: &Snapshot<'_>,
    reported: &BTreeSet<Key>,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let mut without_fact = RowsWithoutFact::default();
    scan_table(snapshot, findings, Check::Rows, EVENTS, |findings, chunk| {
        let rows = readable(snapshot, chunk, reported, findings);
        let mut records = Vec::new();
        for family in [Family::Activation, Family::Effect] {
            let of_family = rows.iter().filter(|row| row.fact.family == family);
            let keys = of_family.map(|row| key::record(&row.fact));
            records.push(look_up(snapshot, Tables::name_of(family), keys, findings)?);
        }
        for row in rows {
            let records = &records[usize::from(row.fact.family == Family::Effect)];
            match records.get(&key::record(&row.fact)) {
                Some(Found::Unreadable) => findings.report.unchecked += 1,
                None => check_without_fact(snapshot, &row, &mut without_fact, findings),
                Some(Found::Value(record)) => {
                    let record = codec::fact_record::decode(row.fact.family, row.fact.pid, record);
                    // Unreadable records are reported by the check of facts.
                    if let Ok(record) = record {
                        check_row(snapshot, &row, &record, findings);
                    }
                }
            }
        }
        Ok(())
    })
}

/// The readable rows that retention has not passed.
fn readable<'c>(
    snapshot: &Snapshot<'_>,
    chunk: &'c [Entry],
    reported: &BTreeSet<Key>,
    findings: &mut Findings<'_>,
) -> Vec<Row<'c>> {
    findings.report.add_checked(Check::Rows, chunk.len());
    let mut rows = Vec::with_capacity(chunk.len());
    for (bytes, value) in chunk {
        let Some(key) = RowKey::decode(bytes) else {
            let tables = &snapshot.tables;
            findings.repair_by_delete(Problem::RowKeyUnreadable, tables, EVENTS, bytes);
            continue;
        };
        if snapshot.is_past_retention(key.pid, key.event_time) {
            continue;
        }
        let problem = match RowView::decode(value) {
            Ok(view) => {
                let event_id = view.text(TextCell::EventId);
                if seq(view.event_type, event_id) == key.seq {
                    let fact = match_keys::fact_key(view.event_type, key.pid, event_id);
                    rows.push(Row { key, bytes, fact, event_id });
                    continue;
                }
                Problem::RowDiffers
            }
            Err(_) => Problem::RowUnreadable,
        };
        if !reported.contains(&key.encode()) {
            findings.add(problem, || at(EVENTS, bytes));
        }
    }
    rows
}

fn check_row(
    snapshot: &Snapshot<'_>,
    row: &Row<'_>,
    record: &FactRecord,
    findings: &mut Findings<'_>,
) {
    let Row { key, bytes, .. } = row;
    let Some(app) = snapshot.app(key.pid) else { return };
    // A missing current row is reported with its fact.
    let Some(current_row) = record.current_row() else { return };
    let partitions = snapshot.settings.partitions;
    let expected = row_key(&app, key.pid, key.seq, current_row, partitions);
    if expected == Some(*key) {
        return;
    }
    let partition = |bits| key::row_partition(app.base, key.seq, bits, partitions);
    let is_possible = (0..=app.fanout_bits_max).any(|bits| partition(bits) == key.partition);
    let named = || row_name(snapshot, row);
    let delete = |batch: &mut rocksdb::WriteBatch| {
        batch.delete_cf(&snapshot.tables.events(), bytes);
    };
    match (is_possible, expected) {
        (false, _) => findings.repair(Problem::RowMisplaced, named, delete),
        (true, Some(_)) => findings.repair(Problem::SecondRow, named, delete),
        (true, None) => findings.add(Problem::SecondRow, named),
    }
}

/// Checks a row without a fact record. Records of events are kept at least as long as rows, so one that has not
/// expired is missing.
fn check_without_fact(
    snapshot: &Snapshot<'_>,
    row: &Row<'_>,
    others: &mut RowsWithoutFact,
    findings: &mut Findings<'_>,
) {
    let (pid, time) = (row.key.pid, row.key.event_time);
    if time >= snapshot.expiry.oldest_record(pid, row.fact.family, None) {
        return findings.add(Problem::RowWithoutFact, || row_name(snapshot, row));
    }
    if others.moment != Some((pid, time)) {
        *others = RowsWithoutFact { moment: Some((pid, time)), seqs: BTreeSet::new() };
    }
    if !others.seqs.insert(row.key.seq) {
        findings.add(Problem::SecondRow, || row_name(snapshot, row));
    }
}

fn row_name(snapshot: &Snapshot<'_>, row: &Row<'_>) -> String {
    let (app, family) = (snapshot.app_name(row.key.pid), row.fact.family.name());
    format!("{app} {family} {}, {}", printable(row.event_id), at(EVENTS, row.bytes))
}
