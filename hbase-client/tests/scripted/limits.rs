//! Bounds: of time, of bytes on their way, of connections that hang.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hbase_client::proto::scan::ScanResponse;
use hbase_client::wire::cell::{Kind, Parts};
use hbase_client::{Error, Get, Mutation, Put, RetryAdvice, Scan, Table};
use prost::Message;
use tokio::time::Instant;

use crate::support::fake::{Heard, Model, Reply, Servers};
use crate::{check_all, is_multi, is_scan, read_all};

fn connections(servers: &Servers) -> usize {
    connections_of(servers, is_multi)
}

fn connections_of(servers: &Servers, holds: fn(&Heard) -> bool) -> usize {
    servers.with(|fake| {
        let calls = fake.heard.iter().filter(|heard| holds(heard));
        calls.map(|heard| heard.connection).collect::<HashSet<_>>().len()
    })
}

#[tokio::test(start_paused = true)]
async fn servers_are_told_how_long_is_waited() {
    let servers = Servers::new();
    let mut config = Servers::config();
    config.operation_timeout = Duration::from_secs(25);
    let table = servers.table_of(config).await;
    servers.script(|heard, _| is_multi(heard).then_some(Reply::Never));
    let begun = Instant::now();
    let error = table.get(Get::new("a")).await.unwrap_err();
    assert!(error.to_string().contains("not done within 25s"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 25);
    let told: Vec<_> = servers.with(|fake| {
        fake.heard
            .iter()
            .filter(|heard| is_multi(heard))
            .map(|heard| heard.timeout_ms / 1_000)
            .collect()
    });
    // 10 s each, and the last one what is left of 25 s.
    assert_eq!(told, [10, 10, 4], "seconds");
}

#[tokio::test(start_paused = true)]
async fn connection_on_which_nothing_comes_is_left() {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut hung = HashSet::new();
    // Whichever connection is the first one to this server hangs for ever.
    servers.script(move |heard, _| {
        if is_multi(heard) && hung.is_empty() {
            hung.insert(heard.connection);
        }
        hung.contains(&heard.connection).then_some(Reply::Never)
    });
    let begun = Instant::now();
    table.get(Get::new("a")).await.unwrap();
    assert!((10..12).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(connections(&servers), 2);
}

#[tokio::test(start_paused = true)]
async fn late_answer_harms_nobody() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let table = servers.table().await;
    let mut is_first = true;
    servers.script(move |heard, model| {
        let hits = is_multi(heard) && std::mem::take(&mut is_first);
        hits.then(|| Reply::After(Duration::from_secs(12), Box::new(model.reply(heard))))
    });
    let row = |name: &'static str| {
        let table = table.clone();
        async move { table.get(Get::new(name)).await.unwrap().unwrap().key().to_vec() }
    };
    // Others are answered on that connection meanwhile: it does not hang, one call does.
    let (slow, _) = tokio::join!(row("a00"), async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(row("b00").await, b"b00");
    });
    assert_eq!(slow, b"a00");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(row("c00").await, b"c00");
    assert_eq!(connections(&servers), 1);
}

