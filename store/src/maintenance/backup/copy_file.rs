//! Copies a file and hashes its bytes.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;

use config::private_files;
use xxhash_rust::xxh3::Xxh3;

use crate::StoreError;

const CHUNK_BYTES: usize = 1 << 20;

/// Copies a file to a new one, which takes the place of an existing one and is synced on return. Calls `copied` with the
/// size of each chunk, and returns the number and the hash of all bytes.
pub fn copy(
    from: &Path,
    to: &Path,
    copied: &mut dyn FnMut(u64),
) -> Result<(u64, u128), StoreError> {
    let mut source = private_files::open_unfollowed(from, OpenOptions::new().read(true))
        .map_err(StoreError::file("read", from))?;
    let mut target = private_files::replace(to).map_err(StoreError::file("written", to))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut bytes, mut hash) = (0, Xxh3::new());
    loop {
        let read = source.read(&mut chunk).map_err(StoreError::file("read", from))?;
        if read == 0 {
            break;
        }
        hash.update(&chunk[..read]);
        target.write_all(&chunk[..read]).map_err(StoreError::file("written", to))?;
        bytes += read as u64;
        copied(read as u64);
    }
    target.sync_all().map_err(StoreError::file("written", to))?;
    Ok((bytes, hash.digest128()))
}
