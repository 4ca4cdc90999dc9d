//! The task behind a scan: it opens a scanner in one region after the other, and again after the
//! last complete row when one is gone.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::cursor::Cursor;
use super::{Answer, Scan};
use crate::backoff;
use crate::cluster::Cluster;
use crate::connection::{Call, Service};
use crate::error::Error;
use crate::location::Region;
use crate::names::TableName;
use crate::proto::common::RegionSpecifier;
use crate::proto::scan::{self as proto, ScanRequest, ScanResponse};
use crate::remote_exception::RetryAction;
use crate::rows::{self, Row};
use crate::wire::WireError;

type Answers = mpsc::Sender<Result<Answer, Error>>;

pub(super) struct Reader {
    cluster: Arc<Cluster>,
    table: TableName,
    scan: Scan,
    place: Cursor,
    answers: Answers,
    /// When something came last: without anything, the operation's time passes.
    progress: Instant,
    /// The `progress` before the first loss at this place: a scanner that is opened where one was lost
    /// may say again and again that there is more, and get no further.
    stuck_since: Option<Instant>,
    /// Losses at this place.
    failed: u32,
    /// Scanners that were opened.
    scanner: u64,
}

/// A scanner that is open on a server.
struct Open {
    region: Arc<Region>,
    id: u64,
    next_call_seq: u64,
}

/// Nobody reads any more.
struct Gone;

impl Reader {
    pub fn new(cluster: Arc<Cluster>, table: TableName, scan: Scan, answers: Answers) -> Self {
        let place = Cursor::new(scan.start.clone(), scan.stop.clone(), scan.limit);
        Self {
            cluster,
            table,
            scan,
            place,
            answers,
            progress: Instant::now(),
            stuck_since: None,
            failed: 0,
            scanner: 0,
        }
    }

    pub async fn run(mut self) {
        let mut open = None;
        while !self.place.is_done() && !self.answers.is_closed() {
            let followed = match self.step(&mut open).await {
                Ok(rows) => self.give_out(rows).await,
                Err(error) => self.recover(&mut open, error).await,
            };
            if followed.is_err() {
                break;
            }
        }
        // Whoever waits for the end need not wait for this.
        drop(self.answers);
        if let Some(open) = open {
            close(&self.cluster, &open).await;
        }
    }

    /// One call and what comes of it.
    async fn step(&mut self, open: &mut Option<Open>) -> Result<Vec<Row>, Error> {
        let most = self.cluster.config.row_bytes_max;
        if let Some(row) = self.place.longer_than(most) {
            return Err(Error::RowTooLong { row: Bytes::copy_from_slice(row), most });
        }
        let since = match open {
            Some(_) => self.progress,
            None => self.stuck_since.unwrap_or(self.progress),
        };
        let deadline = since + self.cluster.config.operation_timeout;
        let region = match open {
            Some(open) => open.region.clone(),
            None => self.cluster.locate(&self.table, &self.place.next_row(), deadline).await?,
        };
        let request = self.request(&region, open.as_ref());
        let call = Call::new("Scan", &request, self.cluster.call_deadline(deadline));
        let answer =
            self.cluster.call::<_, ScanResponse>(&region.server, Service::Rows, call).await;
        let read = answer.and_then(|(answer, cells)| {
            let server = region.server.clone();
            let rows = self.take(open, &region, &answer, cells);
            rows.map_err(|source| Error::Protocol { server, source })
        });
        if let Err(error) = &read {
            self.cluster.learn(&self.table, &region, error);
        }
        read
    }

    fn request(&self, region: &Region, open: Option<&Open>) -> ScanRequest {
        let common = ScanRequest {
            number_of_rows: Some(self.scan.call_rows_max),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            limit_of_rows: self.place.remaining().map(|rows| u32::try_from(rows).unwrap_or(0)),
            ..ScanRequest::default()
        };
        if let Some(Open { id, next_call_seq, .. }) = open {
            let next_call_seq = Some(*next_call_seq);
            return ScanRequest { scanner_id: Some(*id), next_call_seq, ..common };
        }
        let (start, includes_start) = self.place.start();
        let (stop, selection) = (self.place.stop(), &self.scan.selection);
        let scan = proto::Scan {
            column: selection.columns.clone(),
            filter: selection.filter(),
            store_limit: selection.columns_max,
            start_row: Some(start.clone()),
            stop_row: (!stop.is_empty()).then(|| stop.clone()),
            max_versions: Some(selection.versions),
            max_result_size: Some(self.scan.call_bytes_max),
            caching: Some(self.scan.call_rows_max),
            include_start_row: Some(includes_start),
            ..proto::Scan::default()
        };
        let region = Some(RegionSpecifier::name(&region.name));
        ScanRequest { region, scan: Some(scan), next_call_seq: Some(0), ..common }
    }

