//! The task of a scan: opens a scanner in one region after the other, and reopens a lost one after the last complete
//! row.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::cursor::{Cursor, Start};
use super::{Batch, Scan};
use crate::cluster::{Cluster, Region};
use crate::connection::{Call, Service};
use crate::error::{Error, RetryAction, backoff};
use crate::names::TableName;
use crate::proto::common::RegionSpecifier;
use crate::proto::scan::{self as proto, ScanRequest, ScanResponse};
use crate::rows::{self, Row};
use crate::wire::WireError;

type Batches = mpsc::Sender<Result<Batch, Error>>;

pub(super) struct Reader {
    cluster: Arc<Cluster>,
    table: TableName,
    scan: Scan,
    cursor: Cursor,
    batches: Batches,
    /// The last time when a response arrived or its rows were consumed. The operation timeout starts here.
    last_progress: Instant,
    /// The value of `last_progress` at the first failure at this position. Heartbeats do not reset it: scanners that
    /// are reopened here may send some and be lost again, without any row.
    stuck_since: Option<Instant>,
    /// Failures at this position.
    failures: u32,
    /// Scanners opened so far.
    scanners: u64,
}

/// A scanner that is open on a server.
struct OpenScanner {
    region: Arc<Region>,
    id: u64,
    next_call_seq: u64,
}

/// The scan has ended: its consumer was dropped, or got an error.
struct Ended;

impl Reader {
    pub fn new(cluster: Arc<Cluster>, table: TableName, scan: Scan, batches: Batches) -> Self {
        let cursor = Cursor::new(scan.start.clone(), scan.stop.clone(), scan.limit);
        Self {
            cluster,
            table,
            scan,
            cursor,
            batches,
            last_progress: Instant::now(),
            stuck_since: None,
            failures: 0,
            scanners: 0,
        }
    }

    pub async fn run(mut self) {
        let mut open = None;
        while !self.cursor.is_done() && !self.batches.is_closed() {
            let result = match self.step(&mut open).await {
                Ok(rows) => self.send_rows(rows).await,
                Err(error) => self.recover(&mut open, error).await,
            };
            if result.is_err() {
                break;
            }
        }
        // Ends the rows before the scanner is closed, so that the consumer does not wait for the close.
        drop(self.batches);
        if let Some(open) = open {
            close(&self.cluster, &open).await;
        }
    }

    /// Makes one call and returns the rows that it completes.
    async fn step(&mut self, open: &mut Option<OpenScanner>) -> Result<Vec<Row>, Error> {
        let bytes_max = self.cluster.config.row_bytes_max;
        if let Some(row) = self.cursor.oversized_row(bytes_max) {
            return Err(Error::RowTooLong { row: Bytes::copy_from_slice(row), bytes_max });
        }
        let since = match open {
            Some(_) => self.last_progress,
            None => self.stuck_since.unwrap_or(self.last_progress),
        };
        let deadline = since + self.cluster.config.operation_timeout;
        let region = match open {
            Some(open) => open.region.clone(),
            None => self.cluster.locate(&self.table, &self.cursor.next_row(), deadline).await?,
        };
        let (server, request) = (&region.server, self.request(&region, open.as_ref()));
        let call = Call::new("Scan", &request, self.cluster.config.call_deadline(deadline));
        let response = self.cluster.connections.call(server, Service::Rows, call).await;
        let rows = response.and_then(|(response, cells)| {
            let rows = self.process(open, &region, &response, cells);
            rows.map_err(|source| Error::Protocol { server: server.clone(), source })
        });
        rows.inspect_err(|error| self.cluster.handle_error(&self.table, &region, error))
    }

    fn request(&self, region: &Region, open: Option<&OpenScanner>) -> ScanRequest {
        let common = ScanRequest {
            number_of_rows: Some(self.scan.call_rows_max),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            limit_of_rows: self.cursor.remaining().map(|rows| u32::try_from(rows).unwrap_or(0)),
            ..ScanRequest::default()
        };
        if let Some(OpenScanner { id, next_call_seq, .. }) = open {
            let next_call_seq = Some(*next_call_seq);
            return ScanRequest { scanner_id: Some(*id), next_call_seq, ..common };
        }
        let Start { row, is_included } = self.cursor.start();
        let (stop, selection) = (self.cursor.stop(), &self.scan.selection);
        let scan = proto::Scan {
            column: selection.columns.clone(),
            filter: selection.filter(),
            store_limit: selection.columns_max,
            start_row: Some(row.clone()),
            stop_row: (!stop.is_empty()).then(|| stop.clone()),
            max_versions: Some(selection.versions),
            max_result_size: Some(self.scan.call_bytes_max),
            caching: Some(self.scan.call_rows_max),
            include_start_row: Some(*is_included),
            ..proto::Scan::default()
        };
        let region = Some(RegionSpecifier::name(&region.name));
        ScanRequest { region, scan: Some(scan), next_call_seq: Some(0), ..common }
    }

