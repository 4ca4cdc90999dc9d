//! The version of a store's layout, read before anything else of it.

use std::path::Path;

use rocksdb::{DB, Options};

use super::column_families::META;
use crate::StoreError;

/// The version of all layouts together.
pub const LAYOUT_VERSION: u32 = 9;

/// What is being brought to it, or counted.
pub const UNFINISHED: u32 = 8;

pub const LAYOUT: &[u8] = b"layout";

/// Why a RocksDB is a store all the same that may not open with our tables, if it is one: it is of another
/// version. Read beside all else, without a byte written.
pub fn other_layout(path: &Path) -> Option<StoreError> {
    let engine = Options::default();
    let db = DB::open_cf_for_read_only(&engine, path, ["default", META], false).ok()?;
    let layout = db.get_cf(db.cf_handle(META)?, LAYOUT).ok()??;
    let layout = layout.as_slice().try_into().map(u32::from_be_bytes).ok()?;
    (layout != LAYOUT_VERSION).then(|| wrong_version(path, layout))
}

/// Refuses a store of a later version before anything of it is written: opening it for writing alone
/// rewrites files, and compactions would leave out what this version takes for expired.
pub fn refuse_later(path: &Path) -> Result<(), StoreError> {
    match other_layout(path) {
        Some(later @ StoreError::WrongVersion { .. }) => Err(later),
        _ => Ok(()),
    }
}

pub fn wrong_version(path: &Path, found: u32) -> StoreError {
    let (path, expected) = (path.into(), LAYOUT_VERSION);
    if (1..expected).contains(&found) {
        StoreError::OldVersion { path, found, expected }
    } else {
        StoreError::WrongVersion { path, found, expected }
    }
}
