//! Checks before a store is opened, and the errors for one that does not open.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use config::private_files;
use rocksdb::{DB, ErrorKind, Options};

use super::column_families::{EVENTS, META, OFFSETS};
use super::{layout_version, manifest_check};
use crate::StoreError;
use crate::maintenance::backup::lock;
use crate::maintenance::incomplete_marker::IncompleteStore;

/// The creation of a store, which holds an exclusive lock on its directory.
pub struct StoreCreation {
    path: PathBuf,
    _lock: File,
}

impl StoreCreation {
    /// Begins the creation of a store, or resumes an interrupted one. Returns `None` if the directory already has
    /// other contents.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while another process creates a store there.
    pub fn begin(path: &Path) -> Result<Option<Self>, StoreError> {
        let unwritable = |error: io::Error| unwritable(path, &error.to_string());
        private_files::create_folder(path).map_err(unwritable)?;
        if !needs_creation(path).map_err(unwritable)? {
            return Ok(None);
        }
        private_files::private_folder(path).map_err(unwritable)?;
        let folder = File::open(path).map_err(unwritable)?;
        lock::exclusive(&folder, path).map_err(|_| StoreError::InUse { path: path.into() })?;
        // Another process may have finished the creation before this one got the lock.
        if !needs_creation(path).map_err(unwritable)? {
            return Ok(None);
        }
        IncompleteStore::Creating.begin(path).map_err(unwritable)?;
        Ok(Some(Self { path: path.into(), _lock: folder }))
    }

    /// Marks the store as complete.
    pub fn finish(self) -> Result<(), StoreError> {
        IncompleteStore::Creating
            .end(&self.path)
            .map_err(|error| unwritable(&self.path, &error.to_string()))
    }
}

fn needs_creation(path: &Path) -> io::Result<bool> {
    // In this order: the first file of another process that creates a store is the marker.
    Ok(path.read_dir()?.next().is_none() || IncompleteStore::Creating.is_at(path))
}

/// Refuses a directory with files but no RocksDB, and a RocksDB that has data but not the tables of a store.
pub fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
    let Ok(mut files) = path.read_dir() else { return Ok(()) };
    manifest_check::refuse_damaged(manifest_check::manifests(path))?;
    // In this order: the marker of a process that creates a store is its first file, and is removed only after CURRENT
    // exists.
    let is_foreign = files.next().is_some()
        && !IncompleteStore::Creating.is_at(path)
        && (!path.join("CURRENT").exists() || is_foreign_database(path).unwrap_or(false));
    if is_foreign { Err(StoreError::NotAStore { path: path.into() }) } else { Ok(()) }
}

/// Returns false for an empty database: an interrupted creation leaves one.
fn is_foreign_database(path: &Path) -> Result<bool, rocksdb::Error> {
    let found = DB::list_cf(&Options::default(), path)?;
    // Stores of all layout versions have these tables.
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

/// The error for a store that RocksDB does not open.
pub fn failure(path: &Path, error: rocksdb::Error) -> StoreError {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::IOError if is_locked(&text) => StoreError::InUse { path: path.into() },
        ErrorKind::IOError if is_write_error(&text) => {
            unwritable(path, &without_repeated_reason(&text))
        }
        ErrorKind::IOError => {
            StoreError::Unopened { path: path.into(), reason: without_repeated_reason(&text) }
        }
        ErrorKind::Corruption => StoreError::corrupt(text),
        // The database has other tables than this version.
        ErrorKind::InvalidArgument => layout_version::other_layout(path)
            .unwrap_or_else(|| StoreError::NotAStore { path: path.into() }),
        _ => error.into(),
    }
}

/// True if a process holds the lock; not if the lock file cannot be opened.
fn is_locked(text: &str) -> bool {
    text.contains("While lock file") || text.contains("lock hold by current process")
}

/// True for reasons that concern writing. A reader without permissions gets the same error.
fn is_write_error(text: &str) -> bool {
    ["ermission denied", "o space left", "ead-only file system", "LOCK"]
        .iter()
        .any(|reason| text.contains(reason))
}

/// RocksDB repeats some reasons: `… : No such file or directory: No such file or directory`.
fn without_repeated_reason(text: &str) -> String {
    match text.rsplit_once(": ") {
        Some((rest, reason)) if rest.ends_with(reason) => rest.into(),
        _ => text.into(),
    }
}

pub fn unwritable(path: &Path, reason: &str) -> StoreError {
    StoreError::Unwritable { path: path.into(), reason: reason.into() }
}
