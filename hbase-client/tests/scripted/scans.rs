//! Whatever happens to a scan, and whenever: each row comes once, whole, in order.

use std::time::Duration;

use hbase_client::proto::scan::ScanRequest;
use hbase_client::{Error, Scan};
use prost::Message;
use tokio::time::Instant;

use crate::support::fake::{Heard, Model, Reply, Servers};
use crate::support::rows::read;
use crate::{check_all, is_of_meta, is_scan, read_all};

async fn filled() -> Servers {
    let servers = Servers::new();
    servers.model(Model::fill);
    servers
}

/// The server goes on, and what it says is lost.
fn answered(heard: &Heard, model: &mut Model) -> Box<Reply> {
    Box::new(model.reply(heard))
}

#[tokio::test(start_paused = true)]
async fn rows_are_put_together_however_small_answers_are() {
    for answer_cells in [1, 2, 3, 4, 7, 100_000] {
        let servers = filled().await;
        servers.model(|model| model.scanners.answer_cells = answer_cells);
        let found = read_all(&servers.table().await).await.unwrap();
        servers.model(|model| check_all(&found, model));
    }
}

#[tokio::test(start_paused = true)]
async fn empty_answers_that_say_there_is_more_are_progress() {
    let servers = filled().await;
    servers.model(|model| (model.scanners.heartbeats, model.scanners.answer_cells) = (20, 3_000));
    // Each takes 9 s, which is less than a call may take; all together take many operations' times.
    servers.script(|heard, model| {
        let reply = is_scan(heard).then(|| model.reply(heard));
        reply.map(|reply| Reply::After(Duration::from_secs(9), Box::new(reply)))
    });
    let begun = Instant::now();
    let found = read_all(&servers.table().await).await.unwrap();
    servers.model(|model| check_all(&found, model));
    assert!(begun.elapsed() > Duration::from_secs(400), "{:?}", begun.elapsed());
    assert_eq!(servers.count(is_of_meta), 2, "nothing is located again");
}

/// A scanner says so many times that there is more, `each` apart, and is gone then. Nothing else ever comes.
async fn never_further(heartbeats: usize, each: Duration) -> (Error, Duration, usize) {
    let servers = filled().await;
    servers.model(|model| model.scanners.heartbeats = usize::MAX);
    let mut calls = 0;
    servers.script(move |heard, model| {
        if !is_scan(heard) || is_close(heard) {
            return None;
        }
        calls += 1;
        let is_lost = calls % (heartbeats + 1) == 0;
        Some(match is_lost {
            true => Reply::exception("org.apache.hadoop.hbase.exceptions.ScannerResetException"),
            false => Reply::After(each, answered(heard, model)),
        })
    });
    let (table, begun) = (servers.table().await, Instant::now());
    let outcome = tokio::time::timeout(Duration::from_secs(3_600), read_all(&table)).await;
    let error = outcome.expect("it ends").unwrap_err();
    (error, begun.elapsed(), servers.count(|heard| is_scan(heard) && !is_close(heard)))
}

fn is_close(heard: &Heard) -> bool {
    ScanRequest::decode(heard.param.clone()).unwrap().close_scanner == Some(true)
}

