//! From the store to CSV, chunk by chunk: the one way for every export.

use std::ops::ControlFlow;

use attribution::policy::{AppPolicy, Policy};
use store::codec::row::RowView;
use store::scan::Reader;

use crate::ExportError;
use crate::csv::CsvWriter;
use crate::query::ExportQuery;

/// A chunk is handed on once it is as long as this.
const CHUNK_BYTES: usize = 128 << 10;
/// Room for the row that makes a chunk full.
const CHUNK_ROOM_BYTES: usize = CHUNK_BYTES + (8 << 10);
/// A chunk is handed on after so many rows of the range, asked for or not.
const SCANNED_MAX: u32 = 65_536;

/// Writes the line of names, then the rows of the apps, one app after the other, in key order.
/// An app's rows are all of one moment. `sink` takes the chunks; it may break off, and gets one
/// now and then even if it is empty, so that it can.
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
    sink: impl FnMut(Vec<u8>) -> ControlFlow<()>,
) -> Result<u64, ExportError> {
    let mut chunks = Chunks::new(sink);
    let mut csv = CsvWriter::new(query, policy);
    csv.header(&mut chunks.chunk);
    for app in apps {
        let mut outcome = Ok(ControlFlow::Continue(()));
        reader.scan_rows(app, query.from, query.to, |key, value| {
            outcome = RowView::decode(value).map(|row| {
                if query.event_type.is_none_or(|event_type| event_type == row.event_type) {
                    csv.row(key, &row, &mut chunks.chunk);
                    chunks.rows += 1;
                }
                chunks.scanned()
            });
            outcome.as_ref().map_or(ControlFlow::Break(()), |flow| *flow)
        })?;
        if outcome?.is_break() {
            return Ok(chunks.rows);
        }
    }
    // Nobody is left to hear of a break.
    let _ = chunks.hand_on();
    Ok(chunks.rows)
}

/// The chunk that is being filled, and where chunks go.
pub(crate) struct Chunks<Sink> {
    pub(crate) chunk: Vec<u8>,
    /// Rows since the last chunk.
    scanned: u32,
    /// Rows written.
    pub(crate) rows: u64,
    sink: Sink,
}

impl<Sink: FnMut(Vec<u8>) -> ControlFlow<()>> Chunks<Sink> {
    pub(crate) fn new(sink: Sink) -> Self {
        Self { chunk: Vec::with_capacity(CHUNK_ROOM_BYTES), scanned: 0, rows: 0, sink }
    }

    /// One more row was looked at, and written or not.
    pub(crate) fn scanned(&mut self) -> ControlFlow<()> {
        self.scanned += 1;
        if self.chunk.len() < CHUNK_BYTES && self.scanned < SCANNED_MAX {
            return ControlFlow::Continue(());
        }
        self.hand_on()
    }

    pub(crate) fn hand_on(&mut self) -> ControlFlow<()> {
        self.scanned = 0;
        (self.sink)(std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_ROOM_BYTES)))
    }
}
