//! Temporary folders, and the files in them.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub fn temp_folder() -> TempDir {
    TempDir::with_prefix("adtrail-store-").expect("the temporary folder is created")
}

/// Returns a copy of a folder's files.
pub fn copied(path: &Path) -> TempDir {
    let copy = temp_folder();
    for file in path.read_dir().expect("the folder is readable").flatten() {
        fs::copy(file.path(), copy.path().join(file.file_name())).expect("the file is copied");
    }
    copy
}

/// Returns the files with matching names, sorted.
pub fn files(path: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let files = path.read_dir().expect("the folder is readable").flatten();
    let named = files.filter(|file| is_wanted(&file.file_name().to_string_lossy()));
    let mut files: Vec<_> = named.map(|file| file.path()).collect();
    files.sort();
    files
}

/// Returns the write-ahead log that a store wrote last.
pub fn newest_log(path: &Path) -> PathBuf {
    files(path, |name| name.ends_with(".log")).pop().expect("the store has a log")
}
