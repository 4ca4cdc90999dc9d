//! Disk errors: whichever call fails, adtrail exits with the reason or aborts a download, and once the disk is repaired
//! no row is missing and none exists twice.

use std::process::Command;
use std::thread;

use testbed::disk::Disk;
use testbed::exports::{Workload, by_command, by_http, check_equal, downloads};
use testbed::faults::{Calls, EIO, EROFS, Faults};
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{check_exit, length, rows, run_ok};

const NOT_COMMITTED: &str = "a batch could not be committed; its events will be read again";

static WORKLOAD: Workload = Workload::new(|| traffic::records(13, 6_000));

fn site(name: &str) -> Site {
    traffic::site(name, 3).set("store.memory", "32MiB").set("ingest.batch_records_max", "100")
}

/// Checks that no event of an app has two rows.
fn check_once(site: &Site) {
    rows::by_event_id(rows::parse(&site.download(APPS[0], FROM, TO, &[])));
}

/// Starts a service for each portion of the events, in which the disk fails. Each of `failures` is a number of calls
/// that succeed, and a number of subsequent calls that fail.
fn check_failures(name: &str, failures: &[(u64, u64)], inject: impl Fn(&Faults, u64, u64)) {
    let site = site(name);
    let faults = Faults::of(&site);
    let mut portions = traffic::portions(WORKLOAD.records(), failures.len() + 2);
    // Writes rows into table files, so that reads reach the disk.
    traffic::produce(&site.topics, portions.next().unwrap());
    site.read_all();
    for ((successes, fail), portion) in failures.iter().zip(portions.by_ref()) {
        let adtrail = faults.start(&site);
        adtrail.await_caught_up();
        let failed = faults.failed();
        inject(&faults, *successes, *fail);
        thread::scope(|scope| {
            // Produces in parallel, so that the disk fails while events are read.
            scope.spawn(|| {
                portion.chunks(300).for_each(|chunk| traffic::produce(&site.topics, chunk))
            });
            adtrail.check_ended(1, &[NOT_COMMITTED, "Input/output error"]);
        });
        assert!(faults.failed() > failed, "no call has failed");
        faults.mend();
        check_once(&site);
    }
    traffic::produce(&site.topics, portions.next().unwrap());
    WORKLOAD.check_all(&site);
}

/// One failing write ends the process, and so does a disk on which all writes fail.
#[test]
fn failing_writes_end_the_process_and_lose_nothing() {
    let all = u64::MAX >> 1;
    let failures = [(0, 1), (1, all), (5, 1), (9, 1)];
    check_failures(
        "io.writes",
        &failures[..length(2, failures.len())],
        |faults, successes, fail| {
            faults.fail(Calls::Writes, EIO, successes, fail);
        },
    );
}

/// A backup makes the store flush and sync everything that is committed.
#[test]
fn failing_syncs_end_the_process_and_lose_nothing() {
    let site = site("io.syncs");
    let faults = Faults::of(&site);
    let successes_before = length(&[0, 2][..], &[0, 2, 5]);
    let mut portions = traffic::portions(WORKLOAD.records(), 2 * successes_before.len());
    for &successes in successes_before {
        traffic::produce(&site.topics, portions.next().unwrap());
        let adtrail = faults.start(&site);
        adtrail.await_caught_up();
        let failed = faults.failed();
        faults.fail(Calls::Syncs, EIO, successes, u64::MAX >> 1);
        check_exit(&site.run(&["backup", "backups"]), 1, &[]);
        assert!(faults.failed() > failed, "no call has failed");
        // Rows committed before are still exported.
        APPS.iter().for_each(|app| drop(by_http(&adtrail, app)));
        traffic::produce(&site.topics, portions.next().unwrap());
        adtrail.check_ended(1, &[NOT_COMMITTED, "Input/output error"]);
        faults.mend();
        check_once(&site);
    }
    WORKLOAD.check_all(&site);
    // The failed backups do not prevent another one.
    check_exit(&site.run(&["backup", "backups"]), 0, &[]);
}

