//! The position of a scan: what to request next, and which rows of a response are returned. No I/O. After any failure,
//! no row is returned twice and none is skipped.

use bytes::Bytes;

use crate::cluster::Region;
use crate::rows::{Row, ScanResult};
use crate::wire::WireError;
use crate::wire::cell::Cell;

/// The row from which to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub row: Bytes,
    /// False if the row itself was returned already.
    pub is_included: bool,
}

#[derive(Debug)]
pub(crate) struct Cursor {
    start: Start,
    /// The row before which the scan ends; empty for the end of the table.
    stop: Bytes,
    /// Rows that may still be returned; `None` for no limit.
    remaining: Option<u64>,
    /// Cells of an incomplete row.
    partial: Vec<Cell>,
    /// The size of the responses that contain these cells, and stay in memory with them.
    partial_bytes: usize,
    is_done: bool,
}

impl Cursor {
    pub fn new(start: Bytes, stop: Bytes, limit: Option<u64>) -> Self {
        // If start and stop are equal, HBase would read the start row.
        let is_empty = !stop.is_empty() && start >= stop;
        let is_done = is_empty || limit == Some(0);
        let start = Start { row: start, is_included: true };
        let (partial, partial_bytes, remaining) = (Vec::new(), 0, limit);
        Self { start, stop, remaining, partial, partial_bytes, is_done }
    }

    pub fn is_done(&self) -> bool {
        self.is_done
    }

    pub fn start(&self) -> &Start {
        &self.start
    }

    pub fn stop(&self) -> &Bytes {
        &self.stop
    }

    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Returns the smallest row key that may follow, by which the next region is located.
    pub fn next_row(&self) -> Bytes {
        let Start { row, is_included } = &self.start;
        if *is_included { row.clone() } else { [&row[..], b"\0"].concat().into() }
    }

    /// Assembles rows from the results of a response of `bytes` bytes, and returns the complete ones.
    ///
    /// # Errors
    /// Fails if rows are out of order or outside of the region. The caller must then drop the response and call
    /// [`Cursor::reset`].
    pub fn take(
        &mut self,
        region: &Region,
        results: Vec<ScanResult>,
        bytes: usize,
    ) -> Result<Vec<Row>, WireError> {
        let mut rows = Vec::with_capacity(results.len());
        for ScanResult { cells, is_partial } in results {
            let Some(first) = cells.first() else { continue };
            if self.is_returned(first.row()) {
                continue;
            }
            if !region.contains(first.row()) {
                return Err(WireError::Malformed("the response has a row of another region"));
            }
            self.complete_previous_row(first.row(), &mut rows)?;
            if self.partial.is_empty() {
                self.partial = cells;
            } else {
                self.partial.extend(cells);
            }
            if !is_partial {
                self.complete(&mut rows);
            }
        }
        if !self.partial.is_empty() {
            self.partial_bytes += bytes;
        }
        self.advance(&rows);
        Ok(rows)
    }

    /// Returns the key of the incomplete row if it takes more memory than this.
    pub fn oversized_row(&self, bytes_max: usize) -> Option<&[u8]> {
        let bytes = self.partial_bytes + self.partial.len() * size_of::<Cell>();
        self.partial.first().map(Cell::row).filter(|_| bytes > bytes_max)
    }

    /// Continues with the next region, and returns the last row of this one if it was incomplete.
    pub fn end_region(&mut self, region: &Region) -> Option<Row> {
        let row = self.complete_last_row();
        self.is_done |= region.end.is_empty() || (!self.stop.is_empty() && region.end >= self.stop);
        self.start = Start { row: region.end.clone(), is_included: true };
        row
    }

    /// Ends the scan, and returns the last row if it was incomplete.
    pub fn finish(&mut self) -> Option<Row> {
        self.is_done = true;
        self.complete_last_row()
    }

    /// Drops the incomplete row after the loss of the scanner: the next scanner returns it again from its first cell.
    pub fn reset(&mut self) {
        self.partial = Vec::new();
        self.partial_bytes = 0;
    }

    fn complete_last_row(&mut self) -> Option<Row> {
        let mut rows = Vec::new();
        self.complete(&mut rows);
        self.advance(&rows);
        rows.pop()
    }

    fn is_returned(&self, row: &[u8]) -> bool {
        let Start { row: start, is_included } = &self.start;
        row < &start[..] || (!is_included && row == &start[..])
    }

    /// Completes the incomplete row if it is not `row`: the start of another row also completes it.
    fn complete_previous_row(&mut self, row: &[u8], rows: &mut Vec<Row>) -> Result<(), WireError> {
        let last = self.partial.first().map(Cell::row);
        let last = last.or_else(|| rows.last().map(Row::key));
        match last.map(|last| last.cmp(row)) {
            None => {}
            Some(std::cmp::Ordering::Less) => self.complete(rows),
            Some(std::cmp::Ordering::Equal) if !self.partial.is_empty() => {}
            Some(_) => return Err(WireError::Malformed("the response has rows out of order")),
        }
        Ok(())
    }

    /// Moves the incomplete row to `rows`, unless the limit is reached.
    fn complete(&mut self, rows: &mut Vec<Row>) {
        let cells = std::mem::take(&mut self.partial);
        self.partial_bytes = 0;
        if self.remaining.is_none_or(|remaining| rows.len() as u64 != remaining) {
            rows.extend(Row::new(cells));
        }
    }

    /// Moves the position after the last of these rows.
    fn advance(&mut self, rows: &[Row]) {
        let Some(last) = rows.last() else { return };
        // Copied, because the row's own key would keep the whole response in memory.
        self.start = Start { row: Bytes::copy_from_slice(last.key()), is_included: false };
        if let Some(remaining) = &mut self.remaining {
            *remaining -= rows.len() as u64;
            self.is_done |= *remaining == 0;
        }
    }
}

#[cfg(test)]
mod tests;
