//! HTTP/2 clients, frame by frame.

use std::collections::BTreeSet;

use testbed::http2::{
    CONTINUATION, DATA, DEFAULT_WINDOW, END_STREAM, FIELD, Frame, GOAWAY, HEADERS,
    INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE, RST_STREAM, SETTINGS, data,
    fields, frame, frames, headers, preface, window_update,
};
use tokio::io::{ReadHalf, split};

use super::*;
use crate::turns::SMALL_BODY_BYTES;

const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

fn get(stream: u32, path: &str) -> Vec<u8> {
    testbed::http2::get(stream, path, "a")
}

/// Sends bytes and returns the frames that come until the connection ends.
async fn answer(client: &mut DuplexStream, sent: &[u8]) -> (Vec<Frame>, Duration) {
    client.write_all(sent).await.unwrap();
    let (received, after) = bytes_until_end(client).await;
    (frames(&received), after)
}

fn codes(frames: &[Frame], kind: u8) -> Vec<(u32, u32)> {
    let those = frames.iter().filter(|frame| frame.kind == kind);
    those.map(|frame| (frame.stream, frame.code())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_limits_are_announced() {
    let (frames, after) = answer(&mut open(), &preface(0)).await;
    let settings = &frames[0];
    assert_eq!((settings.kind, settings.flags), (SETTINGS, 0));
    let value = |id: u16| {
        let found = settings.payload.chunks(6).find(|setting| setting[..2] == id.to_be_bytes());
        u32::from_be_bytes(found.unwrap()[2..].try_into().unwrap())
    };
    assert_eq!(value(MAX_CONCURRENT_STREAMS), STREAMS_MAX);
    assert_eq!(value(INITIAL_WINDOW_SIZE), REQUEST_WINDOW_BYTES);
    assert_eq!(value(MAX_HEADER_LIST_SIZE), HEAD_BYTES_MAX as u32);
    assert_eq!(after, IDLE_MAX);
}

/// A block of headers that never ends, in large frames and in small ones.
#[tokio::test(start_paused = true)]
async fn an_endless_header_block_closes_the_connection() {
    for frame_bytes in [16_000, 1_000, 1, 0] {
        let (mut client, _served) = open_until(running());
        client.write_all(&preface(DEFAULT_WINDOW)).await.unwrap();
        let block = vec![FIELD; frame_bytes];
        let first = [fields("POST", "/form", "a"), block.clone()].concat();
        let mut sent = client.write_all(&frame(HEADERS, 0, 1, &first)).await;
        let mut count = 0;
        while sent.is_ok() {
            count += 1;
            assert!(count < 20, "{frame_bytes}");
            sent = client.write_all(&frame(CONTINUATION, 0, 1, &block)).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (received, after) = bytes_until_end(&mut client).await;
        assert_eq!(codes(&frames(&received), GOAWAY), [(0, ENHANCE_YOUR_CALM)], "{frame_bytes}");
        assert_eq!(after, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_headers_is_limited() {
    for (count, is_answered) in [(HEADERS_MAX, true), (HEADERS_MAX + 1, false)] {
        let block = [fields("GET", "/now", "a"), vec![FIELD; count]].concat();
        let request = headers(1, END_STREAM, &block);
        let (frames, _) = answer(&mut open(), &[preface(DEFAULT_WINDOW), request].concat()).await;
        assert_eq!(data(&frames) == b"now", is_answered);
        let heads = frames.iter().filter(|frame| (frame.kind, frame.stream) == (HEADERS, 1));
        let is_empty: Vec<_> = heads.map(|head| head.flags & END_STREAM != 0).collect();
        assert_eq!(is_empty, [!is_answered]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_head_is_noted() {
    for (count, expected) in [(HEADERS_MAX, vec![]), (HEADERS_MAX + 1, vec![Refused::Head])] {
        let block = [fields("GET", "/now", "a"), vec![FIELD; count]].concat();
        let sent = [preface(DEFAULT_WINDOW), headers(1, END_STREAM, &block)].concat();
        assert_eq!(refused(&sent).await, expected, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_of_a_connection_are_limited() {
    let streams = (0..=STREAMS_MAX).map(|n| 2 * n + 1);
    let requests: Vec<_> = streams.flat_map(|stream| get(stream, "/never")).collect();
    let (mut client, served) = open_until(running());
    client.write_all(&[preface(DEFAULT_WINDOW), requests].concat()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    served.abort();
    let (received, _) = bytes_until_end(&mut client).await;
    let refused = codes(&frames(&received), RST_STREAM);
    assert_eq!(refused, [(2 * STREAMS_MAX + 1, REFUSED_STREAM)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_body_must_arrive_in_time() {
    let head = headers(1, 0, &fields("POST", "/form", "a"));
    let part = frame(DATA, 0, 1, b"next=");
    let (frames, after) =
        answer(&mut open(), &[preface(DEFAULT_WINDOW), head, part].concat()).await;
    assert_eq!((&*data(&frames), after), (&b"unfinished"[..], REQUEST_BODY_MAX + IDLE_MAX));
}

/// Sends bodies in pieces on several streams of a connection, each as soon as the server has had time for the last one.
/// Returns the responses, and how long the last one takes.
async fn upload(streams: u32, pieces: usize, piece_bytes: usize) -> (String, Duration) {
    let (reading, mut writing) = split(open());
    let received = tokio::spawn(read_all(reading));
    let streams: Vec<_> = (0..streams).map(|n| 2 * n + 1).collect();
    let head = |stream: &u32| headers(*stream, 0, &fields("POST", "/upload", "a"));
    let heads: Vec<_> = streams.iter().flat_map(head).collect();
    writing.write_all(&[preface(DEFAULT_WINDOW), heads].concat()).await.unwrap();
    for piece in 1..=pieces {
        let flags = if piece == pieces { END_STREAM } else { 0 };
        for stream in &streams {
            let piece = frame(DATA, flags, *stream, &vec![b'x'; piece_bytes]);
            writing.write_all(&piece).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let start = Instant::now();
    let received = frames(&received.await.unwrap());
    (String::from_utf8(data(&received)).unwrap(), start.elapsed() - IDLE_MAX)
}

/// One after the other is read and answered. The client may send each of them within its window.
#[tokio::test(start_paused = true)]
async fn large_bodies_of_a_connection_are_read_one_at_a_time() {
    let piece_bytes = SMALL_BODY_BYTES / 2;
    let answered = |streams: u32, bytes: usize| format!("{bytes} bytes;").repeat(streams as usize);
    for streams in [1, 3, STREAMS_MAX] {
        let (text, after) = upload(streams, 2, piece_bytes - 1).await;
        assert_eq!(text, answered(streams, 2 * (piece_bytes - 1)));
        assert!(after < 2 * LATE, "{streams}: {after:?}");
        let (text, after) = upload(streams, 5, piece_bytes).await;
        assert_eq!(text, answered(streams, 5 * piece_bytes));
        assert!(after > LATE * streams - LATE / 2, "{streams}: {after:?}");
        assert!(after < LATE * (streams + 1), "{streams}: {after:?}");
    }
}

/// The client reads everything, but does not let the server send the body.
#[tokio::test(start_paused = true)]
async fn a_response_that_the_client_does_not_take_is_reset() {
    let (mut client, _served) = open_until(running());
    let sent = [preface(0), get(1, "/large"), get(3, "/now")].concat();
    let (frames, after) = answer(&mut client, &sent).await;
    assert_eq!(data(&frames), b"");
    let reset: Vec<_> = codes(&frames, RST_STREAM).into_iter().map(|(stream, _)| stream).collect();
    assert!(reset.contains(&1) && reset.contains(&3), "{reset:?}");
    assert_eq!(after, STALLED_MAX + IDLE_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_the_client_does_not_take_ends_soon_after_a_stop() {
    let (stop, stopping) = watch::channel(false);
    let (mut client, served) = open_until(stopping);
    client.write_all(&[preface(0), get(1, "/large")].concat()).await.unwrap();
    advance(STALLED_MAX / 2).await;
    stop.send_replace(true);
    let (longest, after) = (STALLED_STOPPING_MAX + IDLE_STOPPING_MAX, ended(served).await);
    assert!(after <= longest, "{after:?}");
}

/// The client takes something every second, for far longer than an answer may take.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_slow_downloads_but_not_for_slow_answers() {
    const STEP_BYTES: u32 = 8 << 10;
    for (path, is_cut_off) in [("/large", true), ("/download", false)] {
        let (stop, stopping) = watch::channel(false);
        let (client, served) = open_until(stopping);
        let (reading, mut writing) = split(client);
        let received = tokio::spawn(read_all(reading));
        writing.write_all(&[preface(0), get(1, path)].concat()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        let start = Instant::now();
        while !served.is_finished() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let updates = [window_update(0, STEP_BYTES), window_update(1, STEP_BYTES)].concat();
            // It fails once the connection is closed.
            let _ = writing.write_all(&updates).await;
        }
        assert_eq!(start.elapsed() <= 2 * ANSWERS_STOPPING_MAX, is_cut_off, "{path}");
        let frames = frames(&received.await.unwrap());
        assert_eq!(data(&frames).len() < LARGE_BYTES, is_cut_off, "{path}");
    }
}

/// A client that ignores GOAWAY and answers no PING. Only the first of its requests is awaited.
#[tokio::test(start_paused = true)]
async fn further_requests_do_not_delay_a_stop() {
    let (stop, stopping) = watch::channel(false);
    let (client, served) = open_until(stopping);
    let (reading, mut writing) = split(client);
    let received = tokio::spawn(read_all(reading));
    writing.write_all(&[preface(DEFAULT_WINDOW), get(1, "/late")].concat()).await.unwrap();
    tokio::time::sleep(LATE / 2).await;
    stop.send_replace(true);
    let start = Instant::now();
    writing.write_all(&get(3, "/never")).await.unwrap();
    let mut stream = 5;
    while !served.is_finished() {
        assert!(start.elapsed() <= LATE / 2 + ANSWERS_STOPPING_MAX + IDLE_STOPPING_MAX);
        tokio::time::sleep(IDLE_STOPPING_MAX / 2).await;
        let _ = writing.write_all(&get(stream, "/now")).await;
        stream += 2;
    }
    let received = data(&frames(&received.await.unwrap()));
    assert!(received.windows(4).any(|bytes| bytes == b"late"));
}

/// Handlers that wait end with the service.
#[tokio::test(start_paused = true)]
async fn a_request_knows_that_the_service_stops() {
    let (stop, stopping) = watch::channel(false);
    let (client, served) = open_until(stopping);
    let (reading, mut writing) = split(client);
    let received = tokio::spawn(read_all(reading));
    writing.write_all(&[preface(DEFAULT_WINDOW), get(1, "/stopping")].concat()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.send_replace(true);
    assert!(ended(served).await <= IDLE_STOPPING_MAX);
    assert_eq!(data(&frames(&received.await.unwrap())), b"stopping");
}

#[tokio::test(start_paused = true)]
async fn the_heads_of_concurrent_requests_are_limited() {
    const PATH_BYTES: usize = 60_000;
    let path = format!("/never?{}", "y".repeat(PATH_BYTES));
    let streams: Vec<_> = (0..STREAMS_MAX).map(|n| 2 * n + 1).collect();
    let requests: Vec<_> = streams.iter().flat_map(|stream| get(*stream, &path)).collect();
    let (client, served) = open_until(running());
    let (reading, mut writing) = split(client);
    let received = tokio::spawn(read_all(reading));
    writing.write_all(&[preface(DEFAULT_WINDOW), requests].concat()).await.unwrap();
    // The heads of refused and answered requests do not count: there is space for one of these at a time.
    let rest = format!("/now?{}", "y".repeat(HEADS_BYTES_MAX % PATH_BYTES - 1_000));
    for stream in [101, 103] {
        writing.write_all(&get(stream, &rest)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    served.abort();
    let frames = frames(&received.await.unwrap());
    let heads = frames.iter().filter(|frame| frame.kind == HEADERS);
    let (refused, answered): (Vec<_>, Vec<_>) =
        heads.map(|head| head.stream).partition(|stream| *stream < 101);
    assert_eq!(data(&frames), b"nownow");
    assert_eq!(
        BTreeSet::from_iter(refused),
        streams[HEADS_BYTES_MAX / PATH_BYTES..].iter().copied().collect()
    );
    assert_eq!(BTreeSet::from_iter(answered), BTreeSet::from([101, 103]));
}

async fn read_all(mut client: ReadHalf<DuplexStream>) -> Vec<u8> {
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    received
}

/// It takes longer than [`STALLED_MAX`] in total.
#[tokio::test(start_paused = true)]
async fn a_slow_download_is_not_cut_off() {
    const STEP_BYTES: u32 = 8 << 10;
    let (reading, mut writing) = split(open());
    let received = tokio::spawn(read_all(reading));
    writing.write_all(&[preface(0), get(1, "/large")].concat()).await.unwrap();
    for _ in 0..LARGE_BYTES.div_ceil(STEP_BYTES as usize) {
        tokio::time::sleep(IDLE_MAX - Duration::from_secs(5)).await;
        let updates = [window_update(0, STEP_BYTES), window_update(1, STEP_BYTES)].concat();
        writing.write_all(&updates).await.unwrap();
    }
    let frames = frames(&received.await.unwrap());
    assert_eq!(data(&frames).len(), LARGE_BYTES);
    assert!(codes(&frames, RST_STREAM).is_empty());
}
