//! Detects damage that RocksDB does not survive, before a store is opened.
//!
//! RocksDB 11.8.1 never gets past a record of a type that only recycled logs have, in a WAL or manifest that began with
//! another type: `Reader::ReadPhysicalRecord` returns `kBadRecord` without consuming it. A single flipped bit can turn
//! a valid type into such a type, and then opening never ends; no option avoids that. Logs are not recycled here, so
//! such a type is always damage.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Logs consist of blocks, and no record crosses their boundary. A record's header is its checksum u32, length u16 and
/// type u8.
const BLOCK_BYTES: u64 = 32 << 10;
const HEADER_BYTES: usize = 7;
/// The types of recycled logs.
const RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];

/// Truncates logs at such damage, as RocksDB does at any other. The first byte of the damaged record stays: a log that
/// ends with a whole record would count as complete, and RocksDB would continue with the next log, without the commits
/// in between.
pub fn truncate_logs(path: &Path) -> Result<(), StoreError> {
    for log in logs(path) {
        if let Some(at) = find_damage(&log).map_err(StoreError::file("read", &log))? {
            let cut = File::options().write(true).open(&log).and_then(|log| log.set_len(at + 1));
            cut.map_err(StoreError::file("written", &log))?;
        }
    }
    Ok(())
}

/// Refuses a store with such damage in one of the files: for readers, which must not change logs, and for manifests,
/// which cannot be truncated because they list the files of the store.
pub fn refuse_damaged(files: impl Iterator<Item = PathBuf>) -> Result<(), StoreError> {
    for file in files {
        // A process that writes may have removed the file since.
        if let Ok(Some(at)) = find_damage(&file) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            return Err(StoreError::corrupt(format!("{name} at byte {at}")));
        }
    }
    Ok(())
}

/// The write-ahead logs of a store.
pub fn logs(path: &Path) -> impl Iterator<Item = PathBuf> {
    files(path).filter(|file| file.extension().is_some_and(|end| end == "log"))
}

pub fn manifests(path: &Path) -> impl Iterator<Item = PathBuf> {
    let is_manifest = |name: &OsStr| name.as_encoded_bytes().starts_with(b"MANIFEST-");
    files(path).filter(move |file| file.file_name().is_some_and(is_manifest))
}

fn files(path: &Path) -> impl Iterator<Item = PathBuf> {
    path.read_dir().into_iter().flatten().flatten().map(|file| file.path())
}

/// The position of the first record that RocksDB would not get past.
fn find_damage(file: &Path) -> io::Result<Option<u64>> {
    let (mut file, mut block, mut start) = (File::open(file)?, Vec::new(), 0);
    while file.by_ref().take(BLOCK_BYTES).read_to_end(&mut block)? > 0 {
        if let Some(at) = find_in_block(&block) {
            return Ok(Some(start + at as u64));
        }
        start += BLOCK_BYTES;
        block.clear();
    }
    Ok(None)
}

fn find_in_block(block: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(&[_, _, _, _, low, high, kind]) = block.get(at..at + HEADER_BYTES) {
        if RECYCLED.contains(&kind) {
            return Some(at);
        }
        let length = usize::from(u16::from_le_bytes([low, high]));
        if kind == 0 && length == 0 {
            // RocksDB skips the rest of the block.
            return None;
        }
        at += HEADER_BYTES + length;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rocksdb::Options;

    use super::*;
    use crate::embedded::db::Db;

    fn record(kind: u8, length: u16) -> Vec<u8> {
        let [low, high] = length.to_le_bytes();
        [vec![9, 9, 9, 9, low, high, kind], vec![5; usize::from(length)]].concat()
    }

    #[track_caller]
    fn check(records: &[(u8, u16)], expected: Option<usize>) {
        let block: Vec<u8> =
            records.iter().flat_map(|(kind, length)| record(*kind, *length)).collect();
        assert_eq!(find_in_block(&block), expected);
    }

    #[test]
    fn types_of_recycled_logs_are_damage_at_the_start_of_a_record() {
        check(&[], None);
        check(&[(1, 5), (2, 300), (3, 0), (4, 70)], None);
        check(&[(1, 5), (5, 5)], Some(12));
        check(&[(8, 0)], Some(0));
        check(&[(1, 20), (131, 0), (1, 3)], Some(27));
        // The rest of the block is skipped.
        check(&[(1, 5), (0, 0), (5, 5)], None);
    }

    #[test]
    fn no_log_is_read_after_a_truncated_one() {
        let dir = tempfile::tempdir().unwrap();
        let [written, killed] = ["written", "killed"].map(|name| dir.path().join(name));
        let mut options = Options::default();
        options.create_if_missing(true);
        let db = Db::open(&options, &written).unwrap();
        db.create_cf("other", &options).unwrap();
        let put = |key: &str| db.put_cf(&db.cf_handle("other").unwrap(), key, "value").unwrap();
        db.put("first", "value").unwrap();
        put("second");
        put("damaged");
        // Another log begins, and this one is still needed.
        db.flush().unwrap();
        put("later");
        fs::create_dir(&killed).unwrap();
        for file in files(&written) {
            fs::copy(&file, killed.join(file.file_name().unwrap())).unwrap();
        }
        let mut logs: Vec<PathBuf> = logs(&killed).collect();
        logs.sort();
        assert_eq!(logs.len(), 2, "{logs:?}");
        let mut bytes = fs::read(&logs[0]).unwrap();
        let length = |at: usize| usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        let second = HEADER_BYTES + length(0);
        let damaged = second + HEADER_BYTES + length(second);
        bytes[damaged + 6] ^= 4;
        fs::write(&logs[0], bytes).unwrap();
        assert_eq!(find_damage(&logs[0]).unwrap(), Some(damaged as u64));
        truncate_logs(&killed).unwrap();
        assert_eq!(find_damage(&logs[0]).unwrap(), None);
        let opened = Db::open_cf(&Options::default(), &killed, ["other"]).map(drop);
        assert!(opened.is_err(), "the later commit is read without the damaged one");
    }
}
