//! One export on its way to a client: a thread scans, a few chunks wait, the body takes them.
//!
//! The body ends only after the scan has said that it is complete. Whatever else happens, an
//! error, a panic, a client that stopped reading, makes the body fail, and the connection with
//! it: half an export never looks like a whole one.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use http_body::Frame;
use store::reader::{Reader, View};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::cpu_slots::CpuSlots;
use super::registry::{Running, Sums};
use crate::ExportError;
use crate::format::write_rows::{Chunk, Wanted};
use crate::http::state::SCANS_MAX;
use crate::metrics::Metrics;
use crate::query::ExportQuery;
use crate::query::cursor::Cursor;

/// Chunks that wait for a client that reads slowly.
const CHUNKS_WAITING_MAX: usize = 4;
/// A client that takes nothing for so long has gone, whatever its connection says: a scan keeps
/// the store's old files from being removed.
const STALLED_MAX: Duration = Duration::from_secs(600);

/// Trailers: what a client checks a complete file by.
pub(crate) const ROWS: HeaderName = HeaderName::from_static("adtrail-rows");
pub(crate) const SHA256: HeaderName = HeaderName::from_static("adtrail-sha256");

/// What is to be read, and what it needs.
pub(crate) struct Scan {
    pub reader: Reader,
    pub policy: Arc<Policy>,
    pub pid: Pid,
    pub query: ExportQuery,
    pub metrics: Arc<Metrics>,
    pub turns: CpuSlots,
    /// The caller's and that of all, given back when the scan has ended.
    pub permits: [OwnedSemaphorePermit; 2],
}

enum Piece {
    /// The first one: where the page ends, if it is not the last.
    Begin(Option<Cursor>),
    Chunk(Chunk),
    /// There are no more rows.
    End,
    Failed(ExportError),
}

/// A download that has begun.
pub(crate) struct Started {
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
    pub body: Body,
}

/// Starts the scan and waits for its first chunk, so that what fails at once is an answer of its
/// own.
///
/// # Errors
/// The scan's, before its first chunk.
pub(crate) async fn start(scan: Scan, running: Running) -> Result<Started, ExportError> {
    let (scanned, scans) = mpsc::channel(1);
    let (forwarded, mut pieces) = mpsc::channel(CHUNKS_WAITING_MAX);
    tokio::task::spawn_blocking(move || scan.run(&scanned));
    tokio::spawn(forward(scans, forwarded));
    let next = match pieces.recv().await {
        Some(Piece::Begin(next)) => next,
        piece => return Err(failure(piece, running)),
    };
    match pieces.recv().await {
        // JSON lines without rows have no chunk.
        Some(first @ (Piece::Chunk(_) | Piece::End)) => {
            let download = Download { first: Some(first), pieces, running: Some(running) };
            Ok(Started { next, body: Body::new(download) })
        }
        piece => Err(failure(piece, running)),
    }
}

/// Where the page ends, as [`start`] tells it, for an answer that is headers alone.
///
/// # Errors
/// The scan's.
pub(crate) async fn page_end(scan: Scan) -> Result<Option<Cursor>, ExportError> {
    let (end, ended) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let found = scan.page_end(|| end.is_closed());
        // Where the client has gone, nobody is left to tell.
        let _ = end.send(found);
    });
    ended.await.unwrap_or(Err(ExportError::BrokenOff))
}

fn failure(piece: Option<Piece>, running: Running) -> ExportError {
    running.fail();
    match piece {
        Some(Piece::Failed(error)) => error,
        _ => ExportError::BrokenOff,
    }
}

/// A body of unknown length that nobody reads, for the headers' sake.
pub(crate) fn unread() -> Body {
    Body::new(Download { first: None, pieces: mpsc::channel(1).1, running: None })
}

impl Scan {
    fn run(self, pieces: &Sender<Piece>) {
        let Some(app) = self.policy.app(self.pid) else { return };
        let mut turn = self.turns.wait();
        let view = self.reader.view();
        let wanted = self.wanted(&view, app);
        let written =
            wanted.page_end(|| turn.pause(|| flow(pieces.is_closed()))).and_then(|next| {
                // Where the client has gone, the first chunk finds out.
                let _ = pieces.blocking_send(Piece::Begin(next));
                wanted.write(|chunk: Chunk| {
                    let is_empty = chunk.bytes.is_empty();
                    let send = || !is_empty && pieces.blocking_send(Piece::Chunk(chunk)).is_err();
                    flow(turn.pause(send) || pieces.is_closed())
                })
            });
        drop(turn);
        let last = match written {
            Ok(rows) => {
                self.metrics.rows_written(rows);
                Piece::End
            }
            Err(error) => {
                tracing::error!(app = &*app.key, %error, "an export failed");
                Piece::Failed(error)
            }
        };
        let room = Handle::current().block_on(pieces.reserve());
        // Whoever has read the end may begin another.
        drop(self.permits);
        // Where the client has gone, nobody is left to tell.
        if let Ok(room) = room {
            room.send(last);
        }
    }

