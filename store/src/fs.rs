//! What the standard library lacks for files.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes the names in a folder last.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
