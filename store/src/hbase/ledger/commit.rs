//! Commits decisions: their records, then the outbox entries of their callbacks, then their rows, then the deletes of
//! replaced rows.

use attribution::facts::event::Pid;
use attribution::facts::keys::FactKey;
use attribution::ledger::DecisionWrite;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::outbox::interest::PlannedCallback;
use attribution::rules::row::Row;

use super::cells::{CellDelete, Cells, Put, Table, VALUE};
use super::fact_record::{self, ReplacedRow};
use super::{NewRecord, SharedLedger};
use crate::StoreError;
use crate::hbase::outbox;
use crate::layout::codec::row::RowView;
use crate::layout::key::{KEY_BYTES, Key, RowKey};
use crate::layout::{codec, row_meta};

/// The writes of a commit.
#[derive(Default)]
struct Plan {
    updates: Vec<RowUpdate>,
    /// Rows of unchanged decisions, to put again.
    rows: Vec<Put>,
    /// Their callbacks, whose entries may be missing, too.
    callbacks: Vec<(FactKey, Vec<PlannedCallback>)>,
    /// Rows to delete once all others are put.
    deletes: Vec<ReplacedRow>,
    /// Decisions that were made from an outdated record.
    conflicts: Vec<FactKey>,
}

/// A record to put, then its row; the rows that it replaces are deleted last.
struct RowUpdate {
    key: FactKey,
    record: FactRecord,
    row: Put,
    callbacks: Vec<PlannedCallback>,
    /// Replaced rows that the stored record notes.
    noted: Vec<ReplacedRow>,
    /// The row of the decision that is replaced.
    replaced: Option<ReplacedRow>,
}

impl RowUpdate {
    /// The replaced rows that the new record notes. A row under the key of the new one is overwritten instead.
    fn replaced_rows(&self) -> Vec<ReplacedRow> {
        let has_other_key = |old: &&ReplacedRow| old.row.encode()[..] != self.row.row[..];
        self.noted.iter().chain(&self.replaced).filter(has_other_key).copied().collect()
    }
}

impl<C: Cells> SharedLedger<C> {
    /// Writes the decisions that were made from the stored records, each record before its callbacks and row. Returns
    /// the others.
    pub(super) fn commit_decisions(
        &mut self,
        decisions: Vec<DecisionWrite>,
    ) -> Result<Vec<FactKey>, StoreError> {
        let mut plan = Plan::default();
        for write in decisions {
            self.plan(write, &mut plan)?;
        }
        let Plan { mut updates, mut rows, mut callbacks, mut deletes, mut conflicts } = plan;
        self.delete_noted(&mut updates)?;
        let parts = |update: RowUpdate| {
            let replaced = update.replaced_rows();
            let RowUpdate { key, record, row, callbacks, .. } = update;
            let value = fact_record::encode(&record, &replaced);
            (NewRecord { key, value, ttl_ms: None }, (key, row, callbacks, replaced))
        };
        let (records, new_rows): (Vec<_>, Vec<_>) = updates.into_iter().map(parts).unzip();
        let is_put = self.put_records(records)?;
        for ((key, row, planned, replaced), is_put) in new_rows.into_iter().zip(is_put) {
            if is_put {
                rows.push(row);
                callbacks.push((key, planned));
                deletes.extend(replaced);
            } else {
                conflicts.push(key);
            }
        }
        callbacks.retain(|(_, planned)| !planned.is_empty());
        outbox::plan(&mut self.cells, &callbacks)?;
        if !rows.is_empty() {
            self.cells.put(Table::Events, rows)?;
        }
        self.delete_rows(deletes)?;
        Ok(conflicts)
    }

    fn plan(&self, mut write: DecisionWrite, plan: &mut Plan) -> Result<(), StoreError> {
        let Some(noted) = self.noted_rows(&write)? else {
            plan.conflicts.push(write.key);
            return Ok(());
        };
        let base = self.base(write.row.pid);
        if let (true, Some(current_row)) = (write.is_rewrite(), write.replaced) {
            let fanout_bits = current_row.row_meta.fanout_bits;
            let key = RowKey::new(&write.row, base, fanout_bits, self.partitions);
            plan.deletes.extend(noted.into_iter().filter(|old| old.row != key));
            plan.rows.push(put_row(&key, &write.row));
            plan.callbacks.push((write.key, write.callbacks));
            return Ok(());
        }
        // The partitions of an app are not read at the same moment, so an event's rows stay in one partition, even if
        // the fanout has changed.
        let fanout_bits = match &write.replaced {
            Some(replaced) => replaced.row_meta.fanout_bits,
            None => self.apps.get(&write.row.pid).map_or(0, |app| app.fanout_bits),
        };
        let key = RowKey::new(&write.row, base, fanout_bits, self.partitions);
        let row = put_row(&key, &write.row);
        if let Some(current_row) = write.record.current_row_mut() {
            current_row.row_meta =
                row_meta::row_meta(&write.row, fanout_bits, KEY_BYTES + row.value.len());
        }
        let replaced =
            write.replaced.as_ref().map(|replaced| self.replaced_row(&write.row, replaced));
        let DecisionWrite { key, record, callbacks, .. } = write;
        plan.updates.push(RowUpdate { key, record, row, callbacks, noted, replaced });
        Ok(())
    }

