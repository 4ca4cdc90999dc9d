//! Backups: a directory in which each checkpoint of a store that was put there can be found again.
//!
//! Files are kept once, however many backups share them, under names that tell what is in them; a
//! page for each backup names its files. Both are written whole or not at all, and never changed.
//! The layout is drawn in `docs/format.md`; why it is not RocksDB's own is in
//! `docs/decisions/backups.md`. Nothing here knows RocksDB.

mod archive;
mod copy_file;
pub(crate) mod lock;
pub(crate) mod manifest;
mod restore;
mod stored_file;

pub use archive::Archive;
pub use manifest::{Manifest, Positions};
pub use restore::Target;
pub use stored_file::{Source, StoredFile};

/// Files and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub files: u64,
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Is called with the bytes copied so far and the bytes to copy in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);
