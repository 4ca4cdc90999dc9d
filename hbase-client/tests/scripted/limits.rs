//! Limits of time, of bytes in flight and of memory, and hung connections.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hbase_client::proto::scan::ScanResponse;
use hbase_client::wire::cell::{Kind, Parts};
use hbase_client::{Error, Get, Mutation, Put, RetryAdvice, Scan, Table};
use prost::Message;
use tokio::time::Instant;

use crate::support::fake::{Call, Reply, Servers};
use crate::{check_scan, is_multi, is_scan, rows_before_error};

/// Returns the number of connections with matching calls.
fn connections(servers: &Servers, matches: fn(&Call) -> bool) -> usize {
    servers.with(|fake| {
        let calls = fake.calls.iter().filter(|call| matches(call));
        calls.map(|call| call.connection).collect::<HashSet<_>>().len()
    })
}

#[tokio::test(start_paused = true)]
async fn timeouts_are_sent_to_servers() {
    let servers = Servers::new();
    let mut config = Servers::config();
    config.operation_timeout = Duration::from_secs(25);
    let table = servers.table_of(config).await;
    servers.script(|call, _| is_multi(call).then_some(Reply::Never));
    let started = Instant::now();
    let error = table.get(Get::new("a")).await.unwrap_err();
    assert!(error.to_string().contains("timed out after 25s"), "{error}");
    assert_eq!(started.elapsed().as_secs(), 25);
    let timeouts: Vec<_> = servers.with(|fake| {
        let calls = fake.calls.iter().filter(|call| is_multi(call));
        calls.map(|call| call.timeout_ms / 1_000).collect()
    });
    // The call timeout of 10 s, and in the end the rest of the 25 s.
    assert_eq!(timeouts, [10, 10, 4], "seconds");
    // A connection without any response is replaced.
    assert_eq!(connections(&servers, is_multi), 3);
}

#[tokio::test(start_paused = true)]
async fn late_response_does_not_affect_other_calls() {
    let servers = Servers::filled();
    let table = servers.table().await;
    servers.script_first(is_multi, |call, model| {
        Reply::after(Duration::from_secs(12), model.reply(call))
    });
    let row = |name: &'static str| {
        let table = table.clone();
        async move { table.get(Get::new(name)).await.unwrap().unwrap().key().to_vec() }
    };
    // The connection is not hung, because it gets the response of a later call meanwhile.
    let (slow, _) = tokio::join!(row("a00"), async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(row("b00").await, b"b00");
    });
    assert_eq!(slow, b"a00");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(row("c00").await, b"c00");
    assert_eq!(connections(&servers, is_multi), 1);
}

#[tokio::test(start_paused = true)]
async fn bytes_in_flight_to_a_server_are_limited() {
    let servers = Servers::new();
    let mut config = Servers::config();
    (config.in_flight_bytes_max, config.call_bytes_max) = (100_000, 20_000);
    let table = servers.table_of(config).await;
    servers.script(|call, model| {
        is_multi(call).then(|| Reply::after(Duration::from_secs(1), model.reply(call)))
    });
    let writing = tokio::spawn(async move { table.mutate_many(large_puts(0..1_000)).await });
    let bytes = |call: &Call| call.param.len() + call.cells.len();
    let mut before = 0;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(999)).await;
        let all: usize =
            servers.with(|fake| fake.calls.iter().filter(|call| is_multi(call)).map(bytes).sum());
        assert!(all - before <= 100_000, "{} bytes in a second", all - before);
        assert!(all - before >= 60_000, "only {} bytes in a second", all - before);
        before = all;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(writing.await.unwrap().iter().all(Result::is_ok));
}

