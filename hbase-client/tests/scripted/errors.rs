//! What is done about each class of error: in the answer to a whole call, to a region, to a row.

use std::time::Duration;

use hbase_client::proto::common::NameBytesPair;
use hbase_client::proto::data::{
    MultiRequest, MultiResponse, RegionActionResult, ResultOrException,
};
use hbase_client::{CheckAndMutate, Error, Get, Put, RetryAdvice};
use prost::Message;
use tokio::time::Instant;

use crate::support::fake::{Heard, Reply, Servers};
use crate::{is_multi, is_of_meta};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    /// Asks `hbase:meta` again, then tries.
    Relocate,
    /// Waits, then tries the same server.
    Wait,
    Fail,
}

#[derive(Debug, Clone, Copy)]
enum Where {
    Call,
    Region,
    Row,
}

const HBASE: &str = "org.apache.hadoop.hbase";

fn failed(place: Where, class: &str, heard: &Heard) -> Reply {
    let text = match class.contains("FailedSanityCheck") {
        true => format!("{class}: Requested row out of range for doMiniBatchMutate"),
        false => format!("{class}: as the test wants"),
    };
    let exception = Some(NameBytesPair { name: class.to_owned(), value: Some(text.into()) });
    let request = MultiRequest::decode(heard.param.clone()).unwrap();
    let result = |index: usize| match place {
        Where::Call => unreachable!(),
        Where::Region => RegionActionResult { exception: exception.clone(), ..Default::default() },
        Where::Row => {
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
    match place {
        Where::Call => Reply::exception(class),
        _ => Reply::answer(&MultiResponse {
            region_action_result: (0..request.region_action.len()).map(result).collect(),
        }),
    }
}

/// The first try fails so; what is done then?
async fn check(place: Where, class: String, expected: Does) {
    let servers = Servers::new();
    let table = servers.table().await;
    // Where everything is is known before.
    table.mutate(Put::new("a").cell("d", "q", "0")).await.unwrap();
    let (mut tries, failing) = (0, class.clone());
    servers.script(move |heard, _| {
        tries += usize::from(is_multi(heard));
        (is_multi(heard) && tries == 1).then(|| failed(place, &failing, heard))
    });
    let (before, begun) = (servers.count(is_of_meta), Instant::now());
    let outcome = table.mutate(Put::new("b").cell("d", "q", "1")).await;
    let located = servers.count(is_of_meta) - before;
    let did = match &outcome {
        Err(error) => {
            assert!(error.to_string().contains(&class), "{error}");
            assert_eq!(error.advice(), RetryAdvice::Change, "{error}");
            Does::Fail
        }
        Ok(()) if located > 0 => Does::Relocate,
        Ok(()) => Does::Wait,
    };
    assert_eq!(did, expected, "{class} of a {place:?}");
    let waited = begun.elapsed();
    assert_eq!(waited >= Duration::from_millis(10), expected != Does::Fail, "{class}: {waited:?}");
    assert!(waited < Duration::from_secs(1), "{class}: {waited:?}");
    let writes = servers.model(|model| model.writes.get(&b"b"[..]).copied());
    assert_eq!(writes.is_some(), expected != Does::Fail);
}

/// One class for each thing that is done; `remote_exception.rs` has every class.
#[tokio::test(start_paused = true)]
async fn errors_of_calls_regions_and_rows_are_handled_alike() {
    for (class, expected) in [
        ("NotServingRegionException", Does::Relocate),
        ("RegionTooBusyException", Does::Wait),
        ("regionserver.RegionServerStoppedException", Does::Relocate),
        ("regionserver.NoSuchColumnFamilyException", Does::Fail),
    ] {
        for place in [Where::Call, Where::Region, Where::Row] {
            check(place, format!("{HBASE}.{class}"), expected).await;
        }
    }
    let sanity = format!("{HBASE}.exceptions.FailedSanityCheckException");
    check(Where::Row, sanity.clone(), Does::Relocate).await;
    check(Where::Region, sanity, Does::Relocate).await;
}

/// What the server says of another try holds for a class that says nothing.
#[tokio::test(start_paused = true)]
async fn bare_exception_that_says_not_to_try_again_is_final() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(|heard, _| {
        let class = "java.io.IOException".to_owned();
        let text = format!("{class}: as the test wants");
        is_multi(heard).then_some(Reply::Exception { class, text, do_not_retry: true, place: None })
    });
    let begun = Instant::now();
    let error = table.get(Get::new("a")).await.unwrap_err();
    assert!(matches!(&error, Error::Refused { fault, .. } if fault.do_not_retry), "{error}");
    assert_eq!(error.advice(), RetryAdvice::Change);
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(servers.count(is_multi), 1);
}

/// `hbase:meta` does not say so yet: only the exception tells where the first region went.
fn script_move(servers: &Servers, place: Where) {
    servers.script(move |heard, model| {
        if !is_multi(heard) || heard.server != "s1:1" {
            return None;
        }
        model.regions[0].server = "s3:1".to_owned();
        let class = format!("{HBASE}.exceptions.RegionMovedException");
        let text = format!("{class}: Region moved to: hostname=s3 port=1 startCode=1. As of 2.");
        Some(match failed(place, &class, heard) {
            Reply::Exception { class, do_not_retry, .. } => {
                let place = Some(("s3".to_owned(), 1));
                Reply::Exception { class, text: String::new(), do_not_retry, place }
            }
            Reply::Answer { message, .. } => {
                let mut answer = MultiResponse::decode(&message[..]).unwrap();
                for region in &mut answer.region_action_result {
                    let rows = region.result_or_exception.iter_mut();
                    let rows = rows.filter_map(|row| row.exception.as_mut());
                    let all = rows.chain(region.exception.as_mut());
                    all.for_each(|pair| pair.value = Some(text.clone().into()));
                }
                Reply::answer(&answer)
            }
            other => other,
        })
    });
}

#[tokio::test(start_paused = true)]
async fn region_that_moved_tells_where_and_is_not_looked_for() {
    // Whatever is done, and wherever it is said. A scan hears it too: see `every_call.rs`.
    for place in [Where::Call, Where::Region, Where::Row] {
        for what in ["put", "get", "check"] {
            let servers = Servers::new();
            let table = servers.table().await;
            table.mutate(Put::new("a").cell("d", "q", "0")).await.unwrap();
            script_move(&servers, place);
            let before = servers.count(is_of_meta);
            let put = Put::new("b").cell("d", "q", "1");
            match what {
                "put" => table.mutate(put).await.unwrap(),
                "get" => assert!(table.get(Get::new("a")).await.unwrap().is_some()),
                _ => {
                    let check = CheckAndMutate::where_absent("d", "q", put);
                    assert!(table.check_and_mutate(check).await.unwrap());
                }
            }
            assert_eq!(servers.count(is_of_meta), before, "{what} of a {place:?}");
            let last = servers.with(|fake| fake.heard.last().cloned()).unwrap();
            assert_eq!(last.server, "s3:1");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retries_end_at_the_deadline_with_the_last_error() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(|heard, _| {
        is_multi(heard).then(|| Reply::exception("org.apache.hadoop.hbase.RegionTooBusyException"))
    });
    let begun = Instant::now();
    let error = table.mutate(Put::new("b").cell("d", "q", "1")).await.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("RegionTooBusyException"), "{error}");
    assert_eq!(error.advice(), RetryAdvice::TryLater);
    // 10 ms to 2 s apart: neither a storm nor a single try.
    let tries = servers.count(is_multi);
    assert!((35..100).contains(&tries), "{tries} tries");
}