#[test]
fn failing_reads_truncate_a_download_visibly_and_the_next_one_is_complete() {
    let site = site("io.downloads");
    traffic::produce(&site.topics, WORKLOAD.records());
    let faults = Faults::of(&site);
    let adtrail = faults.start(&site);
    adtrail.await_caught_up();
    adtrail.stop();
    // Opening the store has flushed the WAL into table files.
    let adtrail = faults.start(&site);
    let (app, whole) = (APPS[0], &WORKLOAD.expected()[0]);
    let path = format!("/v1/apps/{app}/events.csv?from={FROM}&to={TO}");
    let (mut refused, mut aborted) = (0, 0);
    for successes in 0.. {
        let failed = faults.failed();
        faults.fail(Calls::Reads, EIO, successes, u64::MAX >> 1);
        let reply = adtrail.get(&path).unwrap();
        if faults.failed() == failed {
            assert!(
                reply.is_whole && reply.body == *whole,
                "no read failed, but the download differs"
            );
            break;
        }
        match (reply.status, reply.is_whole) {
            (500, true) => refused += 1,
            // A readahead failed, and the data was read again.
            (200, true) => assert!(reply.body == *whole, "read {successes}: the download differs"),
            (200, false) => {
                aborted += 1;
                assert!(
                    whole.starts_with(&reply.body),
                    "read {successes}: the body is not a prefix of the export"
                );
                assert!(reply.trailer("adtrail-sha256").is_none());
            }
            response => panic!("read {successes} has failed, and the response is {response:?}"),
        }
        assert!(successes < 1_000, "no download completes");
    }
    println!("{refused} responses with 500, {aborted} aborted downloads");
    assert!(refused + aborted > 0);
    faults.mend();
    WORKLOAD.check(&site, &adtrail);
    let log = adtrail.stop();
    assert!(log.contains("an export failed"), "{log}");
}

/// Behaves like a file system after an I/O error: writes fail, then the disk is read-only.
#[test]
fn a_read_only_disk_is_reported_and_loses_nothing() {
    let site = site("io.read_only");
    let folder = site.path().join("disk");
    let store = folder.join("store");
    let disk = Disk::at(&folder, 256);
    let site = site.set("store.path", store.to_str().unwrap());
    let (first, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    traffic::produce(&site.topics, first);
    let faults = Faults::on(&site, &store);
    let adtrail = faults.start(&site);
    adtrail.await_caught_up();
    let before = downloads(&site, &adtrail);
    faults.fail(Calls::Writes, EROFS, 0, u64::MAX >> 1);
    traffic::produce(&site.topics, rest);
    adtrail.check_ended(1, &[NOT_COMMITTED, "Read-only file system"]);
    faults.mend();
    disk.set_read_only(true);
    // The service does not start, and says why; the store can still be read.
    let log = site.try_start().expect_err("the disk is read-only");
    for part in ["cannot be written", store.to_str().unwrap(), "Read-only file system"] {
        assert!(log.contains(part), "{part:?} is not in: {log}");
    }
    check_equal(&by_command(&site), &before);
    disk.set_read_only(false);
    WORKLOAD.check_all(&site);
}

#[test]
fn a_file_size_limit_is_reported_and_loses_nothing() {
    let site = site("io.limit");
    traffic::produce(&site.topics, &WORKLOAD.records()[..100]);
    let adtrail = site.start();
    adtrail.await_caught_up();
    let pid = adtrail.pid().to_string();
    run_ok(Command::new("prlimit").args(["--fsize=262144", "--pid", &pid]), b"");
    traffic::produce(&site.topics, &WORKLOAD.records()[100..]);
    adtrail.check_ended(1, &[NOT_COMMITTED, "File too large"]);
    WORKLOAD.check_all(&site);
}
