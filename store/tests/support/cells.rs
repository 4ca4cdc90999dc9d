//! Apache HBase in memory, as far as the ledger uses it: nothing is atomic but one row, of a column the
//! value of the latest time stands, and a deletion hides what is not later, whenever it comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use adtrail_store::StoreError;
use adtrail_store::hbase::ledger::cells::{
    Cells, Columns, Gone, NOW, Page, Put, PutWhere, Table, VALUE,
};
use adtrail_store::hbase::ledger::{SharedLedger, fact_record};
use adtrail_store::hbase::read::latest_revision::settle;
use adtrail_store::layout::codec::row::RowView;
use adtrail_store::layout::key::{self, Key, RowKey};
use adtrail_store::layout::stored_row::StoredRow;
use attribution::facts::event::Pid;
use attribution::facts::keys::FactKey;
use attribution::ledger::Position;
use attribution::ledger::record::FactRecord;

const WRITES_PER_MS: u64 = 8;

/// The cluster, and the group's positions.
#[derive(Debug, Clone, Default)]
pub struct Model {
    tables: BTreeMap<Table, BTreeMap<Vec<u8>, Line>>,
    pub positions: BTreeMap<(Arc<str>, i32), Position>,
    pub late: Late,
    /// What was written so far.
    writes: u64,
}

/// Homes that were another by the time they were put.
#[derive(Debug, Clone, Copy, Default)]
pub struct Late {
    pub facts: usize,
    pub decisions: usize,
}

/// One row.
#[derive(Debug, Clone, Default)]
struct Line {
    columns: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    /// Up to when each column is deleted.
    deleted: BTreeMap<Vec<u8>, u64>,
}

impl Line {
    fn value(&self) -> Option<&Vec<u8>> {
        self.columns.get(VALUE).map(|(_, value)| value)
    }

    fn put(&mut self, column: Vec<u8>, time: u64, value: Vec<u8>) {
        let is_hidden = self.deleted.get(&column).is_some_and(|deleted| time <= *deleted);
        let is_past = self.columns.get(&column).is_some_and(|(standing, _)| time < *standing);
        if !is_hidden && !is_past {
            self.columns.insert(column, (time, value));
        }
    }
}

impl Model {
    /// The servers' clock: some writes are done within a millisecond.
    fn now(&mut self) -> u64 {
        self.writes += 1;
        self.writes / WRITES_PER_MS
    }

    fn line(&self, table: Table, row: &[u8]) -> Option<&Line> {
        self.tables.get(&table)?.get(row)
    }

    fn line_mut(&mut self, table: Table, row: Vec<u8>) -> &mut Line {
        self.tables.entry(table).or_default().entry(row).or_default()
    }

    pub fn get(&self, table: Table, row: &[u8]) -> Option<Vec<u8>> {
        self.line(table, row)?.value().cloned()
    }

    pub fn get_row(&self, table: Table, row: &[u8]) -> Columns {
        let line = self.line(table, row).into_iter();
        let columns = line.flat_map(|line| &line.columns);
        columns.map(|(column, (_, value))| (column.clone(), value.clone())).collect()
    }

    pub fn get_page(&self, table: Table, Page { row, columns, limit }: &Page) -> Columns {
        let mut all = self.get_row(table, row);
        all.retain(|(column, _)| columns.contains(column));
        all.truncate(*limit);
        all
    }

    pub fn put(&mut self, table: Table, Put { row, column, value, time, .. }: Put) {
        let now = self.now();
        let time = time.unwrap_or(now);
        self.line_mut(table, row).put(column, time, value);
    }

    pub fn put_where(&mut self, table: Table, put: PutWhere) -> bool {
        if self.get(table, &put.row) != put.expected {
            match decides(table, &put) {
                true => self.late.decisions += 1,
                false => self.late.facts += 1,
            }
            return false;
        }
        let now = self.now();
        self.line_mut(table, put.row.to_vec()).put(VALUE.to_vec(), now, put.value);
        true
    }

    pub fn delete(&mut self, table: Table, Gone { row, column, until }: Gone) {
        let now = self.now();
        let until = if until == NOW { now } else { until };
        let line = self.line_mut(table, row);
        if line.columns.get(&column).is_some_and(|(standing, _)| *standing <= until) {
            line.columns.remove(&column);
        }
        let deleted = line.deleted.entry(column).or_default();
        *deleted = until.max(*deleted);
    }

    pub fn record(&self, key: &FactKey) -> Option<FactRecord> {
        let value = self.get(Table::Facts(key.family), &key::record(key))?;
        Some(fact_record::decode(key.family, key.pid, &value).expect("a home").0)
    }

    /// The rows that a reader is shown, in key order.
    pub fn rows(&self) -> Vec<StoredRow> {
        self.rows_where(|_| true)
    }

    pub fn rows_where(&self, is_wanted: impl Fn(&RowKey) -> bool) -> Vec<StoredRow> {
        let Some(events) = self.tables.get(&Table::Events) else { return Vec::new() };
        let mut of_moments: BTreeMap<_, Vec<StoredRow>> = BTreeMap::new();
        for (key, line) in events {
            let key = RowKey::decode(key).expect("a row's key");
            if let Some(value) = line.value().filter(|_| is_wanted(&key)) {
                of_moments.entry((key.pid, key.event_time)).or_default().push((key, value.clone()));
            }
        }
        for rows in of_moments.values_mut() {
            settle(rows).expect("rows that can be read");
        }
        of_moments.into_values().flatten().collect()
    }