    /// Takes an answer apart: rows, and whether the scanner still stands.
    fn take(
        &mut self,
        open: &mut Option<Open>,
        region: &Arc<Region>,
        answer: &ScanResponse,
        cells: Bytes,
    ) -> Result<Vec<Row>, WireError> {
        match open {
            Some(open) => open.next_call_seq += 1,
            None => {
                let id = answer.scanner_id;
                let id = id.ok_or(WireError::Malformed("a scanner without a number"))?;
                *open = Some(Open { region: region.clone(), id, next_call_seq: 1 });
                self.scanner += 1;
            }
        }
        let bytes = cells.len();
        let results = rows::of_scan(answer, cells)?;
        let is_empty = results.is_empty();
        let is_heartbeat = answer.heartbeat_message.unwrap_or(false);
        let before = (self.place.start().0.clone(), self.place.start().1);
        let mut rows = self.place.take(region, results, bytes)?;
        let region_has_more = answer.more_results_in_region.unwrap_or(!is_empty || is_heartbeat);
        if answer.more_results == Some(false) {
            rows.extend(self.place.end());
            // The server has closed it.
            *open = None;
        } else if !region_has_more {
            rows.extend(self.place.end_region(region));
            *open = None;
        }
        // An empty answer that only says that there is more is progress, too: the server looks on. It is
        // that scanner's alone, and lost with it: only rows, or a region's end, are for good.
        self.progress = Instant::now();
        if self.place.start() != (&before.0, before.1) {
            (self.stuck_since, self.failed) = (None, 0);
        }
        Ok(rows)
    }

    async fn give_out(&mut self, rows: Vec<Row>) -> Result<(), Gone> {
        if rows.is_empty() {
            return Ok(());
        }
        let given =
            self.answers.send(Ok(Answer { rows, scanner: self.scanner })).await.map_err(|_| Gone);
        // The time of who reads is not the servers'.
        self.progress = Instant::now();
        given
    }

    /// After a fault: waits, or gives up.
    async fn recover(&mut self, open: &mut Option<Open>, error: Error) -> Result<(), Gone> {
        self.place.reset();
        if let Some(open) = open.take()
            && error.retry_action() != RetryAction::DropServer
        {
            self.close_later(open);
        }
        let limit = self.cluster.config.operation_timeout;
        let delay = backoff::delay(self.failed);
        let since = *self.stuck_since.get_or_insert(self.progress);
        let is_late = since.elapsed() + delay >= limit;
        if error.retry_action() == RetryAction::Fail || is_late {
            let last = Some(Arc::new(error.clone()));
            let final_error = match error.retry_action() {
                RetryAction::Fail => error,
                _ => Error::Deadline { what: "a step of a scan", limit, last },
            };
            let _ = self.answers.send(Err(final_error)).await;
            return Err(Gone);
        }
        tracing::debug!(table = %self.table, %error, "a scan is taken up again");
        // The first scanner that is gone was most often just too old.
        let is_first_loss = self.failed == 0 && error.retry_action() == RetryAction::Reopen;
        self.failed += 1;
        if is_first_loss {
            return Ok(());
        }
        tokio::select! {
            () = sleep(delay) => Ok(()),
            () = self.answers.closed() => Err(Gone),
        }
    }

    fn close_later(&self, open: Open) {
        let cluster = self.cluster.clone();
        tokio::spawn(async move { close(&cluster, &open).await });
    }
}

/// Lets the server forget the scanner, which it would do by itself in a minute.
async fn close(cluster: &Cluster, open: &Open) {
    let request = ScanRequest {
        scanner_id: Some(open.id),
        number_of_rows: Some(0),
        close_scanner: Some(true),
        ..ScanRequest::default()
    };
    let deadline = Instant::now() + cluster.config.connect_timeout;
    let call = Call::new("Scan", &request, deadline);
    let _ = cluster.call::<_, ScanResponse>(&open.region.server, Service::Rows, call).await;
}
