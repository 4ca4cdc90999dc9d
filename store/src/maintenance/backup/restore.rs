//! The target directory of a restore.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use config::private_files;

use super::copy_file::copy;
use super::lock;
use crate::StoreError;
use crate::fs::sync_folder;
use crate::maintenance::incomplete_marker::IncompleteStore;

/// The file that makes a directory a store: without it neither adtrail nor RocksDB opens the directory.
const LAST: &str = "CURRENT";
/// The name that RocksDB gives to the incomplete file.
const LAST_PARTIAL: &str = "CURRENT.dbtmp";

/// An empty directory that becomes a store by [`Target::finish`]. If it is dropped before, its files are removed. The
/// remains of a killed restore, which have a marker, count as empty.
///
/// The directory is filled in place, not built elsewhere and renamed, because it may be a mount point.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    existed: bool,
    is_finished: bool,
    _lock: File,
}

impl Target {
    /// Locks and marks the directory, and creates it if it is missing.
    ///
    /// # Errors
    /// [`StoreError::NotEmpty`]; the directory is then unchanged.
    pub fn new(path: &Path) -> Result<Self, StoreError> {
        let existed = path.exists();
        private_files::create_folder(path).map_err(StoreError::file("written", path))?;
        let unreadable = || StoreError::file("read", path);
        let folder = File::open(path).map_err(unreadable())?;
        lock::exclusive(&folder, path)?;
        let was_interrupted = IncompleteStore::Restoring.is_at(path);
        for entry in path.read_dir().map_err(unreadable())? {
            let name = entry.map_err(unreadable())?.file_name();
            if !was_interrupted || !is_store_file(&name.to_string_lossy()) {
                return Err(StoreError::NotEmpty { path: path.into() });
            }
        }
        private_files::private_folder(path).map_err(StoreError::file("written", path))?;
        IncompleteStore::Restoring.begin(path).map_err(StoreError::file("written", path))?;
        let target = Self { path: path.into(), existed, is_finished: false, _lock: folder };
        target.clear().map_err(StoreError::file("removed", path))?;
        Ok(target)
    }

    /// Copies a file into the directory. Returns the number and the hash of its bytes.
    pub(super) fn copy(
        &self,
        from: &Path,
        name: &str,
        copied: &mut dyn FnMut(u64),
    ) -> Result<(u64, u128), StoreError> {
        let to = self.path.join(if name == LAST { LAST_PARTIAL } else { name });
        copy(from, &to, copied)
    }

    /// Turns the directory into a store, unless `check` fails. Must be called after all files were copied.
    pub fn finish(
        mut self,
        check: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let unwritten = || StoreError::file("written", &self.path);
        sync_folder(&self.path).map_err(unwritten())?;
        let last = self.path.join(LAST);
        fs::rename(self.path.join(LAST_PARTIAL), &last)
            .map_err(StoreError::file("written", &last))?;
        check()?;
        IncompleteStore::Restoring.end(&self.path).map_err(unwritten())?;
        self.is_finished = true;
        Ok(())
    }

    /// Removes all files except for the marker; first the one that makes the directory a store.
    fn clear(&self) -> io::Result<()> {
        match fs::remove_file(self.path.join(LAST)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for entry in self.path.read_dir()? {
            let entry = entry?;
            if entry.file_name() != IncompleteStore::Restoring.file_name() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// True if a store or a restore has files of such a name.
fn is_store_file(name: &str) -> bool {
    [LAST, LAST_PARTIAL, "IDENTITY", "LOCK", "LOG", IncompleteStore::Restoring.file_name()]
        .contains(&name)
        || ["MANIFEST-", "OPTIONS-", "LOG.old."].iter().any(|start| name.starts_with(start))
        || [".sst", ".log"].iter().any(|end| name.ends_with(end))
}

/// Errors are ignored: the caller reports why the restore failed, and files that cannot be removed do not open as a
/// store.
impl Drop for Target {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let _ = self.clear();
        // The marker stays if any other file could not be removed.
        let is_cleared = self.path.read_dir().is_ok_and(|files| files.count() <= 1);
        if is_cleared {
            let _ = fs::remove_file(self.path.join(IncompleteStore::Restoring.file_name()));
        }
        if !self.existed {
            let _ = fs::remove_dir(&self.path);
        }
    }
}
