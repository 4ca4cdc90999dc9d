//! Checks that each row is the current row of an event, and its only one.

use std::collections::BTreeSet;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::rules::row::seq;

use super::table_scan::{Entry, Found};
use super::{Check, Checker, Problem, at};
use crate::StoreError;
use crate::apps::record::App;
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
type RowsWithoutFact = (Pid, EventTime, BTreeSet<u64>);

impl Checker<'_> {
    pub fn check_rows(&mut self) -> Result<(), StoreError> {
        let mut without_fact: RowsWithoutFact = (Pid(0), EventTime::default(), BTreeSet::new());
        self.scan_table(Check::Rows, EVENTS, |checker, chunk| {
            let rows = checker.readable(&chunk);
            let mut records = Vec::new();
            for family in [Family::Activation, Family::Effect] {
                let of_family = rows.iter().filter(|row| row.fact.family == family);
                let keys = of_family.map(|row| key::record(&row.fact)).collect();
                records.push(checker.look_up(Tables::name_of(family), keys)?);
            }
            for row in rows {
                let records = &records[usize::from(row.fact.family == Family::Effect)];
                match records.of(&key::record(&row.fact)) {
                    Found::Unreadable => checker.report.unchecked += 1,
                    Found::Nothing => checker.check_without_fact(&row, &mut without_fact),
                    Found::Value(record) => {
                        let record =
                            codec::fact_record::decode(row.fact.family, row.fact.pid, record);
                        // Unreadable records are reported by the check of facts.
                        record.into_iter().for_each(|record| checker.check_row(&row, &record));
                    }
                }
            }
            Ok(())
        })
    }

    /// The readable rows that retention has not passed.
    fn readable<'c>(&mut self, chunk: &'c [Entry]) -> Vec<Row<'c>> {
        let mut rows = Vec::with_capacity(chunk.len());
        for (bytes, value) in chunk {
            self.report.add_checked(Check::Rows, 1);
            let Some(key) = RowKey::decode(bytes) else {
                let named = || at(EVENTS, bytes);
                self.find_and(Problem::RowKeyUnreadable, named, |batch, tables| {
                    batch.delete_cf(tables.events(), bytes);
                });
                continue;
            };
            if self.app(key.pid).is_some_and(|app| key.event_time < app.oldest) {
                continue;
            }
            let Ok(view) = RowView::decode(value) else {
                self.find_row(Problem::RowUnreadable, bytes);
                continue;
            };
            let family = view.event_type.family();
            let event_id = view.text(TextCell::EventId);
            if seq(view.event_type, event_id) != key.seq {
                self.find_row(Problem::RowDiffers, bytes);
                continue;
            }
            let fact = match_keys::fact_key(family, key.pid, event_id);
            rows.push(Row { key, bytes, fact, event_id });
        }
        rows
    }

    /// Reports a row, unless it was reported with its event.
    fn find_row(&mut self, problem: Problem, bytes: &[u8]) {
        if !Key::try_from(bytes).is_ok_and(|key| self.reported_rows.contains(&key)) {
            self.find(problem, || at(EVENTS, bytes));
        }
    }

    fn check_row(&mut self, row: &Row<'_>, record: &FactRecord) {
        let Some(app) = self.app(row.key.pid) else { return };
        let partitions = self.settings.partitions;
        let is_possible = (0..=app.fanout_bits_max)
            .any(|bits| self.partition(&app, row.key.seq, bits) == row.key.partition);
        let expected = record
            .current_row()
            .map(|current_row| row_key(&app, (row.key.pid, row.key.seq), current_row, partitions));
        let (problem, must_stay) = match expected {
            // Reported with its fact.
            None => return,
            Some(key) if key == Some(row.key) => return,
            Some(_) if !is_possible => (Problem::RowMisplaced, false),
            Some(expected) => (Problem::SecondRow, expected.is_none()),
        };
        let named = self.row_name(row);
        if must_stay {
            return self.find(problem, || named);
        }
        self.find_and(
            problem,
            || named,
            |batch, tables| {
                batch.delete_cf(tables.events(), row.bytes);
            },
        );
    }

    /// Checks a row without a fact record. Records of events are kept at least as long as rows, so one that has not
    /// expired is missing.
    fn check_without_fact(&mut self, row: &Row<'_>, others: &mut RowsWithoutFact) {
        let (pid, time) = (row.key.pid, row.key.event_time);
        let is_expired = time < self.expiry.oldest_record(pid, row.fact.family, None);
        if !is_expired {
            let named = self.row_name(row);
            return self.find(Problem::RowWithoutFact, || named);
        }
        if (others.0, others.1) != (pid, time) {
            *others = (pid, time, BTreeSet::new());
        }
        if !others.2.insert(row.key.seq) {
            let named = self.row_name(row);
            self.find(Problem::SecondRow, || named);
        }
    }

    fn row_name(&self, row: &Row<'_>) -> String {
        let of = row.fact.family.name();
        let id = attribution::facts::printable::printable(row.event_id);
        format!("{} {of} {id}, {}", self.app_name(row.key.pid), at(EVENTS, row.bytes))
    }

    pub fn app(&self, pid: Pid) -> Option<App> {
        self.apps.get(&pid).copied()
    }

    fn partition(&self, app: &App, seq: u64, fanout_bits: u8) -> u16 {
        key::row_partition(app.base, seq, fanout_bits, self.settings.partitions)
    }
}

/// The key of the current row of an event; `None` if its fanout is not possible.
pub fn row_key(
    app: &App,
    (pid, seq): (Pid, u64),
    current_row: &CurrentRow,
    partitions: u16,
) -> Option<RowKey> {
    let fanout_bits = current_row.row_meta.fanout_bits;
    (fanout_bits <= app.fanout_bits_max).then(|| RowKey {
        partition: key::row_partition(app.base, seq, fanout_bits, partitions),
        pid,
        event_time: current_row.event_time,
        spreadid: current_row.spreadid,
        seq,
    })
}
