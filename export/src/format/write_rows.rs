//! Writes rows of the store as chunks of a file. Every export goes through this module.
//!
//! The first rows are written on the calling thread. If there are many more and processors are free, several threads
//! write parts of the rest; where the rows cannot be divided, a second thread reads ahead.

use std::ops::{ControlFlow, Range};

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};
use store::layout::codec::row::RowView;
use store::layout::key::RowKey;
use store::reader::{Reader, Rows, View};

use super::chunks::{Chunk, Chunks, WORK_MAX};
use super::parts::{self, PartChunks};
use super::prefetch;
use super::row_writer::RowWriter;
use crate::ExportError;
use crate::download::cpu_slots::CpuSlots;
use crate::query::ExportQuery;
use crate::query::cursor::Cursor;

/// The work of finding a row, whether or not it is wanted.
const ROW_WORK: usize = 16;
/// Rows that are read and written on the calling thread before other threads are worth their cost.
const ROWS_ALONE: u64 = 2048;
/// The stored size of a part. It takes some milliseconds, against which opening its iterators is little. A file of all
/// columns has about twice the stored size, so that the chunks of a part fit into [`parts::CHUNKS_WAITING_MAX`].
const PART_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 2 << 20 };

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
    let threads = || CpuSlots::threads_for(1);
    let mut file = File::new(query, policy, sink);
    for app in apps {
        let view = reader.view();
        let selection = Selection { view: &view, app, query, policy, threads: &threads };
        if file.write(&selection)?.is_break() {
            return Ok(file.chunks.rows);
        }
    }
    Ok(file.finish())
}

/// The rows of an app that a query selects, in the snapshot of a view.
#[derive(Clone, Copy)]
pub(crate) struct Selection<'a> {
    pub view: &'a View<'a>,
    pub app: &'a AppPolicy,
    pub query: &'a ExportQuery,
    pub policy: &'a Policy,
    /// The number of threads that may read and write the rows at present; 1 is the calling thread.
    pub threads: &'a (dyn Fn() -> usize + Sync),
}

/// The rows in a range of event times.
struct Part<'v> {
    range: Range<EventTime>,
    /// An iterator at the first of them, if there is one already.
    rows: Option<Rows<'v>>,
}

impl<'a> Selection<'a> {
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

