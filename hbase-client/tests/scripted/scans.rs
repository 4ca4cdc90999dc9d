//! Scans with faults: each row is returned once, whole and in order.

use std::time::Duration;

use hbase_client::proto::scan::ScanRequest;
use hbase_client::{Error, Scan};
use prost::Message;
use tokio::time::Instant;

use crate::support::fake::{Call, Reply, Servers};
use crate::support::rows::collect;
use crate::{check_all, check_scan, is_scan, read_all, rows_before_error};

/// Runs a scan whose scanners each send this number of heartbeats, `interval` apart, and are then lost, without any
/// row. Returns the time until the scan fails, and the number of calls.
async fn scan_without_rows(heartbeats: usize, interval: Duration) -> (Duration, usize) {
    let servers = Servers::filled();
    servers.model(|model| model.scanners.heartbeats = usize::MAX);
    let mut calls = 0;
    servers.script(move |call, model| {
        if !is_scan(call) || is_close(call) {
            return None;
        }
        calls += 1;
        let is_lost = calls % (heartbeats + 1) == 0;
        Some(match is_lost {
            true => Reply::exception("exceptions.ScannerResetException"),
            false => Reply::after(interval, model.reply(call)),
        })
    });
    let (table, started) = (servers.table().await, Instant::now());
    let outcome = tokio::time::timeout(Duration::from_secs(3_600), read_all(&table)).await;
    let error = outcome.expect("the scan ends").unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    let expected = "a scan without progress timed out after 60s; last error: ";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(error.to_string().contains("ScannerResetException"), "{error}");
    (started.elapsed(), servers.count(|call| is_scan(call) && !is_close(call)))
}

fn is_close(call: &Call) -> bool {
    ScanRequest::decode(call.param.clone()).unwrap().close_scanner == Some(true)
}

#[tokio::test(start_paused = true)]
async fn scan_whose_scanners_are_lost_repeatedly_at_one_position_times_out() {
    let millisecond = Duration::from_millis(1);
    let (waited, calls) = scan_without_rows(1, millisecond).await;
    assert!((55..=61).contains(&waited.as_secs()), "{waited:?}");
    // Two calls per scanner, with at most 2 s between scanners.
    assert!((70..200).contains(&calls), "{calls} calls");
    let (waited, _) = scan_without_rows(5, millisecond).await;
    assert!((55..=61).contains(&waited.as_secs()), "{waited:?}");
    // Heartbeats do not extend the timeout: the scan ends when the second scanner is lost.
    let (waited, calls) = scan_without_rows(20, Duration::from_secs(9)).await;
    assert_eq!((waited.as_secs() / 100, calls), (3, 42), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn scanner_lost_after_a_long_time_without_rows_is_reopened() {
    let servers = Servers::filled();
    servers.model(|model| (model.scanners.heartbeats, model.scanners.response_cells) = (20, 3_000));
    let mut calls = 0;
    servers.script(move |call, model| {
        if !is_scan(call) || is_close(call) {
            return None;
        }
        calls += 1;
        // Once in each of the three regions, at different calls.
        Some(match [15, 52, 80].contains(&calls) {
            true => Reply::Close,
            // Less than the call timeout. Together the responses take many times the operation timeout.
            false => Reply::after(Duration::from_secs(9), model.reply(call)),
        })
    });
    let started = Instant::now();
    check_scan(&servers, &servers.table().await).await;
    assert!(started.elapsed() > Duration::from_secs(400), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_rows_closes_the_scanner() {
    let servers = Servers::filled();
    let mut rows = servers.table().await.scan(Scan::all());
    rows.next().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(servers.model(|model| model.scanners.count()), 1);
    let ahead = servers.count(is_scan);
    assert!(ahead <= 4, "{ahead} calls, though only one row was read");
    drop(rows);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(servers.model(|model| model.scanners.count()), 0);
}

#[tokio::test(start_paused = true)]
async fn scanner_that_expired_during_a_pause_of_the_reader_is_reopened() {
    let servers = Servers::filled();
    let mut rows = servers.table().await.scan(Scan::all());
    let mut found = vec![rows.next().await.unwrap().unwrap()];
    // Longer than the operation timeout, which does not include pauses of the reader.
    tokio::time::sleep(Duration::from_secs(300)).await;
    servers.model(|model| model.scanners.forget_all());
    found.extend(collect(rows).await.unwrap());
    servers.model(|model| check_all(&found, model));
}

#[test]
fn scan_whose_runtime_ends_returns_an_error() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reading = runtime();
    let mut rows = reading.block_on(async {
        let mut rows = Servers::filled().table().await.scan(Scan::all());
        rows.next().await.unwrap().unwrap();
        rows
    });
    drop(reading);
    let (_, error) = runtime().block_on(rows_before_error(&mut rows));
    assert!(matches!(error, Error::Closed), "{error}");
}
