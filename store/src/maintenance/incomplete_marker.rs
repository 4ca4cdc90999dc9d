//! Marker files of incomplete stores.
//!
//! A marker is the first file in the directory of a new store, and is removed once the store is complete. If the
//! process is killed meanwhile, the marker says that the directory was empty before, so the next one may remove its
//! other files.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use config::private_files;

use crate::StoreError;
use crate::fs::sync_folder;

/// The way in which a store comes into being.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncompleteStore {
    Creating,
    Restoring,
}

impl IncompleteStore {
    /// The name of the marker file.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Creating => "adtrail-making",
            Self::Restoring => "adtrail-restoring",
        }
    }

    pub fn is_at(self, path: &Path) -> bool {
        path.join(self.file_name()).exists()
    }

    /// Creates the marker and syncs it. Must be called before any other file is created.
    pub fn begin(self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600);
        private_files::open_unfollowed(&path.join(self.file_name()), &mut options)?;
        sync_folder(path)
    }

    /// Removes the marker, after all other files of the directory are durable.
    pub fn end(self, path: &Path) -> io::Result<()> {
        sync_folder(path)?;
        fs::remove_file(path.join(self.file_name()))?;
        sync_folder(path)
    }
}

/// Refuses an incomplete store, for readers and checks.
pub fn refuse(path: &Path) -> Result<(), StoreError> {
    if IncompleteStore::Creating.is_at(path) {
        return Err(StoreError::Missing { path: path.into() });
    }
    refuse_incomplete_restore(path)
}

pub fn refuse_incomplete_restore(path: &Path) -> Result<(), StoreError> {
    if IncompleteStore::Restoring.is_at(path) {
        return Err(StoreError::IncompleteRestore { path: path.into() });
    }
    Ok(())
}
