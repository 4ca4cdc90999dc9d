//! The reaction to each class of error, in the response to a call, to a region, and to a row.

use std::time::Duration;

use hbase_client::proto::common::NameBytesPair;
use hbase_client::proto::data::{
    MultiRequest, MultiResponse, RegionActionResult, ResultOrException,
};
use hbase_client::{CheckAndMutate, Error, Get, Put, RetryAdvice};
use prost::Message;
use tokio::time::Instant;

use crate::support::fake::{Call, Reply, Servers};
use crate::{is_meta_scan, is_multi};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reaction {
    /// Reads `hbase:meta` again and retries.
    Relocate,
    /// Waits and retries on the same server.
    Wait,
    Fail,
}

/// The part of the response that contains the exception.
#[derive(Debug, Clone, Copy)]
enum Level {
    Call,
    Region,
    Row,
}

const HBASE: &str = "org.apache.hadoop.hbase";

fn failed(level: Level, class: &str, call: &Call) -> Reply {
    let text = match class.contains("FailedSanityCheck") {
        true => format!("{class}: Requested row out of range for doMiniBatchMutate"),
        false => format!("{class}: as the test wants"),
    };
    let exception = Some(NameBytesPair { name: class.to_owned(), value: Some(text.into()) });
    let request = MultiRequest::decode(call.param.clone()).unwrap();
    let result = |index: usize| match level {
        Level::Call => unreachable!(),
        Level::Region => RegionActionResult { exception: exception.clone(), ..Default::default() },
        Level::Row => {
            let rows = request.region_action[index].action.iter();
            let row = |row: &hbase_client::proto::data::Action| ResultOrException {
                index: row.index,
                exception: exception.clone(),
                result: None,
            };
            RegionActionResult {
                result_or_exception: rows.map(row).collect(),
                ..Default::default()
            }
        }
    };
    match level {
        Level::Call => Reply::exception(class),
        _ => Reply::response(&MultiResponse {
            region_action_result: (0..request.region_action.len()).map(result).collect(),
        }),
    }
}

/// Checks the reaction to a first attempt that fails with this exception.
async fn check(level: Level, class: String, expected: Reaction) {
    let servers = Servers::new();
    let table = servers.table().await;
    // Locates the region first.
    table.mutate(Put::new("a").cell("d", "q", "0")).await.unwrap();
    let (mut tries, failing) = (0, class.clone());
    servers.script(move |call, _| {
        tries += usize::from(is_multi(call));
        (is_multi(call) && tries == 1).then(|| failed(level, &failing, call))
    });
    let (before, started) = (servers.count(is_meta_scan), Instant::now());
    let outcome = table.mutate(Put::new("b").cell("d", "q", "1")).await;
    let located = servers.count(is_meta_scan) - before;
    let reaction = match &outcome {
        Err(error) => {
            assert!(error.to_string().contains(&class), "{error}");
            assert_eq!(error.advice(), RetryAdvice::Change, "{error}");
            Reaction::Fail
        }
        Ok(()) if located > 0 => Reaction::Relocate,
        Ok(()) => Reaction::Wait,
    };
    assert_eq!(reaction, expected, "{class} of a {level:?}");
    let waited = started.elapsed();
    assert_eq!(
        waited >= Duration::from_millis(10),
        expected != Reaction::Fail,
        "{class}: {waited:?}"
    );
    assert!(waited < Duration::from_secs(1), "{class}: {waited:?}");
    let writes = servers.model(|model| model.writes.get(&b"b"[..]).copied());
    assert_eq!(writes.is_some(), expected != Reaction::Fail);
}

/// Tests one class for each reaction; `remote_exception.rs` tests every class.
#[tokio::test(start_paused = true)]
async fn errors_of_calls_regions_and_rows_are_handled_alike() {
    for (class, expected) in [
        ("NotServingRegionException", Reaction::Relocate),
        ("RegionTooBusyException", Reaction::Wait),
        ("regionserver.RegionServerStoppedException", Reaction::Relocate),
        ("regionserver.NoSuchColumnFamilyException", Reaction::Fail),
    ] {
        for level in [Level::Call, Level::Region, Level::Row] {
            check(level, format!("{HBASE}.{class}"), expected).await;
        }
    }
    let sanity = format!("{HBASE}.exceptions.FailedSanityCheckException");
    check(Level::Row, sanity.clone(), Reaction::Relocate).await;
    check(Level::Region, sanity, Reaction::Relocate).await;
}

