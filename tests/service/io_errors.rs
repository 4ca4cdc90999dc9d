//! A disk that fails: whatever call fails, adtrail ends with the reason or breaks a download off, and
//! once the disk is mended nothing is missing and nothing is there twice.

use std::process::Command;
use std::thread;

use testbed::adtrail::Adtrail;
use testbed::disk::Disk;
use testbed::exports::{Workload, by_http, check_equal, downloads};
use testbed::faults::{Calls, EIO, EROFS, Faults};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{length, rows, run_ok};

const NOT_COMMITTED: &str = "a batch could not be committed; its events will be read again";

static WORKLOAD: Workload = Workload::new(|| traffic::records(13, 6_000));

fn site(name: &str) -> Site {
    Site::new(Kafka::shared(), name, 3, traffic::SETTINGS)
        .set("store.retention", "off")
        .set("store.memory", "32MiB")
        .set("ingest.batch_records_max", "100")
}

/// It ended by itself, with the reason.
#[track_caller]
fn check_ended(adtrail: Adtrail, reasons: &[&str]) {
    let (status, log) = adtrail.wait();
    assert_eq!(status.code(), Some(1), "{status}: {log}");
    assert!(!log.contains("panicked"), "{log}");
    for reason in reasons {
        assert!(log.contains(reason), "{reason:?} is not in: {log}");
    }
}

/// Whatever there is of an app is there once.
fn check_once(site: &Site) {
    rows::by_event_id(rows::parse(&site.download(APPS[0], FROM, TO, &[])));
}

/// All that was produced, whatever happened on the way.
#[track_caller]
fn check_all(site: &Site) {
    let adtrail = site.start();
    adtrail.await_caught_up();
    check_equal(&downloads(site, &adtrail), WORKLOAD.expected());
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
}

/// A life for each portion of the events: the disk fails midway, after so many calls that go well.
fn lives(name: &str, lives: &[(u64, u64)], spoil: impl Fn(&Faults, u64, u64)) {
    let site = site(name);
    let faults = Faults::of(&site);
    let mut portions = traffic::portions(WORKLOAD.records(), lives.len() + 2);
    // Of what is in files already something has to be read.
    traffic::produce(&site.topics, portions.next().unwrap());
    let adtrail = site.start();
    adtrail.await_caught_up();
    assert!(adtrail.terminate().0.success());
    for ((well, fail), portion) in lives.iter().zip(portions.by_ref()) {
        let adtrail = faults.start(&site);
        adtrail.await_caught_up();
        let failed = faults.failed();
        spoil(&faults, *well, *fail);
        thread::scope(|scope| {
            // Beside it, so that it fails while it reads.
            scope.spawn(|| {
                portion.chunks(300).for_each(|some| traffic::produce(&site.topics, some))
            });
            check_ended(adtrail, &[NOT_COMMITTED, "Input/output error"]);
        });
        assert!(faults.failed() > failed, "no call has failed");
        faults.mend();
        check_once(&site);
    }
    traffic::produce(&site.topics, portions.next().unwrap());
    check_all(&site);
}

/// One that fails is enough, and so are all.
#[test]
fn writes_that_fail_end_it_and_lose_nothing() {
    let all = u64::MAX >> 1;
    let some = [(0, 1), (1, all), (5, 1), (9, 1)];
    lives("io.writes", &some[..length(2, some.len())], |faults, well, fail| {
        faults.fail(Calls::Writes, EIO, well, fail);
    });
}

