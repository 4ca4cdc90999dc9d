//! Compares the rows of two stores, event by event.
//!
//! A row's key contains the campaign, so the rows of one event may have different positions; they share the
//! millisecond and the seq. Both stores are read in step, a millisecond at a time, and rows are paired by seq.

mod merge_rows;
pub mod totals;

use std::ops::ControlFlow;

use attribution::rules::policy::{AppPolicy, Policy};
use store::StoreError;
use store::layout::codec::row::{RowView, TextCell};
use store::layout::key::RowKey;
use store::reader::Reader;

use crate::ExportError;
use crate::format::chunks::{Chunk, Chunks};
use crate::format::columns::native::Column;
use crate::format::csv::CsvWriter;
use merge_rows::{MillisecondReader, StoredRow};
use totals::{Side, Totals};

/// Columns of the event itself, which are equal: those before the decisions, and those after them.
const EVENT: [Column; 5] = [
    Column::App,
    Column::EventType,
    Column::Text(TextCell::EventName),
    Column::EventTime,
    Column::Text(TextCell::EventId),
];
const VALUE: [Column; 2] = [Column::Text(TextCell::Revenue), Column::Text(TextCell::Currency)];
/// Columns that are decided. Rows differ if one of these differs.
const DECIDED: [Column; 10] = [
    Column::Status,
    Column::InstallType,
    Column::SpreadId,
    Column::Campaign,
    Column::Channel,
    Column::MatchType,
    Column::TouchType,
    Column::TouchTime,
    Column::Text(TextCell::ClickId),
    Column::RejectReason,
];

/// One side of the comparison: its rows, and the settings by which they were decided.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    pub reader: &'a Reader,
    pub policy: &'a Policy,
}

/// An app, on each side that has it.
#[derive(Debug, Clone)]
pub struct ComparedApp {
    pub old: Option<AppPolicy>,
    pub new: Option<AppPolicy>,
}

/// Writes a header line, then the rows that differ, app by app, in order of event time. If only one side has an
/// event, the cells of the other side are empty. `sink` is as in [`crate::write_rows`].
///
/// # Errors
/// Errors of the stores; the chunks so far are then only the beginning.
pub fn write_differences(
    old: Compared<'_>,
    new: Compared<'_>,
    apps: &[ComparedApp],
    sink: impl FnMut(Chunk) -> ControlFlow<()>,
) -> Result<Totals, ExportError> {
    let mut chunks = Chunks::new(sink);
    let mut lines = Lines {
        old: CsvWriter::for_cells(old.policy),
        new: CsvWriter::for_cells(new.policy),
        cell: Vec::new(),
    };
    header(&mut chunks.chunk);
    let mut totals = Totals::default();
    for app in apps {
        let (old_view, new_view) = (old.reader.view(), new.reader.view());
        let mut old_rows = MillisecondReader::new(&old_view, app.old.as_ref())?;
        let mut new_rows = MillisecondReader::new(&new_view, app.new.as_ref())?;
        while let Some(time) = earliest(old_rows.next_time()?, new_rows.next_time()?) {
            old_rows.read(time)?;
            new_rows.read(time)?;
            for pair in merge_rows::pairs(&old_rows, &new_rows) {
                let old_row = pair.old.map(decode).transpose()?;
                let new_row = pair.new.map(decode).transpose()?;
                old_row.iter().for_each(|row| totals.count(app, Side::Old, row.0, &row.1));
                new_row.iter().for_each(|row| totals.count(app, Side::New, row.0, &row.1));
                let differs = lines.write(old_row.as_ref(), new_row.as_ref(), &mut chunks.chunk);
                totals.compared(differs);
                chunks.rows += u64::from(differs);
                let read = [pair.old, pair.new].into_iter().flatten().map(|(_, value)| value.len());
                if chunks.scanned(read.sum()).is_break() {
                    return Ok(totals);
                }
            }
        }
    }
    // After the last chunk, a break of the sink has no effect.
    let _ = chunks.flush();
    Ok(totals)
}

type DecodedRow<'a> = (&'a RowKey, RowView<'a>);

fn decode((key, value): StoredRow<'_>) -> Result<DecodedRow<'_>, StoreError> {
    Ok((key, RowView::decode(value)?))
}

fn earliest<T: Ord>(old: Option<T>, new: Option<T>) -> Option<T> {
    old.into_iter().chain(new).min()
}

fn header(out: &mut Vec<u8>) {
    let decided = DECIDED.iter().flat_map(|column| ["old", "new"].map(|side| (side, column)));
    let names = EVENT.iter().map(|column| column.name().to_owned());
    let names = names.chain(decided.map(|(side, column)| format!("{side}_{}", column.name())));
    let names = names.chain(VALUE.iter().map(|column| column.name().to_owned()));
    out.extend_from_slice(names.collect::<Vec<_>>().join(",").as_bytes());
    out.push(b'\n');
}

/// Writes lines; names of campaigns and channels come from each side's settings.
struct Lines<'a> {
    old: CsvWriter<'a>,
    new: CsvWriter<'a>,
    /// Buffer for one cell.
    cell: Vec<u8>,
}

impl Lines<'_> {
    /// Appends the line if the rows differ; returns whether they do.
    fn write(
        &mut self,
        old: Option<&DecodedRow<'_>>,
        new: Option<&DecodedRow<'_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        self.event(&EVENT, old, new, out);
        let mut differs = old.is_none() || new.is_none();
        for column in DECIDED {
            out.push(b',');
            let cell = out.len();
            old.into_iter().for_each(|(key, row)| self.old.cell(column, key, row, out));
            self.cell.clear();
            new.into_iter().for_each(|(key, row)| {
                self.new.cell(column, key, row, &mut self.cell);
            });
            differs |= out[cell..] != self.cell[..];
            out.push(b',');
            out.extend_from_slice(&self.cell);
        }
        if !differs {
            out.truncate(start);
            return false;
        }
        out.push(b',');
        self.event(&VALUE, old, new, out);
        out.push(b'\n');
        true
    }

    /// Writes cells that are equal on both sides, from a side that has the event.
    fn event(
        &mut self,
        columns: &[Column],
        old: Option<&DecodedRow<'_>>,
        new: Option<&DecodedRow<'_>>,
        out: &mut Vec<u8>,
    ) {
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match (old, new) {
                (Some((key, row)), _) => self.old.cell(*column, key, row, out),
                (None, Some((key, row))) => self.new.cell(*column, key, row, out),
                (None, None) => {}
            }
        }
    }
}
