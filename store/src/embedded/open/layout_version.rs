//! The version of a store's layout, read before anything else of it.

use std::path::Path;

use rocksdb::{DB, Options};

use super::column_families::META;
use crate::StoreError;

/// The version of all tables together. Lower ones are those of development versions.
pub const LAYOUT_VERSION: u32 = 10;

pub const LAYOUT: &[u8] = b"layout";

/// The error for a directory whose store has another version; `None` if it has no such store. It opens two tables
/// alone, as another version may have other tables, and writes no byte.
pub fn other_layout(path: &Path) -> Option<StoreError> {
    let engine = Options::default();
    let db = DB::open_cf_for_read_only(&engine, path, ["default", META], false).ok()?;
    let layout = db.get_cf(db.cf_handle(META)?, LAYOUT).ok()??;
    require(path, &layout).err()
}

/// Refuses a store of another version before anything of it is written: opening it for writing alone
/// rewrites files, and compactions would remove what this version takes for expired.
pub fn refuse_other(path: &Path) -> Result<(), StoreError> {
    other_layout(path).map_or(Ok(()), Err)
}

/// Checks the stored version.
///
/// # Errors
/// [`StoreError::Corrupt`] if it is not a version; [`StoreError::OtherLayout`] if it is another one.
pub fn require(path: &Path, layout: &[u8]) -> Result<(), StoreError> {
    let found = layout.try_into().map(u32::from_be_bytes);
    let found = found.map_err(|_| StoreError::corrupt("the layout version"))?;
    if found == LAYOUT_VERSION {
        return Ok(());
    }
    let place = path.display().to_string();
    Err(StoreError::OtherLayout { place, found, expected: LAYOUT_VERSION })
}