#[tokio::test(start_paused = true)]
async fn scanner_that_is_lost_again_and_again_at_one_place_is_no_progress() {
    let millisecond = Duration::from_millis(1);
    let (error, waited, calls) = never_further(1, millisecond).await;
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("ScannerResetException"), "{error}");
    assert!((55..=61).contains(&waited.as_secs()), "{waited:?}");
    // At most 2 s apart in the end, two calls each.
    assert!((70..200).contains(&calls), "{calls} calls");
    let (error, waited, _) = never_further(5, millisecond).await;
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!((55..=61).contains(&waited.as_secs()), "{waited:?}");
    // However long each of them lived: the second one has had the time of an operation.
    let (error, waited, calls) = never_further(20, Duration::from_secs(9)).await;
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert_eq!((waited.as_secs() / 100, calls), (3, 42), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn scanner_that_is_lost_after_a_long_time_without_rows_is_opened_again() {
    let servers = filled().await;
    servers.model(|model| (model.scanners.heartbeats, model.scanners.answer_cells) = (20, 3_000));
    let mut calls = 0;
    servers.script(move |heard, model| {
        if !is_scan(heard) || is_close(heard) {
            return None;
        }
        calls += 1;
        // In each of the three regions once, at another call.
        Some(match [15, 52, 80].contains(&calls) {
            true => Reply::Close,
            false => Reply::After(Duration::from_secs(9), answered(heard, model)),
        })
    });
    let found = read_all(&servers.table().await).await.unwrap();
    servers.model(|model| check_all(&found, model));
}

#[tokio::test(start_paused = true)]
async fn scan_without_progress_ends_at_its_deadline() {
    let servers = filled().await;
    servers.script(|heard, _| is_scan(heard).then_some(Reply::Never));
    let begun = Instant::now();
    let error = read_all(&servers.table().await).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(
        error.to_string().contains("a step of a scan was not done within 60s; last: "),
        "{error}"
    );
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(50) && waited <= Duration::from_secs(61), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn rows_before_an_error_are_given_out() {
    let servers = filled().await;
    let mut calls = 0;
    servers.script(move |heard, _| {
        calls += usize::from(is_scan(heard));
        let class = "org.apache.hadoop.hbase.DoNotRetryIOException";
        (is_scan(heard) && calls > 2).then(|| Reply::exception(class))
    });
    let mut rows = servers.table().await.scan(Scan::all());
    let mut count = 0;
    let error = loop {
        match rows.next().await {
            Some(Ok(_)) => count += 1,
            Some(Err(error)) => break error,
            None => panic!("an end without the error"),
        }
    };
    // Two answers of 700 cells.
    assert_eq!(count, 1_400 / 3);
    assert!(error.to_string().contains("DoNotRetryIOException"), "{error}");
    assert!(rows.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn rows_that_come_twice_are_given_out_once() {
    let servers = filled().await;
    let mut last = None;
    // Each answer once more, in place of every fifth one, and its own after it.
    let mut calls = 0;
    servers.script(move |heard, model| {
        if !is_scan(heard) {
            return None;
        }
        calls += 1;
        match last.take() {
            Some(repeated) if calls % 5 == 0 => {
                model.scanners.forget_all();
                Some(repeated)
            }
            _ => {
                let reply = model.reply(heard);
                last = matches!(reply, Reply::Answer { .. }).then(|| reply.clone());
                Some(reply)
            }
        }
    });
    let found = read_all(&servers.table().await).await.unwrap();
    servers.model(|model| check_all(&found, model));
}

#[tokio::test(start_paused = true)]
async fn limit_holds_over_regions_and_faults() {
    for limit in [1, 699, 700, 701, 1_500, 2_600, 5_000] {
        let servers = filled().await;
        let mut calls = 0;
        servers.script(move |heard, _| {
            calls += usize::from(is_scan(heard));
            (is_scan(heard) && calls % 3 == 0).then_some(Reply::Close)
        });
        let found = read(&servers.table().await, Scan::all().limit(limit)).await.unwrap();
        assert_eq!(found.len() as u64, limit.min(2_600));
    }
}

#[tokio::test(start_paused = true)]
async fn who_stops_reading_ends_the_scanner() {
    let servers = filled().await;
    let mut rows = servers.table().await.scan(Scan::all());
    rows.next().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(servers.model(|model| model.scanners.count()), 1);
    let ahead = servers.count(is_scan);
    assert!(ahead <= 4, "{ahead} calls, though nobody has read more than one row");
    drop(rows);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(servers.model(|model| model.scanners.count()), 0);
}

#[tokio::test(start_paused = true)]
async fn scanner_that_grew_too_old_while_nobody_read_is_opened_again() {
    let servers = filled().await;
    let mut rows = servers.table().await.scan(Scan::all());
    let mut found = vec![rows.next().await.unwrap().unwrap()];
    // Longer than an operation may take: the time is the reader's own.
    tokio::time::sleep(Duration::from_secs(300)).await;
    servers.model(|model| model.scanners.forget_all());
    found.extend(crate::support::rows::gather(rows).await.unwrap());
    servers.model(|model| check_all(&found, model));
}

/// What is read after it must not look like all there is.
#[test]
fn scan_whose_runtime_ends_does_not_look_complete() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reading = runtime();
    let mut rows = reading.block_on(async {
        let mut rows = filled().await.table().await.scan(Scan::all());
        rows.next().await.unwrap().unwrap();
        rows
    });
    drop(reading);
    let last = runtime().block_on(async {
        loop {
            match rows.next().await {
                Some(Ok(_)) => {}
                other => break other,
            }
        }
    });
    assert!(matches!(last, Some(Err(Error::Closed))), "{last:?}");
}
