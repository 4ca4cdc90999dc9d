//! What is decided, the rows that show it, and those that go.

use attribution::facts::keys::FactKey;
use attribution::ledger::DecisionWrite;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::rules::row::Row;

use super::cells::{self, Cells, Put, Table, VALUE};
use super::fact_record::{self, Gone};
use super::{NewRecord, SharedLedger};
use crate::StoreError;
use crate::layout::codec::row::RowView;
use crate::layout::key::{self, KEY_BYTES, Key, RowKey};
use crate::layout::{codec, row_ref};

/// What a commit does.
#[derive(Default)]
struct Plan {
    shows: Vec<RowUpdate>,
    /// Of decisions that stand.
    rows: Vec<Put>,
    /// Rows to delete once all others are put.
    after: Vec<Gone>,
    /// Decisions that were made from something else.
    lost: Vec<FactKey>,
}

/// A home to put, then its row, and then to delete the rows that go.
struct RowUpdate {
    key: FactKey,
    record: FactRecord,
    row: Put,
    /// Rows that the standing home tells of.
    noted: Vec<Gone>,
    /// That of the decision that is replaced.
    replaced: Option<Gone>,
}

impl RowUpdate {
    /// What the new home tells of. A row at the place of the new one is written over.
    fn gone(&self) -> Vec<Gone> {
        let goes = |gone: &&Gone| gone.row.encode()[..] != self.row.row[..];
        self.noted.iter().chain(&self.replaced).filter(goes).copied().collect()
    }
}

impl<C: Cells> SharedLedger<C> {
    /// Puts what was decided from what stands, each home before its row, and gives back what was decided
    /// from something else.
    pub(super) fn decide(
        &mut self,
        decisions: Vec<DecisionWrite>,
    ) -> Result<Vec<FactKey>, StoreError> {
        let mut plan = Plan::default();
        for write in decisions {
            self.plan(write, &mut plan)?;
        }
        let Plan { mut shows, mut rows, mut after, mut lost } = plan;
        self.delete_noted(&mut shows)?;
        let parts = |show: RowUpdate| {
            let gone = show.gone();
            let RowUpdate { key, record, row, .. } = show;
            let value = fact_record::encode(&record, &gone);
            (NewRecord { key, value, ttl_ms: None }, (key, row, gone))
        };
        let (records, shown): (Vec<_>, Vec<_>) = shows.into_iter().map(parts).unzip();
        let is_put = self.put_homes(records)?;
        for ((key, row, gone), is_put) in shown.into_iter().zip(is_put) {
            if is_put {
                rows.push(row);
                after.extend(gone);
            } else {
                lost.push(key);
            }
        }
        if !rows.is_empty() {
            self.cells.put(Table::Events, rows)?;
        }
        self.delete_rows(after)?;
        Ok(lost)
    }

    fn plan(&self, mut write: DecisionWrite, plan: &mut Plan) -> Result<(), StoreError> {
        let Some(noted) = self.standing(&write)? else {
            plan.lost.push(write.key);
            return Ok(());
        };
        if let (true, Some(current_row)) = (write.is_rewrite(), write.replaced) {
            let key = self.row_key(&write.row, current_row.place.fanout_bits);
            plan.after.extend(noted.into_iter().filter(|gone| gone.row != key));
            plan.rows.push(put_row(&key, &write.row));
            return Ok(());
        }
        // Of partitions no two are read at one moment, so rows of an event stay in one, whatever the fanout is by now.
        let fanout_bits = match &write.replaced {
            Some(replaced) => replaced.place.fanout_bits,
            None => self.apps.get(&write.row.pid).map_or(0, |app| app.fanout_bits),
        };
        let key = self.row_key(&write.row, fanout_bits);
        let row = put_row(&key, &write.row);
        if let Some(current_row) = write.record.current_row_mut() {
            current_row.place =
                row_ref::row_place(&write.row, fanout_bits, KEY_BYTES + row.value.len());
        }
        let replaced = write.replaced.as_ref().map(|replaced| self.gone(&write.row, replaced));
        plan.shows.push(RowUpdate { key: write.key, record: write.record, row, noted, replaced });
        Ok(())
    }