#[tokio::test(start_paused = true)]
async fn answers_in_any_order_find_who_waits_for_them() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let table = servers.table().await;
    let mut random = fastrand::Rng::with_seed(7);
    servers.script(move |heard, model| {
        let delay = Duration::from_millis(random.u64(..1_000));
        is_multi(heard).then(|| Reply::After(delay, Box::new(model.reply(heard))))
    });
    let mut reading = tokio::task::JoinSet::new();
    for number in 0..300 {
        let row = format!("{}{:02}", (b'a' + (number % 26) as u8) as char, number % 100);
        let table = table.clone();
        reading.spawn(async move {
            let found = table.get(Get::new(row.clone())).await.unwrap().unwrap();
            assert_eq!(found.key(), row.as_bytes());
            assert_eq!(found.value(b"d", b"x"), Some(format!("{row}x").as_bytes()));
        });
    }
    while let Some(read) = reading.join_next().await {
        read.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_on_their_way_to_a_server_are_bounded() {
    let servers = Servers::new();
    let mut config = Servers::config();
    (config.in_flight_bytes_max, config.call_bytes_max) = (100_000, 20_000);
    let table = servers.table_of(config).await;
    servers.script(|heard, model| {
        let reply = is_multi(heard).then(|| Box::new(model.reply(heard)));
        reply.map(|reply| Reply::After(Duration::from_secs(1), reply))
    });
    let put =
        |row: u32| Mutation::from(Put::new(format!("a{row:04}")).cell("d", "q", vec![7; 1_000]));
    let writing = table.clone();
    let writing =
        tokio::spawn(async move { writing.mutate_many((0..1_000).map(put).collect()).await });
    let bytes = |heard: &Heard| heard.param.len() + heard.cells.len();
    let mut before = 0;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(999)).await;
        let all: usize =
            servers.with(|fake| fake.heard.iter().filter(|heard| is_multi(heard)).map(bytes).sum());
        assert!(all - before <= 100_000, "{} bytes in a second", all - before);
        assert!(all - before >= 60_000, "only {} bytes in a second", all - before);
        before = all;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(writing.await.unwrap().iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn who_no_longer_waits_leaves_nothing_behind() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let mut config = Servers::config();
    config.in_flight_bytes_max = 1_000;
    let table = servers.table_of(config).await;
    table.get(Get::new("a00")).await.unwrap();
    servers.script(|heard, model| {
        let reply = is_multi(heard).then(|| Box::new(model.reply(heard)));
        reply.map(|reply| Reply::After(Duration::from_millis(100), reply))
    });
    // Were what they took of the budget kept, the last one would wait for ever.
    for _ in 0..100 {
        let waited =
            tokio::time::timeout(Duration::from_millis(1), table.get(Get::new("a00"))).await;
        assert!(waited.is_err());
    }
    assert!(table.get(Get::new("a00")).await.unwrap().is_some());
}

/// Calls that write ten rows of 1,000 bytes get no answer on such connections; others, of which one is made
/// every second, get theirs at once.
async fn unanswered(
    in_flight_bytes_max: usize,
    is_unanswered: fn(usize) -> bool,
) -> (Servers, Table) {
    let servers = Servers::new();
    let mut config = Servers::config();
    (config.in_flight_bytes_max, config.call_bytes_max) = (in_flight_bytes_max, 12_000);
    let table = servers.table_of(config).await;
    // Where everything is is known before, and which connection is the first one.
    table.mutate(Put::new("b").cell("d", "q", "0")).await.unwrap();
    servers.script(move |heard, _| {
        let is_large = is_multi(heard) && heard.cells.len() > 5_000;
        (is_large && is_unanswered(heard.connection)).then_some(Reply::Never)
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
async fn bytes_whose_answers_nobody_waits_for_any_more_are_still_on_their_way() {
    let (servers, table) = unanswered(50_000, |_| true).await;
    let outcomes = table.mutate_many(large_puts(0..30)).await;
    assert!(outcomes.iter().all(Result::is_err));
    let by_connection = servers.with(|fake| {
        let mut bytes = BTreeMap::<usize, usize>::new();
        for heard in fake.heard.iter().filter(|heard| heard.cells.len() > 5_000) {
            *bytes.entry(heard.connection).or_default() += heard.param.len() + heard.cells.len();
        }
        bytes
    });
    // None of them is answered: what was sent on a connection is all still there.
    let (calls, most) = (servers.count(|heard| heard.cells.len() > 5_000), by_connection.values());
    assert!(calls >= 8, "{calls} calls");
    assert!(most.clone().all(|&bytes| bytes <= 50_000), "{by_connection:?}");
}

#[tokio::test(start_paused = true)]
async fn connection_full_of_calls_that_are_never_answered_is_left() {
    static FIRST: AtomicUsize = AtomicUsize::new(usize::MAX);
    let is_first = |connection| FIRST.fetch_min(connection, Ordering::Relaxed) >= connection;
    let (servers, table) = unanswered(50_000, is_first).await;
    let begun = Instant::now();
    let outcomes = table.mutate_many(large_puts(0..30)).await;
    assert!(outcomes.iter().all(Result::is_ok));
    // The time of a call, and half of it until the room is missed.
    assert!((15..17).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(connections(&servers), 2);
}

#[tokio::test(start_paused = true)]
async fn row_that_never_ends_is_given_up() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let mut config = Servers::config();
    config.row_bytes_max = 50_000;
    let table = servers.table_of(config).await;
    // 233 rows and a part of the next one, and then parts of that for ever.
    let mut calls = 0;
    servers.script(move |heard, _| {
        calls += usize::from(is_scan(heard));
        if !is_scan(heard) || calls == 1 {
            return None;
        }
        let mut cells = Vec::new();
        let (row, family, qualifier) = (b"c33", b"d", b"y");
        let (timestamp, kind, value) = (1, Kind::Put, &[7; 2_000]);
        Parts { row, family, qualifier, timestamp, kind, value }.put(&mut cells);
        let answer = ScanResponse {
            cells_per_result: vec![1],
            partial_flag_per_result: vec![true],
            more_results_in_region: Some(true),
            ..ScanResponse::default()
        };
        Some(Reply::Answer { message: answer.encode_to_vec(), cells: cells.into() })
    });
    let mut rows = table.scan(Scan::all());
    let (mut count, begun) = (0, Instant::now());
    let error = loop {
        match rows.next().await {
            Some(Ok(_)) => count += 1,
            Some(Err(error)) => break error,
            None => panic!("an end without the error"),
        }
    };
    assert!(matches!(&error, Error::RowTooLong { row, .. } if row == "c33"), "{error}");
    assert_eq!((error.advice(), count), (RetryAdvice::Change, 233));
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    let calls = servers.count(is_scan);
    assert!((10..25).contains(&calls), "{calls} calls of 2,000 bytes, after a first one of 25,000");
}

/// A byte each on their way, and much more in memory, were they taken.
#[tokio::test(start_paused = true)]
async fn results_that_can_not_be_there_are_not_believed() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let table = servers.table().await;
    let mut calls = 0;
    servers.script(move |heard, _| {
        calls += usize::from(is_scan(heard));
        (is_scan(heard) && calls == 3).then(|| {
            let zeros = 20 << 20;
            let mut message = vec![1 << 3 | 2];
            prost::encoding::encode_varint(zeros, &mut message);
            message.resize(message.len() + zeros as usize, 0);
            Reply::Answer { message, cells: Bytes::new() }
        })
    });
    let found = read_all(&table).await.unwrap();
    servers.model(|model| check_all(&found, model));
    assert_eq!(connections_of(&servers, is_scan), 4, "the one that it came on is left");
}
