//! An app's rows, newest first.
//!
//! HBase could scan in reverse. But the rows of a millisecond must be read together to select their latest revisions,
//! so this module reuses the forward scan, window by window.

use std::ops::Range;

use attribution::facts::event::{EventTime, Pid};

use super::rows::SharedRows;
use crate::StoreError;
use crate::hbase::cluster::Cluster;
use crate::layout::key::RowKey;
use crate::layout::stored_row::StoredRow;

/// Width of the first window. Later widths depend on the number of rows found.
const FIRST_MS: u64 = 60_000;
/// A window with fewer rows is followed by one of twice the width.
const ROWS_MIN: usize = 1_000;
/// A window with more rows is read again in parts.
const ROWS_MAX: usize = 5_000;

/// An iterator over rows of an app, newest first.
pub struct NewestFirst {
    cluster: Cluster,
    pid: Pid,
    partitions: Vec<u16>,
    from: EventTime,
    /// All rows from this time on have been read.
    end: EventTime,
    width_ms: u64,
    /// Rows of the current window, oldest first; the last one is the next to return.
    rows: Vec<StoredRow>,
}

impl NewestFirst {
    /// Iterates over the rows in a range of event times.
    pub fn new(cluster: &Cluster, pid: Pid, partitions: Vec<u16>, range: Range<EventTime>) -> Self {
        let (cluster, rows) = (cluster.clone(), Vec::new());
        let Range { start: from, end } = range;
        Self { cluster, pid, partitions, from, end, width_ms: FIRST_MS, rows }
    }

    /// The row at the iterator's position; `None` after the last.
    pub fn current(&mut self) -> Result<Option<(RowKey, &[u8])>, StoreError> {
        while self.rows.is_empty() && self.from < self.end {
            self.read_window()?;
        }
        Ok(self.rows.last().map(|(key, value)| (*key, value.as_slice())))
    }

    /// Moves to the next row.
    pub fn advance(&mut self) {
        self.rows.pop();
    }

    /// Reads the next window, or reduces its width if it has too many rows.
    fn read_window(&mut self) -> Result<(), StoreError> {
        let start = self.from.max(self.end.minus(self.width_ms));
        let partitions = self.partitions.iter().copied();
        let mut rows =
            SharedRows::open(&self.cluster, self.pid, partitions, start..self.end, None)?;
        while let Some((key, value)) = rows.current()? {
            if self.rows.len() >= ROWS_MAX && self.width_ms > 1 {
                self.rows.clear();
                self.width_ms = (self.width_ms / 4).max(1);
                return Ok(());
            }
            self.rows.push((key, value.to_vec()));
            rows.advance();
        }
        self.end = start;
        if self.rows.len() < ROWS_MIN {
            self.width_ms = self.width_ms.saturating_mul(2);
        }
        Ok(())
    }
}
