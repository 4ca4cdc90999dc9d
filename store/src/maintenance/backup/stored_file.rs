//! A stored file of backups, and its name.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::str::FromStr;

use config::private_files;
use xxhash_rust::xxh3::xxh3_64;

use crate::StoreError;

/// The length of the end that identifies a table file, so that it need not be read completely. RocksDB writes the
/// identity of the database, the session and the file's number within fewer bytes than this from the end.
const END_BYTES: u64 = 64 * 1024;

/// A file of a store, before it is copied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Its name in the store's directory.
    pub name: String,
    pub bytes: u64,
    /// Hash of the last bytes of a table file; of all bytes of any other file.
    pub end: u64,
}

/// A stored file, all of whose fields are part of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoredFile {
    pub source: Source,
    /// Hash of all bytes.
    pub whole: u128,
}

impl Source {
    pub fn of(path: &Path) -> Result<Self, StoreError> {
        let unreadable = || StoreError::file("read", path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut file = private_files::open_unfollowed(path, OpenOptions::new().read(true))
            .map_err(unreadable())?;
        let bytes = file.metadata().map_err(unreadable())?.len();
        if name.ends_with(".sst") {
            let start = bytes.saturating_sub(END_BYTES);
            file.seek(SeekFrom::Start(start)).map_err(unreadable())?;
        }
        let mut end = Vec::new();
        file.read_to_end(&mut end).map_err(unreadable())?;
        Ok(Self { name, bytes, end: xxh3_64(&end) })
    }
}

impl fmt::Display for StoredFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source: Source { name, bytes, end }, whole } = self;
        write!(out, "{name}.{bytes}.{end:016x}.{whole:032x}")
    }
}

impl FromStr for StoredFile {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.rsplitn(4, '.');
        let mut next = || parts.next().ok_or(());
        let whole = u128::from_str_radix(next()?, 16).map_err(drop)?;
        let end = u64::from_str_radix(next()?, 16).map_err(drop)?;
        let bytes = next()?.parse().map_err(drop)?;
        let name = next()?.to_owned();
        let file = Self { source: Source { name, bytes, end }, whole };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_plain = file.source.name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && file.source.name.chars().all(is_name);
        // Only the canonical form is valid, and no name that leads to another folder.
        if is_plain && file.to_string() == text { Ok(file) } else { Err(()) }
    }
}