    /// Deletes noted rows if the row that replaced them exists. If it does not, because its writer ended before writing
    /// it, a noted row may be the only one of the event. It then stays until the new row is put, and the new record
    /// notes it too.
    fn delete_noted(&mut self, updates: &mut [RowUpdate]) -> Result<(), StoreError> {
        let has_noted =
            |update: &&mut RowUpdate| !update.noted.is_empty() && update.replaced.is_some();
        let updates: Vec<&mut RowUpdate> = updates.iter_mut().filter(has_noted).collect();
        if updates.is_empty() {
            return Ok(());
        }
        let rows: Vec<ReplacedRow> = updates.iter().filter_map(|update| update.replaced).collect();
        let keys: Vec<Key> = rows.iter().map(|old| old.row.encode()).collect();
        let found = self.cells.get(Table::Events, &keys)?;
        let mut deletes = Vec::new();
        for ((update, replaced), found) in updates.into_iter().zip(rows).zip(found) {
            if is_written(&replaced, found.as_deref())? {
                let noted = std::mem::take(&mut update.noted);
                deletes.extend(noted.into_iter().filter(|old| old.row != replaced.row));
            }
        }
        self.delete_rows(deletes)
    }

    /// The replaced rows that the stored record notes; `None` if the decision was not made from that record.
    fn noted_rows(&self, write: &DecisionWrite) -> Result<Option<Vec<ReplacedRow>>, StoreError> {
        let Some(value) = self.read.get(&write.key) else { return Ok(None) };
        let (stored, noted) = fact_record::decode(write.key.family, write.key.pid, value)?;
        Ok(is_as_read(&stored, write).then_some(noted))
    }

    fn delete_rows(&mut self, rows: Vec<ReplacedRow>) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let cell = |ReplacedRow { row, revision }: ReplacedRow| {
            let until = row_time(&row, revision);
            CellDelete { row: row.encode().to_vec(), column: VALUE.to_vec(), until }
        };
        self.cells.delete(Table::Events, rows.into_iter().map(cell).collect())
    }

    /// The first partition of an app.
    fn base(&self, pid: Pid) -> u16 {
        self.apps.get(&pid).map_or(0, |app| app.base)
    }

    /// The row that a decision replaces.
    fn replaced_row(&self, row: &Row, replaced: &CurrentRow) -> ReplacedRow {
        let (base, revision) = (self.base(row.pid), replaced.revision);
        let row = RowKey::current(row.pid, row.seq, replaced, base, self.partitions);
        ReplacedRow { row, revision }
    }
}

/// True if no worker has decided the event or replaced its fact since the record was read.
fn is_as_read(stored: &FactRecord, write: &DecisionWrite) -> bool {
    let is_same_fact = match (stored, &write.record) {
        (FactRecord::Activation(stored), FactRecord::Activation(record)) => {
            stored.fact == record.fact
        }
        (FactRecord::Effect(stored), FactRecord::Effect(record)) => stored.fact == record.fact,
        _ => false,
    };
    let revision = |current_row: Option<&CurrentRow>| current_row.map(|row| row.revision);
    is_same_fact && revision(stored.current_row()) == revision(write.replaced.as_ref())
}

/// The timestamp of a row's cell: later decisions hide earlier ones, and all expire by the age of the event.
pub(in crate::hbase) fn row_time(row: &RowKey, revision: u32) -> u64 {
    row.event_time.millis().saturating_add(u64::from(revision))
}

/// True if the stored row has the expected revision or a later one.
fn is_written(expected: &ReplacedRow, row: Option<&[u8]>) -> Result<bool, StoreError> {
    let revision = row.map(|row| RowView::decode(row).map(|row| row.revision)).transpose()?;
    Ok(revision.is_some_and(|revision| revision >= expected.revision))
}

fn put_row(key: &RowKey, row: &Row) -> Put {
    let mut value = Vec::with_capacity(384);
    codec::row::encode(row, &mut value);
    let time = Some(row_time(key, row.revision));
    Put { row: key.encode().to_vec(), column: VALUE.to_vec(), value, time, ttl_ms: None }
}
