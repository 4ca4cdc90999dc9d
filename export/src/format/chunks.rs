//! Collects the rows of a file in chunks.

use std::ops::ControlFlow;

use store::layout::codec::row::RowView;
use store::layout::key::RowKey;

use super::row_writer::RowWriter;

/// A chunk is passed on once it has this size.
const CHUNK_BYTES: usize = 128 << 10;
/// Capacity of a chunk, including the row that fills it.
const CHUNK_CAPACITY: usize = CHUNK_BYTES + (8 << 10);
/// A chunk is passed on after this much work, even if it is empty, so that a costly export occupies a processor no
/// longer at a time than others. Work is counted in bytes read and written, cells, and a little per row.
pub(crate) const WORK_MAX: usize = 1 << 20;

/// The next bytes of a file.
#[derive(Debug)]
pub struct Chunk {
    pub bytes: Vec<u8>,
    /// The number of rows that end in this chunk.
    pub rows: u64,
}

/// The current chunk, and the sink of chunks.
pub(crate) struct Chunks<Sink> {
    pub(crate) chunk: Vec<u8>,
    /// Work since the last chunk, except bytes written.
    work: usize,
    /// Rows written.
    pub(crate) rows: u64,
    /// Rows in chunks that were passed on.
    flushed_rows: u64,
    sink: Sink,
}

impl<Sink: FnMut(Chunk) -> ControlFlow<()>> Chunks<Sink> {
    pub(crate) fn new(sink: Sink) -> Self {
        Self { chunk: Vec::with_capacity(CHUNK_CAPACITY), work: 0, rows: 0, flushed_rows: 0, sink }
    }

    /// Writes a row with `cells` cells, if it is selected, after `read` work of reading it.
    #[inline]
    pub(crate) fn visited(
        &mut self,
        row: Option<(&RowKey, &RowView<'_>)>,
        read: usize,
        cells: usize,
        writer: &mut RowWriter<'_>,
    ) -> ControlFlow<()> {
        let Some((key, row)) = row else { return self.scanned(read) };
        writer.row(key, row, &mut self.chunk);
        self.rows += 1;
        self.scanned(read + cells)
    }

    /// Passes on a chunk that another thread has written.
    pub(crate) fn pass(&mut self, chunk: Chunk) -> ControlFlow<()> {
        self.rows += chunk.rows;
        self.flushed_rows = self.rows;
        (self.sink)(chunk)
    }

    /// Counts the work of a scanned row, whether or not it was written; passes the chunk on if it is due.
    #[inline]
    pub(crate) fn scanned(&mut self, work: usize) -> ControlFlow<()> {
        self.work += work;
        if self.chunk.len() < CHUNK_BYTES && self.chunk.len() + self.work < WORK_MAX {
            return ControlFlow::Continue(());
        }
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> ControlFlow<()> {
        self.work = 0;
        let bytes = if self.chunk.is_empty() {
            Vec::new()
        } else {
            std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_CAPACITY))
        };
        let rows = self.rows - self.flushed_rows;
        self.flushed_rows = self.rows;
        (self.sink)(Chunk { bytes, rows })
    }
}
