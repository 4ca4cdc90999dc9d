//! Rows returned by gets and scans.

use bytes::Bytes;

use crate::proto::{data, scan};
use crate::wire::WireError;
use crate::wire::cell::{CELL_BYTES_MIN, Cell};

/// A row: at least one cell, all with the same key. It shares the buffer of its response, of up to some megabytes;
/// [`Row::detached`] copies it.
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

    /// Returns the cells in HBase's order: by family and qualifier, the latest version first.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the latest value of a column.
    pub fn value(&self, family: &[u8], qualifier: &[u8]) -> Option<&[u8]> {
        let is_column = |cell: &&Cell| cell.qualifier() == qualifier && cell.family() == family;
        self.cells.iter().find(is_column).map(Cell::value)
    }

    /// Returns a copy that does not keep the response's buffer in memory.
    pub fn detached(&self) -> Self {
        Self { cells: self.cells.iter().map(Cell::detached).collect() }
    }
}

/// Returns the cells of a result.
///
/// # Errors
/// Fails if the block has too few cells, or the message has any.
pub(crate) fn from_result(
    result: &data::Result,
    block: &mut Bytes,
) -> Result<Vec<Cell>, WireError> {
    if !result.cell.is_empty() {
        return Err(WireError::Malformed("the response has results outside of the cell block"));
    }
    let count = usize::try_from(result.associated_cell_count.unwrap_or(0))
        .map_err(|_| WireError::Malformed("the number of cells is negative"))?;
    take_cells(count, block)
}

/// A result of a scan: a row or a part of one.
#[derive(Debug, PartialEq)]
pub(crate) struct ScanResult {
    /// At least one cell.
    pub cells: Vec<Cell>,
    /// True if more cells of the row may follow.
    pub is_partial: bool,
}

/// Returns the results in a scan response, without empty ones.
///
/// # Errors
/// Fails if the block does not have the declared number of cells.
pub(crate) fn from_scan(
    response: &scan::ScanResponse,
    mut block: Bytes,
) -> Result<Vec<ScanResult>, WireError> {
    if let Some(reason) = response.malformed {
        return Err(WireError::Malformed(reason));
    }
    let cells_max = block.len() / CELL_BYTES_MIN;
    let mut results = Vec::with_capacity(response.cells_per_result.len().min(cells_max));
    let flags = &response.partial_flag_per_result;
    for (index, &count) in response.cells_per_result.iter().enumerate() {
        // Empty results are skipped, because a malformed response may have more of them than fit into memory.
        if count == 0 {
            continue;
        }
        let is_partial = flags.get(index).copied().unwrap_or(false);
        results.push(ScanResult { cells: take_cells(count as usize, &mut block)?, is_partial });
    }
    if !block.is_empty() {
        return Err(WireError::Malformed("the response has more cells than declared"));
    }
    Ok(results)
}

fn take_cells(count: usize, block: &mut Bytes) -> Result<Vec<Cell>, WireError> {
    // The declared count may be wrong, so the received bytes limit the capacity.
    let mut cells = Vec::with_capacity(count.min(block.len() / CELL_BYTES_MIN));
    while cells.len() < count {
        if block.is_empty() {
            return Err(WireError::CellCount { declared: count, found: cells.len() });
        }
        cells.push(Cell::take(block)?);
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::rpc::Empty;
    use crate::proto::scan::ScanResponse;
    use crate::wire::cell::{Kind, Parts};

    fn block(rows: &[&[u8]]) -> Bytes {
        let mut out = Vec::new();
        for row in rows {
            let (family, qualifier, value) = (b"f", b"q", b"v");
            Parts { row, family, qualifier, timestamp: 1, kind: Kind::Put, value }.put(&mut out);
        }
        out.into()
    }

    fn response(counts: &[u32], flags: &[bool]) -> ScanResponse {
        ScanResponse {
            cells_per_result: counts.to_vec(),
            partial_flag_per_result: flags.to_vec(),
            ..ScanResponse::default()
        }
    }

    #[test]
    fn results_have_their_cells_and_flags() {
        let results =
            from_scan(&response(&[1, 2], &[false, true]), block(&[b"a", b"b", b"b"])).unwrap();
        let shown: Vec<_> = results
            .iter()
            .map(|result| (result.cells[0].row(), result.cells.len(), result.is_partial))
            .collect();
        assert_eq!(shown, [(&b"a"[..], 1, false), (b"b", 2, true)]);
    }

    #[test]
    fn malformed_response_is_an_error() {
        let malformed = ScanResponse { malformed: Some("why"), ..ScanResponse::default() };
        assert_eq!(from_scan(&malformed, Bytes::new()), Err(WireError::Malformed("why")));
    }

    #[test]
    fn results_without_cells_take_no_memory_and_shift_no_flag() {
        let mut counts = vec![0; 1_000_000];
        counts[999_999] = 1;
        let flags: Vec<_> = counts.iter().map(|&count| count == 1).collect();
        let results = from_scan(&response(&counts, &flags), block(&[b"a"])).unwrap();
        assert!(results.capacity() < 10, "{}", results.capacity());
        assert!(
            matches!(&results[..], [ScanResult { is_partial: true, cells }] if cells.len() == 1)
        );
    }

    #[test]
    fn wrong_number_of_cells_is_an_error() {
        let read = |counts: &[u32], rows: &[&[u8]]| from_scan(&response(counts, &[]), block(rows));
        let missing = WireError::CellCount { declared: 3, found: 1 };
        assert_eq!(read(&[3], &[b"a"]), Err(missing));
        assert!(read(&[1], &[b"a", b"b"]).is_err());
        assert!(read(&[u32::MAX], &[b"a"]).is_err());
    }

    #[test]
    fn row_has_the_cells_of_its_result() {
        let result = data::Result { associated_cell_count: Some(1), ..data::Result::default() };
        let cells = from_result(&result, &mut block(&[b"r"])).unwrap();
        let row = Row::new(cells).unwrap();
        assert_eq!((row.key(), row.value(b"f", b"q")), (&b"r"[..], Some(&b"v"[..])));
        assert_eq!(row.value(b"f", b"other"), None);
        assert_eq!(row.detached(), row);
    }

    #[test]
    fn negative_cell_counts_and_empty_rows_are_rejected() {
        let empty = data::Result { associated_cell_count: Some(-1), ..data::Result::default() };
        assert!(from_result(&empty, &mut Bytes::new()).is_err());
        let outside = data::Result { cell: vec![Empty {}], ..data::Result::default() };
        assert!(from_result(&outside, &mut Bytes::new()).is_err());
        assert_eq!(Row::new(Vec::new()), None);
    }
}