/// A backup has all that was committed written to files, and synced.
#[test]
fn syncs_that_fail_end_it_and_lose_nothing() {
    let site = site("io.syncs");
    let faults = Faults::of(&site);
    let lives = length(&[0, 2][..], &[0, 2, 5]);
    let mut portions = traffic::portions(WORKLOAD.records(), 2 * lives.len());
    for &well in lives {
        traffic::produce(&site.topics, portions.next().unwrap());
        let adtrail = faults.start(&site);
        adtrail.await_caught_up();
        let failed = faults.failed();
        faults.fail(Calls::Syncs, EIO, well, u64::MAX >> 1);
        let backup = site.run(&["backup", "backups"]);
        assert_eq!(backup.status.code(), Some(1), "{}", String::from_utf8_lossy(&backup.stderr));
        assert!(faults.failed() > failed, "no call has failed");
        // What was read by then is shown yet.
        APPS.iter().for_each(|app| drop(by_http(&adtrail, app)));
        traffic::produce(&site.topics, portions.next().unwrap());
        check_ended(adtrail, &[NOT_COMMITTED, "Input/output error"]);
        faults.mend();
        check_once(&site);
    }
    check_all(&site);
    // What could not be taken is no backup, and in nobody's way.
    let backup = site.run(&["backup", "backups"]);
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
}

#[test]
fn a_download_whose_reads_fail_is_never_short_and_the_next_one_is_whole() {
    let site = site("io.downloads");
    traffic::produce(&site.topics, WORKLOAD.records());
    let faults = Faults::of(&site);
    let adtrail = faults.start(&site);
    adtrail.await_caught_up();
    assert!(adtrail.terminate().0.success());
    // Opening has moved what was in the log into files.
    let adtrail = faults.start(&site);
    let (app, whole) = (APPS[0], &WORKLOAD.expected()[0]);
    let path = format!("/v1/apps/{app}/events.csv?from={FROM}&to={TO}");
    let (mut refused, mut broken_off) = (0, 0);
    for well in 0.. {
        let failed = faults.failed();
        faults.fail(Calls::Reads, EIO, well, u64::MAX >> 1);
        let reply = adtrail.get(&path).unwrap();
        if faults.failed() == failed {
            assert!(reply.is_whole && reply.body == *whole, "nothing has failed");
            break;
        }
        match (reply.status, reply.is_whole) {
            (500, true) => refused += 1,
            // What was to be read ahead is read again.
            (200, true) => assert!(reply.body == *whole, "read {well}: it is another one"),
            (200, false) => {
                broken_off += 1;
                assert!(whole.starts_with(&reply.body), "read {well}: not its beginning");
                assert!(reply.trailer("adtrail-sha256").is_none());
            }
            answer => panic!("read {well} has failed, and the answer is {answer:?}"),
        }
        assert!(well < 1_000, "it never comes to its end");
    }
    println!("{refused} answers of 500, {broken_off} broken off");
    assert!(refused + broken_off > 0);
    faults.mend();
    check_equal(&downloads(&site, &adtrail), WORKLOAD.expected());
    let (status, log) = adtrail.terminate();
    assert!(status.success() && log.contains("an export failed"), "{log}");
}

/// As a system does that has found an error on a disk: first calls fail, then nothing can be written.
#[test]
fn a_read_only_disk_is_reported_and_loses_nothing() {
    let site = site("io.read_only");
    let folder = site.path().join("disk");
    let store = folder.join("store");
    let disk = Disk::at(&folder, 256);
    let site = site.set("store.path", store.to_str().unwrap());
    let (some, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    traffic::produce(&site.topics, some);
    let faults = Faults::on(&site, &store);
    let adtrail = faults.start(&site);
    adtrail.await_caught_up();
    let before = downloads(&site, &adtrail);
    faults.fail(Calls::Writes, EROFS, 0, u64::MAX >> 1);
    traffic::produce(&site.topics, rest);
    check_ended(adtrail, &[NOT_COMMITTED, "Read-only file system"]);
    faults.mend();
    disk.set_read_only(true);
    // It does not start, and says why; what is there can be read.
    let log = site.try_start().expect_err("nothing can be written");
    for part in ["cannot be written", store.to_str().unwrap(), "Read-only file system"] {
        assert!(log.contains(part), "{part:?} is not in: {log}");
    }
    check_equal(&APPS.map(|app| site.download(app, FROM, TO, &[])), &before);
    disk.set_read_only(false);
    check_all(&site);
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
    check_ended(adtrail, &[NOT_COMMITTED, "File too large"]);
    check_all(&site);
}
