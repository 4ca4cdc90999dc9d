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

use attribution::event::Pid;
use attribution::policy::Policy;
use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use store::scan::Reader;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::ExportError;
use crate::cursor::Cursor;
use crate::metrics::{Active, Metrics};
use crate::query::ExportQuery;
use crate::rows::Wanted;

/// Chunks that wait for a client that reads slowly.
const CHUNKS_WAITING_MAX: usize = 4;
/// A client that takes nothing for so long has gone, whatever its connection says: a scan keeps
/// the store's old files from being removed.
const STALLED_MAX: Duration = Duration::from_secs(600);

/// What is to be read, and what it needs.
pub(crate) struct Scan {
    pub reader: Reader,
    pub policy: Arc<Policy>,
    pub pid: Pid,
    pub query: ExportQuery,
    pub metrics: Arc<Metrics>,
    /// Given back when the scan has ended.
    pub permit: OwnedSemaphorePermit,
}

enum Piece {
    /// The first one: where the page ends, if it is not the last.
    Begin(Option<Cursor>),
    Chunk(Bytes),
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
pub(crate) async fn start(scan: Scan) -> Result<Started, ExportError> {
    let active = scan.metrics.download_started();
    let (scanned, scans) = mpsc::channel(1);
    let (forwarded, mut pieces) = mpsc::channel(CHUNKS_WAITING_MAX);
    tokio::task::spawn_blocking(move || scan.run(&scanned));
    tokio::spawn(forward(scans, forwarded));
    let next = match pieces.recv().await {
        Some(Piece::Begin(next)) => next,
        Some(Piece::Failed(error)) => return Err(error),
        _ => return Err(ExportError::BrokenOff),
    };
    match pieces.recv().await {
        Some(Piece::Chunk(first)) => {
            let download = Download { first: Some(first), pieces, active: Some(active) };
            Ok(Started { next, body: Body::new(download) })
        }
        Some(Piece::Failed(error)) => Err(error),
        _ => Err(ExportError::BrokenOff),
    }
}

/// A body of unknown length that nobody reads, for the headers' sake.
pub(crate) fn unread() -> Body {
    Body::new(Download { first: None, pieces: mpsc::channel(1).1, active: None })
}

impl Scan {
    fn run(self, pieces: &Sender<Piece>) {
        let Some(app) = self.policy.app(self.pid) else { return };
        let sink = |chunk: Vec<u8>| {
            let is_gone = if chunk.is_empty() {
                pieces.is_closed()
            } else {
                pieces.blocking_send(Piece::Chunk(chunk.into())).is_err()
            };
            if is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let view = self.reader.view();
        let wanted = Wanted { view: &view, app, query: &self.query, policy: &self.policy };
        let written = wanted.page_end().and_then(|next| {
            // Where the client has gone, the first chunk finds out.
            let _ = pieces.blocking_send(Piece::Begin(next));
            wanted.write(sink)
        });
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
        // Where the client has gone, nobody is left to tell.
        let _ = pieces.blocking_send(last);
        drop(self.permit);
    }
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
    first: Option<Bytes>,
    pieces: Receiver<Piece>,
    /// `None` once it is complete.
    active: Option<Active>,
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = ExportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExportError>>> {
        let first = self.first.take().map(Piece::Chunk);
        let piece = match first {
            Some(first) => Some(first),
            None => ready!(self.pieces.poll_recv(context)),
        };
        Poll::Ready(match (piece, &self.active) {
            (Some(Piece::Chunk(chunk)), Some(active)) => {
                active.sent(chunk.len());
                Some(Ok(Frame::data(chunk)))
            }
            (Some(Piece::End), _) => {
                self.active.take().into_iter().for_each(Active::complete);
                None
            }
            (Some(Piece::Failed(error)), _) => Some(Err(error)),
            // The end has been said.
            (None, None) => None,
            (Some(Piece::Begin(_) | Piece::Chunk(_)), None)
            | (Some(Piece::Begin(_)), _)
            | (None, Some(_)) => Some(Err(ExportError::BrokenOff)),
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use tokio::time::Instant;

    use super::*;

    /// What a body of these pieces gives: chunks, then `end` or the error.
    fn read(pieces: impl IntoIterator<Item = Piece>) -> Vec<String> {
        let (sender, receiver) = mpsc::channel(9);
        pieces.into_iter().for_each(|piece| assert!(sender.try_send(piece).is_ok()));
        drop(sender);
        let active = Some(Arc::new(Metrics::new()).download_started());
        let mut body = Box::pin(Download { first: Some("first".into()), pieces: receiver, active });
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut read = Vec::new();
        loop {
            match body.as_mut().poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => {
                    read.push(String::from_utf8_lossy(frame.data_ref().unwrap()).into_owned());
                }
                Poll::Ready(Some(Err(error))) => {
                    read.push(error.to_string());
                    return read;
                }
                Poll::Ready(None) => {
                    read.push("end".into());
                    return read;
                }
                Poll::Pending => panic!("all pieces are there"),
            }
        }
    }

    fn chunk(text: &'static str) -> Piece {
        Piece::Chunk(text.into())
    }

    #[test]
    fn a_body_ends_only_with_the_scan() {
        assert_eq!(read([chunk("b"), Piece::End]), ["first", "b", "end"]);
        assert_eq!(read([chunk("b")]), ["first", "b", "the download broke off"]);
        assert_eq!(read([]), ["first", "the download broke off"]);
        assert_eq!(
            read([chunk("b"), Piece::Failed(ExportError::UnknownApp("x".into()))]),
            ["first", "b", "no app has this key: \"x\""]
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