    /// The rows of one event: their keys and revisions.
    pub fn rows_of(&self, pid: Pid, seq: u64) -> Vec<(RowKey, u32)> {
        let rows = self.rows_where(|key| (key.pid, key.seq) == (pid, seq));
        let revision = |value: &[u8]| RowView::decode(value).expect("a row").revision;
        rows.into_iter().map(|(key, value)| (key, revision(&value))).collect()
    }

    pub fn store(&mut self, position: &Position) {
        self.positions.insert((position.topic.clone(), position.partition), position.clone());
    }
}

/// Whether a home is put with another decision, and not with a fact alone.
fn decides(table: Table, put: &PutWhere) -> bool {
    let Table::Facts(family) = table else { return false };
    let revision = |value: &[u8]| {
        let (record, _) = fact_record::decode(family, Pid(0), value).expect("a home");
        record.current_row().map(|current_row| current_row.revision)
    };
    revision(&put.value) != put.expected.as_deref().and_then(revision)
}

/// What a step does to the cluster, and to which row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub does: Does,
    pub table: Table,
    /// Of the row's key.
    pub hash: u64,
}

impl Step {
    fn new(does: Does, table: Table, row: &[u8]) -> Self {
        let hash = row.iter().fold(0_u64, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
        Self { does, table, hash }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Gets,
    GetsPage,
    Puts,
    PutsWhere,
    Deletes,
}

/// Whose turn it is. Every row that is read or written is a step of its own.
pub trait Turns {
    /// Does it, and says whether the answer came.
    fn step<T>(
        &mut self,
        step: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError>;

    /// As of [`Cells::settled`].
    fn settled(&mut self) {}
}

/// One worker's way to the cluster.
pub struct Stepped<T>(pub T);

pub type Worker<T> = attribution::worker::Worker<SharedLedger<Stepped<T>>>;

/// A ledger whose apps all begin in partition 0.
pub fn ledger<T: Turns>(turns: T) -> SharedLedger<Stepped<T>> {
    SharedLedger::new(Stepped(turns), [], 1)
}

impl<T: Turns> Cells for Stepped<T> {
    fn get(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let get = |row: &Key| {
            let step = Step::new(Does::Gets, table, row);
            Ok(self.0.step(step, |model| model.get(table, row))?.0)
        };
        rows.iter().map(get).collect()
    }

    fn get_rows(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Columns>, StoreError> {
        let get = |row: &Key| {
            let step = Step::new(Does::Gets, table, row);
            Ok(self.0.step(step, |model| model.get_row(table, row))?.0)
        };
        rows.iter().map(get).collect()
    }

    fn get_pages(&mut self, table: Table, pages: &[Page]) -> Result<Vec<Columns>, StoreError> {
        let get = |page: &Page| {
            let step = Step::new(Does::GetsPage, table, &page.row);
            Ok(self.0.step(step, |model| model.get_page(table, page))?.0)
        };
        pages.iter().map(get).collect()
    }

    fn put(&mut self, table: Table, puts: Vec<Put>) -> Result<(), StoreError> {
        puts.into_iter().try_for_each(|put| {
            let step = Step::new(Does::Puts, table, &put.row);
            // The client asks once more if the answer is lost: it does no harm.
            self.0.step(step, |model| model.put(table, put)).map(drop)
        })
    }

    fn put_where(&mut self, table: Table, puts: Vec<PutWhere>) -> Result<Vec<bool>, StoreError> {
        let put = |put: PutWhere| {
            let step = Step::new(Does::PutsWhere, table, &put.row);
            let (is_taken, is_told) = self.0.step(step, |model| model.put_where(table, put))?;
            Ok(is_taken && is_told)
        };
        puts.into_iter().map(put).collect()
    }

    fn delete(&mut self, table: Table, cells: Vec<Gone>) -> Result<(), StoreError> {
        cells.into_iter().try_for_each(|gone| {
            let step = Step::new(Does::Deletes, table, &gone.row);
            self.0.step(step, |model| model.delete(table, gone)).map(drop)
        })
    }

    fn settled(&mut self) {
        self.0.settled();
    }
}

/// What comes between two steps of a worker: it may wait, or say that the process ends here.
pub type Between = Box<dyn FnMut() -> Result<(), StoreError> + Send>;

/// A worker that takes its steps when it likes.
pub struct Visitor {
    model: Arc<Mutex<Model>>,
    between: Between,
}

impl Visitor {
    pub fn new(model: &Arc<Mutex<Model>>, between: Between) -> Self {
        Self { model: Arc::clone(model), between }
    }
}

impl Turns for Visitor {
    fn step<T>(
        &mut self,
        _step: Step,
        act: impl FnOnce(&mut Model) -> T,
    ) -> Result<(T, bool), StoreError> {
        (self.between)()?;
        Ok((act(&mut self.model.lock().unwrap_or_else(PoisonError::into_inner)), true))
    }
}