/// `do_not_retry` applies to a class that says nothing about retries.
#[tokio::test(start_paused = true)]
async fn exception_with_do_not_retry_is_final() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(|call, _| {
        let class = "java.io.IOException".to_owned();
        let text = format!("{class}: as the test wants");
        is_multi(call).then_some(Reply::Exception {
            class,
            text,
            do_not_retry: true,
            moved_to: None,
        })
    });
    let started = Instant::now();
    let error = table.get(Get::new("a")).await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { exception, .. } if exception.do_not_retry),
        "{error}"
    );
    assert_eq!(error.advice(), RetryAdvice::Change);
    assert!(started.elapsed() < Duration::from_millis(10), "{:?}", started.elapsed());
    assert_eq!(servers.count(is_multi), 1);
}

/// Moves the first region without updating `hbase:meta`: only the exception has its new server.
fn script_move(servers: &Servers, level: Level) {
    servers.script(move |call, model| {
        if !is_multi(call) || call.server != "s1:1" {
            return None;
        }
        model.regions[0].server = "s3:1".to_owned();
        let class = format!("{HBASE}.exceptions.RegionMovedException");
        let text = format!("{class}: Region moved to: hostname=s3 port=1 startCode=1. As of 2.");
        Some(match failed(level, &class, call) {
            Reply::Exception { class, do_not_retry, .. } => {
                let moved_to = Some(("s3".to_owned(), 1));
                Reply::Exception { class, text: String::new(), do_not_retry, moved_to }
            }
            Reply::Response { message, .. } => {
                let mut response = MultiResponse::decode(&message[..]).unwrap();
                for region in &mut response.region_action_result {
                    let rows = region.result_or_exception.iter_mut();
                    let rows = rows.filter_map(|row| row.exception.as_mut());
                    let all = rows.chain(region.exception.as_mut());
                    all.for_each(|pair| pair.value = Some(text.clone().into()));
                }
                Reply::response(&response)
            }
            other => other,
        })
    });
}

#[tokio::test(start_paused = true)]
async fn moved_region_is_followed_without_reading_meta() {
    // For any action, and an exception at any level. Scans are tested in `every_call.rs`.
    for level in [Level::Call, Level::Region, Level::Row] {
        for what in ["put", "get", "check"] {
            let servers = Servers::new();
            let table = servers.table().await;
            table.mutate(Put::new("a").cell("d", "q", "0")).await.unwrap();
            script_move(&servers, level);
            let before = servers.count(is_meta_scan);
            let put = Put::new("b").cell("d", "q", "1");
            match what {
                "put" => table.mutate(put).await.unwrap(),
                "get" => assert!(table.get(Get::new("a")).await.unwrap().is_some()),
                _ => {
                    let check = CheckAndMutate::where_absent("d", "q", put);
                    assert!(table.check_and_mutate(check).await.unwrap());
                }
            }
            assert_eq!(servers.count(is_meta_scan), before, "{what} of a {level:?}");
            let last = servers.with(|fake| fake.calls.last().cloned()).unwrap();
            assert_eq!(last.server, "s3:1");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retries_end_at_the_deadline_with_the_last_error() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(|call, _| {
        is_multi(call).then(|| Reply::exception("org.apache.hadoop.hbase.RegionTooBusyException"))
    });
    let started = Instant::now();
    let error = table.mutate(Put::new("b").cell("d", "q", "1")).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 60);
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("RegionTooBusyException"), "{error}");
    assert_eq!(error.advice(), RetryAdvice::TryLater);
    // With delays of 10 ms to 2 s, there are several retries but not a storm.
    let tries = servers.count(is_multi);
    assert!((35..100).contains(&tries), "{tries} tries");
}
