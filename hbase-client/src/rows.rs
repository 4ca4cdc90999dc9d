//! Rows that were read.

use bytes::Bytes;

use crate::proto::{data, scan};
use crate::wire::WireError;
use crate::wire::cell::{CELL_BYTES_MIN, Cell, Kind, Parts};

/// A row: at least one cell, all of the same key. It shares the buffer that its answer came in, up
/// to some megabytes; [`Row::detached`] does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    cells: Vec<Cell>,
}

impl Row {
    pub(crate) fn new(cells: Vec<Cell>) -> Option<Self> {
        (!cells.is_empty()).then_some(Self { cells })
    }

    pub fn key(&self) -> &[u8] {
        self.cells.first().map_or(&[], Cell::row)
    }

    /// In the order of HBase: by family, qualifier, and the latest first.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The latest value of a column.
    pub fn value(&self, family: &[u8], qualifier: &[u8]) -> Option<&[u8]> {
        let of_column = |cell: &&Cell| cell.qualifier() == qualifier && cell.family() == family;
        self.cells.iter().find(of_column).map(Cell::value)
    }

    /// A copy to keep.
    pub fn detached(&self) -> Self {
        Self { cells: self.cells.iter().map(Cell::detached).collect() }
    }
}

/// The cells of a result, from the message or, in order, from the block.
///
/// # Errors
/// Where the block ends before.
pub(crate) fn of_result(result: &data::Result, block: &mut Bytes) -> Result<Vec<Cell>, WireError> {
    let count = usize::try_from(result.associated_cell_count.unwrap_or(0))
        .map_err(|_| WireError::Malformed("a number of cells below 0"))?;
    let mut cells = take(count, block)?;
    for cell in &result.cell {
        cells.push(of_message(cell)?);
    }
    Ok(cells)
}

/// The results of a scan that have cells, each with whether more of its row may follow.
///
/// # Errors
/// Where the cells announced and those that came are not the same.
pub(crate) fn of_scan(
    answer: &scan::ScanResponse,
    mut block: Bytes,
) -> Result<Vec<(Vec<Cell>, bool)>, WireError> {
    if let Some(nonsense) = answer.nonsense {
        return Err(WireError::Malformed(nonsense));
    }
    let most = block.len() / CELL_BYTES_MIN;
    let mut results = Vec::with_capacity(answer.cells_per_result.len().min(most));
    let flags = &answer.partial_flag_per_result;
    for (index, &count) in answer.cells_per_result.iter().enumerate() {
        // Of these there may be more than cells.
        if count == 0 {
            continue;
        }
        let is_partial = flags.get(index).copied().unwrap_or(false);
        results.push((take(count as usize, &mut block)?, is_partial));
    }
    if !block.is_empty() {
        return Err(WireError::Malformed("more cells than are announced"));
    }
    Ok(results)
}

fn take(count: usize, block: &mut Bytes) -> Result<Vec<Cell>, WireError> {
    // What is announced may not be there.
    let mut cells = Vec::with_capacity(count.min(block.len() / CELL_BYTES_MIN));
    while cells.len() < count {
        if block.is_empty() {
            return Err(WireError::CellCount { announced: count, found: cells.len() });
        }
        cells.push(Cell::take(block)?);
    }
    Ok(cells)
}

fn of_message(cell: &data::Cell) -> Result<Cell, WireError> {
    fn bytes(field: &Option<Bytes>) -> &[u8] {
        field.as_deref().unwrap_or_default()
    }
    let parts = Parts {
        row: bytes(&cell.row),
        family: bytes(&cell.family),
        qualifier: bytes(&cell.qualifier),
        timestamp: cell.timestamp.unwrap_or(0),
        kind: Kind::Put,
        value: bytes(&cell.value),
    };
    let code = cell.cell_type.unwrap_or(4);
    let code = u8::try_from(code).map_err(|_| WireError::Malformed("a cell of no kind"))?;
    Cell::from_parts(&parts, code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::scan::ScanResponse;

    fn block(rows: &[&[u8]]) -> Bytes {
        let mut out = Vec::new();
        for row in rows {
            let (family, qualifier, value) = (b"f", b"q", b"v");
            Parts { row, family, qualifier, timestamp: 1, kind: Kind::Put, value }.put(&mut out);
        }
        out.into()
    }

    fn answer(counts: &[u32], flags: &[bool]) -> ScanResponse {
        ScanResponse {
            cells_per_result: counts.to_vec(),
            partial_flag_per_result: flags.to_vec(),
            ..ScanResponse::default()
        }
    }

    #[test]
    fn results_have_their_cells_and_flags() {
        let results =
            of_scan(&answer(&[1, 2], &[false, true]), block(&[b"a", b"b", b"b"])).unwrap();
        let shown: Vec<_> = results
            .iter()
            .map(|(cells, partial)| (cells[0].row().to_vec(), cells.len(), *partial))
            .collect();
        assert_eq!(shown, [(b"a".to_vec(), 1, false), (b"b".to_vec(), 2, true)]);
    }

    #[test]
    fn answer_that_is_none_is_an_error() {
        let nonsense = ScanResponse { nonsense: Some("none"), ..ScanResponse::default() };
        assert_eq!(of_scan(&nonsense, Bytes::new()), Err(WireError::Malformed("none")));
    }

    #[test]
    fn results_without_cells_take_nothing_and_shift_no_flag() {
        let mut counts = vec![0; 1_000_000];
        counts[999_999] = 1;
        let flags: Vec<_> = counts.iter().map(|&count| count == 1).collect();
        let results = of_scan(&answer(&counts, &flags), block(&[b"a"])).unwrap();
        assert!(results.capacity() < 10, "{}", results.capacity());
        assert!(matches!(&results[..], [(cells, true)] if cells.len() == 1));
    }

    #[test]
    fn other_numbers_of_cells_than_announced_are_errors() {
        let read = |counts: &[u32], rows: &[&[u8]]| of_scan(&answer(counts, &[]), block(rows));
        let missing = WireError::CellCount { announced: 3, found: 1 };
        assert_eq!(read(&[3], &[b"a"]), Err(missing));
        assert!(read(&[1], &[b"a", b"b"]).is_err());
        assert!(read(&[u32::MAX], &[b"a"]).is_err());
    }

    #[test]
    fn cells_in_messages_are_read_too() {
        let cell = data::Cell {
            row: Some("r".into()),
            family: Some("f".into()),
            qualifier: Some("q".into()),
            timestamp: Some(5),
            cell_type: Some(4),
            value: Some("v".into()),
        };
        let result = data::Result { cell: vec![cell], ..data::Result::default() };
        let cells = of_result(&result, &mut Bytes::new()).unwrap();
        let row = Row::new(cells).unwrap();
        assert_eq!((row.key(), row.value(b"f", b"q")), (&b"r"[..], Some(&b"v"[..])));
        assert_eq!(row.value(b"f", b"other"), None);
        assert_eq!(row.detached(), row);
    }

    #[test]
    fn results_without_cells_are_no_rows() {
        let empty = data::Result { associated_cell_count: Some(-1), ..data::Result::default() };
        assert!(of_result(&empty, &mut Bytes::new()).is_err());
        assert_eq!(Row::new(Vec::new()), None);
    }
}