    /// Deletes what homes told of where the row that took its place is really there. Where it is not, as
    /// its writer ended before it, what they told of may be all that there is of the event: it stays until
    /// the new row stands, and the new home tells of it too.
    fn delete_noted(&mut self, shows: &mut [RowUpdate]) -> Result<(), StoreError> {
        let asked = |show: &&mut RowUpdate| !show.noted.is_empty() && show.replaced.is_some();
        let shows: Vec<&mut RowUpdate> = shows.iter_mut().filter(asked).collect();
        if shows.is_empty() {
            return Ok(());
        }
        let rows: Vec<Gone> = shows.iter().filter_map(|show| show.replaced).collect();
        let keys: Vec<Key> = rows.iter().map(|gone| gone.row.encode()).collect();
        let found = self.cells.get(Table::Events, &keys)?;
        let mut deleted = Vec::new();
        for ((show, replaced), found) in shows.into_iter().zip(rows).zip(found) {
            if is_there(&replaced, found.as_deref())? {
                let noted = std::mem::take(&mut show.noted);
                deleted.extend(noted.into_iter().filter(|gone| gone.row != replaced.row));
            }
        }
        self.delete_rows(deleted)
    }

    /// The home that a decision is compared with, if it was made from just that.
    fn standing(&self, write: &DecisionWrite) -> Result<Option<Vec<Gone>>, StoreError> {
        let Some(value) = self.read.get(&write.key) else { return Ok(None) };
        let (stored, gone) = fact_record::decode(write.key.family, write.key.pid, value)?;
        Ok(is_as_read(&stored, write).then_some(gone))
    }

    fn delete_rows(&mut self, gone: Vec<Gone>) -> Result<(), StoreError> {
        if gone.is_empty() {
            return Ok(());
        }
        let cell = |Gone { row, revision }: Gone| {
            let until = row_time(&row, revision);
            cells::Gone { row: row.encode().to_vec(), column: VALUE.to_vec(), until }
        };
        self.cells.delete(Table::Events, gone.into_iter().map(cell).collect())
    }

    fn row_key(&self, row: &Row, fanout_bits: u8) -> RowKey {
        let base = self.apps.get(&row.pid).map_or(0, |app| app.base);
        RowKey {
            partition: key::row_partition(base, row.seq, fanout_bits, self.partitions),
            pid: row.pid,
            event_time: row.event_time,
            spreadid: row.spreadid,
            seq: row.seq,
        }
    }

    /// Where the row was that a decision replaces.
    fn gone(&self, row: &Row, replaced: &CurrentRow) -> Gone {
        let key = self.row_key(row, replaced.place.fanout_bits);
        let row = RowKey { event_time: replaced.event_time, spreadid: replaced.spreadid, ..key };
        Gone { row, revision: replaced.revision }
    }
}

/// Whether nobody has decided about the event, or replaced its fact, since it was read.
fn is_as_read(stored: &FactRecord, write: &DecisionWrite) -> bool {
    let is_same_fact = match (stored, &write.record) {
        (FactRecord::Activation(stored), FactRecord::Activation(record)) => {
            stored.fact == record.fact
        }
        (FactRecord::Effect(stored), FactRecord::Effect(record)) => stored.fact == record.fact,
        _ => false,
    };
    let revision = |current_row: Option<&CurrentRow>| current_row.map(|one| one.revision);
    is_same_fact && revision(stored.current_row()) == revision(write.replaced.as_ref())
}

/// When a row was decided on: later decisions hide earlier ones, and all expire by the event's age.
pub(in crate::hbase) fn row_time(row: &RowKey, revision: u32) -> u64 {
    row.event_time.millis().saturating_add(u64::from(revision))
}

/// Whether a row is the one of that revision.
fn is_there(of: &Gone, row: Option<&[u8]>) -> Result<bool, StoreError> {
    let revision = row.map(|row| RowView::decode(row).map(|row| row.revision)).transpose()?;
    Ok(revision.is_some_and(|revision| revision >= of.revision))
}

fn put_row(key: &RowKey, row: &Row) -> Put {
    let mut value = Vec::with_capacity(384);
    codec::row::encode(row, &mut value);
    let time = Some(row_time(key, row.revision));
    Put { row: key.encode().to_vec(), column: VALUE.to_vec(), value, time, ttl_ms: None }
}
