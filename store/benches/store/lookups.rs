//! The newest touch of a device, as an activation asks for it.

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

/// Microseconds to the index entry, and to the touch itself, of devices at random, with all files
/// in the system's memory: of devices that were looked up a while ago, whose blocks the store still
/// has in its cache, and before that of the same for the first time.
pub fn warm(
    reader: &mut Reader,
    config: &Config,
    (written, of): (u64, u64),
    count: u64,
) -> [(Vec<f64>, Vec<f64>); 2] {
    remember_files(&config.store.path);
    let among = facts::devices(of).min(written);
    // What is looked up first finds the least in the processor's own caches.
    (0..count).for_each(|_| {
        look_up(reader, &config.policy, fastrand::u64(0..among));
    });
    let mut devices: Vec<u64> = (0..count).map(|_| fastrand::u64(0..among)).collect();
    let mut look = |devices: &[u64]| {
        devices.iter().map(|device| look_up(reader, &config.policy, *device)).unzip()
    };
    let first = look(&devices);
    fastrand::shuffle(&mut devices);
    [look(&devices), first]
}

/// Microseconds to the index entry. Before each look-up the system is told to forget the files of
/// the store. It has been opened anew, and has looked up as many before: what it keeps itself is
/// filters, indexes and few of the blocks.
pub fn cold(config: &Config, of: u64, count: u64) -> Vec<f64> {
    let store = Embedded::open(&config.store, &config.policy).expect("the store");
    settle(&store);
    let mut reader = store.reader();
    let mut cold = |_| {
        forget_files(&config.store.path);
        look_up(&mut reader, &config.policy, fastrand::u64(0..facts::devices(of))).0
    };
    (0..count).for_each(|round| {
        cold(round);
    });
    (0..count).map(cold).collect()
}

/// Microseconds of a read of 4 KiB at a random place of the store's files, without the store: what
/// the system itself takes, with the files in its memory and without. 0 while there are no files.
pub fn raw(folder: &Path, count: u64, is_cold: bool) -> Vec<f64> {
    let mut block = [0; 4096];
    let files: Vec<File> = folder
        .read_dir()
        .expect("the store's folder")
        .flatten()
        .filter(|file| file.path().extension().is_some_and(|end| end == "sst"))
        .map(|file| File::open(file.path()).expect("a file"))
        .collect();
    if files.is_empty() {
        return vec![0.0];
    }
    let read = |_| {
        if is_cold {
            forget_files(folder);
        }
        let file = &files[fastrand::usize(0..files.len())];
        let blocks = file.metadata().expect("its length").len() / block.len() as u64;
        let place = fastrand::u64(0..blocks.max(1)) * block.len() as u64;
        let started = Instant::now();
        file.read_at(&mut block, place).expect("a read");
        started.elapsed().as_nanos() as f64 / 1e3
    };
    (0..count).map(read).collect()
}

fn look_up(reader: &mut Reader, policy: &Policy, device: u64) -> (f64, f64) {
    // Any of its touches has the keys of the device.
    let touch = facts::click(device, u64::MAX);
    let key = match_keys::touch_index(&touch, &DeviceIds::new(&touch.ids), false)[0];
    let newest = EventTime::MAX;
    let oldest = EventTime::default();
    let (family, pid) = (Family::Touch, Pid(1));
    let scan = Scan { family, key, pid, oldest, newest, after: None, limit: 1 };
    assert!(policy.app(pid).is_some());
    let started = Instant::now();
    let found = reader.scan(&[scan]).expect("a scan");
    let index = started.elapsed().as_nanos() as f64 / 1e3;
    let entry = found[0][0];
    let record = reader.records(&[entry.fact]).expect("a home").pop().flatten();
    let whole = started.elapsed().as_nanos() as f64 / 1e3;
    assert_eq!(record.map(|record| record.time()), Some(entry.time), "the touch of the entry");
    (index, whole)
}

/// Linux may have given their pages to others since they were written.
fn remember_files(folder: &Path) {
    for file in folder.read_dir().expect("the store's folder").flatten() {
        if let Ok(mut file) = File::open(file.path()) {
            std::io::copy(&mut file, &mut std::io::sink()).expect("a file can be read");
        }
    }
}

/// Of files that are on the disk already, as those of tables are.
fn forget_files(folder: &Path) {
    for file in folder.read_dir().expect("the store's folder").flatten() {
        if let Ok(file) = File::open(file.path()) {
            fadvise(file, 0, None, Advice::DontNeed).expect("the system forgets");
        }
    }
}
