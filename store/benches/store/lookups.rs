//! Lookups of the newest touch of a device, which a worker does for each activation.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use adtrail_store::embedded::Embedded;
use adtrail_store::reader::Reader;
use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::match_keys;
use attribution::ledger::Facts;
use attribution::ledger::index::Scan;
use attribution::rules::policy::Policy;
use config::Config;
use rustix::fs::{Advice, fadvise};

use crate::facts;
use crate::settle;

/// Returns the times in microseconds to find the index entry, and the touch itself, of random devices, with all files
/// in the page cache: first for repeated lookups, whose blocks are in the store's cache, then for the first lookups of
/// the same devices.
pub fn warm(
    reader: &mut Reader,
    config: &Config,
    (written, total): (u64, u64),
    count: u64,
) -> [(Vec<f64>, Vec<f64>); 2] {
    load_page_cache(&config.store.path);
    let devices_written = facts::devices(total).min(written);
    // Warms the CPU caches, so that the first measured lookups are not slower.
    (0..count).for_each(|_| {
        look_up(reader, &config.policy, fastrand::u64(0..devices_written));
    });
    let mut devices: Vec<u64> = (0..count).map(|_| fastrand::u64(0..devices_written)).collect();
    let mut look_up_all = |devices: &[u64]| {
        devices.iter().map(|device| look_up(reader, &config.policy, *device)).unzip()
    };
    let first = look_up_all(&devices);
    fastrand::shuffle(&mut devices);
    [look_up_all(&devices), first]
}

/// Returns the times in microseconds to find out that random devices have no touches.
pub fn misses(reader: &mut Reader, total: u64, count: u64) -> Vec<f64> {
    let devices = facts::devices(total);
    let miss = |_| {
        let scan = newest_touch_of(fastrand::u64(devices..10 * devices));
        let started = Instant::now();
        let found = reader.scan(&[scan]).expect("the scan succeeds");
        let miss_us = started.elapsed().as_nanos() as f64 / 1e3;
        assert!(found[0].is_empty(), "the device has a touch");
        miss_us
    };
    (0..count).map(miss).collect()
}

/// Returns the times in microseconds to find the index entry, with the store's files dropped from the page cache before
/// each lookup. The store is reopened and warmed with `count` lookups, so its own cache has filters and indexes, but
/// few data blocks.
pub fn cold(config: &Config, total: u64, count: u64) -> Vec<f64> {
    let mut store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    store.wait_for_filters();
    settle(&store);
    let mut reader = store.reader();
    let mut cold = |_| {
        drop_page_cache(&config.store.path);
        look_up(&mut reader, &config.policy, fastrand::u64(0..facts::devices(total))).0
    };
    (0..count).for_each(|round| {
        cold(round);
    });
    (0..count).map(cold).collect()
}

/// Returns the times in microseconds to read 4 KiB at random offsets of the store's files, bypassing the store, with a
/// warm or cold page cache. Returns a single 0 if the store has no files.
pub fn raw(folder: &Path, count: u64, is_cold: bool) -> Vec<f64> {
    let mut block = [0; 4096];
    let files: Vec<File> = folder
        .read_dir()
        .expect("the folder is readable")
        .flatten()
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "sst"))
        .map(|file| File::open(file.path()).expect("the file opens"))
        .collect();
    if files.is_empty() {
        return vec![0.0];
    }
    let read = |_| {
        if is_cold {
            drop_page_cache(folder);
        }
        let file = &files[fastrand::usize(0..files.len())];
        let blocks = file.metadata().expect("the file has metadata").len() / block.len() as u64;
        let offset = fastrand::u64(0..blocks.max(1)) * block.len() as u64;
        let started = Instant::now();
        file.read_at(&mut block, offset).expect("the read succeeds");
        started.elapsed().as_nanos() as f64 / 1e3
    };
    (0..count).map(read).collect()
}

/// Returns the times in microseconds to find the index entry of a device, and its newest touch.
fn look_up(reader: &mut Reader, policy: &Policy, device: u64) -> (f64, f64) {
    let scan = newest_touch_of(device);
    assert!(policy.app(scan.pid).is_some());
    let started = Instant::now();
    let found = reader.scan(&[scan]).expect("the scan succeeds");
    let index_us = started.elapsed().as_nanos() as f64 / 1e3;
    let entry = found[0][0];
    let record = reader.records(&[entry.fact]).expect("the lookup succeeds").pop().flatten();
    let total_us = started.elapsed().as_nanos() as f64 / 1e3;
    assert_eq!(
        record.map(|record| record.time()),
        Some(entry.time),
        "the record is not that of the entry"
    );
    (index_us, total_us)
}

fn newest_touch_of(device: u64) -> Scan {
    // All touches of a device have the same index key.
    let touch = facts::click(device, u64::MAX);
    let key = match_keys::touch_index(&touch, &DeviceIds::of_touch(touch.ids()), false)[0];
    let (oldest, newest) = (EventTime::default(), EventTime::MAX);
    Scan { family: Family::Touch, key, pid: Pid(1), oldest, newest, after: None, limit: 1 }
}

/// Reads all files, as the kernel may have evicted their pages since they were written.
fn load_page_cache(folder: &Path) {
    for file in folder.read_dir().expect("the folder is readable").flatten() {
        if let Ok(mut file) = File::open(file.path()) {
            std::io::copy(&mut file, &mut std::io::sink()).expect("the file is readable");
        }
    }
}

/// Drops the files from the page cache. Pages that are not on disk yet stay; those of tables are on disk.
fn drop_page_cache(folder: &Path) {
    for file in folder.read_dir().expect("the folder is readable").flatten() {
        if let Ok(file) = File::open(file.path()) {
            fadvise(file, 0, None, Advice::DontNeed).expect("the pages are dropped");
        }
    }
}
