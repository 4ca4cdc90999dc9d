//! Where a scan is: what it asks for next, and what of an answer is given out. No IO; whatever goes
//! wrong on the way, no row is given out twice and none is left out.

use bytes::Bytes;

use crate::location::Region;
use crate::rows::Row;
use crate::wire::WireError;
use crate::wire::cell::Cell;

#[derive(Debug)]
pub(crate) struct Cursor {
    /// The next row to be asked for; without it, once rows were given out.
    start: Bytes,
    includes_start: bool,
    /// Asked for up to it and without it; empty: to the end.
    stop: Bytes,
    /// Rows that may still be given out.
    remaining: Option<u64>,
    /// Of a row of which more may come.
    partial: Vec<Cell>,
    /// Of the answers that these are in, which are in memory as long.
    partial_bytes: usize,
    is_done: bool,
}

impl Cursor {
    pub fn new(start: Bytes, stop: Bytes, limit: Option<u64>) -> Self {
        // HBase takes an equal stop for a row that is asked for.
        let is_empty = !stop.is_empty() && start >= stop;
        let is_done = is_empty || limit == Some(0);
        let (partial, partial_bytes, remaining) = (Vec::new(), 0, limit);
        Self { start, includes_start: true, stop, remaining, partial, partial_bytes, is_done }
    }

    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Where the scan goes on, and whether with that row itself.
    pub fn start(&self) -> (&Bytes, bool) {
        (&self.start, self.includes_start)
    }

    pub fn stop(&self) -> &Bytes {
        &self.stop
    }

    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// The row that tells in which region to go on: the least one that may come.
    pub fn next_row(&self) -> Bytes {
        if self.includes_start {
            return self.start.clone();
        }
        [&self.start[..], b"\0"].concat().into()
    }

    /// Puts together what belongs together, and gives out what is complete, of an answer of so many bytes.
    ///
    /// # Errors
    /// Where rows are not in order, or not of the region: then nothing more of it can be believed.
    pub fn take(
        &mut self,
        region: &Region,
        results: Vec<(Vec<Cell>, bool)>,
        bytes: usize,
    ) -> Result<Vec<Row>, WireError> {
        let mut rows = Vec::with_capacity(results.len());
        for (cells, is_partial) in results {
            let Some(first) = cells.first() else { continue };
            if self.is_past(first.row()) {
                continue;
            }
            if !region.contains(first.row()) {
                return Err(WireError::Malformed("a row of another region"));
            }
            self.complete_unless(first.row(), &mut rows)?;
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
        self.settle(&rows);
        Ok(rows)
    }

    /// Of a row that has not ended, which is more than so many bytes.
    pub fn longer_than(&self, bytes_max: usize) -> Option<&[u8]> {
        let bytes = self.partial_bytes + self.partial.len() * size_of::<Cell>();
        self.partial.first().map(Cell::row).filter(|_| bytes > bytes_max)
    }

    /// The server has no more rows in this region.
    pub fn end_region(&mut self, region: &Region) -> Option<Row> {
        let row = self.last_of_region();
        self.is_done |= region.end.is_empty() || (!self.stop.is_empty() && region.end >= self.stop);
        (self.start, self.includes_start) = (region.end.clone(), true);
        row
    }

    /// The server has no more rows at all.
    pub fn end(&mut self) -> Option<Row> {
        self.is_done = true;
        self.last_of_region()
    }

    /// The scanner is gone: of the row that was under way, all will come again.
    pub fn reset(&mut self) {
        self.partial = Vec::new();
        self.partial_bytes = 0;
    }

    fn last_of_region(&mut self) -> Option<Row> {
        let mut rows = Vec::new();
        self.complete(&mut rows);
        self.settle(&rows);
        rows.pop()
    }

    fn is_past(&self, row: &[u8]) -> bool {
        if self.includes_start { row < &self.start[..] } else { row <= &self.start[..] }
    }

    /// A row is complete, too, where another one begins.
    fn complete_unless(&mut self, row: &[u8], rows: &mut Vec<Row>) -> Result<(), WireError> {
        let last = self.partial.first().map(Cell::row);
        let last = last.or_else(|| rows.last().map(Row::key));
        match last.map(|last| last.cmp(row)) {
            None => {}
            Some(std::cmp::Ordering::Less) => self.complete(rows),
            Some(std::cmp::Ordering::Equal) if !self.partial.is_empty() => {}
            Some(_) => return Err(WireError::Malformed("rows that are not in order")),
        }
        Ok(())
    }

    fn complete(&mut self, rows: &mut Vec<Row>) {
        let cells = std::mem::take(&mut self.partial);
        self.partial_bytes = 0;
        if self.remaining.is_none_or(|remaining| rows.len() as u64 != remaining) {
            rows.extend(Row::new(cells));
        }
    }

    /// Rows are given out: the scan goes on after the last of them.
    fn settle(&mut self, rows: &[Row]) {
        let Some(last) = rows.last() else { return };
        // A copy: the row itself would keep its whole answer.
        (self.start, self.includes_start) = (Bytes::copy_from_slice(last.key()), false);
        if let Some(remaining) = &mut self.remaining {
            *remaining -= rows.len() as u64;
            self.is_done |= *remaining == 0;
        }
    }
}

#[cfg(test)]
mod tests;
