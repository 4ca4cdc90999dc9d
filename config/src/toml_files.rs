//! Lists the TOML files of a directory that the settings name.

use std::io;
use std::path::{Path, PathBuf};

/// Returns the TOML files in a directory, in the order of their names.
///
/// # Errors
/// If the directory cannot be read.
pub fn toml_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