    /// All rows of the range, in the order of the file.
    fn rows(&self) -> Result<Rows<'a>, ExportError> {
        let Self { view, app, query, .. } = *self;
        let range = query.from..query.to;
        Ok(match &query.report {
            None => view.rows(app, range, query.after.map(|cursor| cursor.row(app.pid)))?,
            Some(_) => view.rows_newest_first(app, range)?,
        })
    }

    /// Calls `visit` with each selected row, and with `None` for each other row, ignoring the limit; and with the work
    /// of reading it.
    fn each(
        &self,
        mut visit: impl FnMut(Option<(&RowKey, &RowView<'_>)>, usize) -> ControlFlow<()>,
    ) -> Result<(), ExportError> {
        let mut rows = self.rows()?;
        while self.visit(&mut rows, self.query.to, ROWS_ALONE, &mut visit)?.is_continue() {
            if (self.threads)() > 1 {
                return self.read_ahead(rows, visit);
            }
        }
        Ok(())
    }

    /// Visits the next rows, at most `rows_max` and only those before `end`. Breaks if `visit` breaks or there are no
    /// more.
    fn visit(
        &self,
        rows: &mut Rows<'_>,
        end: EventTime,
        rows_max: u64,
        mut visit: impl FnMut(Option<(&RowKey, &RowView<'_>)>, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ExportError> {
        for _ in 0..rows_max {
            let next = rows.current()?.filter(|(key, _)| key.event_time < end);
            let Some((key, value)) = next else { return Ok(ControlFlow::Break(())) };
            let value = self.is_wanted(&key).then_some(value);
            if self.visit_row(&key, value, &mut visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            rows.advance();
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits all further rows, which another thread reads.
    fn read_ahead(
        &self,
        rows: Rows<'_>,
        mut visit: impl FnMut(Option<(&RowKey, &RowView<'_>)>, usize) -> ControlFlow<()>,
    ) -> Result<(), ExportError> {
        let is_wanted = |key: &RowKey| self.is_wanted(key);
        prefetch::each(rows, is_wanted, |key, value| self.visit_row(key, value, &mut visit))
    }

    #[inline]
    fn is_wanted(&self, key: &RowKey) -> bool {
        self.query.filter.has_key(key, self.policy)
    }

    /// Calls `visit` with a row; `value` is `None` if its key is not wanted.
    #[inline]
    fn visit_row(
        &self,
        key: &RowKey,
        value: Option<&[u8]>,
        visit: &mut impl FnMut(Option<(&RowKey, &RowView<'_>)>, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ExportError> {
        let Self { query, policy, .. } = self;
        let work = ROW_WORK + value.map_or(0, <[u8]>::len);
        let is_in_report = |row: &RowView<'_>| {
            query.report.as_ref().is_none_or(|report| report.has(key, row, policy))
        };
        let row = value.map(RowView::decode).transpose()?;
        let row = row.filter(|row| query.filter.has_row(row) && is_in_report(row));
        Ok(visit(row.as_ref().map(|row| (key, row)), work))
    }

    /// Writes a part on one of several threads.
    fn write_part(
        &self,
        part: Part<'_>,
        writer: &mut RowWriter<'_>,
        chunks: &PartChunks,
    ) -> Result<(), ExportError> {
        let Part { range, rows } = part;
        let (end, cells) = (range.end, self.query.fields.len());
        let mut rows = match rows {
            Some(rows) => rows,
            None => self.view.rows(self.app, range, None)?,
        };
        let mut chunks = Chunks::new(|chunk| chunks.put(chunk));
        let ended = self
            .visit(&mut rows, end, u64::MAX, |row, read| chunks.visited(row, read, cells, writer));
        // If the chunks are not needed any more, the last one is not either.
        let _ = chunks.flush();
        ended.map(drop)
    }
}

/// A file in progress.
struct File<'a, Sink> {
    chunks: Chunks<Sink>,
    writer: RowWriter<'a>,
    cells: usize,
    limit: u64,
    /// Set once the sink has broken.
    is_gone: bool,
}

impl<'a, Sink: FnMut(Chunk) -> ControlFlow<()>> File<'a, Sink> {
    fn new(query: &'a ExportQuery, policy: &'a Policy, sink: Sink) -> Self {
        let mut chunks = Chunks::new(sink);
        let writer = RowWriter::new(query, policy);
        writer.header(&mut chunks.chunk);
        let (cells, limit) = (query.fields.len(), query.limit.unwrap_or(u64::MAX));
        Self { chunks, writer, cells, limit, is_gone: false }
    }

    fn write(&mut self, selection: &Selection<'_>) -> Result<ControlFlow<()>, ExportError> {
        let query = selection.query;
        let is_divisible = query.limit.is_none() && query.report.is_none();
        let mut rows = selection.rows()?;
        while self.write_next(selection, &mut rows, ROWS_ALONE)?.is_continue() {
            if (selection.threads)() < 2 {
                continue;
            }
            let Some((next, _)) = rows.current()? else { break };
            let range = next.event_time..query.to;
            let ranges = if is_divisible {
                selection.view.parts(selection.app, range, PART_BYTES)
            } else {
                None
            };
            let Some(mut ranges) = ranges else {
                selection.read_ahead(rows, |row, read| self.visited(row, read))?;
                break;
            };
            let first = ranges.next();
            if ranges.rest().is_empty() {
                // Too few rows for other threads.
                let _ = self.write_next(selection, &mut rows, u64::MAX)?;
                break;
            }
            let mut rows_of_first = Some(rows);
            let ranges_of_parts = first.into_iter().chain(ranges.by_ref());
            let mut parts = ranges_of_parts.map(|range| Part { range, rows: rows_of_first.take() });
            self.write_parts(selection, &mut parts)?;
            if self.is_gone {
                break;
            }
            rows = match (rows_of_first, ranges.rest()) {
                // Not even the first part has begun.
                (Some(rows), _) => rows,
                (None, rest) if rest.is_empty() => break,
                (None, rest) => selection.view.rows(selection.app, rest, None)?,
            };
        }
        Ok(if self.is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Writes the next rows on this thread, at most `rows_max`. Breaks if there are no more, or no more are needed.
    fn write_next(
        &mut self,
        selection: &Selection<'_>,
        rows: &mut Rows<'_>,
        rows_max: u64,
    ) -> Result<ControlFlow<()>, ExportError> {
        let to = selection.query.to;
        selection.visit(rows, to, rows_max, |row, read| self.visited(row, read))
    }

    /// Writes parts on several threads.
    fn write_parts<'v>(
        &mut self,
        selection: &Selection<'v>,
        parts: &mut impl Iterator<Item = Part<'v>>,
    ) -> Result<(), ExportError> {
        self.is_gone = self.chunks.flush().is_break();
        if self.is_gone {
            return Ok(());
        }
        let written = parts::in_order(
            parts,
            selection.threads,
            || RowWriter::new(selection.query, selection.policy),
            |writer, part, chunks| selection.write_part(part, writer, chunks),
            |chunk| self.chunks.pass(chunk),
        )?;
        self.is_gone = written.is_break();
        Ok(())
    }

    /// Writes a visited row. Breaks if no more rows are needed.
    #[inline]
    fn visited(&mut self, row: Option<(&RowKey, &RowView<'_>)>, read: usize) -> ControlFlow<()> {
        let written = self.chunks.visited(row, read, self.cells, &mut self.writer);
        self.is_gone = written.is_break();
        let is_full = self.chunks.rows == self.limit;
        if self.is_gone || is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn finish(mut self) -> u64 {
        // After the last chunk, a break of the sink has no effect.
        let _ = self.chunks.flush();
        self.chunks.rows
    }
}
