//! The directory into which a store is restored.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::copy_file::copy;
use super::lock;
use crate::StoreError;
use crate::fs::sync_folder;
use crate::maintenance::incomplete_marker::IncompleteStore;

/// The file by which a directory is a store: without it neither adtrail nor RocksDB opens one.
const LAST: &str = "CURRENT";
/// As RocksDB names a file before it is whole.
const LAST_PARTIAL: &str = "CURRENT.dbtmp";

/// A directory that was empty and becomes a store once it is [finished](Target::finish). Dropped
/// before, it is as it was. What a restore left that was killed counts as empty: its mark is there.
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
        let is_left = IncompleteStore::Restoring.is_at(path);
        for entry in path.read_dir().map_err(unreadable())? {
            let name = entry.map_err(unreadable())?.file_name();
            if !is_left || !is_of_store(&name.to_string_lossy()) {
                return Err(StoreError::NotEmpty { path: path.into() });
            }
        }
        IncompleteStore::Restoring.begin(path).map_err(StoreError::file("written", path))?;
        let target = Self { path: path.into(), was_there, is_finished: false, _lock: folder };
        target.clear().map_err(StoreError::file("removed", path))?;
        Ok(target)
    }

    /// Gives the number and the hash of the bytes.
    pub(super) fn copy(
        &self,
        from: &Path,
        name: &str,
        copied: &mut dyn FnMut(u64),
    ) -> Result<(u64, u128), StoreError> {
        let to = self.path.join(if name == LAST { LAST_PARTIAL } else { name });
        copy(from, &to, copied)
    }

    /// All files are on the disk: from now on this is a store, if `is_good` finds it one.
    pub fn finish(
        mut self,
        is_good: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let unwritten = || StoreError::file("written", &self.path);
        sync_folder(&self.path).map_err(unwritten())?;
        let last = self.path.join(LAST);
        fs::rename(self.path.join(LAST_PARTIAL), &last)
            .map_err(StoreError::file("written", &last))?;
        is_good()?;
        IncompleteStore::Restoring.end(&self.path).map_err(unwritten())?;
        self.is_finished = true;
        Ok(())
    }

    /// Removes all files but the mark; first the one by which they are a store.
    fn clear(&self) -> io::Result<()> {
        match fs::remove_file(self.path.join(LAST)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for entry in self.path.read_dir()? {
            let entry = entry?;
            if entry.file_name() != IncompleteStore::Restoring.mark() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Whether a store has files of such names, or a restore makes them.
fn is_of_store(name: &str) -> bool {
    [LAST, LAST_PARTIAL, "IDENTITY", "LOCK", "LOG", IncompleteStore::Restoring.mark()]
        .contains(&name)
        || ["MANIFEST-", "OPTIONS-", "LOG.old."].iter().any(|start| name.starts_with(start))
        || [".sst", ".log"].iter().any(|end| name.ends_with(end))
}

/// Whoever drops it unfinished says why. What can not be removed then does not open.
impl Drop for Target {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let _ = self.clear();
        // What could not be removed keeps its mark.
        let is_cleared = self.path.read_dir().is_ok_and(|left| left.count() <= 1);
        if is_cleared {
            let _ = fs::remove_file(self.path.join(IncompleteStore::Restoring.mark()));
        }
        if !self.was_there {
            let _ = fs::remove_dir(&self.path);
        }
    }
}
