//! An in-memory model of Apache HBase, as far as the ledger uses it: only single rows are atomic, the newest value of a
//! column is visible, and a deletion hides all values up to its time, also those that are written after it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use adtrail_store::StoreError;
use adtrail_store::hbase::ledger::cells::{
    CellDelete, Cells, Columns, Entry, NOW, Page, Put, PutWhere, Table, VALUE,
};
use adtrail_store::hbase::ledger::{SharedLedger, fact_record};
use adtrail_store::hbase::read::latest_revision::keep_latest;
use adtrail_store::layout::codec::row::RowView;
use adtrail_store::layout::key::{self, Key, RowKey};
use adtrail_store::layout::stored_row::StoredRow;
use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::Position;
use attribution::ledger::record::FactRecord;

const WRITES_PER_MS: u64 = 8;

/// The cluster's tables and the consumer group's positions.
#[derive(Debug, Clone, Default)]
pub struct Model {
    tables: BTreeMap<Table, BTreeMap<Vec<u8>, Row>>,
    pub positions: BTreeMap<(Arc<str>, i32), Position>,
    pub conflicts: Conflicts,
    /// The number of writes so far.
    writes: u64,
}

/// Conditional puts of fact records that failed because the record had changed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conflicts {
    pub facts: usize,
    pub decisions: usize,
}

#[derive(Debug, Clone, Default)]
struct Row {
    /// Time and value by column.
    columns: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    /// The time up to which each column is deleted.
    deleted: BTreeMap<Vec<u8>, u64>,
}

impl Row {
    fn value(&self) -> Option<&Vec<u8>> {
        self.columns.get(VALUE).map(|(_, value)| value)
    }

    fn put(&mut self, column: Vec<u8>, time: u64, value: Vec<u8>) {
        let is_hidden = self.deleted.get(&column).is_some_and(|deleted| time <= *deleted);
        let is_outdated = self.columns.get(&column).is_some_and(|(newest, _)| time < *newest);
        if !is_hidden && !is_outdated {
            self.columns.insert(column, (time, value));
        }
    }
}

impl Model {
    /// Returns the region servers' clock, which advances by 1 ms every [`WRITES_PER_MS`] writes.
    fn now(&mut self) -> u64 {
        self.writes += 1;
        self.writes / WRITES_PER_MS
    }

    fn row(&self, table: Table, row: &[u8]) -> Option<&Row> {
        self.tables.get(&table)?.get(row)
    }

    fn row_mut(&mut self, table: Table, row: Vec<u8>) -> &mut Row {
        self.tables.entry(table).or_default().entry(row).or_default()
    }

    pub fn get(&self, table: Table, row: &[u8]) -> Option<Vec<u8>> {
        self.row(table, row)?.value().cloned()
    }

    pub fn get_row(&self, table: Table, row: &[u8]) -> Columns {
        let found = self.row(table, row).into_iter();
        let columns = found.flat_map(|row| &row.columns);
        columns.map(|(column, (_, value))| (column.clone(), value.clone())).collect()
    }

    pub fn get_page(&self, table: Table, Page { row, columns, limit }: &Page) -> Columns {
        let mut all = self.get_row(table, row);
        all.retain(|(column, _)| columns.contains(column));
        all.truncate(*limit);
        all
    }

    /// See [`Cells::scan`].
    pub fn scan(&self, table: Table, range: &Range<Vec<u8>>, limit: usize) -> Vec<Entry> {
        let rows = self.tables.get(&table).into_iter().flatten();
        let is_in_range =
            |key: &Vec<u8>| *key >= range.start && (range.end.is_empty() || *key < range.end);
        let found = rows.filter(|(key, row)| !row.columns.is_empty() && is_in_range(key));
        let value = |row: &Row| row.value().cloned().unwrap_or_default();
        found.map(|(key, row)| (key.clone(), value(row))).take(limit).collect()
    }

    pub fn put(&mut self, table: Table, Put { row, column, value, time, .. }: Put) {
        let now = self.now();
        let time = time.unwrap_or(now);
        self.row_mut(table, row).put(column, time, value);
    }

    pub fn put_where(&mut self, table: Table, put: PutWhere) -> bool {
        if self.get(table, &put.row) != put.expected {
            match is_decision(table, &put) {
                true => self.conflicts.decisions += 1,
                false => self.conflicts.facts += 1,
            }
            return false;
        }
        let now = self.now();
        self.row_mut(table, put.row.to_vec()).put(VALUE.to_vec(), now, put.value);
        true
    }

    pub fn delete(&mut self, table: Table, CellDelete { row, column, until }: CellDelete) {
        let now = self.now();
        let until = if until == NOW { now } else { until };
        let row = self.row_mut(table, row);
        if row.columns.get(&column).is_some_and(|(newest, _)| *newest <= until) {
            row.columns.remove(&column);
        }
        let deleted = row.deleted.entry(column).or_default();
        *deleted = until.max(*deleted);
    }

    pub fn record(&self, key: &FactKey) -> Option<FactRecord> {
        let value = self.get(Table::Facts(key.family), &key::record(key))?;
        Some(fact_record::decode(key.family, key.pid, &value).expect("a valid record").0)
    }

    /// Returns the rows that readers see, in key order.
    pub fn rows(&self) -> Vec<StoredRow> {
        self.rows_where(|_| true)
    }

    pub fn rows_where(&self, is_wanted: impl Fn(&RowKey) -> bool) -> Vec<StoredRow> {
        let Some(events) = self.tables.get(&Table::Events) else { return Vec::new() };
        let mut by_time: BTreeMap<_, Vec<StoredRow>> = BTreeMap::new();
        for (key, row) in events {
            let key = RowKey::decode(key).expect("a valid row key");
            if let Some(value) = row.value().filter(|_| is_wanted(&key)) {
                by_time.entry((key.pid, key.event_time)).or_default().push((key, value.clone()));
            }
        }
        for rows in by_time.values_mut() {
            keep_latest(rows).expect("the rows are valid");
        }
        by_time.into_values().flatten().collect()
    }

