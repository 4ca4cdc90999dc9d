//! Faults at every single call of a scan: each row is returned once, whole and in order, or the scan fails.

use std::time::Duration;

use hbase_client::{RetryAdvice, Scan};
use tokio::time::Instant;

use crate::support::fake::{Call, FakeRegion, Model, Reply, Servers};
use crate::{check_all, is_meta_scan, is_scan, read_all, rows_before_error};

/// Returns the number of calls of a scan without faults.
async fn calls() -> usize {
    let servers = Servers::filled();
    read_all(&servers.table().await).await.unwrap();
    let calls = servers.count(is_scan);
    assert!(calls >= 12, "{calls} calls");
    calls
}

/// Returns servers with a fault at call number `at` of a scan, counted from 0.
fn with_fault(at: usize, fault: impl Fn(&Call, &mut Model) -> Reply + Send + 'static) -> Servers {
    let servers = Servers::filled();
    let mut calls = 0;
    servers.script(move |call, model| {
        let hits = is_scan(call) && calls == at;
        calls += usize::from(is_scan(call));
        hits.then(|| fault(call, model))
    });
    servers
}

/// The reaction to a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reaction {
    /// Reads `hbase:meta` again.
    Relocate,
    /// Opens a scanner on the same server after a delay.
    Wait,
    /// Opens a scanner on the same server at once.
    Reopen,
}

/// Checks a scan with a fault at each of its calls, and returns the reactions.
async fn check_at_every_call(
    name: &str,
    fault: impl Fn(&Call, &mut Model) -> Reply + Clone + Send + 'static,
) -> Vec<Reaction> {
    let calls = calls().await;
    let mut reactions = Vec::new();
    for at in 0..calls {
        let servers = with_fault(at, fault.clone());
        let (table, started) = (servers.table().await, Instant::now());
        let found = read_all(&table).await;
        let found = found.unwrap_or_else(|error| panic!("{name} at call {at}: {error}"));
        servers.model(|model| check_all(&found, model));
        assert!(servers.count(is_scan) > calls, "{name} at call {at} caused no further call");
        let is_delayed = started.elapsed() >= Duration::from_millis(10);
        // Without a fault, a scan reads `hbase:meta` twice.
        reactions.push(match servers.count(is_meta_scan) > 2 {
            true => Reaction::Relocate,
            false if is_delayed => Reaction::Wait,
            false => Reaction::Reopen,
        });
    }
    reactions
}

async fn check_class(class: &'static str, expected: Reaction) {
    let reactions = check_at_every_call(class, move |_, _| Reply::exception(class)).await;
    assert!(reactions.iter().all(|&reaction| reaction == expected), "{class}: {reactions:?}");
}

/// Tests one class for each reaction; `remote_exception.rs` tests every class.
#[tokio::test(start_paused = true)]
async fn moved_regions_and_busy_or_stopped_servers_lose_no_row() {
    check_class("NotServingRegionException", Reaction::Relocate).await;
    // The exception does not name the new server.
    check_class("exceptions.RegionMovedException", Reaction::Relocate).await;
    check_class("CallQueueTooBigException", Reaction::Wait).await;
    check_class("regionserver.RegionServerStoppedException", Reaction::Relocate).await;
}

#[tokio::test(start_paused = true)]
async fn lost_scanners_are_reopened() {
    for class in ["UnknownScannerException", "regionserver.LeaseException"] {
        check_class(class, Reaction::Reopen).await;
        // The scanner has advanced, the client does not know how far, and the server has closed it.
        let reactions = check_at_every_call(class, move |call, model| {
            model.reply(call);
            model.scanners.forget_all();
            Reply::exception(class)
        });
        assert!(reactions.await.iter().all(|&reaction| reaction == Reaction::Reopen), "{class}");
    }
}

