//! The reaction to errors of a whole call, of one region, and of one row.

use std::time::Duration;

use hbase_client::proto::common::NameBytesPair;
use hbase_client::proto::data::{
    Action, MultiRequest, MultiResponse, RegionAction, RegionActionResult, ResultOrException,
};
use hbase_client::{Error, Put, RetryAdvice};
use prost::Message;
use tokio::time::Instant;

use crate::support::fake::{Call, Reply, Servers};
use crate::{is_meta_scan, is_multi};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reaction {
    /// Reads `hbase:meta` again and retries.
    Relocate,
    /// Retries on the server that the exception names.
    Follow,
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

/// Returns a response to a batch with an exception at this level. `class` is relative to HBase's package.
fn exception_reply(level: Level, class: &str, text: &str, call: &Call) -> Reply {
    let class = format!("org.apache.hadoop.hbase.{class}");
    let text = format!("{class}: {text}");
    if matches!(level, Level::Call) {
        return Reply::Exception { class, text, do_not_retry: false, moved_to: None };
    }
    let exception = Some(NameBytesPair { name: class, value: Some(text.into()) });
    let row = |row: &Action| ResultOrException {
        index: row.index,
        exception: exception.clone(),
        result: None,
    };
    let request = MultiRequest::decode(call.param.clone()).unwrap();
    let result = |region: &RegionAction| match level {
        Level::Row => RegionActionResult {
            result_or_exception: region.action.iter().map(row).collect(),
            ..RegionActionResult::default()
        },
        _ => RegionActionResult { exception: exception.clone(), ..Default::default() },
    };
    let region_action_result = request.region_action.iter().map(result).collect();
    Reply::response(&MultiResponse { region_action_result })
}

/// Checks the reaction to a first attempt that fails with this exception.
async fn check(level: Level, class: &'static str, text: &'static str, expected: Reaction) {
    let servers = Servers::new();
    let table = servers.table().await;
    // Locates the region first.
    table.mutate(Put::new("a").cell("d", "q", "0")).await.unwrap();
    servers.script_first(is_multi, move |call, model| {
        if expected == Reaction::Follow {
            // `hbase:meta` is not updated: only the exception has the new server.
            model.regions[0].server = "s3:1".to_owned();
        }
        exception_reply(level, class, text, call)
    });
    let (before, started) = (servers.count(is_meta_scan), Instant::now());
    let outcome = table.mutate(Put::new("b").cell("d", "q", "1")).await;
    let located = servers.count(is_meta_scan) - before;
    let last = servers.with(|fake| fake.calls.last().cloned()).unwrap();
    let reaction = match &outcome {
        Err(error) => {
            assert!(error.to_string().contains(class), "{error}");
            assert_eq!(error.advice(), RetryAdvice::Change, "{error}");
            Reaction::Fail
        }
        Ok(()) if located > 0 => Reaction::Relocate,
        Ok(()) if last.server == "s3:1" => Reaction::Follow,
        Ok(()) => Reaction::Wait,
    };
    assert_eq!(reaction, expected, "{class} of a {level:?}");
    let waited = started.elapsed();
    let is_delayed = waited >= Duration::from_millis(10);
    assert_eq!(is_delayed, expected != Reaction::Fail, "{class}: {waited:?}");
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
            check(level, class, "as the test wants", expected).await;
        }
    }
    let (sanity, text) = ("exceptions.FailedSanityCheckException", "Requested row out of range");
    check(Level::Row, sanity, text, Reaction::Relocate).await;
    check(Level::Region, sanity, text, Reaction::Relocate).await;
}

/// Scans are tested in `every_call.rs`.
#[tokio::test(start_paused = true)]
async fn moved_region_is_followed_without_reading_meta() {
    let text = "Region moved to: hostname=s3 port=1 startCode=1. As of 2.";
    for level in [Level::Call, Level::Region, Level::Row] {
        check(level, "exceptions.RegionMovedException", text, Reaction::Follow).await;
    }
}

#[tokio::test(start_paused = true)]
async fn retries_end_at_the_deadline_with_the_last_error() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(|call, _| is_multi(call).then(|| Reply::exception("RegionTooBusyException")));
    let started = Instant::now();
    let error = table.mutate(Put::new("b").cell("d", "q", "1")).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 60);
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("RegionTooBusyException"), "{error}");
    assert_eq!(error.advice(), RetryAdvice::TryLater);
    // Delays of 10 ms to 2 s limit the number of retries.
    let attempts = servers.count(is_multi);
    assert!((35..100).contains(&attempts), "{attempts} attempts");
}
