//! A moment of a store: hard links to its files beside them, made while it is written.
//!
//! A checkpoint costs a flush and no copies, and stays as it is while the store goes on. It is
//! itself a store, in the folder `checkpoint` of the directory, where RocksDB does not look.

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

/// Makes checkpoints of an open store, beside whoever writes it.
#[derive(Clone)]
pub struct Checkpoints {
    tables: Tables,
}

/// What a store holds, as its own books say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    pub partitions: u16,
    /// Of all types.
    pub rows: u64,
    pub positions: Vec<Position>,
}

impl Embedded {
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints { tables: self.tables.clone() }
    }
}

impl Checkpoints {
    /// Holds all that was committed before the call, whole batches alone. There is one at a time:
    /// what an earlier one left, whose user is gone, goes.
    ///
    /// # Errors
    /// [`StoreError::BackupUnderWay`] while the one before is [in use](hold).
    pub fn take(&self) -> Result<PathBuf, StoreError> {
        let store = self.tables.db.path();
        clear(store)?;
        let path = place(store);
        // The memtables are flushed first, so that little of the log comes along; that which is
        // written meanwhile does, and it holds all tables together.
        Checkpoint::new(&*self.tables.db)?.create_checkpoint(&path)?;
        Ok(path)
    }
}

impl Moment {
    /// Opens a store or a checkpoint for reading, which also looks that no table's file is missing
    /// or cut short.
    pub fn read(settings: &config::Store) -> Result<Self, StoreError> {
        let tables = Tables::open_for_reading(&settings.path, settings.memory_bytes)?;
        let meta = Meta::load(&tables, &settings.path, settings.partitions)?;
        let counts = EventType::ALL
            .into_iter()
            .flat_map(|event_type| Status::ALL.map(|status| meta.totals.count(event_type, status)));
        // Below nothing only where the books are wrong.
        let rows = u64::try_from(counts.sum::<i64>()).unwrap_or(0);
        Ok(Self { partitions: meta.partitions, rows, positions: meta::positions(&tables)? })
    }
}

/// Where a store's checkpoint is.
pub fn place(store: &Path) -> PathBuf {
    store.join("checkpoint")
}

/// Keeps the checkpoint of a store from being cleared by another process, which may start to run
/// the store meanwhile, until the handle is dropped.
pub fn hold(store: &Path) -> Result<File, StoreError> {
    let path = place(store);
    let folder = File::open(&path).map_err(StoreError::file("read", &path))?;
    lock::exclusive(&folder, &path)?;
    Ok(folder)
}

/// Removes the checkpoint of a store, if there is one, and what the making of one left.
pub fn clear(store: &Path) -> Result<(), StoreError> {
    let path = place(store);
    let held = match File::open(&path) {
        Ok(folder) => {
            lock::exclusive(&folder, &path)?;
            Some(folder)
        }
        Err(_) => None,
    };
    remove(&path)?;
    drop(held);
    // RocksDB renames it when it is whole.
    remove(&path.with_extension("tmp"))
}

/// Removes a folder that may not be there.
pub fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != NotFound => Err(StoreError::file("removed", path)(error)),
        _ => Ok(()),
    }
}
