//! Advisory locks on files and folders. They are released when their process ends.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::StoreError;

/// Takes an exclusive lock, or fails while another process holds any lock.
pub fn exclusive(file: &File, path: &Path) -> Result<(), StoreError> {
    take(file, path, FlockOperation::NonBlockingLockExclusive)
}

/// Takes a shared lock, or fails while another process holds an exclusive one.
pub fn shared(file: &File, path: &Path) -> Result<(), StoreError> {
    take(file, path, FlockOperation::NonBlockingLockShared)
}

fn take(file: &File, path: &Path, operation: FlockOperation) -> Result<(), StoreError> {
    match flock(file, operation) {
        Err(Errno::WOULDBLOCK) => Err(StoreError::BackupUnderWay { path: path.into() }),
        // On a file system without locks, backups are made without them.
        _ => Ok(()),
    }
}
