//! A full disk: nothing is lost, downloads continue, and ingest resumes once space is free.

use testbed::adtrail::Adtrail;
use testbed::disk::Disk;
use testbed::exports::{Exports, Workload, by_http};
use testbed::site::Site;
use testbed::traffic::{self, APPS};

const FULL: &str = "the disk of store.path is full";

static WORKLOAD: Workload = Workload::new(|| traffic::records(7, 24_000));

/// Creates a site whose store is on a small disk. RocksDB resumes once a write buffer of 64 MiB fits.
fn site(name: &str, mib: u32) -> (Site, Disk) {
    let site =
        traffic::site(name, 3).set("store.memory", "32MiB").set("ingest.batch_records_max", "1000");
    let disk = site.path().join("disk");
    let site_store = disk.join("store");
    let disk = Disk::at(&disk, mib);
    (site.set("store.path", site_store.to_str().unwrap()), disk)
}

/// Starts a service that has read half of the events and whose disk is full.
fn stuck(site: &Site, disk: &Disk) -> (Adtrail, Exports) {
    let (first, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    traffic::produce(&site.topics, first);
    let adtrail = site.start();
    adtrail.await_caught_up();
    let before = APPS.map(|app| by_http(&adtrail, app));
    disk.fill();
    traffic::produce(&site.topics, rest);
    adtrail.await_readiness(503, FULL);
    assert_eq!(adtrail.metric("adtrail_store_disk_full"), Some(1.0));
    (adtrail, before)
}

#[test]
fn ingest_resumes_after_a_full_disk() {
    let (site, disk) = site("disk_full.waits", 256);
    let (adtrail, before) = stuck(&site, &disk);
    let meanwhile = APPS.map(|app| by_http(&adtrail, app));
    assert!(before.iter().zip(&meanwhile).all(|(before, now)| now.len() >= before.len()));
    disk.make_room();
    adtrail.await_readiness(200, "");
    adtrail.await_read(WORKLOAD.records().len() as u64);
    assert_eq!(adtrail.metric("adtrail_store_disk_full"), Some(0.0));
    WORKLOAD.check(&site, &adtrail);
    let log = adtrail.stop();
    assert!(log.contains(FULL) && log.contains("has free space again"), "{log}");
}

#[test]
fn a_shutdown_on_a_full_disk_loses_nothing() {
    let (site, disk) = site("disk_full.ended", 256);
    let (adtrail, _) = stuck(&site, &disk);
    adtrail.signal("TERM");
    adtrail.check_ended(1, &["will be read again", "No space left"]);
    // Without any free space the store may not open; in that case the log says why.
    match site.try_start() {
        Err(log) => assert!(log.contains("No space left"), "{log}"),
        Ok(adtrail) => adtrail.kill9(),
    }
    disk.make_room();
    WORKLOAD.check_all(&site);
}

/// RocksDB cannot resume after running out of inodes, so the process ends, to be restarted.
#[test]
fn a_process_out_of_inodes_ends_and_the_next_one_resumes() {
    let (site, disk) = site("disk_full.files", 1024);
    let site = site.impatient();
    let (first, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    traffic::produce(&site.topics, first);
    let adtrail = site.start();
    adtrail.await_caught_up();
    adtrail.await_metric("adtrail_store_flushes_running", "", |running| running == 0.0);
    adtrail.await_metric("adtrail_store_compactions_running", "", |running| running == 0.0);
    // One inode for the checkpoint's folder, and none for the WAL that is started with it.
    disk.leave_files(Some(1));
    assert!(!site.run(&["backup", "backups"]).status.success());
    traffic::produce(&site.topics, rest);
    adtrail.await_readiness(503, FULL);
    disk.leave_files(None);
    adtrail.check_ended(1, &["the storage engine has not resumed"]);
    WORKLOAD.check_all(&site);
}
