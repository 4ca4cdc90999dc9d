//! Writes rows of the store as chunks of a file. Every export goes through this module.

use std::ops::ControlFlow;

use attribution::rules::policy::{AppPolicy, Policy};
use store::layout::codec::row::RowView;
use store::layout::key::RowKey;
use store::reader::{Reader, View};

use super::prefetch;
use super::row_writer::RowWriter;
use crate::ExportError;
use crate::download::cpu_slots::CpuSlots;
use crate::query::ExportQuery;
use crate::query::cursor::Cursor;

/// A chunk is passed on once it has this size.
const CHUNK_BYTES: usize = 128 << 10;
/// Capacity of a chunk, including the row that fills it.
const CHUNK_CAPACITY: usize = CHUNK_BYTES + (8 << 10);
/// A chunk is passed on after this much work, even if it is empty, so that a costly export occupies a processor no
/// longer at a time than others. Work is counted in bytes read and written, cells, and [`ROW_WORK`] per row.
const WORK_MAX: usize = 1 << 20;
/// The work of finding a row, whether or not it is wanted.
const ROW_WORK: usize = 16;
/// Rows that are read on the writing thread before a second thread is worth its cost.
const ROWS_BEFORE_PREFETCH: u64 = 2048;

/// Writes a header, then the rows of the apps, one app after the other, in key order. All rows of an app are from one
/// snapshot. `sink` receives the chunks, regularly also empty ones, and may break.
///
/// Returns the number of rows in the chunks passed to `sink`.
///
/// # Errors
/// Errors of the store; the chunks so far are then only the beginning of an export.
pub fn write_rows(
    reader: &Reader,
    apps: &[&AppPolicy],
    query: &ExportQuery,
    policy: &Policy,
    sink: impl FnMut(Chunk) -> ControlFlow<()>,
) -> Result<u64, ExportError> {
    let may_read_ahead = CpuSlots::suffice_for(1);
    let mut file = File::new(query, policy, sink);
    for app in apps {
        let view = reader.view();
        let selection = Selection { view: &view, app, query, policy, may_read_ahead };
        if file.write(&selection)?.is_break() {
            return Ok(file.chunks.rows);
        }
    }
    Ok(file.finish())
}

/// The next bytes of a file.
#[derive(Debug)]
pub struct Chunk {
    pub bytes: Vec<u8>,
    /// The number of rows that end in this chunk.
    pub rows: u64,
}

/// The rows of an app that a query selects, in the snapshot of a view.
#[derive(Clone, Copy)]
pub(crate) struct Selection<'a> {
    pub view: &'a View<'a>,
    pub app: &'a AppPolicy,
    pub query: &'a ExportQuery,
    pub policy: &'a Policy,
    /// Set if a processor is free for a thread that reads ahead.
    pub may_read_ahead: bool,
}

impl Selection<'_> {
    /// Writes the rows; see [`write_rows`].
    pub fn write(&self, sink: impl FnMut(Chunk) -> ControlFlow<()>) -> Result<u64, ExportError> {
        let mut file = File::new(self.query, self.policy, sink);
        match file.write(self)? {
            ControlFlow::Break(()) => Ok(file.chunks.rows),
            ControlFlow::Continue(()) => Ok(file.finish()),
        }
    }

    /// Returns the cursor of the next page, if there are more rows than the query's limit. `pause` is called
    /// regularly and may break.
    pub fn page_end(
        &self,
        mut pause: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Cursor>, ExportError> {
        let Some(limit) = self.query.limit.filter(|_| self.query.report.is_none()) else {
            return Ok(None);
        };
        let (mut remaining, mut last, mut has_more) = (limit, None, false);
        let mut work = 0;
        self.each(|row, read| {
            work += read;
            if work >= WORK_MAX {
                work = 0;
                pause()?;
            }
            let Some((key, _)) = row else { return ControlFlow::Continue(()) };
            if remaining == 0 {
                has_more = true;
                return ControlFlow::Break(());
            }
            remaining -= 1;
            last = Some(*key);
            ControlFlow::Continue(())
        })?;
        Ok(last.filter(|_| has_more).map(|key| Cursor::after(&key, self.query)))
    }

    /// Calls `visit` with each selected row, and with `None` for each other row, ignoring the limit; and with the work
    /// of reading it.
    fn each(
        &self,
        mut visit: impl FnMut(Option<(&RowKey, &RowView<'_>)>, usize) -> ControlFlow<()>,
    ) -> Result<(), ExportError> {
        let Self { query, policy, app, .. } = self;
        let after = query.after.map(|cursor| cursor.row(app.pid));
        let range = query.from..query.to;
        let mut rows = match &query.report {
            None => self.view.rows(app, range, after)?,
            Some(_) => self.view.rows_newest_first(app, range)?,
        };
        let is_wanted = |key: &RowKey| query.filter.has_key(key, policy);
        let is_in_report = |key: &RowKey, row: &RowView<'_>| {
            query.report.as_ref().is_none_or(|report| report.has(key, row, policy))
        };
        let mut visit = |key: &RowKey, value: Option<&[u8]>| {
            let work = ROW_WORK + value.map_or(0, <[u8]>::len);
            let row = value.map(RowView::decode).transpose()?;
            let row = row.filter(|row| query.filter.has_row(row) && is_in_report(key, row));
            Ok::<_, ExportError>(visit(row.as_ref().map(|row| (key, row)), work))
        };
        let mut rows_before_prefetch =
            if self.may_read_ahead { ROWS_BEFORE_PREFETCH } else { u64::MAX };
        while let Some((key, value)) = rows.current()? {
            if rows_before_prefetch == 0 {
                return prefetch::each(rows, is_wanted, visit);
            }
            rows_before_prefetch -= 1;
            if visit(&key, is_wanted(&key).then_some(value))?.is_break() {
                break;
            }
            rows.advance();
        }
        Ok(())
    }
}

/// A file in progress.
struct File<'a, Sink> {
    chunks: Chunks<Sink>,
    writer: RowWriter<'a>,
    limit: u64,
}

impl<'a, Sink: FnMut(Chunk) -> ControlFlow<()>> File<'a, Sink> {
    fn new(query: &'a ExportQuery, policy: &'a Policy, sink: Sink) -> Self {
        let mut chunks = Chunks::new(sink);
        let writer = RowWriter::new(query, policy);
        writer.header(&mut chunks.chunk);
        Self { chunks, writer, limit: query.limit.unwrap_or(u64::MAX) }
    }

    fn write(&mut self, selection: &Selection<'_>) -> Result<ControlFlow<()>, ExportError> {
        let mut is_gone = false;
        let cells = selection.query.fields.len();
        selection.each(|row, read| {
            let mut work = read;
            if let Some((key, row)) = row {
                self.writer.row(key, row, &mut self.chunks.chunk);
                self.chunks.rows += 1;
                work += cells;
            }
            is_gone = self.chunks.scanned(work).is_break();
            let is_full = self.chunks.rows == self.limit;
            if is_gone || is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(if is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn finish(mut self) -> u64 {
        // After the last chunk, a break of the sink has no effect.
        let _ = self.chunks.flush();
        self.chunks.rows
    }
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
