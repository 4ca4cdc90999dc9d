//! Scans: read a range of rows across regions, ahead of the consumer. Start with [`Rows`]; `reader` is the task that
//! reads ahead, `cursor` the position of the scan.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::names::TableName;
use crate::rows::{Row, Selection};

pub(crate) mod cursor;
mod reader;
use reader::Reader;

/// A range of rows to read, in row order.
#[derive(Debug, Clone)]
pub struct Scan {
    pub(crate) start: Bytes,
    pub(crate) stop: Bytes,
    pub(crate) selection: Selection,
    pub(crate) limit: Option<u64>,
    pub(crate) call_rows_max: u32,
    pub(crate) call_bytes_max: u64,
    pub(crate) responses_ahead: usize,
}

impl Scan {
    /// Selects rows from `start` up to, but not including, `stop`. An empty key leaves that end open.
    pub fn range(start: impl Into<Bytes>, stop: impl Into<Bytes>) -> Self {
        Self {
            start: start.into(),
            stop: stop.into(),
            selection: Selection::all(),
            limit: None,
            call_rows_max: 10_000,
            call_bytes_max: 2 << 20,
            responses_ahead: 2,
        }
    }

    /// Selects all rows.
    pub fn all() -> Self {
        Self::range(Bytes::new(), Bytes::new())
    }

    /// Selects the rows whose keys start with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let prefix = prefix.into();
        let mut stop = prefix.to_vec();
        while let Some(last) = stop.pop() {
            if last < u8::MAX {
                stop.push(last + 1);
                break;
            }
        }
        Self::range(prefix, stop)
    }

    /// Reads the selected cells only.
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Reads at most this number of rows.
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Sets the maximum size of a response, and the number of responses to read ahead. About `ahead` + 1 responses are
    /// in memory.
    pub fn responses(mut self, bytes_max: u64, ahead: usize) -> Self {
        (self.call_bytes_max, self.responses_ahead) = (bytes_max.max(1), ahead.max(1));
        self
    }

    /// Sets the maximum number of rows in a response.
    pub fn rows_per_response(mut self, rows: u32) -> Self {
        self.call_rows_max = rows.max(1);
        self
    }
}

/// The rows of a scan, in order, each once, even if servers fail meanwhile. The scan stops after an error, and when
/// this value is dropped.
#[derive(Debug)]
pub struct Rows {
    batches: mpsc::Receiver<Result<Batch, Error>>,
    /// Rows of the last batch that were not returned yet.
    buffered: VecDeque<Row>,
    scanner: u64,
    /// The task that reads ahead; `None` once its end was checked.
    reader: Option<JoinHandle<()>>,
}

/// The complete rows of one response.
#[derive(Debug)]
struct Batch {
    rows: Vec<Row>,
    /// The ordinal of the scanner, from 1.
    scanner: u64,
}

impl Rows {
    pub(crate) fn start(cluster: Arc<Cluster>, table: TableName, scan: Scan) -> Self {
        let (sender, batches) = mpsc::channel(scan.responses_ahead.max(1));
        let reader = tokio::spawn(Reader::new(cluster, table, scan, sender).run());
        Self { batches, buffered: VecDeque::new(), scanner: 0, reader: Some(reader) }
    }

    /// Returns the next row, or `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Row, Error>> {
        while self.buffered.is_empty() {
            match self.next_batch().await? {
                Ok(rows) => self.buffered = rows.into(),
                Err(error) => return Some(Err(error)),
            }
        }
        self.buffered.pop_front().map(Ok)
    }

    /// Returns the next rows, at least one, or `None` at the end. Cheaper than one row at a time.
    pub async fn next_batch(&mut self) -> Option<Result<Vec<Row>, Error>> {
        if !self.buffered.is_empty() {
            return Some(Ok(std::mem::take(&mut self.buffered).into()));
        }
        if let Some(batch) = self.batches.recv().await {
            return Some(batch.map(|Batch { rows, scanner }| {
                self.scanner = scanner;
                rows
            }));
        }
        // A reader that panicked or was cancelled must not look like the end of the scan.
        let ended = self.reader.as_mut()?.await;
        self.reader = None;
        ended.err().map(|error| match error.is_panic() {
            true => Err(Error::Panicked { operation: "a scan" }),
            false => Err(Error::Closed),
        })
    }

    /// Returns the ordinal, from 1, of the scanner that the last row or batch came from. Rows of one scanner show one
    /// point in time; each further scanner, opened for the next region or after a failure, shows a later one.
    pub fn scanner(&self) -> u64 {
        self.scanner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_scan_stops_before_the_next_prefix() {
        let stop = |prefix: &'static [u8]| Scan::prefix(prefix).stop;
        assert_eq!(stop(b"ab"), &b"ac"[..]);
        assert_eq!(stop(b"a\xff\xff"), &b"b"[..]);
        assert_eq!(stop(b"\xff"), &b""[..]);
        assert_eq!(stop(b""), &b""[..]);
    }

    #[tokio::test]
    async fn panic_of_the_reader_is_reported_as_a_panic() {
        async fn panic() {
            panic!("as the test wants");
        }
        let (batches, reader) = (mpsc::channel(1).1, Some(tokio::spawn(panic())));
        let mut rows = Rows { batches, buffered: VecDeque::new(), scanner: 0, reader };
        let error = rows.next().await.unwrap().unwrap_err().to_string();
        assert!(error.contains("a scan panicked"), "{error}");
        assert!(rows.next().await.is_none());
    }
}
