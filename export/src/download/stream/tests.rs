//! Bodies that end, fail or stall.

use http_body::Body as _;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::*;
use crate::download::audit::ExportRequest;
use crate::download::registry::Exports;

/// Reads a body of these pieces: its chunks, then `end` or the error.
fn read(pieces: impl IntoIterator<Item = Piece<Checksum>>) -> Vec<String> {
    let (sender, receiver) = mpsc::channel(9);
    pieces.into_iter().for_each(|piece| assert!(sender.try_send(piece).is_ok()));
    drop(sender);
    let (exports, metrics) = (Arc::new(Exports::default()), Arc::new(Metrics::new()));
    let running = exports.start(&metrics, ExportRequest::for_test(), None, "/x", "x.csv").unwrap();
    let id = running.id();
    let first = Some(Piece::Chunk(Chunk { bytes: b"first".to_vec(), rows: 2 }));
    let mut body =
        Box::pin(Download { first, pieces: receiver, running: Some(running), permits: None });
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
            Poll::Pending => panic!("all pieces are available"),
        }
    }
    let export = exports.find(&id).unwrap();
    read.push(format!("{:?} {} {}", export.state, export.rows, export.bytes));
    read
}

fn chunk<Sum>(text: &'static str) -> Piece<Sum> {
    Piece::Chunk(Chunk { bytes: text.into(), rows: 1 })
}

fn end() -> Piece<Checksum> {
    Piece::End(Checksum::default())
}

#[test]
fn a_body_ends_only_with_the_scan() {
    assert_eq!(read([chunk("b"), end()]), ["first", "b", "3 rows", "end", "Complete 3 6"]);
    assert_eq!(read([chunk("b")]), ["first", "b", "the download was interrupted", "Aborted 3 6"]);
    assert_eq!(read([]), ["first", "the download was interrupted", "Aborted 2 5"]);
    assert_eq!(
        read([chunk("b"), Piece::Failed(ExportError::UnknownApp("x".into()))]),
        ["first", "b", "no app has this key: \"x\"", "Failed 3 6"]
    );
}

/// Its chunks are in memory until then.
#[test]
fn a_body_counts_as_a_download_until_its_end_is_read() {
    let free = Arc::new(Semaphore::new(2));
    let permit = || Arc::clone(&free).try_acquire_owned().unwrap();
    let permits = Some(Arc::new([permit(), permit()]));
    let (exports, metrics) = (Arc::new(Exports::default()), Arc::new(Metrics::new()));
    let running = exports.start(&metrics, ExportRequest::for_test(), None, "/x", "x.csv").unwrap();
    let (sender, pieces) = mpsc::channel(1);
    let download = Download { first: Some(chunk("a")), pieces, running: Some(running), permits };
    let mut body = Box::pin(download);
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(sender.try_send(end()).is_ok());
    assert!(body.as_mut().poll_frame(&mut context).is_ready());
    assert_eq!(free.available_permits(), 0);
    assert!(body.as_mut().poll_frame(&mut context).is_ready());
    assert_eq!(free.available_permits(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_client_is_dropped() {
    let (sender, scanned) = mpsc::channel(1);
    let (forwarded, mut pieces) = mpsc::channel(1);
    let forwarding = tokio::spawn(forward(scanned, forwarded));
    let start = Instant::now();
    // One is in each channel and one in between: then both are full.
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
async fn a_scan_without_results_ends_when_the_client_disconnects() {
    let (sender, scanned) = mpsc::channel(1);
    let (forwarded, pieces) = mpsc::channel(1);
    let forwarding = tokio::spawn(forward(scanned, forwarded));
    drop(pieces);
    forwarding.await.unwrap();
    assert!(sender.is_closed());
}

#[tokio::test]
async fn the_checksum_is_of_all_chunks() {
    let (sender, scanned) = mpsc::channel(4);
    let (forwarded, mut pieces) = mpsc::channel(4);
    for piece in [Piece::Begin(None), chunk("a"), chunk("b"), Piece::End(())] {
        assert!(sender.try_send(piece).is_ok());
    }
    drop(sender);
    forward(scanned, forwarded).await;
    let mut sums = Vec::new();
    while let Some(piece) = pieces.recv().await {
        if let Piece::End(checksum) = piece {
            sums.push(checksum.text());
        }
    }
    let mut expected = Checksum::default();
    expected.add(b"ab");
    assert_eq!(sums, [expected.text()]);
}