#[tokio::test(start_paused = true)]
async fn moved_region_is_followed_without_reading_meta() {
    let text = "Region moved to: hostname=s3 port=1 startCode=1. As of 2.";
    // The new server is in the fields of the exception, or in its text only.
    for (text, moved_to) in [("", Some(("s3".to_owned(), 1))), (text, None)] {
        let reactions = check_at_every_call("moved", move |call, model| {
            // `hbase:meta` is not updated yet.
            let moved = model.regions.iter_mut().find(|region| region.server == call.server);
            moved.unwrap().server = "s3:1".to_owned();
            let class = "org.apache.hadoop.hbase.exceptions.RegionMovedException".to_owned();
            let (text, moved_to) = (text.to_owned(), moved_to.clone());
            Reply::Exception { class, text, do_not_retry: false, moved_to }
        });
        let reactions = reactions.await;
        // For the region that is already on s3 the exception names its present server, so the client locates it again.
        let on_others =
            reactions.iter().take_while(|&&reaction| reaction == Reaction::Wait).count();
        let on_s3 = &reactions[on_others..];
        assert!(on_others >= 7 && on_s3.iter().all(|&reaction| reaction == Reaction::Relocate));
    }
}

#[tokio::test(start_paused = true)]
async fn final_error_follows_the_rows_before_it() {
    // `do_not_retry` makes an exception final whose class alone would be retried.
    let (class, text) = ("java.io.IOException".to_owned(), "as the test wants".to_owned());
    let refused = Reply::Exception { class, text, do_not_retry: true, moved_to: None };
    for reply in [Reply::exception("regionserver.NoSuchColumnFamilyException"), refused] {
        let mut counts = Vec::new();
        for at in 0..calls().await {
            let fault = reply.clone();
            let servers = with_fault(at, move |_, _| fault.clone());
            let (mut rows, started) = (servers.table().await.scan(Scan::all()), Instant::now());
            let (count, error) = rows_before_error(&mut rows).await;
            assert!(error.to_string().contains("as the test wants"), "{error}");
            assert_eq!(error.advice(), RetryAdvice::Change, "{error}");
            assert!(started.elapsed() < Duration::from_millis(10), "{:?}", started.elapsed());
            assert!(rows.next().await.is_none());
            counts.push(count);
        }
        // Each response has 700 cells, three per row.
        assert_eq!(counts[..3], [0, 700 / 3, 1_400 / 3]);
        assert!(counts.is_sorted() && counts[counts.len() - 1] > 2_000, "{counts:?}");
    }
}

/// Replaces the reply of an executed call.
type Loss = fn(Reply) -> Reply;
/// Changes the regions before a call.
type Change = fn(&mut Model);

#[tokio::test(start_paused = true)]
async fn lost_responses_at_any_call_lose_no_row() {
    let losses: [(&str, Loss); 7] = [
        ("closed", |_| Reply::Close),
        ("truncated length", |reply| Reply::Truncated(2, Box::new(reply))),
        ("truncated header", |reply| Reply::Truncated(7, Box::new(reply))),
        ("truncated cells", |reply| Reply::Truncated(3_000, Box::new(reply))),
        ("never", |_| Reply::Never),
        ("too late", |reply| Reply::after(Duration::from_secs(11), reply)),
        ("another protocol", |_| Reply::Raw(b"HTTP/1.1 200 OK".to_vec())),
    ];
    for (name, loss) in losses {
        check_at_every_call(name, move |call, model| loss(model.reply(call))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn region_changes_at_any_call_lose_no_row() {
    let changes: [(&str, Change); 3] = [
        ("moved", |model| {
            model.move_region(0, "s2:1");
            model.move_region(1, "s3:1");
            model.move_region(2, "s1:1");
            model.scanners.forget_all();
        }),
        ("split", |model| {
            model.regions.iter_mut().for_each(|region| region.is_parent = true);
            let daughters = [("", "c"), ("c", "h"), ("h", "j"), ("j", "p"), ("p", "w"), ("w", "")];
            let servers = ["s1:1", "s2:1", "s3:1"].into_iter().cycle();
            for ((start, end), server) in daughters.into_iter().zip(servers) {
                model.regions.push(FakeRegion::new(start, end, 2, server));
            }
        }),
        ("merged", |model| model.regions = vec![FakeRegion::new("", "", 2, "s3:1")]),
    ];
    for (name, change) in changes {
        let fault = move |call: &Call, model: &mut Model| {
            change(model);
            model.reply(call)
        };
        check_at_every_call(name, fault).await;
    }
}
