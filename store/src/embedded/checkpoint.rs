//! Checkpoints: consistent snapshots of an open store on disk, as hard links to its files.
//!
//! A checkpoint costs a flush and no copies. It is itself a store, in the folder `checkpoint` of the store's directory,
//! which RocksDB ignores.

use std::fs::{self, File};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use attribution::ledger::Position;
use attribution::rules::row::{EventType, Status};
use rocksdb::checkpoint::Checkpoint;

use super::Embedded;
use super::open::meta::{self, Meta};
use super::tables::Tables;
use crate::StoreError;
use crate::maintenance::backup::lock;

/// Takes checkpoints of an open store, while it is written.
#[derive(Clone)]
pub struct Checkpoints {
    tables: Tables,
}

/// The contents of a store according to its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreContents {
    pub partitions: u16,
    /// Rows of all types.
    pub rows: u64,
    pub positions: Vec<Position>,
}

impl Embedded {
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints { tables: self.tables.clone() }
    }
}

impl Checkpoints {
    /// Takes a checkpoint with all batches that were written before the call, and removes the previous one. Returns its
    /// folder.
    ///
    /// # Errors
    /// [`StoreError::BackupUnderWay`] while the previous checkpoint is [in use](lock).
    pub fn take(&self) -> Result<PathBuf, StoreError> {
        let store = self.tables.db.path();
        clear(store)?;
        let path = folder(store);
        // RocksDB flushes the memtables first. Batches that are written meanwhile are in the copy of the log, which
        // keeps the tables consistent with each other. None of these batches may need a table that is not in the copy.
        let _unchanged = self.tables.touches.lock_changes();
        Checkpoint::new(&*self.tables.db)?.create_checkpoint(&path)?;
        Ok(path)
    }
}

impl StoreContents {
    /// Reads the metadata of a store or a checkpoint. Opening it also finds missing and truncated files.
    pub fn read(settings: &config::Store) -> Result<Self, StoreError> {
        let tables = Tables::open_for_reading(&settings.path, settings.memory_bytes)?;
        let meta = Meta::load(&tables, &settings.path, settings.partitions)?;
        let counts = EventType::ALL
            .into_iter()
            .flat_map(|event_type| Status::ALL.map(|status| meta.totals.count(event_type, status)));
        // Negative only if the stored totals are wrong.
        let rows = u64::try_from(counts.sum::<i64>()).unwrap_or(0);
        Ok(Self { partitions: meta.partitions, rows, positions: meta::positions(&tables)? })
    }
}

/// The folder of a store's checkpoint.
pub fn folder(store: &Path) -> PathBuf {
    store.join("checkpoint")
}

/// Locks the checkpoint of a store until the handle is dropped, so that no other process clears it: a process that
/// opens the store would otherwise do so.
pub fn lock(store: &Path) -> Result<File, StoreError> {
    let path = folder(store);
    let folder = File::open(&path).map_err(StoreError::file("read", &path))?;
    lock::exclusive(&folder, &path)?;
    Ok(folder)
}

/// Removes the checkpoint of a store, if any, and the remains of an interrupted one.
pub fn clear(store: &Path) -> Result<(), StoreError> {
    let path = folder(store);
    let lock = match File::open(&path) {
        Ok(folder) => {
            lock::exclusive(&folder, &path)?;
            Some(folder)
        }
        Err(_) => None,
    };
    remove(&path)?;
    drop(lock);
    // RocksDB renames the temporary folder once the checkpoint is complete.
    remove(&path.with_extension("tmp"))
}

/// Removes a folder if it exists.
pub fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != NotFound => Err(StoreError::file("removed", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::embedded::open::column_families::Limits;

    /// The copied log may have touches for a table that is created meanwhile, and that the checkpoint does not have.
    #[test]
    fn no_table_can_be_created_while_a_checkpoint_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(&dir.path().join("store"), 64 << 20, &Limits::none()).unwrap();
        let checkpoints = Checkpoints { tables: tables.clone() };
        // RocksDB builds a checkpoint here, and then renames the folder.
        let temporary = folder(tables.db.path()).with_extension("tmp");
        let is_taking = AtomicBool::new(true);
        let (taken, was_seen) = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut was_seen = false;
                while is_taking.load(Ordering::Relaxed) {
                    let _unchanged = tables.touches.lock_changes();
                    was_seen |= temporary.exists();
                }
                was_seen
            });
            let taken: Result<Vec<PathBuf>, StoreError> =
                (0..20).map(|_| checkpoints.take()).collect();
            is_taking.store(false, Ordering::Relaxed);
            (taken, watcher.join().unwrap())
        });
        assert_eq!(taken.unwrap().len(), 20);
        assert!(!was_seen, "a table could be created while a checkpoint was taken");
    }
}
