//! The layout version of a store, checked before anything else is read.

use std::path::Path;

use rocksdb::{DB, Options};

use super::column_families::META;
use crate::StoreError;

/// The version of all tables together. Lower versions were written by development versions only.
pub const LAYOUT_VERSION: u32 = 15;

pub const LAYOUT: &[u8] = b"layout";

/// The error for a directory whose store has another version; `None` if it has no such store. Opens only two tables, as
/// another version may have other ones, and writes nothing.
pub fn other_layout(path: &Path) -> Option<StoreError> {
    let engine = Options::default();
    let db = DB::open_cf_for_read_only(&engine, path, ["default", META], false).ok()?;
    let layout = db.get_cf(db.cf_handle(META)?, LAYOUT).ok()??;
    require(path, &layout).err()
}

/// Checks the stored version.
///
/// # Errors
/// [`StoreError::Corrupt`] if it is not a valid version; [`StoreError::OtherLayout`] if it differs from
/// [`LAYOUT_VERSION`].
pub fn require(path: &Path, layout: &[u8]) -> Result<(), StoreError> {
    let found = layout.try_into().map(u32::from_be_bytes);
    let found = found.map_err(|_| StoreError::corrupt("the layout version"))?;
    if found == LAYOUT_VERSION {
        return Ok(());
    }
    let location = path.display().to_string();
    Err(StoreError::OtherLayout { location, found, expected: LAYOUT_VERSION })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// They refuse to replace a package whose store they cannot read.
    #[test]
    fn packages_have_the_layout_version() {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
        let read = |name: &str| fs::read_to_string(packaging.join(name)).unwrap();
        assert_eq!(read("store-layout"), format!("{LAYOUT_VERSION}\n"));
        for script in ["debian/preinst", "rpm/pre"] {
            let line = format!("\nlayout={LAYOUT_VERSION}\n");
            assert!(read(script).contains(&line), "{script}: {line}");
        }
    }
}
