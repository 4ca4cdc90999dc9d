//! A process that repeatedly crashes before or after any step of a commit loses nothing and exports nothing twice.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use testbed::exports::Workload;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic;
use testbed::{length, run_ok};

use crate::callbacks;

/// How often each of the successive processes passes the point before it crashes there; a short run starts only the
/// first two. The first number is not 0, since the first commit of a new store may have only start positions of
/// partitions, and no records.
const PASSES: [u32; 4] = [3, 0, 1, 7];
/// Like [`PASSES`], but lower, since few batches have dead letters.
const DEAD_LETTER_PASSES: [u32; 4] = [1, 0, 1, 2];
/// Like [`PASSES`], but 0, since offsets are committed to the group only once a second.
const OFFSET_COMMIT_PASSES: [u32; 4] = [0; 4];
const SIGABRT: i32 = 6;

static WORKLOAD: Workload = Workload::new(|| traffic::records(8, 1500));

/// Starts several processes that crash at the point, and then one that reads everything.
fn check(point: &str) {
    let site = traffic::site(&format!("crash.{point}"), 3).set("ingest.batch_records_max", "40");
    // Each record is produced once, since a redelivery would hide a loss.
    traffic::produce(&site.topics, WORKLOAD.records());
    let passes = match point.split_once('-') {
        Some(("letters", _)) => DEAD_LETTER_PASSES,
        Some(("offsets", _)) => OFFSET_COMMIT_PASSES,
        _ => PASSES,
    };
    let lives = length(2, passes.len());
    for passes in passes.into_iter().take(lives) {
        crash(&site, point, passes);
    }
    WORKLOAD.check_all(&site);
    check_letters(&site);
}

/// Starts a process that passes the point this often before it crashes there.
#[track_caller]
fn crash(site: &Site, point: &str, passes: u32) {
    let points = format!("{point}={passes}*off->return");
    let (status, log) = site.spawn_with(&[("FAILPOINTS", &points)]).wait();
    assert_eq!(status.signal(), Some(SIGABRT), "{point} after {passes}: {status}: {log}");
}

static LARGE_BATCHES: Workload = Workload::new(|| traffic::records(9, 4 * DIVIDED_BATCH));

/// Threads share a batch of at least 1,024 events.
const DIVIDED_BATCH: usize = 2_000;

#[test]
fn batches_that_threads_share_are_committed_once() {
    let site = traffic::site("crash.divided", 3)
        .set("ingest.batch_records_max", &DIVIDED_BATCH.to_string())
        .set("ingest.batch_age_max", "5s")
        .set("attribution.workers", "4");
    traffic::produce(&site.topics, LARGE_BATCHES.records());
    // The first commit may have only start positions.
    crash(&site, "commit-begun", 2);
    crash(&site, "commit-written", 0);
    LARGE_BATCHES.check_all(&site);
}

/// Checks that every invalid record is among the dead letters, at least once.
#[track_caller]
fn check_letters(site: &Site) {
    for topic in site.topics.all() {
        let letters = Kafka::shared().consume_all(&format!("{topic}.dlq"));
        let letters: BTreeSet<_> = letters.into_iter().map(|letter| letter.value).collect();
        let bad = WORKLOAD.records().iter().filter(|record| record.is_bad);
        for record in bad.filter(|record| record.topic(&site.topics) == topic) {
            assert!(letters.contains(&record.message().value), "a dead letter is missing");
        }
    }
}

macro_rules! points {
    ($($test:ident = $point:literal;)+) => {
        $(#[test] fn $test() { check($point); })+

        /// Every `crash_point!` in the sources, except those of callbacks.
        const POINTS: &[&str] = &[$($point),+];
    };
}

points! {
    before_a_batch_is_closed = "batch-read";
    before_letters_are_sent = "letters-to-send";
    before_letters_are_acknowledged = "letters-sent";
    after_letters_are_acknowledged = "letters-acknowledged";
    after_a_batch_is_emitted = "batch-emitted";
    before_a_batch_is_decided = "batch-received";
    before_a_batch_is_written = "commit-decided";
    while_the_next_batch_is_decided = "commit-begun";
    after_a_batch_is_written = "commit-written";
    after_regions_are_adjusted = "commit-ended";
    before_a_batch_is_counted = "batch-committed";
    before_offsets_are_committed = "offsets-to-commit";
    after_offsets_are_committed = "offsets-committed";
}

#[test]
fn every_crash_point_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    for folder in ["src", "ingest/src", "store/src"] {
        let files = run_ok(
            Command::new("grep")
                .args(["-rhoP", "crash_point!\\(\"\\K[^\"]+"])
                .arg(root.join(folder)),
            b"",
        );
        found.extend(String::from_utf8_lossy(&files).lines().map(str::to_owned));
    }
    let tested = POINTS.iter().chain(callbacks::POINTS);
    assert_eq!(found, tested.map(|point| (*point).to_owned()).collect());
}
