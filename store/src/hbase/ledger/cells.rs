//! The operations of HBase that the ledger uses. Only a single row is atomic.

use std::ops::Range;

use attribution::facts::event::{EventTime, Family};

use crate::StoreError;
use crate::clock;
use crate::layout::key::Key;

/// Reads and writes of rows. The operations of a call are independent and run in any order; everything that a call
/// writes is durable when it returns.
pub trait Cells {
    /// The newest value in [`VALUE`] of each row.
    fn get(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// All columns of each row.
    fn get_rows(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Columns>, StoreError>;

    /// The columns of each page, in column order.
    fn get_pages(&mut self, table: Table, pages: &[Page]) -> Result<Vec<Columns>, StoreError>;

    fn put(&mut self, table: Table, puts: Vec<Put>) -> Result<(), StoreError>;

    /// Performs each put if the row's [`VALUE`] is the expected one, and returns whether it was performed. If the
    /// outcome is uncertain it returns false: the caller reads the row again.
    fn put_where(&mut self, table: Table, puts: Vec<PutWhere>) -> Result<Vec<bool>, StoreError>;

    fn delete(&mut self, table: Table, cells: Vec<CellDelete>) -> Result<(), StoreError>;

    /// The keys of the first rows in a range, in order, at most `limit`, each with the value in [`VALUE`]. An empty end
    /// leaves the range open.
    fn scan(
        &mut self,
        table: Table,
        range: Range<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError>;

    /// The wall clock. Decisions do not depend on it, but when a callback is due does.
    fn now(&self) -> EventTime {
        clock::now()
    }

    /// Reports that all writes of a batch have taken effect, including those with an uncertain outcome.
    fn batch_complete(&mut self) {}
}

/// The column that holds the value of a row.
pub const VALUE: &[u8] = b"v";

/// The timestamp of a delete that covers all present versions.
pub const NOW: u64 = i64::MAX as u64;

/// The key of a row and the value in its [`VALUE`].
pub type Entry = (Vec<u8>, Vec<u8>);

/// A row's columns with their newest values.
pub type Columns = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Exported rows.
    Events,
    Facts(Family),
    /// Outbox records.
    Outbox,
    /// The outbox records by the time at which they are due.
    OutboxDue,
}

/// At most `limit` columns of a row, within a half-open range.
#[derive(Debug, Clone)]
pub struct Page {
    pub row: Vec<u8>,
    pub columns: Range<Vec<u8>>,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub struct Put {
    pub row: Vec<u8>,
    pub column: Vec<u8>,
    pub value: Vec<u8>,
    /// The timestamp of the cell; `None`: the server's time.
    pub time: Option<u64>,
    /// How long the cell is kept from its timestamp on; `None`: the TTL of the table.
    pub ttl_ms: Option<u64>,
}

/// A check-and-put of [`VALUE`], with the server's time as timestamp.
#[derive(Debug, Clone)]
pub struct PutWhere {
    pub row: Key,
    /// `None`: the row must have no value.
    pub expected: Option<Vec<u8>>,
    pub value: Vec<u8>,
    /// See [`Put::ttl_ms`].
    pub ttl_ms: Option<u64>,
}

/// A delete of all versions of a column with timestamps up to `until`, including those that are written later.
#[derive(Debug, Clone)]
pub struct CellDelete {
    pub row: Vec<u8>,
    pub column: Vec<u8>,
    pub until: u64,
}
