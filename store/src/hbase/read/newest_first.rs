//! An app's rows, the newest first. HBase would read backwards; the rows of a millisecond are settled
//! together, which is one thing to get right, so they are read forwards here too, window by window.

use attribution::facts::event::{EventTime, Pid};

use super::rows::Rows;
use crate::StoreError;
use crate::hbase::cluster::Cluster;
use crate::layout::key::RowKey;
use crate::layout::stored_row::StoredRow;

/// The first window; the next is as wide as suits what was found.
const FIRST_MS: u64 = 60_000;
/// A window with fewer rows is followed by one of twice its width.
const ROWS_MIN: usize = 1_000;
/// One with more is read in parts.
const ROWS_MAX: usize = 5_000;

/// A place among the rows of an app.
pub struct Backwards {
    cluster: Cluster,
    pid: Pid,
    partitions: Vec<u16>,
    from: EventTime,
    /// All from here on is read.
    end: EventTime,
    width_ms: u64,
    /// The last one comes next.
    rows: Vec<StoredRow>,
}

impl Backwards {
    /// Those of the times, `from <= event_time < to`.
    pub fn new(
        cluster: &Cluster,
        pid: Pid,
        partitions: Vec<u16>,
        (from, to): (EventTime, EventTime),
    ) -> Self {
        let (cluster, rows) = (cluster.clone(), Vec::new());
        Self { cluster, pid, partitions, from, end: to, width_ms: FIRST_MS, rows }
    }

    /// The row at this place; `None` after the last.
    pub fn current(&mut self) -> Result<Option<(RowKey, &[u8])>, StoreError> {
        while self.rows.is_empty() && self.from < self.end {
            self.read_on()?;
        }
        Ok(self.rows.last().map(|(key, value)| (*key, value.as_slice())))
    }

    /// To the next row.
    pub fn advance(&mut self) {
        self.rows.pop();
    }

    /// The next window, if it has not too many rows.
    fn read_on(&mut self) -> Result<(), StoreError> {
        let start = self.from.max(self.end.minus(self.width_ms));
        let places = self.partitions.iter().copied();
        let mut rows = Rows::open(&self.cluster, self.pid, places, (start, self.end), None)?;
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
