//! What the ledger asks of HBase. Nothing is atomic but one row.

use std::ops::Range;

use attribution::facts::event::Family;

use crate::StoreError;
use crate::layout::key::Key;

/// Reads and writes of rows; each of a call stands for itself, in any order, and all that a call writes is
/// durable when it returns.
pub trait Cells {
    /// The newest value in [`VALUE`] of each row.
    fn get(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// Each row whole.
    fn get_rows(&mut self, table: Table, rows: &[Key]) -> Result<Vec<Columns>, StoreError>;

    /// A page of each row, in the order of its columns.
    fn get_pages(&mut self, table: Table, pages: &[Page]) -> Result<Vec<Columns>, StoreError>;

    fn put(&mut self, table: Table, puts: Vec<Put>) -> Result<(), StoreError>;

    /// Puts each where the row's [`VALUE`] is what is expected, and says whether it did. Where it can not be
    /// told it says no: who asks reads once more.
    fn put_where(&mut self, table: Table, puts: Vec<PutWhere>) -> Result<Vec<bool>, StoreError>;

    fn delete(&mut self, table: Table, cells: Vec<Gone>) -> Result<(), StoreError>;

    /// Of what was asked for nothing is left to be done, also where it was not told whether it was.
    fn settled(&mut self) {}
}

/// The column of a row's value.
pub const VALUE: &[u8] = b"v";

/// The time of a deletion of all that is there.
pub const NOW: u64 = i64::MAX as u64;

/// A row's columns with their newest values.
pub type Columns = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// The rows of events.
    Events,
    Facts(Family),
}

/// The columns of a row from one on and before another, at most so many.
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
    /// The server's, where there is none.
    pub time: Option<u64>,
    /// How long it is kept from its time on; as long as its table says, where there is none.
    pub ttl_ms: Option<u64>,
}

/// A value in [`VALUE`], at the server's time.
#[derive(Debug, Clone)]
pub struct PutWhere {
    pub row: Key,
    /// `None` where there is to be nothing.
    pub expected: Option<Vec<u8>>,
    pub value: Vec<u8>,
    /// As of a [`Put`].
    pub ttl_ms: Option<u64>,
}

/// What is in a column up to a time, and what comes later with such a time.
#[derive(Debug, Clone)]
pub struct Gone {
    pub row: Vec<u8>,
    pub column: Vec<u8>,
    pub until: u64,
}