/// Returns servers that never respond to writes of ten rows of 1,000 bytes on matching connections. They respond to all
/// other calls at once; a task makes such a call every second.
async fn ignoring_large_writes(is_silent: fn(usize) -> bool) -> (Servers, Table) {
    let servers = Servers::new();
    let mut config = Servers::config();
    (config.in_flight_bytes_max, config.call_bytes_max) = (50_000, 12_000);
    let table = servers.table_of(config).await;
    // Locates the region and opens the first connection.
    table.mutate(Put::new("b").cell("d", "q", "0")).await.unwrap();
    servers.script(move |call, _| {
        let is_large = is_multi(call) && call.cells.len() > 5_000;
        (is_large && is_silent(call.connection)).then_some(Reply::Never)
    });
    let others = table.clone();
    tokio::spawn(async move {
        loop {
            let _ = others.get(Get::new("b")).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    (servers, table)
}

fn large_puts(rows: std::ops::Range<usize>) -> Vec<Mutation> {
    rows.map(|row| Put::new(format!("a{row:04}")).cell("d", "q", vec![7; 1_000]).into()).collect()
}

#[tokio::test(start_paused = true)]
async fn bytes_of_abandoned_calls_count_as_in_flight() {
    let (servers, table) = ignoring_large_writes(|_| true).await;
    let outcomes = table.mutate_many(large_puts(0..30)).await;
    assert!(outcomes.iter().all(Result::is_err));
    let by_connection = servers.with(|fake| {
        let mut bytes = BTreeMap::<usize, usize>::new();
        for call in fake.calls.iter().filter(|call| call.cells.len() > 5_000) {
            *bytes.entry(call.connection).or_default() += call.param.len() + call.cells.len();
        }
        bytes
    });
    // No call gets a response, so all bytes sent on a connection are in flight.
    let calls = servers.count(|call| call.cells.len() > 5_000);
    assert!(calls >= 8, "{calls} calls");
    assert!(by_connection.values().all(|&bytes| bytes <= 50_000), "{by_connection:?}");
}

#[tokio::test(start_paused = true)]
async fn connection_full_of_abandoned_calls_is_replaced() {
    static FIRST: AtomicUsize = AtomicUsize::new(usize::MAX);
    let is_first = |connection| FIRST.fetch_min(connection, Ordering::Relaxed) >= connection;
    let (servers, table) = ignoring_large_writes(is_first).await;
    let started = Instant::now();
    let outcomes = table.mutate_many(large_puts(0..30)).await;
    assert!(outcomes.iter().all(Result::is_ok));
    // The call timeout, and half of it until the client detects that abandoned calls fill the budget.
    assert!((15..17).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert_eq!(connections(&servers, is_multi), 2);
}

#[tokio::test(start_paused = true)]
async fn row_that_never_ends_fails_the_scan() {
    let servers = Servers::filled();
    let mut config = Servers::config();
    config.row_bytes_max = 50_000;
    let table = servers.table_of(config).await;
    // The first response has 233 rows and a part of the next row; then further parts of that row arrive endlessly.
    let mut calls = 0;
    servers.script(move |call, _| {
        calls += usize::from(is_scan(call));
        if !is_scan(call) || calls == 1 {
            return None;
        }
        let mut cells = Vec::new();
        let (row, family, qualifier) = (b"c33", b"d", b"y");
        let (timestamp, kind, value) = (1, Kind::Put, &[7; 2_000]);
        Parts { row, family, qualifier, timestamp, kind, value }.put(&mut cells);
        let response = ScanResponse {
            cells_per_result: vec![1],
            partial_flag_per_result: vec![true],
            more_results_in_region: Some(true),
            ..ScanResponse::default()
        };
        Some(Reply::Response { message: response.encode_to_vec(), cells: cells.into() })
    });
    let mut rows = table.scan(Scan::all());
    let started = Instant::now();
    let (count, error) = rows_before_error(&mut rows).await;
    assert!(matches!(&error, Error::RowTooLong { row, .. } if row == "c33"), "{error}");
    assert_eq!((error.advice(), count), (RetryAdvice::Change, 233));
    assert!(started.elapsed() < Duration::from_millis(10), "{:?}", started.elapsed());
    let calls = servers.count(is_scan);
    // Responses of 2,000 bytes, after a first one of 25,000.
    assert!((10..25).contains(&calls), "{calls} calls");
}

/// Each result takes a byte on the wire, and would take much more in memory.
#[tokio::test(start_paused = true)]
async fn response_with_impossibly_many_results_is_rejected() {
    let servers = Servers::filled();
    let table = servers.table().await;
    servers.script_first(is_scan, |_, _| {
        let zeros = 20 << 20;
        let mut message = vec![1 << 3 | 2];
        prost::encoding::encode_varint(zeros, &mut message);
        message.resize(message.len() + zeros as usize, 0);
        Reply::Response { message, cells: Bytes::new() }
    });
    check_scan(&servers, &table).await;
    assert_eq!(connections(&servers, is_scan), 4, "the connection is replaced");
}
