//! What says that a directory is no store yet: a file that is there before all else, and goes once all is
//! whole. A process that is killed meanwhile leaves it, and whoever comes next knows that the directory
//! was empty before: what else is there is not somebody's.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::StoreError;
use crate::fs::sync_folder;

/// What becomes a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncompleteStore {
    Creating,
    Restoring,
}

impl IncompleteStore {
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Creating => "adtrail-making",
            Self::Restoring => "adtrail-restoring",
        }
    }

    pub fn is_at(self, path: &Path) -> bool {
        path.join(self.mark()).exists()
    }

    /// The mark is on the disk before anything else can be.
    pub fn begin(self, path: &Path) -> io::Result<()> {
        File::create(path.join(self.mark()))?;
        sync_folder(path)
    }

    /// All else is on the disk.
    pub fn end(self, path: &Path) -> io::Result<()> {
        sync_folder(path)?;
        fs::remove_file(path.join(self.mark()))?;
        sync_folder(path)
    }
}

/// For whoever reads, or looks for damage: there is nothing to read yet.
pub fn refuse(path: &Path) -> Result<(), StoreError> {
    if IncompleteStore::Creating.is_at(path) {
        return Err(StoreError::Missing { path: path.into() });
    }
    refuse_half_restored(path)
}

pub fn refuse_half_restored(path: &Path) -> Result<(), StoreError> {
    if IncompleteStore::Restoring.is_at(path) {
        return Err(StoreError::HalfRestored { path: path.into() });
    }
    Ok(())
}
