//! Reading a range of rows, over as many regions as it has, ahead of who consumes it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::action::Selection;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::names::TableName;
use crate::rows::Row;

pub(crate) mod cursor;
mod reader;
use reader::Reader;

/// What is to be read: a range of rows, in their order.
#[derive(Debug, Clone)]
pub struct Scan {
    pub(crate) start: Bytes,
    pub(crate) stop: Bytes,
    pub(crate) selection: Selection,
    pub(crate) limit: Option<u64>,
    pub(crate) call_rows_max: u32,
    pub(crate) call_bytes_max: u64,
    pub(crate) answers_ahead: usize,
}

impl Scan {
    /// From the first row on, up to the second and without it; an empty one leaves that end open.
    pub fn range(start: impl Into<Bytes>, stop: impl Into<Bytes>) -> Self {
        Self {
            start: start.into(),
            stop: stop.into(),
            selection: Selection::all(),
            limit: None,
            call_rows_max: 10_000,
            call_bytes_max: 2 << 20,
            answers_ahead: 2,
        }
    }

    pub fn all() -> Self {
        Self::range(Bytes::new(), Bytes::new())
    }

    /// All rows whose keys begin so.
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

    /// Only these of the rows' cells.
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// The first so many rows.
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Of one answer, and how many answers are read ahead: what is held in memory is about one more
    /// than that many.
    pub fn answers(mut self, bytes_max: u64, ahead: usize) -> Self {
        (self.call_bytes_max, self.answers_ahead) = (bytes_max.max(1), ahead.max(1));
        self
    }

    /// Of one answer.
    pub fn rows_per_answer(mut self, rows: u32) -> Self {
        self.call_rows_max = rows.max(1);
        self
    }
}

/// The rows of a scan. They come in order, each once, whatever happens to the servers meanwhile;
/// an error is the end. Dropping it ends the scan.
#[derive(Debug)]
pub struct Rows {
    answers: mpsc::Receiver<Result<Answer, Error>>,
    read: VecDeque<Row>,
    scanner: u64,
    /// The task that reads ahead; nothing once it was seen to end.
    reader: Option<JoinHandle<()>>,
}

/// What one answer of a server brought.
#[derive(Debug)]
struct Answer {
    rows: Vec<Row>,
    /// Which of the scan's scanners.
    scanner: u64,
}

impl Rows {
    pub(crate) fn start(cluster: Arc<Cluster>, table: TableName, scan: Scan) -> Self {
        let (sender, answers) = mpsc::channel(scan.answers_ahead.max(1));
        let reader = tokio::spawn(Reader::new(cluster, table, scan, sender).run());
        Self { answers, read: VecDeque::new(), scanner: 0, reader: Some(reader) }
    }

    /// The next row; nothing at the end.
    pub async fn next(&mut self) -> Option<Result<Row, Error>> {
        while self.read.is_empty() {
            match self.next_batch().await? {
                Ok(rows) => self.read = rows.into(),
                Err(error) => return Some(Err(error)),
            }
        }
        self.read.pop_front().map(Ok)
    }

    /// All rows that are there, at the least one; nothing at the end. Cheaper than one by one.
    pub async fn next_batch(&mut self) -> Option<Result<Vec<Row>, Error>> {
        if !self.read.is_empty() {
            return Some(Ok(std::mem::take(&mut self.read).into()));
        }
        if let Some(answer) = self.answers.recv().await {
            return Some(answer.map(|Answer { rows, scanner }| {
                self.scanner = scanner;
                rows
            }));
        }
        // An end that is none, as of a task that panicked, must not look like one.
        let ended = self.reader.as_mut()?.await;
        self.reader = None;
        ended.err().map(|_| Err(Error::Closed))
    }

    /// Which scanner the last row, or the last batch, came from: 1 for the first. Rows of one scanner are
    /// of one moment; the next one, of the region that follows or after a fault, is of a later moment.
    pub fn scanner(&self) -> u64 {
        self.scanner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ends_before_what_follows() {
        let stop = |prefix: &'static [u8]| Scan::prefix(prefix).stop;
        assert_eq!(stop(b"ab"), &b"ac"[..]);
        assert_eq!(stop(b"a\xff\xff"), &b"b"[..]);
        assert_eq!(stop(b"\xff"), &b""[..]);
        assert_eq!(stop(b""), &b""[..]);
    }
}
