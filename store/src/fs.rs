//! File operations that the standard library lacks.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes files that were created, renamed or removed in a folder durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