    /// Processes a response: updates the scanner and the cursor, and returns the completed rows.
    fn process(
        &mut self,
        open: &mut Option<OpenScanner>,
        region: &Arc<Region>,
        response: &ScanResponse,
        cells: Bytes,
    ) -> Result<Vec<Row>, WireError> {
        match open {
            Some(open) => open.next_call_seq += 1,
            None => {
                let id = response.scanner_id;
                let id = id.ok_or(WireError::Malformed("the response has no scanner id"))?;
                *open = Some(OpenScanner { region: region.clone(), id, next_call_seq: 1 });
                self.scanners += 1;
            }
        }
        let bytes = cells.len();
        let results = rows::from_scan(response, cells)?;
        let is_empty = results.is_empty();
        let is_heartbeat = response.heartbeat_message.unwrap_or(false);
        let before = self.cursor.start().clone();
        let mut rows = self.cursor.take(region, results, bytes)?;
        let region_has_more = response.more_results_in_region.unwrap_or(!is_empty || is_heartbeat);
        if response.more_results == Some(false) {
            rows.extend(self.cursor.finish());
            // The server has closed the scanner.
            *open = None;
        } else if !region_has_more {
            rows.extend(self.cursor.end_region(region));
            *open = None;
        }
        // A heartbeat is progress too, because the server continues to search. But that progress is lost with the
        // scanner: only rows and the end of a region advance the cursor.
        self.last_progress = Instant::now();
        if *self.cursor.start() != before {
            (self.stuck_since, self.failures) = (None, 0);
        }
        Ok(rows)
    }

    async fn send_rows(&mut self, rows: Vec<Row>) -> Result<(), Ended> {
        if rows.is_empty() {
            return Ok(());
        }
        let batch = Batch { rows, scanner: self.scanners };
        self.batches.send(Ok(batch)).await.map_err(|_| Ended)?;
        // The time that the consumer takes does not count towards the timeout.
        self.last_progress = Instant::now();
        Ok(())
    }

    /// Handles a failure: waits before the next scanner, or ends the scan with the error.
    async fn recover(&mut self, open: &mut Option<OpenScanner>, error: Error) -> Result<(), Ended> {
        self.cursor.reset();
        if let Some(open) = open.take()
            && error.retry_action() != RetryAction::DropServer
        {
            let cluster = self.cluster.clone();
            tokio::spawn(async move { close(&cluster, &open).await });
        }
        let limit = self.cluster.config.operation_timeout;
        let delay = backoff::delay(self.failures);
        let since = *self.stuck_since.get_or_insert(self.last_progress);
        let is_timed_out = since.elapsed() + delay >= limit;
        if error.retry_action() == RetryAction::Fail || is_timed_out {
            let operation = "a scan without progress";
            let final_error = match error.retry_action() {
                RetryAction::Fail => error,
                _ => Error::Deadline { operation, limit, last: Some(Arc::new(error)) },
            };
            let _ = self.batches.send(Err(final_error)).await;
            return Err(Ended);
        }
        tracing::debug!(table = %self.table, %error, "resuming a scan");
        // The first lost scanner has probably just expired, so it is reopened without a delay.
        let is_first_loss = self.failures == 0 && error.retry_action() == RetryAction::Reopen;
        self.failures += 1;
        if is_first_loss {
            return Ok(());
        }
        tokio::select! {
            () = sleep(delay) => Ok(()),
            () = self.batches.closed() => Err(Ended),
        }
    }
}

/// Closes a scanner, which would otherwise stay open on the server until its lease expires, after a minute by default.
async fn close(cluster: &Cluster, open: &OpenScanner) {
    let request = ScanRequest {
        scanner_id: Some(open.id),
        number_of_rows: Some(0),
        close_scanner: Some(true),
        ..ScanRequest::default()
    };
    let deadline = Instant::now() + cluster.config.connect_timeout;
    let call = Call::new("Scan", &request, deadline);
    let server = &open.region.server;
    let _ = cluster.connections.call::<_, ScanResponse>(server, Service::Rows, call).await;
}