    fn page_end(&self, is_gone: impl Fn() -> bool) -> Result<Option<Cursor>, ExportError> {
        let Some(app) = self.policy.app(self.pid) else { return Ok(None) };
        let mut turn = self.turns.wait();
        let view = self.reader.view();
        let wanted = self.wanted(&view, app);
        let found = wanted.page_end(|| turn.pause(|| flow(is_gone())));
        if let Err(error) = &found {
            tracing::error!(app = &*app.key, %error, "the end of a page can not be read");
        }
        found
    }

    fn wanted<'a>(&'a self, view: &'a View<'a>, app: &'a AppPolicy) -> Wanted<'a> {
        let [_, of_all] = &self.permits;
        // This download is one of them.
        let downloads = SCANS_MAX - of_all.semaphore().available_permits();
        let may_read_ahead = CpuSlots::have_room(downloads);
        Wanted { view, app, query: &self.query, policy: &self.policy, may_read_ahead }
    }
}

fn flow(is_gone: bool) -> ControlFlow<()> {
    if is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Hands pieces on, until there are no more or nobody takes them.
async fn forward(mut scanned: Receiver<Piece>, forwarded: Sender<Piece>) {
    loop {
        let piece = tokio::select! {
            piece = scanned.recv() => piece,
            () = forwarded.closed() => None,
        };
        let Some(piece) = piece else { return };
        if forwarded.send_timeout(piece, STALLED_MAX).await.is_err() {
            return;
        }
    }
}

/// The body.
struct Download {
    first: Option<Piece>,
    pieces: Receiver<Piece>,
    /// `None` once its end has been said.
    running: Option<Running>,
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
            (Some(Piece::End), Some(running)) => Some(Ok(trailers(&running.complete()))),
            (Some(Piece::Failed(error)), Some(running)) => {
                running.fail();
                Some(Err(error))
            }
            // The end has been said.
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
mod tests {
    use http_body::Body as _;
    use tokio::time::Instant;

    use super::*;
    use crate::download::audit::ExportRequest;
    use crate::download::registry::Exports;

    /// What a body of these pieces gives: chunks, then `end` or the error.
    fn read(pieces: impl IntoIterator<Item = Piece>) -> Vec<String> {
        let (sender, receiver) = mpsc::channel(9);
        pieces.into_iter().for_each(|piece| assert!(sender.try_send(piece).is_ok()));
        drop(sender);
        let (exports, metrics) = (Arc::new(Exports::default()), Arc::new(Metrics::new()));
        let running =
            exports.start(&metrics, ExportRequest::of_a_test(), None, "/x", "x.csv").unwrap();
        let id = running.id();
        let first = Some(Piece::Chunk(Chunk { bytes: b"first".to_vec(), rows: 2 }));
        let mut body = Box::pin(Download { first, pieces: receiver, running: Some(running) });
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut read = Vec::new();
        loop {
            match body.as_mut().poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => read.push(String::from_utf8_lossy(&data).into_owned()),
                    Err(trailers) => {
                        let trailers = trailers.into_trailers().unwrap();
                        read.push(format!("{} rows", trailers[ROWS].to_str().unwrap()));
                    }
                },
                Poll::Ready(Some(Err(error))) => {
                    read.push(error.to_string());
                    drop(body);
                    break;
                }
                Poll::Ready(None) => {
                    read.push("end".into());
                    break;
                }
                Poll::Pending => panic!("all pieces are there"),
            }
        }
        let export = exports.find(&id).unwrap();
        read.push(format!("{:?} {} {}", export.state, export.rows, export.bytes));
        read
    }

    fn chunk(text: &'static str) -> Piece {
        Piece::Chunk(Chunk { bytes: text.into(), rows: 1 })
    }

    #[test]
    fn a_body_ends_only_with_the_scan() {
        assert_eq!(read([chunk("b"), Piece::End]), ["first", "b", "3 rows", "end", "Complete 3 6"]);
        assert_eq!(read([chunk("b")]), ["first", "b", "the download broke off", "Aborted 3 6"]);
        assert_eq!(read([]), ["first", "the download broke off", "Aborted 2 5"]);
        assert_eq!(
            read([chunk("b"), Piece::Failed(ExportError::UnknownApp("x".into()))]),
            ["first", "b", "no app has this key: \"x\"", "Failed 3 6"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_let_go() {
        let (sender, scanned) = mpsc::channel(1);
        let (forwarded, mut pieces) = mpsc::channel(1);
        let forwarding = tokio::spawn(forward(scanned, forwarded));
        let start = Instant::now();
        // One waits to be taken, one to be handed on, one for its place: then no more.
        for _ in 0..3 {
            assert!(sender.send(chunk("x")).await.is_ok());
        }
        assert!(sender.send(chunk("x")).await.is_err());
        assert_eq!(start.elapsed(), STALLED_MAX);
        forwarding.await.unwrap();
        assert!(matches!(pieces.recv().await, Some(Piece::Chunk(_))));
        assert!(pieces.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_client_that_goes_away_ends_a_scan_that_finds_nothing() {
        let (sender, scanned) = mpsc::channel(1);
        let (forwarded, pieces) = mpsc::channel(1);
        let forwarding = tokio::spawn(forward(scanned, forwarded));
        drop(pieces);
        forwarding.await.unwrap();
        assert!(sender.is_closed());
    }
}
