//! A full disk: nothing is lost, downloads go on, and so does all else once there is room.

use std::sync::OnceLock;

use testbed::adtrail::Adtrail;
use testbed::disk::Disk;
use testbed::eventually;
use testbed::exports::{self, Exports, by_http, check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, Record};

const FULL: &str = "the disk of store.path is full";

fn records() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    RECORDS.get_or_init(|| traffic::records(7, 24_000))
}

fn replayed() -> &'static Exports {
    static REPLAYED: OnceLock<Exports> = OnceLock::new();
    REPLAYED.get_or_init(|| exports::replayed(records()))
}

/// The store is in a folder of the disk, where the ballast is, too. The engine goes on once there is
/// room for a write buffer, of 64 MiB.
fn site(name: &str) -> (Site, Disk) {
    site_of(name, 256)
}

fn site_of(name: &str, mib: u32) -> (Site, Disk) {
    let site = Site::new(Kafka::shared(), name, 3, traffic::SETTINGS)
        .set("store.retention", "off")
        .set("store.memory", "32MiB")
        .set("ingest.batch_records_max", "1000");
    let disk = site.path().join("disk");
    let site_store = disk.join("store");
    let disk = Disk::at(&disk, mib);
    (site.set("store.path", site_store.to_str().unwrap()), disk)
}

fn await_readiness(adtrail: &Adtrail, status: u16, part: &str) {
    eventually("it says how it is", || match adtrail.admin("/readyz") {
        Ok(reply) if reply.status == status && reply.text().contains(part) => Ok(()),
        Ok(reply) => Err(format!("{}: {}", reply.status, reply.text())),
        Err(error) => Err(error.to_string()),
    });
}

/// A service that has read half of the events, and whose disk has been full for a while.
fn stuck(site: &Site, disk: &Disk) -> (Adtrail, Exports) {
    let (some, rest) = records().split_at(records().len() / 2);
    traffic::produce(&site.topics, some);
    let adtrail = site.start();
    adtrail.await_caught_up();
    let before = APPS.map(|app| by_http(&adtrail, app));
    disk.fill();
    traffic::produce(&site.topics, rest);
    await_readiness(&adtrail, 503, FULL);
    assert_eq!(adtrail.metric("adtrail_store_disk_full"), Some(1.0));
    (adtrail, before)
}

#[test]
fn it_waits_for_room_and_goes_on() {
    let (site, disk) = site("disk_full.waits");
    let (adtrail, before) = stuck(&site, &disk);
    let meanwhile = APPS.map(|app| by_http(&adtrail, app));
    assert!(before.iter().zip(&meanwhile).all(|(before, now)| now.len() >= before.len()));
    disk.make_room();
    await_readiness(&adtrail, 200, "");
    adtrail.await_read(records().len() as u64);
    assert_eq!(adtrail.metric("adtrail_store_disk_full"), Some(0.0));
    check_equal(&downloads(&site, &adtrail), replayed());
    let (status, log) = adtrail.terminate();
    assert!(status.success() && log.contains(FULL) && log.contains("there is room"), "{log}");
}

#[test]
fn stopped_or_killed_meanwhile_it_loses_nothing() {
    let (site, disk) = site("disk_full.ended");
    let (adtrail, _) = stuck(&site, &disk);
    let (status, log) = adtrail.terminate();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("will be read again") && log.contains("No space left"), "{log}");
    // With no room at all a store is not opened, and says why.
    match site.try_start() {
        Err(log) => assert!(log.contains("No space left"), "{log}"),
        Ok(adtrail) => adtrail.kill9(),
    }
    disk.make_room();
    let adtrail = site.start();
    adtrail.await_caught_up();
    check_equal(&downloads(&site, &adtrail), replayed());
    adtrail.kill9();
}

/// Files, and not bytes: the engine can not go on after that, so the process ends, to be started again.
#[test]
fn with_no_file_left_to_make_it_ends_once_there_are() {
    let (site, disk) = site_of("disk_full.files", 1024);
    let site = site.impatient();
    let (some, rest) = records().split_at(records().len() / 2);
    traffic::produce(&site.topics, some);
    let adtrail = site.start();
    adtrail.await_caught_up();
    eventually("its engine makes no files", || {
        let running = ["adtrail_store_flushes_running", "adtrail_store_compactions_running"];
        match running.map(|name| adtrail.metric(name)) {
            [Some(0.0), Some(0.0)] => Ok(()),
            running => Err(format!("{running:?}")),
        }
    });
    // For the checkpoint's folder, but none for the log that begins with it.
    disk.leave_files(Some(1));
    assert!(!site.run(&["backup", "backups"]).status.success());
    traffic::produce(&site.topics, rest);
    await_readiness(&adtrail, 503, FULL);
    disk.leave_files(None);
    let (status, log) = adtrail.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("its engine does not take up its work"), "{log}");
    let adtrail = site.start();
    adtrail.await_caught_up();
    check_equal(&downloads(&site, &adtrail), replayed());
    adtrail.kill9();
}
