//! What is looked at before a store is opened, and what is said where it does not open.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rocksdb::{DB, ErrorKind, Options};

use super::column_families::{EVENTS, META, OFFSETS};
use super::{layout_version, manifest_check};
use crate::StoreError;
use crate::maintenance::backup::lock;
use crate::maintenance::incomplete_marker::IncompleteStore;

/// The logs that a store has now.
pub fn logs(path: &Path) -> Vec<PathBuf> {
    manifest_check::files(path, manifest_check::is_log).collect()
}

/// A store that is being made, by this process alone.
pub struct Making {
    path: PathBuf,
    _lock: File,
}

impl Making {
    /// Of a directory that is empty, or in which the making of a store was cut off; `None` of others.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while another process makes one.
    pub fn begin(path: &Path) -> Result<Option<Self>, StoreError> {
        let unwritable = |error: io::Error| unwritable(path, &error.to_string());
        fs::create_dir_all(path).map_err(unwritable)?;
        if !is_to_be_made(path).map_err(unwritable)? {
            return Ok(None);
        }
        let folder = File::open(path).map_err(unwritable)?;
        lock::exclusive(&folder, path).map_err(|_| StoreError::InUse { path: path.into() })?;
        // Another process may have come to its end meanwhile.
        if !is_to_be_made(path).map_err(unwritable)? {
            return Ok(None);
        }
        IncompleteStore::Creating.begin(path).map_err(unwritable)?;
        Ok(Some(Self { path: path.into(), _lock: folder }))
    }

    /// All of it is there.
    pub fn end(self) -> Result<(), StoreError> {
        IncompleteStore::Creating
            .end(&self.path)
            .map_err(|error| unwritable(&self.path, &error.to_string()))
    }
}

fn is_to_be_made(path: &Path) -> io::Result<bool> {
    // In this order: the mark of another process that makes one now is the first file.
    Ok(path.read_dir()?.next().is_none() || IncompleteStore::Creating.is_at(path))
}

/// A directory with files and no RocksDB in it is somebody else's, and so is a RocksDB with data
/// and none of the tables.
pub fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
    let Ok(mut files) = path.read_dir() else { return Ok(()) };
    manifest_check::refuse_manifests(path)?;
    // In this order: where another process makes a store, its mark is the first file and goes once there is
    // a CURRENT.
    let is_foreign = files.next().is_some()
        && !IncompleteStore::Creating.is_at(path)
        && (!path.join("CURRENT").exists() || is_foreign_database(path).unwrap_or(false));
    if is_foreign { Err(StoreError::NotAStore { path: path.into() }) } else { Ok(()) }
}

/// Not so if it is empty: then making a store here was cut off.
fn is_foreign_database(path: &Path) -> Result<bool, rocksdb::Error> {
    let found = DB::list_cf(&Options::default(), path)?;
    // A store of any layout has these.
    if [EVENTS, OFFSETS, META].iter().all(|table| found.iter().any(|name| name == table)) {
        return Ok(false);
    }
    let db = DB::open_cf_for_read_only(&Options::default(), path, &found, false)?;
    Ok(found.iter().filter_map(|name| db.cf_handle(name)).any(|table| {
        let mut entries = db.raw_iterator_cf(table);
        entries.seek_to_first();
        entries.valid()
    }))
}

/// Why a store does not open.
pub fn failure(path: &Path, error: rocksdb::Error) -> StoreError {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::IOError if is_locked(&text) => StoreError::InUse { path: path.into() },
        ErrorKind::IOError if is_of_writing(&text) => unwritable(path, &said_once(&text)),
        ErrorKind::IOError => StoreError::Unopened { path: path.into(), reason: said_once(&text) },
        ErrorKind::Corruption => StoreError::corrupt(text),
        // Tables that this version does not know, or lacks.
        ErrorKind::InvalidArgument => layout_version::other_layout(path)
            .unwrap_or_else(|| StoreError::NotAStore { path: path.into() }),
        _ => error.into(),
    }
}

/// Held by another process, or by this one; a lock file that can not be opened is another matter.
fn is_locked(text: &str) -> bool {
    text.contains("While lock file") || text.contains("lock hold by current process")
}

/// Whoever only reads has the same reasons not to, and needs no space.
fn is_of_writing(text: &str) -> bool {
    ["ermission denied", "o space left", "ead-only file system", "LOCK"]
        .iter()
        .any(|reason| text.contains(reason))
}

/// RocksDB says some reasons twice: `… : No such file or directory: No such file or directory`.
fn said_once(text: &str) -> String {
    match text.rsplit_once(": ") {
        Some((rest, reason)) if rest.ends_with(reason) => rest.into(),
        _ => text.into(),
    }
}

pub fn unwritable(path: &Path, reason: &str) -> StoreError {
    StoreError::Unwritable { path: path.into(), reason: reason.into() }
}
