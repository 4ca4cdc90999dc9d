//! One at a time: advisory locks on files and folders, gone with their process.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::StoreError;

/// Nobody else may hold any.
pub fn exclusive(file: &File, path: &Path) -> Result<(), StoreError> {
    take(file, path, FlockOperation::NonBlockingLockExclusive)
}

/// Others may hold such a one too.
pub fn shared(file: &File, path: &Path) -> Result<(), StoreError> {
    take(file, path, FlockOperation::NonBlockingLockShared)
}

fn take(file: &File, path: &Path, how: FlockOperation) -> Result<(), StoreError> {
    match flock(file, how) {
        Err(Errno::WOULDBLOCK) => Err(StoreError::BackupUnderWay { path: path.into() }),
        // A file system that has no locks keeps nobody from making backups.
        _ => Ok(()),
    }
}
