//! Streams an export to a client: a blocking thread scans, or collects the chunks of threads that do; a task computes
//! the checksum; a bounded channel buffers chunks; the body sends them.
//!
//! The body ends only after the scan has reported success. Anything else (an error, a panic, a client that stopped
//! reading) fails the body and closes the connection, so a partial export never looks complete.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use http_body::Frame;
use listener::STALLED_MAX;
use store::reader::{Reader, View};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use tracing::Span;

use crate::ExportError;
use crate::download::checksum::Checksum;
use crate::download::cpu_slots::CpuSlots;
use crate::download::registry::{Running, Sums};
use crate::format::chunks::Chunk;
use crate::format::write_rows::Selection;
use crate::http::state::{Permits, SCANS_MAX};
use crate::metrics::Metrics;
use crate::query::ExportQuery;
use crate::query::cursor::Cursor;

/// Chunks buffered for a slow client.
const CHUNKS_WAITING_MAX: usize = 4;

/// Trailers, by which a client checks a complete file.
pub(crate) const ROWS: HeaderName = HeaderName::from_static("adtrail-rows");
pub(crate) const SHA256: HeaderName = HeaderName::from_static("adtrail-sha256");

/// A query with everything that is needed to read its rows.
pub(crate) struct Scan {
    pub reader: Reader,
    pub policy: Arc<Policy>,
    pub pid: Pid,
    pub query: ExportQuery,
    pub metrics: Arc<Metrics>,
    pub cpu_slots: CpuSlots,
    pub permits: Permits,
}

/// What a scan passes on. `Sum` is the checksum of all chunks, or `()` before that is computed.
enum Piece<Sum> {
    /// Always the first: the cursor of the next page, if there is one.
    Begin(Option<Cursor>),
    Chunk(Chunk),
    /// The scan is complete.
    End(Sum),
    Failed(ExportError),
}

/// A download whose first chunk is available.
pub(crate) struct Started {
    /// The cursor of the next page, if there is one.
    pub next: Option<Cursor>,
    pub body: Body,
}

/// Starts the scan and waits for its first chunk, so that an early error becomes an error response.
///
/// # Errors
/// The error of the scan, if it fails before its first chunk.
pub(crate) async fn start(scan: Scan, running: Running) -> Result<Started, ExportError> {
    let permits = Some(Arc::clone(&scan.permits));
    let (scanned, scans) = mpsc::channel(1);
    let (forwarded, mut pieces) = mpsc::channel(CHUNKS_WAITING_MAX);
    let span = Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(|| scan.run(&scanned)));
    tokio::spawn(forward(scans, forwarded));
    let next = match pieces.recv().await {
        Some(Piece::Begin(next)) => next,
        piece => return Err(failure(piece, running)),
    };
    match pieces.recv().await {
        // NDJSON without rows has no chunk.
        Some(first @ (Piece::Chunk(_) | Piece::End(_))) => {
            let download = Download { first: Some(first), pieces, running: Some(running), permits };
            Ok(Started { next, body: Body::new(download) })
        }
        piece => Err(failure(piece, running)),
    }
}

/// Returns the cursor of the next page like [`start`], for a response that has only headers.
pub(crate) async fn page_end(scan: Scan) -> Result<Option<Cursor>, ExportError> {
    let (end, ended) = oneshot::channel();
    let span = Span::current();
    tokio::task::spawn_blocking(move || {
        let _in_span = span.enter();
        let found = scan.page_end(|| end.is_closed());
        // If the client has disconnected, the result is not needed.
        let _ = end.send(found);
    });
    ended.await.unwrap_or(Err(ExportError::BrokenOff))
}

fn failure(piece: Option<Piece<Checksum>>, running: Running) -> ExportError {
    running.fail();
    match piece {
        Some(Piece::Failed(error)) => error,
        _ => ExportError::BrokenOff,
    }
}

/// A body of unknown length that is never read; it makes the headers those of a stream.
pub(crate) fn unread() -> Body {
    Body::new(Download { first: None, pieces: mpsc::channel(1).1, running: None, permits: None })
}

