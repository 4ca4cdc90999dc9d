//! The first rows of an export as a table, written by the same writer as the export.

pub(crate) mod chart;
pub(crate) mod estimate;

use std::ops::ControlFlow;

use attribution::rules::policy::{AppPolicy, Policy};
use serde::Serialize;
use store::reader::Reader;

use crate::ExportError;
use crate::format::write_rows::write_rows;
use crate::query::{Dialect, ExportQuery, Format};

pub(super) const ROWS_MAX: u64 = 50;
/// Maximum number of characters of a displayed cell; a cell may have a megabyte.
const CELL_MAX: usize = 120;
/// Chunks that are read, of a limited amount of work each; matching rows may be rare.
const CHUNKS_MAX: usize = 64;
/// No further chunk is read once they have this size.
const BYTES_MAX: usize = 512 << 10;

#[derive(Debug, Default, Serialize)]
pub(super) struct Preview {
    columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Size of the header in the file.
    #[serde(skip)]
    pub head_bytes: u64,
    #[serde(skip)]
    /// Size of the rows in the file.
    pub rows_bytes: u64,
}

/// Reads the first rows.
pub(super) fn preview(
    reader: &Reader,
    app: &AppPolicy,
    query: &ExportQuery,
    policy: &Policy,
) -> Result<Preview, ExportError> {
    let mut query = query.clone();
    query.limit = Some(ROWS_MAX);
    let file = first(reader, app, &query, policy)?;
    let mut no_rows = query.clone();
    no_rows.to = query.from;
    let head_bytes = first(reader, app, &no_rows, policy)?.len() as u64;
    let rows_bytes = (file.len() as u64).saturating_sub(head_bytes);
    let table = match query.format {
        Format::Csv => file,
        Format::Ndjson => {
            (query.format, query.dialect) = (Format::Csv, Dialect::Data);
            first(reader, app, &query, policy)?
        }
    };
    let mut cells = table_of(&table, query.dialect).into_iter();
    let columns = cells.next().unwrap_or_default();
    Ok(Preview { columns, rows: cells.collect(), head_bytes, rows_bytes })
}

/// Returns the bytes of the first rows, as far as the first chunks have them.
fn first(
    reader: &Reader,
    app: &AppPolicy,
    query: &ExportQuery,
    policy: &Policy,
) -> Result<Vec<u8>, ExportError> {
    let (mut file, mut chunks) = (Vec::new(), 0);
    write_rows(reader, &[app], query, policy, |chunk| {
        file.extend(chunk.bytes);
        chunks += 1;
        let is_enough = chunks == CHUNKS_MAX || file.len() >= BYTES_MAX;
        if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(file)
}

fn table_of(file: &[u8], dialect: Dialect) -> Vec<Vec<String>> {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let file = file.strip_prefix(BYTE_ORDER_MARK).unwrap_or(file);
    let mut lines = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file);
    let lines = lines.byte_records().map_while(Result::ok);
    lines.map(|line| line.iter().map(|bytes| cell(bytes, dialect)).collect()).collect()
}

/// Returns the text of a cell: for the Excel dialect as a spreadsheet displays it, otherwise as it is.
fn cell(bytes: &[u8], dialect: Dialect) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = match dialect {
        Dialect::Data => text,
        Dialect::Excel => {
            let inner = text.strip_prefix("=\"").and_then(|text| text.strip_suffix('"'));
            inner.map(|inner| inner.replace("\"\"", "\"").into()).unwrap_or(text)
        }
    };
    let visible = |letter: char| match letter {
        // Control pictures are in the order of control characters.
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(letter)).unwrap_or(letter),
        '\u{7f}' => '\u{2421}',
        letter => letter,
    };
    let mut letters = text.chars().map(visible);
    let mut cell: String = letters.by_ref().take(CELL_MAX).collect();
    if letters.next().is_some() {
        cell.push('\u{2026}');
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_displayed_as_readers_see_them() {
        let check_in = |dialect, bytes: &[u8], expected: &str| {
            assert_eq!(cell(bytes, dialect), expected);
        };
        let check = |bytes: &[u8], expected: &str| {
            check_in(Dialect::Data, bytes, expected);
            check_in(Dialect::Excel, bytes, expected);
        };
        check(b"", "");
        check(b"<script>", "<script>");
        check_in(Dialect::Excel, b"=\"00123\"", "00123");
        check_in(Dialect::Excel, b"=\"a\"\"b\"", "a\"b");
        check_in(Dialect::Data, b"=\"00123\"", "=\"00123\"");
        check_in(Dialect::Data, b"=\"a\"\"b\"", "=\"a\"\"b\"");
        check(b"'=1+1", "'=1+1");
        check(b"a\r\nb\0\x7f", "a\u{240d}\u{240a}b\u{2400}\u{2421}");
        check(&[b'x'; 120], &"x".repeat(120));
        check(&[b'x'; 1 << 20], &("x".repeat(120) + "\u{2026}"));
        check(b"\xff", "\u{fffd}");
    }

    #[test]
    fn both_dialects_are_tables() {
        let expected = [["a", "b"], ["1", "x\u{240a}\""]];
        let data = b"a,b\n1,\"x\n\"\"\"\n";
        assert_eq!(table_of(data, Dialect::Data), expected);
        let excel = b"\xef\xbb\xbfa,b\r\n1,\"x\n\"\"\"\r\n";
        assert_eq!(table_of(excel, Dialect::Excel), expected);
    }
}
