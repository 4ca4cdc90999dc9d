//! Backups: a directory that holds checkpoints of a store.
//!
//! Each file is stored once, under a name derived from its contents, and is shared by any number of backups. A manifest
//! per backup names its files. Files and manifests are complete or absent, and never change. The layout is in
//! `docs/format.md`; `docs/decisions/backups.md` explains why it is not RocksDB's own. This module does not depend on
//! RocksDB. Start with [`Archive`].

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

/// A number of files and their size.
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

/// Called with the number of bytes copied so far and the number of all bytes to copy.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);
