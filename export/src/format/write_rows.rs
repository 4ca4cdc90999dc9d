//! From the store to a file's bytes, chunk by chunk: the one way for every export.

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

/// A chunk is handed on once it is as long as this.
const CHUNK_BYTES: usize = 128 << 10;
/// Room for the row that makes a chunk full.
const CHUNK_ROOM_BYTES: usize = CHUNK_BYTES + (8 << 10);
/// A chunk is handed on after so many rows of the range, asked for or not.
const SCANNED_MAX: u32 = 65_536;
/// So many rows are read and written before it is worth a thread to read what follows.
const ROWS_HERE: u64 = 2048;

/// Writes what stands before the rows, then the rows of the apps, one app after the other, in key
/// order. An app's rows are all of one moment. `sink` takes the chunks; it may break off, and gets
/// one now and then even if it is empty, so that it can.
///
/// Gives the number of rows in the chunks that were handed on.
///
/// # Errors
/// The store's; the chunks so far are then the beginning of an export, not one.
pub fn write_rows(
    reader: &Reader,
    apps: &[&AppPolicy],
    query: &ExportQuery,
    policy: &Policy,
    sink: impl FnMut(Chunk) -> ControlFlow<()>,
) -> Result<u64, ExportError> {
    let may_read_ahead = CpuSlots::have_room(1);
    let mut file = File::new(query, policy, sink);
    for app in apps {
        let view = reader.view();
        let wanted = Wanted { view: &view, app, query, policy, may_read_ahead };
        if file.write(&wanted)?.is_break() {
            return Ok(file.chunks.rows);
        }
    }
    Ok(file.finish())
}

/// The next bytes of a file.
#[derive(Debug)]
pub struct Chunk {
    pub bytes: Vec<u8>,
    /// Those that end in it.
    pub rows: u64,
}

/// The rows of an app that are asked for, as of the moment of a view.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub view: &'a View<'a>,
    pub app: &'a AppPolicy,
    pub query: &'a ExportQuery,
    pub policy: &'a Policy,
    /// Whether there is a processor for a thread that reads ahead.
    pub may_read_ahead: bool,
}

impl Wanted<'_> {
    /// Writes them; as [`write_rows`].
    pub fn write(&self, sink: impl FnMut(Chunk) -> ControlFlow<()>) -> Result<u64, ExportError> {
        let mut file = File::new(self.query, self.policy, sink);
        match file.write(self)? {
            ControlFlow::Break(()) => Ok(file.chunks.rows),
            ControlFlow::Continue(()) => Ok(file.finish()),
        }
    }

    /// Where the page ends, if there are more rows than the query's limit. `pause` is called now and
    /// then, and may break off.
    pub fn page_end(
        &self,
        mut pause: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Cursor>, ExportError> {
        let Some(limit) = self.query.limit.filter(|_| self.query.report.is_none()) else {
            return Ok(None);
        };
        let (mut left, mut last, mut has_more) = (limit, None, false);
        let mut scanned = 0;
        self.each(|row| {
            scanned += 1;
            if scanned % SCANNED_MAX == 0 {
                pause()?;
            }
            let Some((key, _)) = row else { return ControlFlow::Continue(()) };
            if left == 0 {
                has_more = true;
                return ControlFlow::Break(());
            }
            left -= 1;
            last = Some(*key);
            ControlFlow::Continue(())
        })?;
        Ok(last.filter(|_| has_more).map(|key| Cursor::after(&key, self.query)))
    }

    /// Calls `visit` with each row that is asked for, and with `None` for each that is not, whatever
    /// the limit.
    fn each(
        &self,
        mut visit: impl FnMut(Option<(&RowKey, &RowView<'_>)>) -> ControlFlow<()>,
    ) -> Result<(), ExportError> {
        let Self { query, policy, app, .. } = self;
        let after = query.after.map(|cursor| cursor.row(app.pid));
        let range = (query.from, query.to);
        let mut rows = match &query.report {
            None => self.view.rows(app, range, after)?,
            Some(_) => self.view.rows_newest_first(app, range)?,
        };
        let is_wanted = |key: &RowKey| query.filter.has_key(key, policy);
        let is_in_report = |key: &RowKey, row: &RowView<'_>| {
            query.report.as_ref().is_none_or(|report| report.has(key, row, policy))
        };
        let mut visit = |key: &RowKey, value: Option<&[u8]>| {
            let row = value.map(RowView::decode).transpose()?;
            let row = row.filter(|row| query.filter.has_row(row) && is_in_report(key, row));
            Ok::<_, ExportError>(visit(row.as_ref().map(|row| (key, row))))
        };
        let mut rows_here = if self.may_read_ahead { ROWS_HERE } else { u64::MAX };
        while let Some((key, value)) = rows.current()? {
            if rows_here == 0 {
                return prefetch::each(rows, is_wanted, visit);
            }
            rows_here -= 1;
            if visit(&key, is_wanted(&key).then_some(value))?.is_break() {
                break;
            }
            rows.advance();
        }
        Ok(())
    }
}

/// A file that is being written.
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

    fn write(&mut self, wanted: &Wanted<'_>) -> Result<ControlFlow<()>, ExportError> {
        let mut is_gone = false;
        wanted.each(|row| {
            if let Some((key, row)) = row {
                self.writer.row(key, row, &mut self.chunks.chunk);
                self.chunks.rows += 1;
            }
            is_gone = self.chunks.scanned().is_break();
            let is_full = self.chunks.rows == self.limit;
            if is_gone || is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(if is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn finish(mut self) -> u64 {
        // Nobody is left to hear of a break.
        let _ = self.chunks.hand_on();
        self.chunks.rows
    }
}

/// The chunk that is being filled, and where chunks go.
pub(crate) struct Chunks<Sink> {
    pub(crate) chunk: Vec<u8>,
    /// Rows since the last chunk.
    scanned: u32,
    /// Rows written.
    pub(crate) rows: u64,
    /// Of these, in chunks that were handed on.
    handed_on: u64,
    sink: Sink,
}

impl<Sink: FnMut(Chunk) -> ControlFlow<()>> Chunks<Sink> {
    pub(crate) fn new(sink: Sink) -> Self {
        Self {
            chunk: Vec::with_capacity(CHUNK_ROOM_BYTES),
            scanned: 0,
            rows: 0,
            handed_on: 0,
            sink,
        }
    }

    /// One more row was looked at, and written or not.
    #[inline]
    pub(crate) fn scanned(&mut self) -> ControlFlow<()> {
        self.scanned += 1;
        if self.chunk.len() < CHUNK_BYTES && self.scanned < SCANNED_MAX {
            return ControlFlow::Continue(());
        }
        self.hand_on()
    }

    pub(crate) fn hand_on(&mut self) -> ControlFlow<()> {
        self.scanned = 0;
        let bytes = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_ROOM_BYTES));
        let rows = self.rows - self.handed_on;
        self.handed_on = self.rows;
        (self.sink)(Chunk { bytes, rows })
    }
}
