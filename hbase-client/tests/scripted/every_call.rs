//! Whatever happens at whichever call of a scan: each row comes once, whole, in order; or the error is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hbase_client::{RetryAdvice, Scan};
use tokio::time::Instant;

use crate::support::fake::{FakeRegion, Heard, Model, Reply, Servers};
use crate::{check_all, is_of_meta, is_scan, read_all};

const HBASE: &str = "org.apache.hadoop.hbase";

async fn filled() -> Servers {
    let servers = Servers::new();
    servers.model(Model::fill);
    servers
}

/// How many calls a scan has that nothing happens to.
async fn calls() -> usize {
    let undisturbed = filled().await;
    read_all(&undisturbed.table().await).await.unwrap();
    let calls = undisturbed.count(is_scan);
    assert!(calls >= 12, "{calls} calls");
    calls
}

/// Servers to which it happens at that call of a scan; and how many calls there were.
async fn disturbed(
    at: usize,
    happening: impl Fn(&Heard, &mut Model) -> Reply + Send + 'static,
) -> (Servers, Arc<AtomicUsize>) {
    let servers = filled().await;
    let counted = Arc::new(AtomicUsize::new(0));
    let seen = counted.clone();
    servers.script(move |heard, model| {
        let hits = is_scan(heard) && seen.fetch_add(1, Ordering::Relaxed) == at;
        hits.then(|| happening(heard, model))
    });
    (servers, counted)
}

/// What was done about it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    /// Asks `hbase:meta` again.
    Relocate,
    /// Opens a scanner in the same place, after a pause.
    Wait,
    /// At once.
    Reopen,
}

/// At each call of a scan: tells what was done there.
async fn check_at_every_call(
    name: &str,
    happening: impl Fn(&Heard, &mut Model) -> Reply + Clone + Send + 'static,
) -> Vec<Does> {
    let calls = calls().await;
    let mut does = Vec::new();
    for at in 0..calls {
        let (servers, counted) = disturbed(at, happening.clone()).await;
        let (table, begun) = (servers.table().await, Instant::now());
        let found = read_all(&table).await;
        let found = found.unwrap_or_else(|error| panic!("{name} at call {at}: {error}"));
        servers.model(|model| check_all(&found, model));
        assert!(counted.load(Ordering::Relaxed) > calls, "{name} at call {at} is another call");
        let is_paused = begun.elapsed() >= Duration::from_millis(10);
        does.push(match servers.count(is_of_meta) > 2 {
            true => Does::Relocate,
            false if is_paused => Does::Wait,
            false => Does::Reopen,
        });
    }
    does
}

async fn check_class(class: &str, expected: Does) {
    let class = format!("{HBASE}.{class}");
    let thrown = class.clone();
    let does = check_at_every_call(&class, move |_, _| Reply::exception(&thrown)).await;
    assert!(does.iter().all(|&did| did == expected), "{class}: {does:?}");
}

/// One class for each thing that is done; `remote_exception.rs` has every class.
#[tokio::test(start_paused = true)]
async fn regions_elsewhere_and_busy_or_stopped_servers_lose_no_row() {
    check_class("NotServingRegionException", Does::Relocate).await;
    // It does not say where to.
    check_class("exceptions.RegionMovedException", Does::Relocate).await;
    check_class("CallQueueTooBigException", Does::Wait).await;
    check_class("regionserver.RegionServerStoppedException", Does::Relocate).await;
}

#[tokio::test(start_paused = true)]
async fn scanners_that_are_gone_are_opened_again() {
    for class in ["UnknownScannerException", "regionserver.LeaseException"] {
        check_class(class, Does::Reopen).await;
        let class = format!("{HBASE}.{class}");
        // It has gone on before, and the client does not know how far; and is gone indeed.
        let thrown = class.clone();
        let does = check_at_every_call(&class, move |heard, model| {
            answered(heard, model);
            model.scanners.forget_all();
            Reply::exception(&thrown)
        });
        assert!(does.await.iter().all(|&did| did == Does::Reopen), "{class}");
    }
}

