//! The directory into which a store is restored.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::copy::{copy, sync_folder};
use super::{Watcher, lock};
use crate::StoreError;

/// The file by which a directory is a store: without it neither adtrail nor RocksDB opens one.
const LAST: &str = "CURRENT";
/// As RocksDB names a file before it is whole.
const LAST_PARTIAL: &str = "CURRENT.dbtmp";

/// A directory that was empty and becomes a store once it is [finished](Target::finish). Dropped
/// before, it is as it was.
///
/// It is filled in place, and not beside it to be renamed, because it may be where a disk or a
/// container's volume is mounted.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    was_there: bool,
    is_finished: bool,
    _lock: File,
}

impl Target {
    /// # Errors
    /// [`StoreError::NotEmpty`], and nothing is touched.
    pub fn new(path: &Path) -> Result<Self, StoreError> {
        let was_there = path.exists();
        fs::create_dir_all(path).map_err(StoreError::file("written", path))?;
        let unreadable = || StoreError::file("read", path);
        let folder = File::open(path).map_err(unreadable())?;
        lock::exclusive(&folder, path)?;
        if path.read_dir().map_err(unreadable())?.next().is_some() {
            return Err(StoreError::NotEmpty { path: path.into() });
        }
        Ok(Self { path: path.into(), was_there, is_finished: false, _lock: folder })
    }

    /// Gives the number and the hash of the bytes.
    pub(super) fn copy(
        &self,
        from: &Path,
        name: &str,
        watcher: &mut dyn Watcher,
    ) -> Result<(u64, u128), StoreError> {
        let to = self.path.join(if name == LAST { LAST_PARTIAL } else { name });
        copy(from, &to, watcher)
    }

    /// All files are on the disk: from now on this is a store, if `is_good` finds it one.
    pub fn finish(
        mut self,
        is_good: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        sync_folder(&self.path)?;
        let last = self.path.join(LAST);
        fs::rename(self.path.join(LAST_PARTIAL), &last)
            .map_err(StoreError::file("written", &last))?;
        is_good()?;
        sync_folder(&self.path)?;
        self.is_finished = true;
        Ok(())
    }
}

/// Whoever drops it unfinished says why. What can not be removed then does not open.
impl Drop for Target {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let _ = fs::remove_file(self.path.join(LAST));
        for entry in self.path.read_dir().into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
        if !self.was_there {
            let _ = fs::remove_dir(&self.path);
        }
    }
}
