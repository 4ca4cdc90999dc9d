//! Damage that the engine would read for ever, found before it is opened.
//!
//! Its reader of logs does not go on from a record of a type that only recycled logs have, where the log
//! began with one of another type (11.8.1, `Reader::ReadPhysicalRecord`): one flipped bit makes such a
//! type of a good one, and opening never ends. No engine here recycles logs, so such a type is damage
//! wherever it is.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::StoreError;

/// A log is read in blocks; a record's head is its checksum u32, length u16 and type u8, and no record
/// reaches into the next block.
const BLOCK_BYTES: usize = 32 << 10;
const HEAD_BYTES: usize = 7;
/// The types of recycled logs.
const RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];

/// Cuts such damage off the end of the logs, as the engine drops what comes after any other.
pub fn cut(path: &Path) -> Result<(), StoreError> {
    for log in files(path, is_log) {
        if let Some(at) = find(&log).map_err(StoreError::file("read", &log))? {
            let cut = File::options().write(true).open(&log).and_then(|log| log.set_len(at));
            cut.map_err(StoreError::file("written", &log))?;
        }
    }
    Ok(())
}

/// For whoever only reads.
pub fn refuse_logs(path: &Path) -> Result<(), StoreError> {
    refuse(files(path, is_log))
}

/// Of what says which files there are, nothing can be cut off.
pub fn refuse_manifests(path: &Path) -> Result<(), StoreError> {
    refuse(files(path, is_manifest))
}

fn refuse(files: impl Iterator<Item = PathBuf>) -> Result<(), StoreError> {
    for file in files {
        // A process that writes may have removed it since.
        if let Ok(Some(at)) = find(&file) {
            return Err(damaged(&file, at));
        }
    }
    Ok(())
}

fn damaged(file: &Path, at: u64) -> StoreError {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    StoreError::corrupt(format!("{name} at byte {at}"))
}

/// The files of a store that are such.
pub fn files(path: &Path, is_such: fn(&Path) -> bool) -> impl Iterator<Item = PathBuf> {
    let files = path.read_dir().into_iter().flatten().flatten().map(|file| file.path());
    files.filter(move |file| is_such(file))
}

pub fn is_log(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "log")
}

fn is_manifest(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"MANIFEST-"))
}

/// Where the first record is that the engine would not get past.
fn find(file: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(file)?;
    let (mut block, mut start) = (Vec::with_capacity(BLOCK_BYTES), 0);
    loop {
        block.clear();
        let read = file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if let Some(at) = find_in(&block) {
            return Ok(Some(start + at as u64));
        }
        if read < BLOCK_BYTES {
            return Ok(None);
        }
        start += BLOCK_BYTES as u64;
    }
}

fn find_in(block: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(&[_, _, _, _, low, high, kind]) = block.get(at..at + HEAD_BYTES) {
        if RECYCLED.contains(&kind) {
            return Some(at);
        }
        let length = usize::from(u16::from_le_bytes([low, high]));
        if kind == 0 && length == 0 {
            // The rest of the block is not looked at.
            return None;
        }
        at += HEAD_BYTES + length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, length: u16) -> Vec<u8> {
        let [low, high] = length.to_le_bytes();
        [vec![9, 9, 9, 9, low, high, kind], vec![5; usize::from(length)]].concat()
    }

    #[track_caller]
    fn check(records: &[(u8, u16)], expected: Option<usize>) {
        let block: Vec<u8> =
            records.iter().flat_map(|(kind, length)| record(*kind, *length)).collect();
        assert_eq!(find_in(&block), expected);
    }

    #[test]
    fn types_of_recycled_logs_are_damage_where_a_record_begins() {
        check(&[], None);
        check(&[(1, 5), (2, 300), (3, 0), (4, 70)], None);
        check(&[(1, 5), (5, 5)], Some(12));
        check(&[(8, 0)], Some(0));
        check(&[(1, 20), (131, 0), (1, 3)], Some(27));
        // Behind it nothing is looked at.
        check(&[(1, 5), (0, 0), (5, 5)], None);
    }
}