#[tokio::test(start_paused = true)]
async fn region_that_moved_tells_where_and_is_not_looked_for() {
    let class = format!("{HBASE}.exceptions.RegionMovedException");
    let text = format!("{class}: Region moved to: hostname=s3 port=1 startCode=1. As of 2.");
    // As the exception of a call has it, in its fields; and in a text alone.
    for (text, place) in [(String::new(), Some(("s3".to_owned(), 1))), (text, None)] {
        let class = class.clone();
        let does = check_at_every_call("moved", move |heard, model| {
            // `hbase:meta` does not say so yet.
            let moved = model.regions.iter_mut().find(|region| region.server == heard.server);
            moved.unwrap().server = "s3:1".to_owned();
            let (class, text, place) = (class.clone(), text.clone(), place.clone());
            Reply::Exception { class, text, do_not_retry: false, place }
        });
        let does = does.await;
        // Where it moved to where it is, it is looked for.
        let on_others = does.iter().take_while(|&&did| did == Does::Wait).count();
        assert!(on_others >= 7 && does[on_others..].iter().all(|&did| did == Does::Relocate));
    }
}

#[tokio::test(start_paused = true)]
async fn final_errors_come_after_the_rows_before() {
    let refused = |class: &str, do_not_retry| Reply::Exception {
        class: class.to_owned(),
        text: format!("{class}: as the test wants"),
        do_not_retry,
        place: None,
    };
    let family = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException";
    for reply in [
        refused(family, true),
        // What the server says of another try holds for a class that says nothing.
        refused("java.io.IOException", true),
    ] {
        let mut given = Vec::new();
        for at in 0..calls().await {
            let happening = reply.clone();
            let (servers, _) = disturbed(at, move |_, _| happening.clone()).await;
            let (mut rows, begun) = (servers.table().await.scan(Scan::all()), Instant::now());
            let mut count = 0;
            let error = loop {
                match rows.next().await {
                    Some(Ok(_)) => count += 1,
                    Some(Err(error)) => break error,
                    None => panic!("{reply:?} at call {at}: an end without the error"),
                }
            };
            assert!(error.to_string().contains("as the test wants"), "{error}");
            assert_eq!(error.advice(), RetryAdvice::Change, "{error}");
            assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
            assert!(rows.next().await.is_none());
            given.push(count);
        }
        assert!(given.is_sorted() && given[0] == 0 && given[given.len() - 1] > 2_000, "{given:?}");
    }
}

/// What happens at the call that it happens at.
type Happening = fn(&Heard, &mut Model) -> Reply;

/// The server goes on, and what it says is lost.
fn answered(heard: &Heard, model: &mut Model) -> Box<Reply> {
    Box::new(model.reply(heard))
}

#[tokio::test(start_paused = true)]
async fn lost_answers_at_any_call_lose_no_row() {
    let checks: [(&str, Happening); 7] = [
        ("closed", |heard, model| {
            answered(heard, model);
            Reply::Close
        }),
        ("cut in the length", |heard, model| Reply::Cut(2, answered(heard, model))),
        ("cut in the header", |heard, model| Reply::Cut(7, answered(heard, model))),
        ("cut in the cells", |heard, model| Reply::Cut(3_000, answered(heard, model))),
        ("never", |heard, model| {
            answered(heard, model);
            Reply::Never
        }),
        ("too late", |heard, model| Reply::After(Duration::from_secs(11), answered(heard, model))),
        ("nonsense", |heard, model| {
            answered(heard, model);
            Reply::Raw(b"HTTP/1.1 200 OK".to_vec())
        }),
    ];
    for (name, happening) in checks {
        check_at_every_call(name, happening).await;
    }
}

#[tokio::test(start_paused = true)]
async fn region_changes_at_any_call_lose_no_row() {
    let checks: [(&str, Happening); 3] = [
        ("moved", |heard, model| {
            model.move_region(0, "s2:1");
            model.move_region(1, "s3:1");
            model.move_region(2, "s1:1");
            model.scanners.forget_all();
            model.reply(heard)
        }),
        ("split", |heard, model| {
            for region in &mut model.regions {
                region.is_parent = true;
            }
            let daughters = [("", "c"), ("c", "h"), ("h", "j"), ("j", "p"), ("p", "w"), ("w", "")];
            let server = ["s1:1", "s2:1", "s3:1"].into_iter().cycle();
            let daughters = daughters.into_iter().zip(server);
            model.regions.extend(
                daughters.map(|((start, end), server)| FakeRegion::new(start, end, 2, server)),
            );
            model.reply(heard)
        }),
        ("merged", |heard, model| {
            model.regions = vec![FakeRegion::new("", "", 2, "s3:1")];
            model.reply(heard)
        }),
    ];
    for (name, happening) in checks {
        check_at_every_call(name, happening).await;
    }
}