    /// Keys and revisions of one event's rows.
    pub fn rows_of(&self, pid: Pid, seq: u64) -> Vec<(RowKey, u32)> {
        let rows = self.rows_where(|key| (key.pid, key.seq) == (pid, seq));
        let revision = |value: &[u8]| RowView::decode(value).expect("a valid row").revision;
        rows.into_iter().map(|(key, value)| (key, revision(&value))).collect()
    }

    pub fn store(&mut self, position: &Position) {
        self.positions.insert((position.topic.clone(), position.partition), position.clone());
    }
}

/// Checks whether a put changes the decision of a fact record, not only its fact.
fn is_decision(table: Table, put: &PutWhere) -> bool {
    let Table::Facts(family) = table else { return false };
    let revision = |value: &[u8]| {
        let (record, _) = fact_record::decode(family, Pid(0), value).expect("a valid record");
        record.current_row().map(|current_row| current_row.revision)
    };
    revision(&put.value) != put.expected.as_deref().and_then(revision)
}

/// An operation on one row of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub operation: Operation,
    pub table: Table,
    /// A hash of the row key.
    pub hash: u64,
}

impl Step {
    fn new(operation: Operation, table: Table, row: &[u8]) -> Self {
        let hash = row.iter().fold(0_u64, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
        Self { operation, table, hash }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Get,
    GetPage,
    Scan,
    Put,
    PutWhere,
    Delete,
}

/// A worker's client of the model. Each row that is read or written is one step.
pub trait StepClient {
    /// Runs `act` and returns its result, and whether the response reached the worker.
    fn step<T>(
        &mut self,
        step: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError>;

    /// See [`Cells::batch_complete`].
    fn batch_complete(&mut self) {}
}

/// The time of all steps, 2026-01-01, so that runs with the same steps write the same rows.
const NOW_MS: i64 = 1_767_225_600_000;

/// Implements [`Cells`], one row per step.
pub struct SteppedCells<T>(pub T);

pub type Worker<T> = attribution::worker::Worker<SharedLedger<SteppedCells<T>>>;

/// Returns a ledger with a single partition.
pub fn ledger<T: StepClient>(client: T) -> SharedLedger<SteppedCells<T>> {
    SharedLedger::new(SteppedCells(client), [], 1)
}

impl<T: StepClient> Cells for SteppedCells<T> {
    fn now(&self) -> EventTime {
        EventTime::from_millis(NOW_MS).expect("a valid time")
    }

    fn get(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let get = |row: &Key| {
            let step = Step::new(Operation::Get, table, row);
            Ok(self.0.step(step, |model| model.get(table, row))?.0)
        };
        rows.iter().map(get).collect()
    }

    fn get_rows(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Columns>, StoreError> {
        let get = |row: &Key| {
            let step = Step::new(Operation::Get, table, row);
            Ok(self.0.step(step, |model| model.get_row(table, row))?.0)
        };
        rows.iter().map(get).collect()
    }

    fn get_pages(&mut self, table: Table, pages: &[Page]) -> Result<Vec<Columns>, StoreError> {
        let get = |page: &Page| {
            let step = Step::new(Operation::GetPage, table, &page.row);
            Ok(self.0.step(step, |model| model.get_page(table, page))?.0)
        };
        pages.iter().map(get).collect()
    }

    fn put(&mut self, table: Table, puts: Vec<Put>) -> Result<(), StoreError> {
        puts.into_iter().try_for_each(|put| {
            let step = Step::new(Operation::Put, table, &put.row);
            // If the response is lost, the client retries; a put is idempotent.
            self.0.step(step, |model| model.put(table, put)).map(drop)
        })
    }

    fn put_where(&mut self, table: Table, puts: Vec<PutWhere>) -> Result<Vec<bool>, StoreError> {
        let put = |put: PutWhere| {
            let step = Step::new(Operation::PutWhere, table, &put.row);
            let (is_put, has_response) = self.0.step(step, |model| model.put_where(table, put))?;
            Ok(is_put && has_response)
        };
        puts.into_iter().map(put).collect()
    }

    fn scan(
        &mut self,
        table: Table,
        range: Range<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let step = Step::new(Operation::Scan, table, &range.start);
        Ok(self.0.step(step, |model| model.scan(table, &range, limit))?.0)
    }

    fn delete(&mut self, table: Table, cells: Vec<CellDelete>) -> Result<(), StoreError> {
        cells.into_iter().try_for_each(|gone| {
            let step = Step::new(Operation::Delete, table, &gone.row);
            self.0.step(step, |model| model.delete(table, gone)).map(drop)
        })
    }

    fn batch_complete(&mut self) {
        self.0.batch_complete();
    }
}

/// Runs before each step of a worker. It may block, or return an error to simulate a crash.
pub type BeforeStep = Box<dyn FnMut() -> Result<(), StoreError> + Send>;

/// A client that runs a hook before each step.
pub struct HookedClient {
    model: Arc<Mutex<Model>>,
    before_step: BeforeStep,
}

impl HookedClient {
    pub fn new(model: &Arc<Mutex<Model>>, before_step: BeforeStep) -> Self {
        Self { model: Arc::clone(model), before_step }
    }
}

impl StepClient for HookedClient {
    fn step<T>(
        &mut self,
        _step: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError> {
        (self.before_step)()?;
        Ok((act(&mut self.model.lock().unwrap_or_else(PoisonError::into_inner)), true))
    }
}