impl Scan {
    fn run(self, pieces: &Sender<Piece<()>>) {
        let Some(app) = self.policy.app(self.pid) else { return };
        let mut slot = self.cpu_slots.wait();
        let view = self.reader.view();
        let threads = || self.threads();
        let selection = self.selection(&view, app, &threads);
        let written =
            selection.page_end(|| slot.pause(|| flow(pieces.is_closed()))).and_then(|next| {
                // If the client has disconnected, sending the first chunk fails.
                let _ = pieces.blocking_send(Piece::Begin(next));
                selection.write(|chunk: Chunk| {
                    let is_empty = chunk.bytes.is_empty();
                    let send = || !is_empty && pieces.blocking_send(Piece::Chunk(chunk)).is_err();
                    flow(slot.pause(send) || pieces.is_closed())
                })
            });
        drop(slot);
        let last = match written {
            Ok(rows) => {
                self.metrics.rows_written(rows);
                Piece::End(())
            }
            Err(error) => {
                tracing::error!(app = &*app.key, %error, "an export failed");
                Piece::Failed(error)
            }
        };
        let permit = Handle::current().block_on(pieces.reserve());
        // The body releases them when it ends.
        drop(self.permits);
        // If the client has disconnected, the result is not needed.
        if let Ok(permit) = permit {
            permit.send(last);
        }
    }

    fn page_end(&self, is_gone: impl Fn() -> bool) -> Result<Option<Cursor>, ExportError> {
        let Some(app) = self.policy.app(self.pid) else { return Ok(None) };
        let mut slot = self.cpu_slots.wait();
        let view = self.reader.view();
        let threads = || self.threads();
        let selection = self.selection(&view, app, &threads);
        let found = selection.page_end(|| slot.pause(|| flow(is_gone())));
        if let Err(error) = &found {
            tracing::error!(app = &*app.key, %error, "finding the end of a page failed");
        }
        found
    }

    fn selection<'a>(
        &'a self,
        view: &'a View<'a>,
        app: &'a AppPolicy,
        threads: &'a (dyn Fn() -> usize + Sync),
    ) -> Selection<'a> {
        Selection { view, app, query: &self.query, policy: &self.policy, threads }
    }

    /// The number of threads that may scan for this download, beside the other downloads of the moment.
    fn threads(&self) -> usize {
        let [_, of_service] = &*self.permits;
        // This download is included.
        let downloads = SCANS_MAX - of_service.semaphore().available_permits();
        CpuSlots::threads_for(downloads)
    }
}

fn flow(is_gone: bool) -> ControlFlow<()> {
    if is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Forwards pieces with the checksum until there are no more or the receiver is gone. A download that takes no piece
/// for [`STALLED_MAX`] ends, even if its client takes single bytes: a scan prevents the store from deleting old files.
///
/// The checksum is computed here, so that neither the scan nor the socket waits for it.
async fn forward(mut scanned: Receiver<Piece<()>>, forwarded: Sender<Piece<Checksum>>) {
    let mut checksum = Checksum::default();
    loop {
        let piece = tokio::select! {
            piece = scanned.recv() => piece,
            () = forwarded.closed() => None,
        };
        let piece = match piece {
            None => return,
            Some(Piece::Begin(next)) => Piece::Begin(next),
            Some(Piece::Chunk(chunk)) => {
                checksum.add(&chunk.bytes);
                Piece::Chunk(chunk)
            }
            Some(Piece::End(())) => Piece::End(std::mem::take(&mut checksum)),
            Some(Piece::Failed(error)) => Piece::Failed(error),
        };
        if forwarded.send_timeout(piece, STALLED_MAX).await.is_err() {
            return;
        }
    }
}

/// The response body.
struct Download {
    first: Option<Piece<Checksum>>,
    pieces: Receiver<Piece<Checksum>>,
    /// `None` once the download has ended.
    running: Option<Running>,
    permits: Option<Permits>,
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = ExportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExportError>>> {
        let piece = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(self.pieces.poll_recv(context)),
        };
        Poll::Ready(match (piece, self.running.take()) {
            (Some(Piece::Chunk(chunk)), Some(mut running)) => {
                running.sent(&chunk);
                self.running = Some(running);
                Some(Ok(Frame::data(chunk.bytes.into())))
            }
            (Some(Piece::End(checksum)), Some(running)) => {
                // A client that has read the end may start the next download.
                self.permits = None;
                Some(Ok(trailers(&running.complete(checksum))))
            }
            (Some(Piece::Failed(error)), Some(running)) => {
                running.fail();
                Some(Err(error))
            }
            // The download has ended.
            (None, None) => None,
            _ => Some(Err(ExportError::BrokenOff)),
        })
    }
}

fn trailers(sums: &Sums) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert(ROWS, sums.rows.into());
    trailers.extend(HeaderValue::try_from(&sums.sha256).map(|sha256| (SHA256, sha256)));
    Frame::trailers(trailers)
}

#[cfg(test)]
mod tests;
